//! Frames leave by programmed I/O: in every way of storing and in both formats, chosen by connection, by size and anew
//! while they flow, from several cores.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use devices::nic::{KpioParams as Parts, NicParams};
use drivers::nic::{Ending, Flow, InlineParams, KpioParams, NicDriverParams, PacketSelect, Stores};
use engine::Trace;
use hardware::core::{EvictionOrder, LinePassed, StoreParams};
use hardware::link::{Credits, LinkParams};
use hardware::memory::CoreId;
use hardware::root::RootPortParams;
use platform::device::FunctionIndex;
use units::{BitRate, Duration};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, TcpHeader, ipv4, protocol};
use wire::nic::registers::{counter, feature};
use wire::pcie::{Generation, Width};

fn with_kpio(nic: &mut NicParams) {
    nic.kpio = Some(Parts::example());
}

fn setup(kpio: KpioParams) -> Setup {
    let driver = NicDriverParams { channels: Some(2), kpio: Some(kpio), ..NicDriverParams::default() };
    Setup { driver, nic: with_kpio, ..Setup::default() }
}

fn count(pair: &Pair, which: usize) -> u64 {
    pair.hosts[0].handle.counter(FunctionIndex(0), which)
}

/// Sends frames of these lengths from a core of host 0; `before` each, something may happen.
fn send(
    pair: &Pair,
    core: u16,
    lengths: Vec<usize>,
    first: u32,
    before: impl Fn(&platform::cpu::Cpu, usize) + 'static,
) {
    let device = pair.device(0);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    pair.run(0, core, move |cpu| {
        Box::pin(async move {
            for (n, length) in lengths.into_iter().enumerate() {
                before(&cpu, n);
                let packet = buffers.packet(&cpu, &frame(1, length, first + n as u32), 4096);
                device.send(&cpu, packet, false).unwrap();
                cpu.sync().await;
            }
        })
    });
}

/// Numbers of the frames that arrive, each checked; whole words may have grown.
fn received(pair: &Pair, listener: Rc<platform::packet::PacketQueue>, grown: bool) -> Vec<u32> {
    pair.run_for(Duration::from_ms(20));
    pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let mut numbers = Vec::new();
            while let Some(packet) = listener.try_take() {
                let bytes = bytes_of(&cpu, &packet);
                numbers.push(if grown {
                    u32::from_le_bytes(bytes[HEADER_LEN..HEADER_LEN + 4].try_into().unwrap())
                } else {
                    check(&bytes, 1)
                });
                packet.release(&cpu);
            }
            numbers
        })
    })
}

#[test]
fn every_way_of_storing_brings_every_length() {
    let ways = [
        KpioParams::default(),
        KpioParams::papers(),
        KpioParams::uncached(),
        KpioParams { stores: Stores::Uncached, ..KpioParams::papers() },
        KpioParams { stores: Stores::Direct, ..KpioParams::default() },
        KpioParams { ending: Ending::Fenced, ..KpioParams::default() },
        KpioParams { fence_every: 2, ..KpioParams::default() },
    ];
    for way in ways {
        let pair = Pair::up(&setup(way));
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        let lengths: Vec<usize> = (60..1514).step_by(23).collect();
        let frames = lengths.len() as u32;
        send(&pair, 0, lengths, 0, |_, _| {});
        let numbers = received(&pair, listener, !way.framed);
        assert_eq!(numbers, (0..frames).collect::<Vec<_>>(), "{way:?}");
        assert_eq!(count(&pair, counter::KPIO_FRAMES), frames.into());
        assert_eq!(count(&pair, counter::KPIO_DROPPED) + count(&pair, counter::KPIO_MISSING), 0);
        let pieces = count(&pair, counter::KPIO_PIECES);
        let short = way.stores == Stores::Uncached || way.ending == Ending::Fenced;
        assert_eq!(pieces > 0, short, "{way:?}: {pieces} pieces");
        assert_eq!(pair.counters(0).tx_lines.get(), frames.into());
    }
}

