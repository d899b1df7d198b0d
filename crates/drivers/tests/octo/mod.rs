//! One card with a function at each socket, as one network device (IOctopus): by a team above the functions' own devices, or by
//! the NIC's driver. What is near stays near, and nothing is lost or passes another when programs move or functions fail.

mod failing;
mod malformed;
mod near;
mod storms;

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::{Rc, Weak};

use drivers::team::{HashPolicy, Team, TeamCosts, TeamMode, TeamParams};
use hardware::memory::Cause;
use kernel::{Kernel, NetRules, SteeringParams};
use platform::Error;
use platform::block::Segment;
use platform::cpu::CpuId;
use platform::device::{FunctionIndex, PortIndex};
use platform::kernel::{TaskId, TaskParams};
use platform::memory::{Pages, Policy};
use platform::sync::Completion;
use units::{BitRate, Duration};
use wire::nic::registers::counter;
use wire::pcie::FunctionAddress;

use crate::common::streams::send;
use crate::common::{ADDRESSES, HostSide, Pair, Setup};

const SENDER: Ipv4Addr = ADDRESSES[0];
const READER: Ipv4Addr = ADDRESSES[1];
const PORT: u16 = 5000;
/// A core of each socket.
const CORES: [u16; 2] = [3, 11];

/// Few by default; as many as `PROPTEST_CASES` says.
fn cases(few: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few)
}

/// What makes one network device of the card's functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Team,
    Driver,
}

impl By {
    const BOTH: [Self; 2] = [Self::Team, Self::Driver];

    /// Name of the network device.
    const fn device(self) -> &'static str {
        match self {
            Self::Team => "team0",
            Self::Driver => "eth0",
        }
    }
}

fn steering() -> SteeringParams {
    SteeringParams {
        entries: 256,
        rfs: true,
        arfs: true,
        idle: Duration::from_ms(50),
        scan: Duration::from_ms(20),
    }
}

/// Two functions, one at each socket.
fn pair(by: By) -> Pair {
    pair_of(by, Setup::default())
}

