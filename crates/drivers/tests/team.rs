//! One card with a function at each socket, as one network device (IOctopus): what is near stays near, and nothing is lost or
//! passes another when programs move or links fail.

mod common;
#[path = "ground/bare.rs"]
mod ground;

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::{Rc, Weak};

use common::streams::{bytes, send};
use common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use drivers::team::{Team, TeamCosts, TeamMode, TeamParams};
use engine::Seed;
use hardware::ethernet::FaultParams;
use hardware::memory::Cause;
use kernel::{Kernel, NetRules, SteeringParams};
use platform::Error;
use platform::block::Segment;
use platform::cpu::{CpuId, Node};
use platform::device::{FunctionIndex, PortIndex};
use platform::kernel::{TaskId, TaskParams};
use platform::memory::{Pages, Policy};
use platform::net::{Fragment, Packet, PacketOwner};
use platform::sync::Completion;
use proptest::prelude::*;
use units::{BitRate, Duration};
use wire::nic::registers::{counter, feature};
use wire::pcie::FunctionAddress;

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const READER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 5000;
/// A core of each socket.
const CORES: [u16; 2] = [3, 11];

fn steering() -> SteeringParams {
    SteeringParams {
        entries: 256,
        rfs: true,
        arfs: true,
        idle: Duration::from_ms(50),
        scan: Duration::from_ms(20),
    }
}

/// The second host has a team above its card's two functions.
fn pair_with(rules: Option<fn(&mut devices::nic::NicParams)>, steering: SteeringParams) -> Pair {
    pair_of(Setup { steering, nic: rules.unwrap_or(|_| {}), ..Setup::default() })
}

fn pair_of(setup: Setup) -> Pair {
    let mut setup = Setup { rate: BitRate::gbit_per_s(40), two_links: true, ..setup };
    setup.driver.channels = Some(16);
    setup.driver.log2_rx = 10;
    setup.driver.coalescing = Duration::from_us(3);
    setup.driver.adaptive = false;
    let pair = Pair::new(&setup);
    team(&pair, &["eth0", "eth1"]).unwrap();
    for (host, (name, address)) in [("eth0", SENDER), ("team0", READER)].into_iter().enumerate() {
        let network = pair.hosts[host].kernel.face().network();
        pair.run(host, 0, move |cpu| {
            Box::pin(async move { network.configure(&cpu, name, address, 24).await })
        })
        .unwrap();
    }
    pair
}

fn pair() -> Pair {
    pair_with(None, steering())
}

fn team(pair: &Pair, members: &[&str]) -> Result<Rc<Team>, Error> {
    let params = TeamParams {
        name: "team0".to_owned(),
        mode: TeamMode::Octo,
        members: members.iter().map(|&name| name.to_owned()).collect(),
        costs: TeamCosts::linux(),
    };
    let team = Team::create(pair.hosts[1].kernel.face(), params)?;
    let kernel = &pair.hosts[1].kernel;
    kernel.net().set_rules(Rc::new(TakesBack(Rc::downgrade(kernel), Rc::clone(&team))));
    Ok(team)
}

/// What an administrator has laid down: a member that comes again is one again.
struct TakesBack(Weak<Kernel>, Rc<Team>);

impl NetRules for TakesBack {
    fn name(&self, _: FunctionAddress) -> Option<String> {
        None
    }

    fn is_kept(&self, _: &str) -> bool {
        false
    }

    fn added(&self, name: &str) {
        let (Some(kernel), true) = (self.0.upgrade(), self.1.has_member(name)) else { return };
        let (team, name) = (Rc::clone(&self.1), name.to_owned());
        kernel.spawn(TaskParams::named("teamd"), move |cpu| {
            Box::pin(async move {
                cpu.sleep(Duration::from_us(100)).await;
                // It may have gone again.
                let _ = team.take_back(&cpu, &name).await;
            })
        });
    }
}