/// Lines that leave the cores' buffers in any order do not stand in each other's way, whatever keeps the driver from writing
/// too much: with the paper's window of as many positions as lines, and with a wide one.
#[test]
fn lines_that_leave_in_any_order_all_arrive() {
    let stores = StoreParams {
        eviction_order: EvictionOrder::Any,
        accept_latency: Duration::from_ns(91),
        ..StoreParams::ideal()
    };
    // Few places: lines wait in the buffers, and pass each other there.
    let root = RootPortParams {
        posted_places: 2,
        outbound_latency: Duration::from_ns(60),
        ..RootPortParams::ideal()
    };
    let papers_window: fn(&mut NicParams) =
        |nic| nic.kpio = Some(Parts { log2_positions: 6, ..Parts::example() });
    for nic in [papers_window, with_kpio] {
        for (framed, flow) in
            [(true, Flow::Link), (false, Flow::Link), (true, Flow::Counted), (false, Flow::Counted)]
        {
            for length in [248, 1496] {
                let way = KpioParams { framed, flow, ..KpioParams::default() };
                let rate = BitRate::gbit_per_s(10);
                let pair =
                    Pair::up(&Setup { stores: stores.clone(), root: root.clone(), nic, rate, ..setup(way) });
                let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
                send(&pair, 0, vec![length; 300], 0, |_, _| {});
                let numbers = received(&pair, listener, false);
                assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "{way:?}, {length} B");
                assert_eq!(count(&pair, counter::KPIO_DROPPED) + count(&pair, counter::KPIO_MISSING), 0);
                assert!(count(&pair, counter::KPIO_AHEAD) > 0);
            }
        }
    }
}

/// Four cores write more than a Gen1 x4 link takes, each into its own queue: a line that has to wait for its turn with those of
/// all cores, and is passed by others meanwhile, comes long before the device has given it up.
#[test]
fn no_line_starves_behind_those_of_four_cores_on_a_slow_link() {
    let stores = StoreParams {
        eviction_order: EvictionOrder::Any,
        accept_latency: Duration::from_ns(91),
        ..StoreParams::ideal()
    };
    let root = RootPortParams { outbound_latency: Duration::from_ns(100), ..RootPortParams::ideal() };
    // The link of the paper's card, whose credits let lines wait (machines/nics/kpio-fpga.toml).
    let mut link = LinkParams::example(Generation::Gen1, Width::X4);
    link.latency = Duration::from_ns(388);
    link.receivers[1].credits.posted = Some(Credits { header: 8, data: 52 });
    const FRAMES: u32 = 400;
    for framed in [true, false] {
        for flow in [Flow::Link, Flow::Counted] {
            let kpio = Some(KpioParams { framed, flow, ..KpioParams::default() });
            let driver = NicDriverParams { channels: Some(4), kpio, ..NicDriverParams::default() };
            let (stores, root, link) = (stores.clone(), root.clone(), link.clone());
            let pair = Pair::up(&Setup { driver, nic: with_kpio, stores, root, link, ..Setup::default() });
            let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
            let buffers = Buffers::new(&pair.hosts[0].kernel);
            let longest = Rc::new(Cell::new(Duration::ZERO));
            for core in 0..4 {
                let longest = Rc::clone(&longest);
                let trace = Trace::to(move |line: LinePassed| {
                    longest.set(longest.get().max(line.left.since(line.opened)));
                });
                let host = pair.hosts[0].host;
                pair.simulation
                    .handle()
                    .with(|fabric, _| fabric.host_mut(host).stores.watch(CoreId(core), trace));
            }
            for core in 0..4 {
                let (device, buffers) = (pair.device(0), Rc::clone(&buffers));
                pair.spawn(0, core as u16, move |cpu| {
                    Box::pin(async move {
                        for n in 0..FRAMES {
                            let bytes = frame(1, 1000, core * FRAMES + n);
                            while device.send(&cpu, buffers.packet(&cpu, &bytes, 4096), false).is_err() {
                                cpu.sleep(Duration::from_us(1)).await;
                            }
                            cpu.sync().await;
                        }
                    })
                });
            }
            let mut numbers = received(&pair, listener, false);
            let counts = [counter::KPIO_WAITS, counter::KPIO_DROPPED, counter::KPIO_MISSING];
            let counts = counts.map(|which| count(&pair, which));
            let longest = longest.get();
            assert!(longest < Parts::example().patience / 2, "a line stayed for {longest}");
            assert!(longest > Duration::from_us(2), "lines wait at all: {longest}");
            assert_eq!(counts, [0; 3], "waits, drops, missing: {framed}, {flow:?}");
            numbers.sort_unstable();
            assert_eq!(numbers, (0..4 * FRAMES).collect::<Vec<_>>(), "{framed}, {flow:?}");
        }
    }
}

