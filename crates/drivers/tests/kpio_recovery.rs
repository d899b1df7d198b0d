//! Lines are lost, or come when the device has given them up: with length and checksum nothing arrives that was not sent, what
//! is lost is counted, and the driver goes on by itself, without a reset.

use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use devices::nic::{KpioParams as Parts, NicParams};
use drivers::nic::{Flow, KpioParams, NicDriverParams, PacketSelect};
use hardware::core::{EvictionOrder, StoreParams};
use hardware::link::{Credits, LinkId, LinkParams};
use hardware::root::RootPortParams;
use platform::device::FunctionIndex;
use platform::packet::PacketQueue;
use units::Duration;
use wire::nic::registers::counter;
use wire::pcie::{Generation, Width};

/// As many positions as lines, and the least that tells late lines from early ones.
const NARROW: u8 = 6;
const WIDE: u8 = 8;

/// A card with so many positions (their log2).
type Card = (u8, fn(&mut NicParams));

fn with_patience<const LOG2_POSITIONS: u8, const US: u64>(nic: &mut NicParams) {
    let patience = Duration::from_us(US);
    nic.kpio = Some(Parts { log2_positions: LOG2_POSITIONS, patience, ..Parts::example() });
}

fn setup(way: KpioParams, cores: u16, width: Width, nic: fn(&mut NicParams)) -> Setup {
    let stores = StoreParams {
        eviction_order: EvictionOrder::Any,
        accept_latency: Duration::from_ns(91),
        ..StoreParams::ideal()
    };
    let root = RootPortParams { outbound_latency: Duration::from_ns(100), ..RootPortParams::ideal() };
    let mut link = LinkParams::example(Generation::Gen1, width);
    link.latency = Duration::from_ns(388);
    link.receivers[1].credits.posted = Some(Credits { header: 8, data: 52 });
    let driver = NicDriverParams { channels: Some(cores), kpio: Some(way), ..NicDriverParams::default() };
    Setup { driver, nic, stores, root, link, ..Setup::default() }
}

fn count(pair: &Pair, which: usize) -> u64 {
    pair.hosts[0].handle.counter(FunctionIndex(0), which)
}

/// Sends numbered frames from each of so many cores at once.
fn send(pair: &Pair, cores: u32, first: u32, frames: u32, length: usize) {
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    for core in 0..cores {
        let (device, buffers) = (pair.device(0), Rc::clone(&buffers));
        pair.spawn(0, core as u16, move |cpu| {
            Box::pin(async move {
                for n in 0..frames {
                    let bytes = frame(1, length, first + core * 10_000 + n);
                    while device.send(&cpu, buffers.packet(&cpu, &bytes, 4096), false).is_err() {
                        cpu.sleep(Duration::from_us(1)).await;
                    }
                    cpu.sync().await;
                }
            })
        });
    }
}

/// Numbers of what has arrived, each checked, in order.
fn received(pair: &Pair, listener: &Rc<PacketQueue>) -> Vec<u32> {
    let listener = Rc::clone(listener);
    let mut numbers = pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let mut numbers = Vec::new();
            while let Some(packet) = listener.try_take() {
                numbers.push(check(&bytes_of(&cpu, &packet), 1));
                packet.release(&cpu);
            }
            numbers
        })
    });
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "each once");
    numbers
}

/// The device gives lines up before they come: four cores fill a slow link, and each line waits for its turn.
#[test]
fn lines_that_come_after_they_were_given_up_are_counted() {
    let cards: [Card; 4] = [
        (NARROW, with_patience::<NARROW, 5>),
        (NARROW, with_patience::<NARROW, 10>),
        (WIDE, with_patience::<WIDE, 5>),
        (WIDE, with_patience::<WIDE, 10>),
    ];
    for (log2_positions, nic) in cards {
        for width in [Width::X1, Width::X4] {
            for flow in [Flow::Counted, Flow::Link] {
                let way = KpioParams { flow, ..KpioParams::default() };
                let what = format!("{} positions, {width:?}, {flow:?}", 1 << log2_positions);
                let pair = Pair::up(&setup(way, 4, width, nic));
                let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
                send(&pair, 4, 0, 100, 1000);
                pair.run_for(Duration::from_ms(5));
                let arrived = received(&pair, &listener).len() as u64;
                // What was given up is known from the number of the next frame.
                // In a narrow window lines of the past may still be in the next frame's way: then it is counted, too.
                let last = if log2_positions == WIDE { 1 } else { 4 };
                for n in 0..last {
                    send(&pair, 4, 1_000 + n, 1, 300);
                    pair.run_for(Duration::from_us(500));
                }
                let next = received(&pair, &listener);
                (0..4).for_each(|core| {
                    assert!(next.contains(&(999 + last + core * 10_000)), "{what}: {next:?}")
                });
                let counts = [counter::KPIO_WAITS, counter::KPIO_MISSING].map(|which| count(&pair, which));
                let expected = 400 + 4 * u64::from(last);
                assert_eq!(arrived + next.len() as u64 + counts[1], expected, "{what}");
                assert_eq!(counts[0] > 0, width == Width::X1, "{what}: lines are given up");
                assert_eq!(pair.counters(0).resets.get(), 0, "{what}");
            }
        }
    }
}