/// Frames that came through each function.
fn came(pair: &Pair) -> [u64; 2] {
    [0, 1].map(|function| pair.hosts[1].handle.counter(FunctionIndex(function), counter::RX_FRAMES))
}

/// Frames that left through each function.
fn left(pair: &Pair) -> [u64; 2] {
    [0, 1].map(|function| pair.hosts[1].handle.counter(FunctionIndex(function), counter::TX_FRAMES))
}

/// Bytes between the second host's sockets for its card.
fn crossed(pair: &Pair) -> u64 {
    pair.simulation.with(|fabric, _| {
        let links = &fabric.host(pair.hosts[1].host).memory.counters().links;
        let of = |cause| links.iter().map(|link| link.bytes.of(cause).get()).sum::<u64>();
        [Cause::Dma, Cause::MmioDoorbell, Cause::MmioRegister, Cause::Interrupt].map(of).iter().sum()
    })
}

/// Empties the second host's caches: whoever opened the device has cleared rings of both nodes, and left their lines there.
fn forget_the_beginning(pair: &Pair) {
    pair.simulation.with(|fabric, _| fabric.host_mut(pair.hosts[1].host).memory.flush_all());
}

/// Frames that the second host's card dropped.
fn dropped(pair: &Pair) -> u64 {
    let all = [counter::RX_NO_BUFFER, counter::RX_OVERFLOW, counter::RX_NO_QUEUE, counter::RX_FILTERED];
    let of = |function| all.map(|which| pair.hosts[1].handle.counter(FunctionIndex(function), which));
    [0, 1].map(of).iter().flatten().sum()
}

/// A stream that one host sends and the other receives.
struct Stream {
    /// The task of the second host.
    task: TaskId,
    /// All that was received.
    received: Completion<Vec<u8>>,
    /// How much there is of it so far.
    so_far: Rc<RefCell<usize>>,
    /// Segments that were sent more than once, when the sender has ended.
    again: Completion<u64>,
    /// Segments that arrived ahead of an earlier one, when the receiver has ended.
    out_of_order: Rc<Cell<u64>>,
}

/// A stream of `data`; the second host receives it, or sends it, on a core.
fn stream(pair: &Pair, port: u16, data: Vec<u8>, receives: bool, on: u16) -> Stream {
    let received = Completion::new();
    let so_far = Rc::new(RefCell::new(0));
    let out_of_order = Rc::new(Cell::new(0));
    let (told, count, disorder) = (received.clone(), Rc::clone(&so_far), Rc::clone(&out_of_order));
    let again = Completion::new();
    let resent = again.clone();
    let sides = if receives { [1, 0] } else { [0, 1] };
    let faces = sides.map(|host: usize| pair.hosts[host].kernel.face());
    let to = if receives { READER } else { SENDER };
    let [face, other] = faces;
    let receive = move |cpu: platform::cpu::Cpu| -> platform::cpu::Async<'static, ()> {
        Box::pin(async move {
            let listener = face.network().listen(&cpu, SocketAddrV4::new(to, port), 4).unwrap();
            let stream = listener.accept(&cpu).await.unwrap();
            let most = 16_384;
            let pages = face.alloc_pages(&cpu, Pages::order_for(most.into()), Policy::Local).unwrap();
            let mut data = Vec::new();
            loop {
                let into = Segment { at: pages.start, length: most };
                let taken = stream.recv(&cpu, into).await.unwrap() as usize;
                if taken == 0 {
                    break;
                }
                let at = data.len();
                data.resize(at + taken, 0);
                cpu.load(pages.start, &mut data[at..]);
                *count.borrow_mut() = data.len();
            }
            disorder.set(stream.info().out_of_order);
            stream.close(&cpu);
            told.complete(data);
        })
    };
    let give = move |cpu: platform::cpu::Cpu| -> platform::cpu::Async<'static, ()> {
        Box::pin(async move {
            cpu.sleep(Duration::from_us(20)).await;
            let stream = other.network().connect(&cpu, SocketAddrV4::new(to, port)).await.unwrap();
            send(&cpu, &other, &*stream, &data, 16_384).await;
            // The peer closes when it has everything.
            let pages = other.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let _ = stream.recv(&cpu, Segment { at: pages.start, length: 1 }).await;
            resent.complete(stream.info().retransmissions);
            stream.close(&cpu);
        })
    };
    let on = TaskParams::named("second").on(CpuId(on));
    let first = TaskParams::named("first").on(CpuId(port % 4));
    let [one, two] = [0, 1].map(|host: usize| &pair.hosts[host].kernel);
    let task = if receives {
        one.spawn(first, give);
        two.spawn(on, receive)
    } else {
        one.spawn(first, receive);
        two.spawn(on, give)
    };
    Stream { task, received, so_far, again, out_of_order }
}

