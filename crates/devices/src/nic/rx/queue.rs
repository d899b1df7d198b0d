//! An RX queue.

use std::collections::VecDeque;

use platform::device::DeviceBus;

use crate::nic::held::ReceiveWindow;
use crate::nic::ring::Ring;

/// State of an RX queue.
pub struct RxQueue {
    pub ring: Ring,
    /// Frames in the device that wait for buffers or for their turn.
    pub(super) waiting: VecDeque<(Vec<u8>, Seen)>,
    pub(super) is_listed: bool,
    /// Number of frames that arrived for this queue.
    pub(super) came: u32,
    /// Frames held for the driver to fetch.
    pub held: ReceiveWindow,
    /// Pending fences, by number and function: reads through other functions that have to complete before the frames
    /// that wait for them are written.
    pub(super) fences: Vec<(u16, u8)>,
}

impl RxQueue {
    pub fn new(ring: Ring) -> Self {
        Self {
            ring,
            waiting: VecDeque::new(),
            is_listed: false,
            came: 0,
            held: ReceiveWindow::default(),
            fences: Vec::new(),
        }
    }

    /// Number of frames that arrived for this queue.
    pub fn came(&self) -> u32 {
        self.came
    }

    /// Fetches descriptors if it is time.
    pub fn fetch(&mut self, bus: &mut dyn DeviceBus) {
        self.ring.fetch(bus, !self.waiting.is_empty());
    }

    /// Whether the `count`-th frame or an earlier one still waits in the device.
    pub fn has_waiting(&self, count: u32) -> bool {
        let gone = self.came.wrapping_sub(self.waiting.len() as u32);
        !self.waiting.is_empty() && count.wrapping_sub(gone) as i32 > 0
    }
}

/// Results of the receive checks of a frame.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) hash: u32,
    pub(super) flags: u16,
    pub(super) rule: u16,
    /// The fence that the frame waits for.
    pub(super) fence: Option<u16>,
}
