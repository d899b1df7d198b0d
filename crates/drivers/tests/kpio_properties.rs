//! Frames of all lengths, by all ways, from several cores, through stores, write-combining buffers, links and the device:
//! each arrives once as it was sent, or is counted.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::common::{self, Buffers, Pair, Setup, bytes_of};
use devices::nic::KpioParams as Parts;
use drivers::nic::{Ending, Flow, InlineParams, KpioParams, NicDriverParams, PacketSelect, Stores};
use hardware::core::{EvictionOrder, StoreParams};
use hardware::link::{Credits, LinkParams};
use hardware::root::RootPortParams;
use platform::device::FunctionIndex;
use proptest::prelude::*;
use units::{BitRate, Duration};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, TcpHeader, ipv4, protocol};
use wire::nic::registers::{counter, feature};
use wire::pcie::{Generation, Width};

/// The first of the ports by which senders are told apart.
const PORT: u16 = 5000;
/// Frames of each queue behind all others, and the number of the first.
const LAST: u32 = 4;
const AFTER: u32 = 1_000_000;

/// Small queues, which not every frame fits into.
fn small(log2_lines: u8) -> fn(&mut devices::nic::NicParams) {
    match log2_lines {
        4 => |nic| nic.kpio = Some(Parts { log2_lines: 4, ..Parts::example() }),
        5 => |nic| nic.kpio = Some(Parts { log2_lines: 5, ..Parts::example() }),
        _ => |nic| nic.kpio = Some(Parts::example()),
    }
}