/// A program receives and sends through the function of its own socket, and nothing that its card does crosses to the other.
#[test]
fn what_is_near_stays_near() {
    for (function, on) in CORES.into_iter().enumerate() {
        for receives in [true, false] {
            let pair = pair();
            let data = bytes(3_000_000, 5);
            let stream = stream(&pair, PORT, data.clone(), receives, on);
            while *stream.so_far.borrow() < 300_000 {
                pair.run_for(Duration::from_us(10));
            }
            forget_the_beginning(&pair);
            let (before, [frames, sent]) = (crossed(&pair), [came(&pair), left(&pair)]);
            while *stream.so_far.borrow() < 2_700_000 {
                pair.run_for(Duration::from_us(10));
            }
            assert_eq!(crossed(&pair) - before, 0, "core {on}, receives: {receives}");
            let [frames_after, sent_after] = [came(&pair), left(&pair)];
            let other = 1 - function;
            assert!(frames_after[function] - frames[function] > 20, "{frames_after:?}");
            assert!(sent_after[function] - sent[function] > 20, "{sent_after:?}");
            assert_eq!((frames_after[other], sent_after[other]), (frames[other], sent[other]));
            let received = stream.received.clone();
            let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
            assert!(all == data);
        }
    }
}

/// What the test above asserts would not hold if a single doorbell went to the other function.
#[test]
fn one_doorbell_to_the_other_function_shows() {
    let pair = pair();
    forget_the_beginning(&pair);
    let doorbells = || {
        pair.simulation.with(|fabric, _| {
            let links = &fabric.host(pair.hosts[1].host).memory.counters().links;
            links.iter().map(|link| link.bytes.of(Cause::MmioDoorbell).get()).sum::<u64>()
        })
    };
    let (before, queue) = (doorbells(), 0);
    let (far, buffers) =
        (pair.hosts[1].kernel.face().packet_device("eth1").unwrap(), Buffers::new(&pair.hosts[1].kernel));
    pair.run(1, CORES[0], move |cpu| {
        Box::pin(async move {
            let packet = buffers.packet(&cpu, &frame(2, 60, 0), 4096);
            assert!(far.send_directly(&cpu, queue, packet, false).is_ok());
        })
    });
    pair.run_for(Duration::from_us(20));
    assert!(doorbells() > before);
}

/// A program that moves takes its traffic with it, with either firmware.
#[test]
fn traffic_follows_a_program() {
    let global: fn(&mut devices::nic::NicParams) = |nic| nic.features |= feature::GLOBAL_RULES;
    for (receives, rules) in [(true, None), (true, Some(global)), (false, None)] {
        let pair = pair_with(rules, steering());
        let data = bytes(4_000_000, 6);
        let stream = stream(&pair, PORT, data.clone(), receives, CORES[0]);
        while *stream.so_far.borrow() < 1_500_000 {
            pair.run_for(Duration::from_us(10));
        }
        let face = pair.hosts[1].kernel.face();
        face.set_affinity(stream.task, &[CpuId(CORES[1])]).unwrap();
        pair.run_for(Duration::from_us(200));
        forget_the_beginning(&pair);
        let (before, passed) = (crossed(&pair), if receives { came(&pair) } else { left(&pair) });
        while *stream.so_far.borrow() < 3_500_000 {
            pair.run_for(Duration::from_us(10));
        }
        let after = if receives { came(&pair) } else { left(&pair) };
        assert!(after[1] - passed[1] > 20, "{passed:?} {after:?}");
        assert_eq!(after[0], passed[0]);
        assert_eq!(crossed(&pair) - before, 0, "receives: {receives}");
        let received = stream.received.clone();
        let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
        assert!(all == data);
        let again = stream.again.clone();
        let again = pair.simulation.block_on(async move { again.wait().await }).unwrap();
        let counted = (again, stream.out_of_order.get(), dropped(&pair));
        assert_eq!(counted, (0, 0, 0), "nothing was lost or overtaken, receives: {receives}");
    }
}

