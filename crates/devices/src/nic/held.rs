//! Received frames that stay in the device until the driver has fetched them: kPIO on the receive side (kPIO+WC, section
//! V, leaves it to the future).
//!
//! A completion tells of such a frame as of any other, but its buffer is empty: the frame lies in the receive window, which
//! is what the window of the kPIO queue with the same number reads. Its place is free again when the driver gives a buffer in
//! the place of the one that the frame was meant for.

use wire::nic::registers::{HELD_BYTES, counter};

use super::function::NicFunction;

/// The receive window of an RX queue.
#[derive(Default)]
pub struct ReceiveWindow {
    memory: Vec<u8>,
    /// By place, the count of the buffer whose frame was put there last.
    counts: Vec<Option<u16>>,
    /// The life of the ring that they belong to.
    life: u16,
}

impl NicFunction {
    /// Keeps a frame for the buffer `count` of a queue, if the driver wants that and its place is free.
    pub(super) fn hold_frame(&mut self, queue: u8, count: u16, frame: &[u8]) -> bool {
        let Some(kpio) = self.nic().kpio.filter(|kpio| u16::from(queue) < kpio.queues) else { return false };
        let most = usize::from(self.longest_held).min(HELD_BYTES as usize);
        let (places, rx) = ((kpio.window() / HELD_BYTES) as usize, &mut self.rx[usize::from(queue)]);
        if frame.len() > most || places == 0 || self.physical.is_some() {
            return false;
        }
        if rx.held.life != rx.ring.life || rx.held.counts.is_empty() {
            rx.held = ReceiveWindow {
                memory: vec![0; kpio.window() as usize],
                counts: vec![None; places],
                life: rx.ring.life,
            };
        }
        let place = usize::from(count) % places;
        let entries = rx.ring.entries();
        if rx.held.counts[place].is_some_and(|last| u32::from(rx.ring.tail.wrapping_sub(last)) <= entries) {
            return false;
        }
        rx.held.counts[place] = Some(count);
        let at = place * HELD_BYTES as usize;
        rx.held.memory[at..at + frame.len()].copy_from_slice(frame);
        self.count(counter::RX_HELD, 1);
        true
    }

    /// Reads the receive windows; zeros where no frame has been.
    pub(super) fn read_held(&self, at: u64, into: &mut [u8]) {
        into.fill(0);
        let Some(kpio) = self.nic().kpio else { return };
        let (queue, at) = ((at / kpio.window()) as usize, (at % kpio.window()) as usize);
        let rx = self.rx.get(queue);
        if let Some(bytes) = rx.and_then(|rx| rx.held.memory.get(at..at + into.len())) {
            into.copy_from_slice(bytes);
        }
    }
}