/// Where the device takes lines in their order alone and lets the others wait, those of one core must not pass another's: a
/// queue whose packets had to wait is served by the core that wakes it, then by its own.
#[test]
fn lines_of_one_core_do_not_pass_those_of_another_that_stalls() {
    for framed in [true, false] {
        for shared in [false, true] {
            let way = KpioParams { framed, shared, select: PacketSelect::None, ..KpioParams::papers() };
            let pair = Pair::up(&Setup { rate: BitRate::gbit_per_s(10), ..setup(way) });
            let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
            let buffers = Buffers::new(&pair.hosts[0].kernel);
            for core in 0..2u32 {
                let (device, buffers) = (pair.device(0), Rc::clone(&buffers));
                let driver = Rc::clone(&pair.hosts[0].driver);
                pair.spawn(0, core as u16, move |cpu| {
                    Box::pin(async move {
                        for n in 0..60u32 {
                            let packet = buffers.packet(&cpu, &frame(1, 1000, core * 1000 + n), 4096);
                            device.send(&cpu, packet, false).unwrap();
                            cpu.sleep(Duration::from_ns(1_500)).await;
                            if core == 0 && n % 20 == 10 {
                                driver.set_select(
                                    &cpu,
                                    if n == 30 { PacketSelect::None } else { PacketSelect::All },
                                );
                            }
                        }
                    })
                });
            }
            let mut numbers = received(&pair, listener, false);
            assert_eq!(
                count(&pair, counter::KPIO_WAITS),
                0,
                "{way:?}: lines that were not there were given up"
            );
            numbers.sort_unstable();
            assert_eq!(numbers, (0..60).chain(1000..1060).collect::<Vec<_>>(), "{way:?}");
        }
    }
}

#[test]
fn a_slow_wire_lets_the_driver_wait_and_nothing_is_lost() {
    for (shared, flow) in [(false, Flow::Counted), (true, Flow::Counted), (false, Flow::Link)] {
        let way = KpioParams { shared, flow, ..KpioParams::default() };
        let pair = Pair::up(&Setup { rate: BitRate::gbit_per_s(1), ..setup(way) });
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        send(&pair, 0, vec![900; 60], 0, |_, _| {});
        send(&pair, 1, vec![1000; 60], 1000, |_, _| {});
        let numbers = received(&pair, listener, false);
        let of = |range: std::ops::Range<u32>| {
            numbers.iter().copied().filter(|n| range.contains(n)).collect::<Vec<_>>()
        };
        assert_eq!(of(0..1000), (0..60).collect::<Vec<_>>());
        assert_eq!(of(1000..2000), (1000..1060).collect::<Vec<_>>());
        assert_eq!(pair.counters(0).tx_held.get() > 0, flow == Flow::Counted);
        assert_eq!(count(&pair, counter::KPIO_OUTSIDE), 0);
    }
}

#[test]
fn by_size_both_paths_are_taken_and_none_passes_another() {
    for most_stays in [0, 6] {
        let way = KpioParams { select: PacketSelect::UpTo(256), most_stays, ..KpioParams::default() };
        let pair = Pair::up(&setup(way));
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        // Large ones first, so that small ones could pass them.
        let lengths: Vec<usize> = (0..200).map(|n| if n / 10 % 2 == 0 { 1500 } else { 60 + n }).collect();
        send(&pair, 0, lengths, 0, |_, _| {});
        let numbers = received(&pair, listener, false);
        assert_eq!(numbers, (0..200).collect::<Vec<_>>());
        let lines = pair.counters(0).tx_lines.get();
        assert!((20..200).contains(&lines), "{lines} by lines, {most_stays}");
        assert!(count(&pair, counter::FETCHES) > 0);
    }
}

#[test]
fn the_choice_changes_while_frames_flow() {
    let pair = Pair::up(&setup(KpioParams::default()));
    let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
    let driver = Rc::clone(&pair.hosts[0].driver);
    let choices = [
        PacketSelect::None,
        PacketSelect::All,
        PacketSelect::UpTo(500),
        PacketSelect::None,
        PacketSelect::UpTo(1000),
        PacketSelect::All,
    ];
    send(&pair, 0, (0..300).map(|n| 60 + n * 37 % 1400).collect(), 0, move |cpu, n| {
        if n % 37 == 36 {
            driver.set_select(cpu, choices[n / 37 % choices.len()]);
        }
    });
    let numbers = received(&pair, listener, false);
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    let lines = pair.counters(0).tx_lines.get();
    assert!((50..290).contains(&lines), "{lines} by lines");
}

#[test]
fn it_shows_which_packets_had_no_way_by_lines() {
    let with_one = |nic: &mut NicParams| {
        nic.kpio = Some(Parts { queues: 1, log2_lines: 4, ..Parts::example() });
    };
    let pair = Pair::up(&Setup { nic: with_one, ..setup(KpioParams::default()) });
    assert!(
        pair.hosts[0].kernel.log().iter().any(|(_, line)| line.contains("1 of 2 queues send by descriptors"))
    );
    send(&pair, 0, vec![100, 1500, 100, 1200, 300], 0, |_, _| {});
    send(&pair, 1, vec![100; 7], 100, |_, _| {});
    pair.run_for(Duration::from_ms(1));
    let counters = pair.counters(0);
    assert_eq!((counters.tx_no_queue.get(), counters.tx_too_long.get()), (7, 2));
    // Short ones behind long ones stay with them.
    assert!((1..=3).contains(&counters.tx_lines.get()));
}