/// More flows than the card has rules for: those without rule arrive all the same, and rules are used again.
#[test]
fn a_full_table_is_no_harm() {
    let few: fn(&mut devices::nic::NicParams) = |nic| (nic.flow_rules, nic.switch_rules) = (2, 2);
    let steering =
        SteeringParams { idle: Duration::from_us(300), scan: Duration::from_us(200), ..steering() };
    let pair = pair_with(Some(few), steering);
    let data = bytes(200_000, 7);
    let streams: Vec<Stream> = (0..6)
        .map(|n| stream(&pair, PORT + n, data.clone(), true, CORES[usize::from(n % 2)] + n / 2))
        .collect();
    for stream in &streams {
        let received = stream.received.clone();
        let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
        assert!(all == data);
    }
    // Silent flows are forgotten, and others can have their places.
    pair.run_for(Duration::from_ms(3));
    let again = stream(&pair, PORT + 9, data.clone(), true, CORES[1]);
    while *again.so_far.borrow() < 100_000 {
        pair.run_for(Duration::from_us(5));
    }
    let before = came(&pair);
    while *again.so_far.borrow() < 180_000 {
        pair.run_for(Duration::from_us(5));
    }
    let after = came(&pair);
    assert!(after[1] > before[1] && after[0] == before[0], "{before:?} {after:?}");
    let received = again.received.clone();
    assert!(pair.simulation.block_on(async move { received.wait().await }).unwrap() == data);
}

/// Either function's link goes away, the first one's included, and comes back: the other has its traffic meanwhile.
#[test]
fn a_link_that_fails_ends_no_connection() {
    for (port, on) in [(0, 0), (1, 1), (0, 1), (1, 0)].map(|(port, core): (u8, usize)| (port, CORES[core])) {
        for receives in [true, false] {
            let pair = pair();
            let data = bytes(2_000_000, 8);
            let stream = stream(&pair, PORT, data.clone(), receives, on);
            while *stream.so_far.borrow() < 500_000 {
                pair.run_for(Duration::from_us(10));
            }
            let nic = pair.hosts[1].nic;
            pair.simulation.with(|fabric, scheduler| fabric.remove_path(scheduler, nic, PortIndex(port)));
            let received = stream.received.clone();
            let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
            assert!(all == data, "port {port}, core {on}, receives: {receives}");
        }
    }
}

/// A function whose link comes back is a member again, with rules of its own: it has what is near it, and all when the other's
/// link goes.
#[test]
fn a_function_that_comes_back_is_a_member_again() {
    for port in [0, 1] {
        let (pair, near) = (pair(), usize::from(port));
        let nic = pair.hosts[1].nic;
        let set = |port, up: bool| {
            pair.simulation.with(|fabric, scheduler| match up {
                true => fabric.insert_path(scheduler, nic, PortIndex(port)),
                false => fabric.remove_path(scheduler, nic, PortIndex(port)),
            });
        };
        set(port, false);
        pair.run_for(Duration::from_ms(1));
        set(port, true);
        // A slot waits until what is in it has trained and is ready.
        pair.run_for(Duration::from_ms(150));
        let data = bytes(1_000_000, 8);
        let stream = stream(&pair, PORT, data.clone(), true, CORES[near]);
        let until = |bytes: usize| {
            for _ in 0..1_000 {
                if *stream.so_far.borrow() >= bytes {
                    return;
                }
                pair.run_for(Duration::from_us(10));
            }
            panic!("port {port}: {} bytes came", stream.so_far.borrow());
        };
        until(300_000);
        let before = came(&pair);
        until(500_000);
        let after = came(&pair);
        assert!(after[near] > before[near] && after[1 - near] == before[1 - near], "{before:?} {after:?}");
        set(1 - port, false);
        let received = stream.received.clone();
        let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
        assert!(all == data, "port {port}");
    }
}