/// A TCP segment of a connection, with a number behind the headers.
fn segment(sender: u16, length: usize, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; length];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut bytes);
    let carried = (length - HEADER_LEN - ipv4::HEADER_LEN) as u16;
    let header = Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::TCP, carried);
    header.emit(&mut bytes[HEADER_LEN..]);
    let header = TcpHeader { source: PORT + sender, destination: 9, ..TcpHeader::default() };
    header.emit(&mut bytes[HEADER_LEN + ipv4::HEADER_LEN..]);
    bytes[NUMBER..].iter_mut().zip(0u32..).for_each(|(byte, n)| *byte = (n ^ number) as u8);
    bytes[NUMBER..NUMBER + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Where the number is.
const NUMBER: usize = HEADER_LEN + ipv4::HEADER_LEN + 20;

/// Who sent a segment that has arrived, and its number. Its bytes are what was sent.
fn arrived(bytes: &[u8]) -> (u16, u32) {
    let sender = u16::from_be_bytes([bytes[34], bytes[35]]) - PORT;
    let number = u32::from_le_bytes(bytes[NUMBER..NUMBER + 4].try_into().unwrap());
    assert!(bytes == segment(sender, bytes.len(), number), "number {number} of {sender} is damaged");
    (sender, number)
}

/// The same where lengths may have grown to whole words.
fn grown(bytes: &[u8]) -> (u16, u32) {
    let sender = u16::from_be_bytes([bytes[34], bytes[35]]) - PORT;
    (sender, u32::from_le_bytes(bytes[NUMBER..NUMBER + 4].try_into().unwrap()))
}

fn with_wide_window(nic: &mut devices::nic::NicParams) {
    nic.kpio = Some(Parts::example());
    nic.features |= feature::INLINE;
}

/// As many positions as lines, as in the paper's card.
fn with_papers_window(nic: &mut devices::nic::NicParams) {
    nic.kpio = Some(Parts { log2_positions: Parts::example().log2_lines, ..Parts::example() });
    nic.features |= feature::INLINE;
}

/// The same, where lines are given up that only come late.
fn with_short_patience(nic: &mut devices::nic::NicParams) {
    with_wide_window(nic);
    nic.kpio = nic.kpio.map(|kpio| Parts { patience: Duration::from_us(3), ..kpio });
}

fn with_papers_window_and_short_patience(nic: &mut devices::nic::NicParams) {
    with_papers_window(nic);
    nic.kpio = nic.kpio.map(|kpio| Parts { patience: Duration::from_us(3), ..kpio });
}

fn select() -> impl Strategy<Value = PacketSelect> {
    let ports = (0u16..4).prop_map(|n| PacketSelect::TcpPorts { first: PORT, last: PORT + n });
    prop_oneof![
        Just(PacketSelect::All),
        Just(PacketSelect::None),
        (60u32..1514).prop_map(PacketSelect::UpTo),
        ports
    ]
}

/// Cores that store at once or as those of a Sandy Bridge do (machines/hosts/dell-t620-sandy.toml), in either order,
/// with few or many buffers.
fn host() -> impl Strategy<Value = (StoreParams, RootPortParams)> {
    (any::<bool>(), any::<bool>(), 1u16..11, 1u32..17).prop_map(|(any, real, buffers, places)| {
        let eviction_order = if any { EvictionOrder::Any } else { EvictionOrder::AsTold };
        let stores = StoreParams { combining_buffers: buffers, eviction_order, ..StoreParams::ideal() };
        let root = RootPortParams { posted_places: places, ..RootPortParams::ideal() };
        if !real {
            return (stores, root);
        }
        let accept = Duration::from_ns(91);
        let stores = StoreParams { accept_latency: accept, uncached_latency: accept, ..stores };
        (stores, RootPortParams { outbound_latency: Duration::from_ns(60), ..root })
    })
}

/// The link of the paper's card, of so many lanes: its credits let lines wait (machines/nics/kpio-fpga.toml). On a single lane
/// some wait for longer than the device does.
fn slow(lanes: Width) -> LinkParams {
    let mut link = LinkParams::example(Generation::Gen1, lanes);
    link.latency = Duration::from_ns(388);
    link.receivers[1].credits.posted = Some(Credits { header: 8, data: 52 });
    link
}

fn way() -> impl Strategy<Value = KpioParams> {
    let stores = prop::sample::select(vec![Stores::Combining, Stores::Uncached, Stores::Direct]);
    let ending = prop::sample::select(vec![Ending::Stuffed, Ending::Fenced]);
    let flow = prop::sample::select(vec![Flow::Counted, Flow::Link]);
    (select(), any::<bool>(), stores, ending, flow, 0u16..3, any::<bool>(), 0u16..8).prop_map(
        |(select, framed, stores, ending, flow, fence_every, shared, most_stays)| KpioParams {
            select,
            framed,
            stores,
            // A signature has to fill its line.
            ending: if framed { ending } else { Ending::Stuffed },
            flow,
            fence_every,
            shared,
            most_stays,
            ..KpioParams::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_arrives_once_or_is_counted(
        way in way(),
        cores in prop::collection::vec(prop::collection::vec((60usize..1515, 0u64..3_000), 1..60), 1..4),
        changes in prop::collection::vec((select(), 0u64..20_000), 0..6),
        gbit in prop::sample::select(vec![1u64, 10, 40]),
        inline in any::<bool>(),
        papers_window in any::<bool>(),
        is_patient in any::<bool>(),
        lanes in prop::sample::select(vec![None, Some(Width::X4), Some(Width::X1)]),
        (stores, root) in host(),
    ) {
        // The paper's format cannot tell that a line comes when it was given up.
        let lanes = lanes.filter(|_| way.framed);
        let link = lanes.map_or_else(common::link, slow);
        let inline = inline.then_some(InlineParams { up_to: 240, direct: false });
        let driver =
            NicDriverParams { channels: Some(2), kpio: Some(way), inline, ..NicDriverParams::default() };
        let nic = match (papers_window, is_patient || !way.framed) {
            (false, true) => with_wide_window,
            (true, true) => with_papers_window,
            (false, false) => with_short_patience,
            (true, false) => with_papers_window_and_short_patience,
        };
        let rate = BitRate::gbit_per_s(gbit);
        let pair = Pair::up(&Setup { driver, nic, rate, stores, root, link, ..Setup::default() });
        let listener = pair.device(1).listen(Some(EtherType::IPV4.0), 1 << 16);
        let buffers = Buffers::new(&pair.hosts[0].kernel);
        let refused = Rc::new(Cell::new(0u64));
        let mut expected = BTreeSet::new();
        let mut ends = Vec::new();
        for (core, lengths) in (0u16..).zip(cores) {
            let first = u32::from(core) * 1000;
            expected.extend((0..lengths.len() as u32).map(|n| first + n));
            let (device, buffers, refused) = (pair.device(0), Rc::clone(&buffers), Rc::clone(&refused));
            ends.push(pair.spawn(0, core, move |cpu| {
                Box::pin(async move {
                    for (n, (length, pause)) in (0u32..).zip(lengths) {
                        // The paper's format knows whole words alone.
                        let length = if way.framed { length } else { length / 8 * 8 + 8 };
                        let packet = buffers.packet(&cpu, &segment(core, length, first + n), 1000);
                        if device.send(&cpu, packet, false).is_err() {
                            refused.set(refused.get() + 1);
                        }
                        cpu.sleep(Duration::from_ns(pause)).await;
                    }
                })
            }));
        }
        let driver = Rc::clone(&pair.hosts[0].driver);
        ends.push(pair.spawn(0, 3, move |cpu| {
            Box::pin(async move {
                for (select, pause) in changes {
                    cpu.sleep(Duration::from_ns(pause)).await;
                    driver.set_select(&cpu, select);
                }
            })
        }));
        pair.run_for(Duration::from_ms(20));
        prop_assert!(ends.iter().all(|end| end.try_take().is_some()), "somebody waits for ever");
        // What was lost is known when the next frames of a queue have come; in a narrow window the first may meet its remains.
        for n in 0..LAST {
            for core in 0..2u16 {
                let (device, buffers) = (pair.device(0), Rc::clone(&buffers));
                let driver = Rc::clone(&pair.hosts[0].driver);
                let number = AFTER + u32::from(core) * LAST + n;
                expected.insert(number);
                pair.run(0, core, move |cpu| {
                    Box::pin(async move {
                        driver.set_select(&cpu, PacketSelect::All);
                        let packet = buffers.packet(&cpu, &segment(core, 200, number), 1000);
                        assert!(device.send(&cpu, packet, false).is_ok());
                    })
                });
                pair.run_for(Duration::from_us(500));
            }
        }
        let numbers = pair.run(1, 0, move |cpu| {
            Box::pin(async move {
                let mut numbers = Vec::new();
                while let Some(packet) = listener.try_take() {
                    numbers.push(arrived(&bytes_of(&cpu, &packet)).1);
                    packet.release(&cpu);
                }
                numbers
            })
        });
        let once: BTreeSet<u32> = numbers.iter().copied().collect();
        prop_assert_eq!(once.len(), numbers.len(), "some came twice: {:?}", numbers);
        prop_assert!(once.is_subset(&expected));
        let sent = |which| pair.hosts[0].handle.counter(FunctionIndex(0), which);
        let rx = |which| pair.hosts[1].handle.counter(FunctionIndex(0), which);
        let dropped = rx(counter::RX_NO_BUFFER) + rx(counter::RX_OVERFLOW);
        for core in 1..3 {
            prop_assert!(once.contains(&(AFTER + core * LAST - 1)), "the last frame does not arrive: {:?}", once);
        }
        let missing = sent(counter::KPIO_MISSING);
        if sent(counter::KPIO_WAITS) == 0 {
            prop_assert_eq!(sent(counter::KPIO_DROPPED) + missing, 0);
        }
        prop_assert_eq!(once.len() as u64 + dropped + refused.get() + missing, expected.len() as u64);
        prop_assert_eq!(pair.counters(0).resets.get(), 0);
        prop_assert_eq!(buffers.out.get(), 0);
    }
    /// However the choice is made, and however it changes: frames of a connection arrive in the order in which they were
    /// sent, those that fit into the queue and those that are too long for it.
    #[test]
    fn no_frame_passes_another_of_its_connection(
        way in way(),
        senders in prop::collection::vec(prop::collection::vec((60usize..1515, 0u64..1_500), 1..60), 1..4),
        changes in prop::collection::vec((select(), 0u64..20_000), 0..3),
        gbit in prop::sample::select(vec![1u64, 10, 40]),
        log2_lines in 4u8..7,
        (stores, root) in host(),
    ) {
        let driver = NicDriverParams { channels: Some(2), kpio: Some(way), ..NicDriverParams::default() };
        let rate = BitRate::gbit_per_s(gbit);
        let pair = Pair::up(&Setup { driver, nic: small(log2_lines), rate, stores, root, ..Setup::default() });
        let listener = pair.device(1).listen(Some(EtherType::IPV4.0), 1 << 16);
        let buffers = Buffers::new(&pair.hosts[0].kernel);
        for (sender, lengths) in (0u16..).zip(senders) {
            let (device, buffers) = (pair.device(0), Rc::clone(&buffers));
            pair.spawn(0, sender, move |cpu| {
                Box::pin(async move {
                    for (n, (length, pause)) in (0u32..).zip(lengths) {
                        let packet = buffers.packet(&cpu, &segment(sender, length, n), 1000);
                        // One that is refused leaves a gap.
                        let _ = device.send(&cpu, packet, false);
                        cpu.sleep(Duration::from_ns(pause)).await;
                    }
                })
            });
        }
        let driver = Rc::clone(&pair.hosts[0].driver);
        pair.spawn(0, 3, move |cpu| {
            Box::pin(async move {
                for (select, pause) in changes {
                    cpu.sleep(Duration::from_ns(pause)).await;
                    driver.set_select(&cpu, select);
                }
            })
        });
        pair.run_for(Duration::from_ms(20));
        let all = pair.run(1, 0, move |cpu| {
            Box::pin(async move {
                let mut all = Vec::new();
                while let Some(packet) = listener.try_take() {
                    let bytes = bytes_of(&cpu, &packet);
                    all.push(if way.framed { arrived(&bytes) } else { grown(&bytes) });
                    packet.release(&cpu);
                }
                all
            })
        });
        prop_assert!(!all.is_empty());
        for sender in 0..3 {
            let numbers: Vec<u32> = all.iter().filter(|(from, _)| *from == sender).map(|a| a.1).collect();
            prop_assert!(numbers.is_sorted_by(|a, b| a < b), "of sender {sender}: {numbers:?}");
        }
    }
}
