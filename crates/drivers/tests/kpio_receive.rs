//! Frames are received by programmed I/O: short ones stay in the device, and the core fetches them.

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use devices::nic::{KpioParams as Parts, NicParams};
use drivers::nic::{HeldParams, Loads, NicDriverParams};
use platform::device::FunctionIndex;
use proptest::prelude::*;
use units::{BitRate, Duration};
use wire::nic::registers::counter;

/// Room for 32 frames.
fn wide(nic: &mut NicParams) {
    nic.kpio = Some(Parts::example());
}

/// The paper's window: room for four.
fn papers(nic: &mut NicParams) {
    nic.kpio = Some(Parts { log2_positions: Parts::example().log2_lines, ..Parts::example() });
}

/// Sends frames, so many nanoseconds apart, and gives the numbers of those that arrive, each of them checked.
fn through(pair: &Pair, frames: Vec<(usize, u64)>) -> Vec<u32> {
    let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
    let (device, buffers) = (pair.device(0), Buffers::new(&pair.hosts[0].kernel));
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for (n, (length, pause)) in (0u32..).zip(frames) {
                let packet = buffers.packet(&cpu, &frame(1, length, n), 4096);
                device.send(&cpu, packet, false).unwrap();
                cpu.sleep(Duration::from_ns(pause)).await;
            }
        })
    });
    pair.run_for(Duration::from_ms(20));
    pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let mut numbers = Vec::new();
            while let Some(packet) = listener.try_take() {
                numbers.push(check(&bytes_of(&cpu, &packet), 1));
                packet.release(&cpu);
            }
            numbers
        })
    })
}

fn up(held: Option<HeldParams>, nic: fn(&mut NicParams), gbit: u64) -> Pair {
    let driver = NicDriverParams { channels: Some(1), held, ..NicDriverParams::default() };
    Pair::up(&Setup { driver, nic, rate: BitRate::gbit_per_s(gbit), ..Setup::default() })
}

#[test]
fn short_frames_are_fetched_and_long_ones_come_by_dma() {
    for loads in [Loads::Streaming, Loads::Uncached] {
        let pair = up(Some(HeldParams { up_to: 256, loads }), wide, 40);
        let frames: Vec<_> = (60..1514).step_by(29).map(|length| (length, 20_000)).collect();
        let short = frames.iter().filter(|(length, _)| *length <= 256).count() as u64;
        assert_eq!(through(&pair, frames.clone()), (0..frames.len() as u32).collect::<Vec<_>>());
        assert_eq!(pair.counters(1).rx_fetched.get(), short);
        assert_eq!(pair.hosts[1].handle.counter(FunctionIndex(0), counter::RX_HELD), short);
    }
}

#[test]
fn where_no_place_is_free_frames_come_by_dma() {
    let pair = up(Some(HeldParams { up_to: 2048, loads: Loads::Uncached }), papers, 40);
    assert_eq!(through(&pair, vec![(1000, 2_000); 200]), (0..200).collect::<Vec<_>>());
    let fetched = pair.counters(1).rx_fetched.get();
    assert!(fetched > 4 && fetched < 200, "{fetched} were fetched");
}

#[test]
fn a_device_without_windows_sends_all_by_dma() {
    let pair = up(Some(HeldParams { up_to: 2048, loads: Loads::Streaming }), |_| {}, 40);
    assert_eq!(through(&pair, vec![(100, 100); 50]).len(), 50);
    assert_eq!(pair.counters(1).rx_fetched.get(), 0);
}

#[test]
fn a_stop_and_a_start_leave_nothing_behind() {
    let pair = up(Some(HeldParams { up_to: 2048, loads: Loads::Streaming }), papers, 40);
    for round in 1..4 {
        assert_eq!(through(&pair, vec![(700, 30_000); 30]).len(), 30);
        assert!(pair.counters(1).rx_fetched.get() >= round * 20);
        let device = pair.device(1);
        pair.run(1, 0, move |cpu| {
            Box::pin(async move {
                device.stop(&cpu).await;
                device.open(&cpu).await
            })
        })
        .unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// However long frames are and however fast they come: each arrives once, as it was sent, in its turn, or is counted.
    #[test]
    fn every_frame_arrives_as_it_was_sent(
        frames in prop::collection::vec((60usize..1515, 0u64..3_000), 1..100),
        up_to in 0u16..2049,
        streaming in any::<bool>(),
        is_wide in any::<bool>(),
        gbit in prop::sample::select(vec![1u64, 10, 40]),
    ) {
        let loads = if streaming { Loads::Streaming } else { Loads::Uncached };
        let pair = up(Some(HeldParams { up_to, loads }), if is_wide { wide } else { papers }, gbit);
        let sent = frames.len();
        let numbers = through(&pair, frames);
        prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        let count = |which| pair.hosts[1].handle.counter(FunctionIndex(0), which);
        let dropped = count(counter::RX_NO_BUFFER) + count(counter::RX_OVERFLOW);
        prop_assert_eq!(numbers.len() as u64 + dropped, sent as u64);
        prop_assert_eq!(pair.counters(1).rx_fetched.get(), count(counter::RX_HELD));
    }
}