/// Pages of both nodes.
struct BothNodes;

impl PacketOwner for BothNodes {
    fn released(&self, _: &platform::cpu::Cpu, _: &mut Packet) {}
}

/// What lies in the memory of both nodes, as pages of a file may, is read by both functions: each its own (IOctoSG).
#[test]
fn a_packet_in_both_nodes_memory_crosses_nothing() {
    let pair = pair();
    let device = pair.hosts[1].kernel.face().packet_device("team0").unwrap();
    let arrived = pair.device(0).listen(Some(TYPE.0), 64);
    let kernel = pair.hosts[1].kernel.face();
    let packets = pair.run(1, CORES[0], move |cpu| {
        Box::pin(async move {
            let mut packets = Vec::new();
            for number in 0..40 {
                let mut packet = Packet { owner: Some(Rc::new(BothNodes)), ..Packet::default() };
                for (n, piece) in (0..).zip(frame(2, 1200, number).chunks(500)) {
                    let pages = kernel.alloc_pages(&cpu, 0, Policy::Bind(Node(n % 2))).unwrap();
                    cpu.store(pages.start, piece);
                    let length = piece.len() as u32;
                    packet.fragments.push(Fragment { pages: Some(pages), at: pages.start, length });
                }
                packets.push(packet);
            }
            packets
        })
    });
    // As pages of a file that a drive has written, they are in no cache.
    forget_the_beginning(&pair);
    let before = crossed(&pair);
    pair.run(1, CORES[0], move |cpu| {
        Box::pin(async move {
            for packet in packets {
                device.send(&cpu, packet, false).unwrap();
                cpu.sleep(Duration::from_us(2)).await;
            }
        })
    });
    pair.run_for(Duration::from_us(50));
    let mut seen = 0;
    while let Some(packet) = arrived.try_take() {
        let bytes = pair.run(0, 0, move |cpu| Box::pin(async move { bytes_of(&cpu, &packet) }));
        assert_eq!(check(&bytes, 2), seen);
        seen += 1;
    }
    assert_eq!(seen, 40);
    assert_eq!(crossed(&pair) - before, 0);
}

#[test]
fn impossible_teams_are_refused() {
    let setup = Setup { two_links: true, ..Setup::default() };
    let pair = Pair::new(&setup);
    assert_eq!(team(&pair, &["eth0", "eth7"]).err(), Some(Error::NoDevice));
    assert_eq!(team(&pair, &[]).err(), Some(Error::Invalid));
    let kept = team(&pair, &["eth0", "eth1"]).unwrap();
    assert_eq!(team(&pair, &["eth1"]).err(), Some(Error::Busy));
    drop(kept);
}

