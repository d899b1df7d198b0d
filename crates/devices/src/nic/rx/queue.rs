//! A queue of received frames.

use std::collections::VecDeque;

use crate::nic::held::ReceiveWindow;
use crate::nic::ring::Ring;

/// An RX queue.
pub struct RxQueue {
    pub ring: Ring,
    /// Frames in the device that wait for buffers or for their turn.
    pub(super) waiting: VecDeque<(Vec<u8>, Seen)>,
    pub(super) is_listed: bool,
    /// Frames that came for it.
    pub(super) came: u32,
    /// Those that the driver is to fetch.
    pub held: ReceiveWindow,
    /// Reads through other functions that must have come back before frames that wait for them are written, by number, and
    /// whose they are.
    pub(super) fences: Vec<(u16, u8)>,
}

impl RxQueue {
    pub fn new(cache: u16) -> Self {
        Self {
            ring: Ring::new(cache),
            waiting: VecDeque::new(),
            is_listed: false,
            came: 0,
            held: ReceiveWindow::default(),
            fences: Vec::new(),
        }
    }

    /// Frames that came for it.
    pub fn came(&self) -> u32 {
        self.came
    }

    /// Whether frames wait for buffers.
    pub fn is_hungry(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a frame that came as its `count`-th, or one before, waits in the device.
    pub fn has_waiting(&self, count: u32) -> bool {
        let gone = self.came.wrapping_sub(self.waiting.len() as u32);
        !self.waiting.is_empty() && count.wrapping_sub(gone) as i32 > 0
    }
}

/// What was found out about a frame.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) hash: u32,
    pub(super) flags: u16,
    pub(super) rule: u16,
    /// The fence that it waits for.
    pub(super) fence: Option<u16>,
}
