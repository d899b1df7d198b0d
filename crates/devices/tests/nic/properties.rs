//! For any sizes, fragments, rings and delays, each frame arrives once and in order, and each descriptor completes
//! once. No input from host or network causes a panic.

use proptest::prelude::*;
use units::Duration;
use wire::ethernet::append_fcs;
use wire::nic::TxDescriptor;
use wire::nic::completion::FAILED;
use wire::nic::registers::{feature, queue};

use super::driver::{Queue, enable};
use super::{frame, mac, pair};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_frame_arrives_once_and_in_order(
        frames in proptest::collection::vec((60usize..1500, 40usize..2000, any::<bool>()), 1..150),
        queues in 1u8..3, log2 in 6u8..8, in_place in any::<bool>(), jitter_ns in 0u64..5000, seed in any::<u64>(),
        batch in 0u32..10,
    ) {
        let mode = if in_place { queue::IN_PLACE } else { queue::TO_RING };
        let (mut bench, _) = pair();
        bench.seed(seed);
        bench.world.jitter = Duration::from_ns(jitter_ns);
        enable(&mut bench, 0, 0, 0);
        enable(&mut bench, 1, 0, 0);
        let mut tx: Vec<Queue> =
            (0..queues).map(|n| Queue::start(&mut bench, (0, 0, n, true), log2, mode)).collect();
        for queue in &tx {
            queue.set(&mut bench, queue::BATCH, batch);
        }
        let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 8, mode);
        rx.give(&mut bench, 256);
        let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); queues.into()];
        let mut received: Vec<Vec<Vec<u8>>> = expected.clone();
        let mut completed = vec![0u32; queues.into()];
        for step in 0..frames.len() + 400 {
            if let Some(&(length, piece, waits)) = frames.get(step) {
                let n = step % usize::from(queues);
                let pieces = length.div_ceil(piece) as u16;
                while tx[n].room() < pieces {
                    bench.run_for(Duration::from_ns(300));
                    while let Some(completion) = tx[n].poll(&mut bench) {
                        prop_assert!(!completion.has(FAILED));
                        completed[n] += 1;
                    }
                    while let Some((frame, _)) = rx.receive(&mut bench) {
                        received[usize::from(frame[6 + 5]) - 10].push(frame);
                    }
                    rx.give(&mut bench, rx.room());
                }
                let frame = frame(10 + n as u32, mac(2), length, step as u32);
                tx[n].send(&mut bench, &frame, piece, TxDescriptor::default());
                expected[n].push(frame);
                tx[n].ring_doorbell(&mut bench);
                if !waits {
                    continue;
                }
            }
            bench.run_for(Duration::from_ns(400));
            for n in 0..usize::from(queues) {
                while let Some(completion) = tx[n].poll(&mut bench) {
                    prop_assert!(!completion.has(FAILED));
                    completed[n] += 1;
                }
            }
            while let Some((frame, _)) = rx.receive(&mut bench) {
                received[usize::from(frame[6 + 5]) - 10].push(frame);
            }
            rx.give(&mut bench, rx.room());
        }
        for (n, tx) in tx.iter().enumerate() {
            prop_assert_eq!(tx.done, tx.tail);
            let expected = if in_place { u32::from(tx.tail) } else { expected[n].len() as u32 };
            prop_assert_eq!(completed[n], expected);
        }
        prop_assert!(received == expected);
    }

    #[test]
    fn no_frame_upsets_it(
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), 0u8..4), 1..40),
        features in any::<u32>(),
    ) {
        let (mut bench, _) = pair();
        enable(&mut bench, 1, 0, features | feature::PROMISCUOUS);
        let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
        rx.give(&mut bench, 64);
        bench.run_for(Duration::from_us(5));
        for (mut bytes, kind) in frames {
            if kind > 0 {
                // Close to an IP packet with valid length and check sequence.
                bytes.resize(bytes.len().max(60), 0);
                bytes[12..14].copy_from_slice(if kind == 3 { &[0x86, 0xdd] } else { &[8, 0] });
                bytes[14] = if kind == 3 { 0x60 } else { bytes[14] & 0xf | 0x40 };
                bytes[16] = 0;
                bytes[18] = 0;
                bytes[23] = if kind == 1 { 6 } else { 17 };
                append_fcs(&mut bytes);
            }
            bench.inject(1, 0, &bytes);
        }
        bench.run_for(Duration::from_us(20));
        while rx.receive(&mut bench).is_some() {}
    }

    #[test]
    fn no_host_upsets_it(
        writes in proptest::collection::vec((0u64..0x400, any::<u32>(), 0u8..6), 1..200),
        ring in proptest::collection::vec(any::<[u8; 16]>(), 64),
    ) {
        let (mut bench, _) = pair();
        enable(&mut bench, 0, 0, u32::MAX);
        for (n, descriptor) in ring.iter().enumerate() {
            let mut descriptor = *descriptor;
            // Half of the addresses are valid memory.
            if n % 2 == 0 {
                descriptor[3..8].fill(0);
            }
            bench.world.bytes(0, 16 * n as u64, 16).unwrap().copy_from_slice(&descriptor);
        }
        for (at, value, block) in writes {
            let base = [0, 0x1_0000, 0x2_0000, 0x3_0000, 0x1000, 0x1_0000][usize::from(block)];
            let value = if block == 5 || at & 0x7c == queue::TAIL { value & 0x3f } else { value };
            bench.write32(0, 0, base + (at & !3), value);
            if block == 5 {
                // A queue that is likely to run.
                for (register, value) in [(queue::CONTROL, 0), (queue::RING, 0), (0x0c, 0), (queue::SIZE, 6)] {
                    bench.write32(0, 0, 0x1_0000 + register, value);
                }
                let mode = [queue::TO_RING, queue::IN_PLACE][usize::from(value as u8 & 1)];
                bench.write32(0, 0, 0x1_0000 + queue::CONTROL, mode | queue::ENABLE);
                bench.write32(0, 0, 0x1_0000 + queue::TAIL, value);
            }
            bench.run_for(Duration::from_ns(200));
            bench.read32(0, 0, base + (at & !3));
        }
        bench.run_for(Duration::from_us(50));
    }
}