/// What befalls streams.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    Move(usize, u16),
    Cut(u8),
    Mend(u8),
    Spoil,
}

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        3 => (0usize..3, 0u16..16).prop_map(|(which, core)| Mishap::Move(which, core)),
        2 => (0u8..2).prop_map(Mishap::Cut),
        2 => (0u8..2).prop_map(Mishap::Mend),
        1 => Just(Mishap::Spoil),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Programs move, links of either function go and come back, the first one's included, and functions are reset since a
    /// completion made no sense, in any order and with packets under way: what is read is what was written.
    #[test]
    fn functions_that_fail_lose_nothing(
        happens in proptest::collection::vec((mishap(), 1u64..400), 5..25),
        receives in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let pair = pair();
        let data: Vec<Vec<u8>> = (0..3).map(|n| bytes(400_000, seed ^ n)).collect();
        let streams: Vec<Stream> = (0u16..)
            .zip(&data)
            .map(|(n, data)| stream(&pair, PORT + n, data.clone(), receives, n * 5))
            .collect();
        while streams.iter().any(|stream| *stream.so_far.borrow() == 0) {
            pair.run_for(Duration::from_us(5));
        }
        let (face, nic) = (pair.hosts[1].kernel.face(), pair.hosts[1].nic);
        let mut links = [true; 2];
        let mut set = |port: u8, up: bool| {
            let was = core::mem::replace(&mut links[usize::from(port)], up);
            pair.simulation.with(|fabric, scheduler| match (was, up) {
                (true, false) => fabric.remove_path(scheduler, nic, PortIndex(port)),
                (false, true) => fabric.insert_path(scheduler, nic, PortIndex(port)),
                _ => (),
            });
        };
        for (mishap, after) in happens {
            pair.run_for(Duration::from_us(after));
            match mishap {
                // A program that has ended does not move.
                Mishap::Move(which, core) => drop(face.set_affinity(streams[which].task, &[CpuId(core)])),
                Mishap::Cut(port) => set(port, false),
                Mishap::Mend(port) => set(port, true),
                Mishap::Spoil => pair.hosts[1].handle.spoil_completions(1),
            }
        }
        (0..2).for_each(|port| set(port, true));
        for (stream, data) in streams.iter().zip(&data) {
            let received = stream.received.clone();
            let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
            prop_assert!(all == *data);
        }
    }

    /// Programs that move every 50 us or less, wherever their packets are, also while frames are lost, damaged, doubled and held
    /// back: what is read is what was written. Where the cable does nothing of that, no segment is sent twice: none was lost or overtaken.
    #[test]
    fn a_storm_of_moves_loses_nothing(
        moves in proptest::collection::vec((0u16..16, 1u64..50), 10..60),
        receives in any::<bool>(),
        is_faulty in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let faults = is_faulty.then(|| FaultParams {
            loss: 0.004,
            corruption: 0.004,
            duplication: 0.01,
            reordering: 0.01,
            longest_delay: Duration::from_us(30),
            ..FaultParams::none(Seed::new(seed))
        });
        let pair = pair_of(Setup { steering: steering(), faults, ..Setup::default() });
        let data: Vec<Vec<u8>> = (0..3).map(|n| bytes(400_000, seed ^ n)).collect();
        let streams: Vec<Stream> = (0u16..)
            .zip(&data)
            .map(|(n, data)| stream(&pair, PORT + n, data.clone(), receives, n * 5))
            .collect();
        let face = pair.hosts[1].kernel.face();
        let mut moved = 0;
        for (n, (core, after)) in moves.into_iter().enumerate() {
            pair.run_for(Duration::from_us(after));
            // A program that has ended does not move.
            moved += usize::from(face.set_affinity(streams[n % 3].task, &[CpuId(core)]).is_ok());
        }
        for (stream, data) in streams.iter().zip(&data) {
            let received = stream.received.clone();
            let all = pair.simulation.block_on(async move { received.wait().await }).unwrap();
            prop_assert!(all == *data);
            let again = stream.again.clone();
            let again = pair.simulation.block_on(async move { again.wait().await }).unwrap();
            prop_assert!(is_faulty || again == 0, "{again} segments were sent again, {} frames dropped", dropped(&pair));
            let overtaken = stream.out_of_order.get();
            prop_assert!(is_faulty || overtaken == 0, "{overtaken} segments were overtaken");
        }
        prop_assert!(moved > 2, "{moved} moves");
        let counters = pair.hosts[1].kernel.face().network().counters();
        prop_assert_eq!(counters.bad_checksums, 0);
    }
}
