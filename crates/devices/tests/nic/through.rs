//! Packets whose fragments several functions read, each from its own node's memory (IOctopus, 3.3: IOctoSG).

use platform::device::{FunctionIndex, Reset};
use proptest::prelude::*;
use units::Duration;
use wire::nic::TxDescriptor;
use wire::nic::descriptor::{END, REPORT, THROUGH_FUNCTION};
use wire::nic::registers::{counter, queue};

use super::bench::{Asked, Bench};
use super::driver::{Queue, enable};
use super::steering::two_functions_with;
use super::{frame, mac};

/// The first function's queue.
fn tx(bench: &mut Bench) -> Queue {
    Queue::start(bench, (1, 0, 0, true), 6, queue::TO_RING)
}

/// Queues a frame whose second half the second function reads.
fn send(bench: &mut Bench, tx: &mut Queue, bytes: &[u8]) {
    let halves = [(&bytes[..bytes.len() / 2], 0, 0), (&bytes[bytes.len() / 2..], THROUGH_FUNCTION, 1)];
    let at = tx.buffer_at(tx.tail);
    let mut done = 0;
    for (n, (half, through, function)) in halves.into_iter().enumerate() {
        let address = at + done;
        bench.world.bytes(1, address, half.len()).unwrap().copy_from_slice(half);
        let end = if n == 1 { END | REPORT } else { 0 };
        let (length, flags) = (half.len() as u16, through | end);
        tx.put_descriptor(
            bench,
            TxDescriptor { address, length, flags, function, ..Default::default() }.emit(),
        );
        done += half.len() as u64;
    }
}

/// What the card has sent, without check sequences.
fn sent(bench: &Bench) -> Vec<Vec<u8>> {
    let own = bench.world.sent.iter().filter(|(device, ..)| *device == 1);
    own.map(|(_, _, frame)| frame[..frame.len() - 4].to_vec()).collect()
}

/// A packet is complete when the slower function has read its part, whichever that is.
#[test]
fn a_packet_waits_for_the_slower_function() {
    for slow in [0, 1] {
        let (mut bench, _) = two_functions_with([mac(2), mac(2)], |_| {});
        let mut tx = tx(&mut bench);
        bench.world.slow = Some((slow, Duration::from_us(50)));
        let bytes = frame(2, mac(1), 600, 7);
        send(&mut bench, &mut tx, &bytes);
        tx.ring_doorbell(&mut bench);
        // Descriptors are read by the first function, which may be the slow one.
        let descriptors = if slow == 0 { 51 } else { 1 };
        bench.run_for(Duration::from_us(descriptors + 45));
        let answered =
            |bench: &Bench, f| bench.world.log.contains(&Asked::Answered(1, f, bytes.len() as u32 / 2));
        assert!(answered(&bench, 1 - slow) && !answered(&bench, slow));
        assert_eq!((tx.poll(&mut bench).is_some(), sent(&bench).len()), (false, 0));
        bench.run_for(Duration::from_us(10));
        assert!(answered(&bench, slow));
        assert_eq!((tx.poll(&mut bench).is_some(), sent(&bench)), (true, vec![bytes]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// A function is reset while it reads its parts of packets, for itself or for the other function: what is sent is whole and
    /// in order, every packet that the queue still has is completed, and nothing is in the way of those that follow.
    #[test]
    fn a_function_that_is_lost_while_it_reads(lost in 0u8..2, packets in 1u32..8, after in 0u64..4_000, seed in any::<u64>()) {
        let (mut bench, handles) = two_functions_with([mac(2), mac(2)], |_| {});
        bench.seed(seed);
        bench.world.jitter = Duration::from_us(2);
        let mut queue = tx(&mut bench);
        let all: Vec<Vec<u8>> = (0..packets).map(|n| frame(2, mac(1), 100 + 200 * n as usize, n)).collect();
        all.iter().for_each(|bytes| send(&mut bench, &mut queue, bytes));
        queue.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_ns(after));
        bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(lost))));
        bench.run_for(Duration::from_us(50));
        let first = sent(&bench);
        let mut left = all.iter();
        for frame in &first {
            prop_assert!(left.any(|bytes| bytes == frame), "what is sent is whole and in order");
        }
        let errors = handles[1].counter(FunctionIndex(0), counter::TX_ERRORS);
        if lost == 1 {
            prop_assert_eq!(first.len() as u64 + errors, packets.into());
            while queue.poll(&mut bench).is_some() {}
            prop_assert_eq!(queue.done, 2 * packets as u16);
        } else {
            queue = tx(&mut bench);
        }
        enable(&mut bench, 1, lost, 0);
        // More than the packet memory holds at once.
        for n in 0..200 {
            let bytes = frame(2, mac(1), 1400, n);
            send(&mut bench, &mut queue, &bytes);
            queue.ring_doorbell(&mut bench);
            bench.run_for(Duration::from_us(20));
            while queue.poll(&mut bench).is_some() {}
            prop_assert_eq!(sent(&bench).pop(), Some(bytes));
        }
        prop_assert_eq!(sent(&bench).len(), first.len() + 200);
    }
}