fn pair_of(by: By, setup: Setup) -> Pair {
    let steering = if setup.steering.arfs { setup.steering } else { steering() };
    let mut setup = Setup { rate: BitRate::gbit_per_s(40), links: setup.links.max(2), steering, ..setup };
    setup.driver.channels = Some(16);
    if setup.driver.log2_rx == 9 {
        setup.driver.log2_rx = 10;
    }
    setup.driver.coalescing = Duration::from_us(3);
    setup.driver.adaptive = false;
    setup.driver.multi_pf = by == By::Driver;
    let pair = Pair::new(&setup);
    let team = (by == By::Team).then(|| {
        let members: Vec<String> = (0..setup.links).map(|n| format!("eth{n}")).collect();
        team(&pair, &members.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    });
    for (host, (name, address)) in [("eth0", SENDER), (by.device(), READER)].into_iter().enumerate() {
        let network = pair.hosts[host].kernel.face().network();
        pair.run(host, 0, move |cpu| {
            Box::pin(async move { network.configure(&cpu, name, address, 24).await })
        })
        .unwrap();
    }
    let kernel = &pair.hosts[1].kernel;
    kernel.net().set_rules(Rc::new(Again { kernel: Rc::downgrade(kernel), team }));
    pair
}

fn team(pair: &Pair, members: &[&str]) -> Result<Rc<Team>, Error> {
    let params = TeamParams {
        name: "team0".to_owned(),
        mode: TeamMode::Octo,
        hash_policy: HashPolicy::default(),
        members: members.iter().map(|&name| name.to_owned()).collect(),
        costs: TeamCosts::linux(),
    };
    Team::create(pair.hosts[1].kernel.face(), params)
}

/// What an administrator has laid down: a team's member that comes again is one again, and a device that comes again gets its
/// address.
struct Again {
    kernel: Weak<Kernel>,
    team: Option<Rc<Team>>,
}

impl NetRules for Again {
    fn name(&self, _: FunctionAddress) -> Option<String> {
        None
    }

    fn is_kept(&self, _: &str) -> bool {
        false
    }

    fn added(&self, name: &str) {
        let Some(kernel) = self.kernel.upgrade() else { return };
        let (team, name, network) = (self.team.clone(), name.to_owned(), kernel.face().network());
        kernel.spawn(TaskParams::named("udev"), move |cpu| {
            Box::pin(async move {
                cpu.sleep(Duration::from_us(100)).await;
                // It may have gone again.
                let _ = match team {
                    Some(team) => team.take_back(&cpu, &name).await,
                    None => network.configure(&cpu, &name, READER, 24).await,
                };
            })
        });
    }
}

/// Frames counted by each function of a host.
fn counted(host: &HostSide, which: usize) -> Vec<u64> {
    (0..host.functions).map(|function| host.handle.counter(FunctionIndex(function), which)).collect()
}

/// Frames that came through each function.
fn came(pair: &Pair) -> Vec<u64> {
    counted(&pair.hosts[1], counter::RX_FRAMES)
}

/// Frames that left through each function.
fn left(pair: &Pair) -> Vec<u64> {
    counted(&pair.hosts[1], counter::TX_FRAMES)
}

/// Bytes so far between the second host's sockets for its card, by cause.
fn crossed(pair: &Pair) -> Vec<(Cause, u64)> {
    pair.simulation.with(|fabric, _| {
        let links = &fabric.host(pair.hosts[1].host).memory.counters().links;
        let of = |cause| (cause, links.iter().map(|link| link.bytes.of(cause).get()).sum());
        [Cause::Dma, Cause::MmioDoorbell, Cause::MmioRegister, Cause::MmioWriteCombining, Cause::Interrupt]
            .map(of)
            .to_vec()
    })
}

/// Whether nothing of the second host's card has crossed between its sockets since `before`.
///
/// # Errors
/// The causes for which something has, with bytes.
fn nothing_crossed(pair: &Pair, before: &[(Cause, u64)]) -> Result<(), Vec<(Cause, u64)>> {
    let since =
        crossed(pair).into_iter().zip(before).map(|((cause, now), (_, before))| (cause, now - before));
    let some: Vec<_> = since.filter(|&(_, bytes)| bytes > 0).collect();
    if some.is_empty() { Ok(()) } else { Err(some) }
}

/// Empties the second host's caches: whoever opened the device has cleared rings of both nodes, and left their lines there.
fn forget_the_beginning(pair: &Pair) {
    pair.simulation.with(|fabric, _| fabric.host_mut(pair.hosts[1].host).memory.flush_all());
}

/// Frames that cards dropped.
fn dropped(pair: &Pair) -> u64 {
    let all = [counter::RX_NO_BUFFER, counter::RX_OVERFLOW, counter::RX_NO_QUEUE, counter::RX_FILTERED];
    pair.hosts.iter().flat_map(|host| all.map(|which| counted(host, which))).flatten().sum()
}

/// Cuts or mends the link of one of the second host's functions.
fn set_link(pair: &Pair, port: u8, up: bool) {
    let nic = pair.hosts[1].nic;
    pair.simulation.with(|fabric, scheduler| match up {
        true => fabric.running(scheduler).insert_path(nic, PortIndex(port)),
        false => fabric.running(scheduler).remove_path(nic, PortIndex(port)),
    });
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

impl Stream {
    /// All that was received.
    fn end(&self, pair: &Pair) -> Vec<u8> {
        let received = self.received.clone();
        pair.simulation.block_on(async move { received.wait().await }).expect("the stream ends")
    }

    /// Segments that were sent more than once.
    fn again(&self, pair: &Pair) -> u64 {
        let again = self.again.clone();
        pair.simulation.block_on(async move { again.wait().await }).expect("the sender ends")
    }

    /// Runs until so many bytes have been received.
    fn until(&self, pair: &Pair, bytes: usize) {
        for _ in 0..10_000 {
            if *self.so_far.borrow() >= bytes {
                return;
            }
            pair.run_for(Duration::from_us(10));
        }
        panic!("{} of {bytes} bytes came", self.so_far.borrow());
    }
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