/// A TCP segment without options from a port of host 0.
fn segment(port: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut bytes);
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let carried = (length - HEADER_LEN - ipv4::HEADER_LEN) as u16;
    Ipv4Header::new(a, b, protocol::TCP, carried).emit(&mut bytes[HEADER_LEN..]);
    let header = TcpHeader { source: port, destination: 9, ..TcpHeader::default() };
    header.emit(&mut bytes[HEADER_LEN + ipv4::HEADER_LEN..]);
    bytes
}

#[test]
fn connections_are_chosen_by_their_ports() {
    let select = PacketSelect::TcpPorts { first: 5000, last: 5999 };
    let pair = Pair::up(&setup(KpioParams { select, ..KpioParams::default() }));
    let device = pair.device(0);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for n in 0..40 {
                let bytes = segment(if n % 4 == 0 { 5001 } else { 80 }, 100);
                device.send(&cpu, buffers.packet(&cpu, &bytes, 4096), false).unwrap();
                cpu.sync().await;
            }
        })
    });
    pair.run_for(Duration::from_ms(1));
    assert_eq!(pair.counters(0).tx_lines.get(), 10);
    assert_eq!((count(&pair, counter::KPIO_FRAMES), count(&pair, counter::TX_FRAMES)), (10, 40));
}

#[test]
fn a_nic_that_is_plugged_in_later_sends_as_was_set_last() {
    let pair = Pair::up(&setup(KpioParams { select: PacketSelect::None, ..KpioParams::default() }));
    let (nic, driver) = (pair.hosts[0].nic, Rc::clone(&pair.hosts[0].driver));
    pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(nic));
    pair.run_for(Duration::from_ms(1_000));
    pair.run(0, 0, move |cpu| Box::pin(async move { driver.set_select(&cpu, PacketSelect::All) }));
    pair.plug(0);
    pair.run_for(Duration::from_ms(1_000));
    let device = pair.device(0);
    pair.run(0, 0, move |cpu| Box::pin(async move { device.open(&cpu).await })).unwrap();
    send(&pair, 0, vec![100; 20], 0, |_, _| {});
    pair.run_for(Duration::from_ms(1));
    assert_eq!(pair.counters(0).tx_lines.get(), 20);
}

#[test]
fn doorbells_bring_short_packets_with_them() {
    for direct in [false, true] {
        let inline = Some(InlineParams { up_to: 240, direct });
        let driver = NicDriverParams { channels: Some(2), inline, ..NicDriverParams::default() };
        let pair =
            Pair::up(&Setup { driver, nic: |nic| nic.features |= feature::INLINE, ..Setup::default() });
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        send(&pair, 0, (0..300).map(|n| 60 + n % 300).collect(), 0, |_, _| {});
        assert_eq!(received(&pair, listener, false), (0..300).collect::<Vec<_>>());
        let inline = count(&pair, counter::INLINE_PACKETS);
        assert!(inline > 20, "{inline} packets by doorbell");
    }
}

#[test]
fn short_frames_come_with_their_completions() {
    let driver = NicDriverParams { channels: Some(2), rx_slot: Some(7), ..NicDriverParams::default() };
    let pair = Pair::up(&Setup { driver, nic: |nic| nic.features |= feature::INLINE, ..Setup::default() });
    let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
    // 128 B for a completion leave 112 for a frame.
    send(&pair, 0, (0..300).map(|n| 60 + n % 120).collect(), 0, |_, _| {});
    assert_eq!(received(&pair, listener, false), (0..300).collect::<Vec<_>>());
    assert_eq!(pair.counters(1).malformed.get() + pair.counters(1).resets.get(), 0);
    let writes = pair.hosts[1].handle.counter(FunctionIndex(0), counter::WRITE_BACKS);
    assert_eq!(writes, 300, "one write for each");
}

#[test]
fn a_reset_and_a_stop_leave_nothing_behind() {
    let pair = Pair::up(&setup(KpioParams::default()));
    for round in 0..2 {
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        send(&pair, 1, vec![300; 20], 100 * round, |_, _| {});
        assert_eq!(received(&pair, listener, false).len(), 20);
        let device = pair.device(0);
        pair.run(0, 0, move |cpu| {
            Box::pin(async move {
                device.stop(&cpu).await;
                device.open(&cpu).await.unwrap();
            })
        });
    }
    let device = pair.device(0);
    pair.run(0, 0, move |cpu| Box::pin(async move { device.stop(&cpu).await }));
    assert_eq!(pair.mapped(0), 0);
}
