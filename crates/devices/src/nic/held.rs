//! Received frames that stay in the device until the driver fetches them: programmed I/O on the receive side.
//!
//! Such a frame has a completion like any other, but its buffer stays empty: the frame is in the receive window, which
//! is read through the queue's window in `WINDOW_BAR`. Its slot is free again when the driver posts a
//! buffer in place of the one that the frame was meant for.

use engine::Epoch;
use wire::nic::registers::HELD_BYTES;

use super::ring::Ring;

/// Receive window of an RX queue.
#[derive(Default)]
pub struct ReceiveWindow {
    memory: Vec<u8>,
    /// By slot: index of the buffer whose frame was stored there last.
    counts: Vec<Option<u16>>,
    /// Life of the ring that the indices belong to.
    life: Epoch,
}

impl ReceiveWindow {
    /// Stores a frame for buffer `count` of a ring, in a window of `size` bytes, if its slot is free.
    pub fn put(&mut self, ring: &Ring, size: u64, count: u16, frame: &[u8]) -> bool {
        let places = (size / HELD_BYTES) as usize;
        if places == 0 {
            return false;
        }
        if self.life != ring.life() || self.counts.is_empty() {
            *self = Self { memory: vec![0; size as usize], counts: vec![None; places], life: ring.life() };
        }
        let place = usize::from(count) % places;
        if self.counts[place].is_some_and(|last| !ring.has_passed(last)) {
            return false;
        }
        self.counts[place] = Some(count);
        let at = place * HELD_BYTES as usize;
        self.memory[at..at + frame.len()].copy_from_slice(frame);
        true
    }

    /// Reads bytes of the window; `None` where no frame has been.
    pub fn get(&self, at: usize, length: usize) -> Option<&[u8]> {
        self.memory.get(at..at + length)
    }
}
