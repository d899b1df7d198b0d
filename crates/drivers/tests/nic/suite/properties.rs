//! What holds whatever happens: order within a flow, nothing doubled or lost uncounted, no mapping left, no crash.

use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of};
use hardware::ethernet::FaultParams;
use kernel::DmaMode;
use platform::Error;
use platform::cpu::CpuId;
use platform::device::FunctionIndex;
use platform::kernel::TaskParams;
use platform::net::TxFlow;
use platform::sync::Completion;
use proptest::prelude::*;
use units::Duration;
use wire::ethernet::{EthernetHeader, HEADER_LEN, MacAddr};
use wire::nic::registers::counter;

/// A frame of a flow with its number in it.
fn numbered(flow: u32, number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; length];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), TYPE).emit(&mut frame);
    frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&flow.to_le_bytes());
    frame[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&number.to_le_bytes());
    frame
}

fn flow_and_number(frame: &[u8]) -> (usize, u32) {
    let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
    (word(HEADER_LEN) as usize, word(HEADER_LEN + 4))
}

fn mode() -> impl Strategy<Value = DmaMode> {
    prop::sample::select(vec![DmaMode::Off, DmaMode::Strict, DmaMode::Lazy])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Threads that move between cores in the middle of everything: what they send keeps its order, whatever waits
    /// where, and each frame arrives once or is counted.
    #[test]
    fn no_frame_of_a_flow_passes_another_when_its_thread_moves(
        moves in prop::collection::vec((0u64..30_000, 0u16..16), 1..40),
        flows in 1usize..4,
        count in 20u32..200,
        log2_tx in 3u8..9,
        gbit in prop::sample::select(vec![1u64, 10, 40, 400]),
        mode in mode(),
    ) {
        let mut setup = Setup { mode, rate: units::BitRate::gbit_per_s(gbit), ..Setup::default() };
        setup.driver.channels = Some(8);
        setup.driver.log2_tx = log2_tx;
        setup.driver.log2_rx = 6;
        let pair = Pair::up(&setup);
        let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
        let buffers = Buffers::new(&pair.hosts[0].kernel);
        let kernel = pair.hosts[0].kernel.face();
        let refused = Rc::new(std::cell::Cell::new(0u64));
        let mut ends = Vec::new();
        let mut tasks = Vec::new();
        for flow in 0..flows as u32 {
            let (device, buffers) = (pair.device(0), Rc::clone(&buffers));
            let (done, refused) = (Completion::new(), Rc::clone(&refused));
            let told = done.clone();
            let task = pair.hosts[0].kernel.spawn(TaskParams::named("sender").on(CpuId(flow as u16)), move |cpu| {
                Box::pin(async move {
                    let state = Rc::new(TxFlow::default());
                    for number in 0..count {
                        let length = 60 + (number as usize * 37 + flow as usize) % 1400;
                        let mut packet = buffers.packet(&cpu, &numbered(flow, number, length), 1000);
                        packet.join(&state);
                        if device.send(&cpu, packet, number % 5 != 4 && number + 1 < count).is_err() {
                            refused.set(refused.get() + 1);
                        }
                        // Now and then it waits, so that a move takes effect and its flow runs dry.
                        if number % 7 == 3 {
                            cpu.sleep(Duration::from_ns(u64::from(number * 131 % 3000))).await;
                        } else {
                            cpu.sync().await;
                        }
                    }
                    told.complete(());
                })
            });
            tasks.push(task);
            ends.push(done);
        }
        for (n, (after_ns, core)) in moves.into_iter().enumerate() {
            pair.run_for(Duration::from_ns(after_ns));
            // One that has sent all has ended, and cannot be moved any more.
            let moved = kernel.set_affinity(tasks[n % flows], &[CpuId(core)]);
            let end = &ends[n % flows];
            let has_ended = end.try_take().map(|()| end.complete(())).is_some();
            prop_assert!(moved.is_ok() || has_ended, "{moved:?}");
        }
        pair.run_for(Duration::from_ms(200));
        prop_assert!(ends.iter().all(|end| end.try_take().is_some()));
        let mut last = vec![None; flows];
        let mut arrived = 0u64;
        while let Some(packet) = listener.try_take() {
            let bytes = pair.run(1, 0, move |cpu| Box::pin(async move {
                let bytes = bytes_of(&cpu, &packet);
                packet.release(&cpu);
                bytes
            }));
            let (flow, number) = flow_and_number(&bytes);
            prop_assert!(bytes == numbered(flow as u32, number, bytes.len()));
            prop_assert!(last[flow] < Some(number), "flow {flow}: {number} after {:?}", last[flow]);
            last[flow] = Some(number);
            arrived += 1;
        }
        let sent = flows as u64 * u64::from(count);
        let rx = |which| pair.hosts[1].handle.counter(FunctionIndex(0), which);
        let dropped = rx(counter::RX_NO_BUFFER) + rx(counter::RX_OVERFLOW);
        prop_assert_eq!(arrived + dropped + refused.get(), sent);
        prop_assert_eq!(pair.counters(0).resets.get(), 0);
        prop_assert_eq!(buffers.out.get(), 0);
        prop_assert_eq!(buffers.released.get(), sent);
    }

    /// Stopping, starting and taking out in the middle of traffic: all buffers come back, no mapping is left.
    #[test]
    fn no_mapping_is_left_whenever_the_device_stops(
        stops in prop::collection::vec((1u64..200, any::<bool>()), 1..6),
        mode in mode(),
    ) {
        let pair = Pair::up(&Setup { mode, ..Setup::default() });
        let buffers = Buffers::new(&pair.hosts[0].kernel);
        let (device, mine) = (pair.device(0), Rc::clone(&buffers));
        let over = Rc::new(std::cell::Cell::new(false));
        let stop_sending = Rc::clone(&over);
        let sender = pair.spawn(0, 3, move |cpu| Box::pin(async move {
            let mut number = 0;
            while !stop_sending.get() {
                let packet = mine.packet(&cpu, &numbered(0, number, 600), 200);
                number += 1;
                match device.send(&cpu, packet, number % 4 != 0) {
                    Err(Error::NoDevice) => break,
                    Err(_) => cpu.sleep(Duration::from_us(3)).await,
                    Ok(()) => cpu.sync().await,
                }
            }
        }));
        for (us, receiver) in stops {
            pair.run_for(Duration::from_us(us));
            let host = usize::from(receiver);
            let device = pair.device(host);
            let again = pair.run(host, 5, move |cpu| Box::pin(async move {
                device.stop(&cpu).await;
                device.open(&cpu).await
            }));
            prop_assert_eq!(again, Ok(()));
        }
        over.set(true);
        pair.run_for(Duration::from_ms(5));
        prop_assert!(sender.try_take().is_some());
        for host in 0..2 {
            let device = pair.device(host);
            pair.run(host, 5, move |cpu| Box::pin(async move { device.stop(&cpu).await }));
            let counters = pair.device(host).counters();
            prop_assert_eq!(counters.tx_packets, counters.tx_done);
        }
        prop_assert_eq!(buffers.out.get(), 0);
        for host in &pair.hosts {
            pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(host.nic));
        }
        pair.run_for(Duration::from_ms(100));
        for (n, host) in pair.hosts.iter().enumerate() {
            prop_assert_eq!(pair.mapped(n), 0);
            let log = host.kernel.log();
            let bad = log.iter().find(|(_, line)| line.contains("left") || line.contains("not mapped"));
            prop_assert!(bad.is_none(), "{:?}", log);
            prop_assert!(host.kernel.iommu_faults().is_empty(), "{:?}", host.kernel.iommu_faults());
        }
    }

    /// Any bytes sent as a frame, cut as nobody should, on a wire that damages and doubles: no crash, all counted.
    #[test]
    fn malformed_frames_do_no_harm(
        frames in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 1..400), 0u16..3000, 0u16..80, any::<bool>(), 1usize..200),
            1..60,
        ),
        seed in any::<u64>(),
    ) {
        let faults = FaultParams {
            loss: 0.05,
            corruption: 0.1,
            bit_error_rate: 0.0,
            duplication: 0.05,
            reordering: 0.1,
            longest_delay: Duration::from_us(20),
            seed: engine::Seed::new(seed),
        };
        let pair = Pair::up(&Setup { faults: Some(faults), ..Setup::default() });
        let promiscuous = pair.device(1);
        let listener = promiscuous.listen(None, 1 << 16);
        pair.run(1, 0, move |cpu| Box::pin(async move { promiscuous.set_promiscuous(&cpu, true) }));
        let buffers = Buffers::new(&pair.hosts[0].kernel);
        let (device, mine, count) = (pair.device(0), Rc::clone(&buffers), frames.len() as u64);
        pair.run(0, 0, move |cpu| Box::pin(async move {
            for (n, (mut bytes, segment, headers, sound, piece)) in frames.into_iter().enumerate() {
                if sound && bytes.len() >= HEADER_LEN + 20 {
                    // Headers that look like IPv4 and TCP, so that what follows is parsed.
                    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                    bytes[HEADER_LEN + 9] = 6;
                    bytes[..6].copy_from_slice(&MacAddr::local(2).0);
                }
                let mut packet = mine.packet(&cpu, &bytes, piece);
                packet.segment = if n % 3 == 0 { segment } else { 0 };
                packet.headers = headers;
                packet.checksum = platform::net::Checksum::Offload { start: headers, offset: segment };
                let _ = device.send(&cpu, packet, false);
                cpu.sync().await;
            }
        }));
        pair.run_for(Duration::from_ms(20));
        let tx = |which| pair.hosts[0].handle.counter(FunctionIndex(0), which);
        let rx = |which| pair.hosts[1].handle.counter(FunctionIndex(0), which);
        prop_assert_eq!((buffers.out.get(), buffers.released.get()), (0, count));
        let refused = pair.counters(0).tx_refused.get();
        let failed = pair.counters(0).tx_failed.get();
        let cut_extra = tx(counter::TX_SEGMENTS);
        prop_assert!(tx(counter::TX_FRAMES) + failed + refused >= count, "{} {failed} {refused} of {count}, {}", tx(counter::TX_FRAMES), tx(counter::TX_ERRORS));
        prop_assert!(tx(counter::TX_FRAMES) <= count + cut_extra);
        // What the wire did not lose is received, filtered, or counted as damaged.
        let wire = pair.simulation.with(|fabric, _| {
            fabric.wires.ethernet.sent(hardware::ethernet::CableEnd { cable: pair.cable, end: 0 }).clone()
        });
        let seen = rx(counter::RX_FRAMES)
            + rx(counter::RX_FILTERED)
            + rx(counter::RX_FCS_ERRORS)
            + rx(counter::RX_LENGTH_ERRORS)
            + rx(counter::RX_NO_BUFFER)
            + rx(counter::RX_OVERFLOW);
        prop_assert_eq!(seen, wire.frames - wire.lost + wire.duplicated);
        let mut taken = 0;
        while let Some(packet) = listener.try_take() {
            pair.run(1, 0, move |cpu| Box::pin(async move { packet.release(&cpu) }));
            taken += 1;
        }
        prop_assert_eq!(taken, rx(counter::RX_FRAMES));
    }
}