/// The link is down for long, so that more lines are lost than there are positions; then packets go by lines again, and a change
/// of the path does not wait for what was lost.
#[test]
fn after_a_lost_link_the_driver_goes_on_without_a_reset() {
    let cards: [Card; 2] = [(NARROW, with_patience::<NARROW, 20>), (WIDE, with_patience::<WIDE, 20>)];
    for (log2_positions, nic) in cards {
        for framed in [true, false] {
            for flow in [Flow::Counted, Flow::Link] {
                let way = KpioParams { flow, framed, ..KpioParams::default() };
                let what = format!("{} positions, framed {framed}, {flow:?}", 1 << log2_positions);
                for frames in [1, 3, 4, 8, 40] {
                    let pair = Pair::up(&setup(way, 1, Width::X4, nic));
                    let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
                    send(&pair, 1, 0, 5, 1000);
                    pair.run_for(Duration::from_us(100));
                    let link =
                        |is_down: bool| {
                            let host = pair.hosts[0].host;
                            pair.simulation.handle().with(|fabric, scheduler| {
                                let (host, mut cx) = fabric.host_in(host, scheduler);
                                cx.with(LinkId(0), |link, cx| {
                                    if is_down { link.take_down(cx) } else { link.bring_up(cx) }
                                });
                                host.link_drained(&mut cx, 0);
                            });
                        };
                    link(true);
                    send(&pair, 1, 100, frames, 1000);
                    pair.run_for(Duration::from_us(60));
                    link(false);
                    pair.run_for(Duration::from_us(100));
                    // The last that was to be heard was the request for an interrupt: the kernel's watchdog has it asked again.
                    pair.run_for(Duration::from_ms(5_010));
                    let before = received(&pair, &listener);
                    // By the other path, when what was sent by lines has left or is given up; and back.
                    for (first, select) in [(2_000, PacketSelect::None), (3_000, PacketSelect::All)] {
                        let driver = Rc::clone(&pair.hosts[0].driver);
                        pair.run(0, 0, move |cpu| Box::pin(async move { driver.set_select(&cpu, select) }));
                        send(&pair, 1, first, 3, 200);
                        pair.run_for(Duration::from_us(500));
                    }
                    let after = received(&pair, &listener);
                    assert_eq!(after, [2_000, 2_001, 2_002, 3_000, 3_001, 3_002], "{what}, {frames} frames");
                    let lost = 5 + u64::from(frames) - before.len() as u64;
                    assert!(
                        lost > 0 && before.starts_with(&[0, 1, 2, 3, 4]),
                        "{what}, {frames} frames: {before:?}"
                    );
                    let missing = if framed { lost } else { 0 };
                    assert_eq!(count(&pair, counter::KPIO_MISSING), missing, "{what}, {frames} frames");
                    assert_eq!(pair.counters(0).resets.get(), 0, "{what}, {frames} frames");
                }
            }
        }
    }
}

/// A ring that is stuck beside lines that nobody waits for is no lost interrupt: the device does not send, and is reset.
#[test]
fn a_stuck_ring_beside_idle_lines_is_reset() {
    for select in [PacketSelect::None, PacketSelect::UpTo(100)] {
        let pair = Pair::up(&setup(
            KpioParams { select, ..KpioParams::default() },
            1,
            Width::X4,
            with_patience::<WIDE, 20>,
        ));
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        send(&pair, 1, 0, 5, 1000);
        pair.run_for(Duration::from_us(200));
        assert_eq!(received(&pair, &listener), [0, 1, 2, 3, 4], "{select:?}");
        pair.hosts[0].handle.set_hung(true);
        send(&pair, 1, 100, 600, 120);
        pair.run_for(Duration::from_ms(11_000));
        let counters = pair.counters(0);
        assert_eq!((counters.lost_interrupts.get(), counters.resets.get()), (0, 1), "{select:?}");
    }
}
