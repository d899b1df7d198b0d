//! A TX queue.

use std::collections::VecDeque;

use platform::device::DeviceBus;

use crate::nic::inline::InlinePage;
use crate::nic::ring::Ring;

/// State of a TX queue.
pub struct TxQueue {
    pub ring: Ring,
    /// Packets whose data is being read, oldest first, as indices into the job table.
    pub(super) jobs: VecDeque<u16>,
    /// Whether the queue is in line for its turn.
    pub(super) is_listed: bool,
    /// The first descriptors of a packet have been fetched, but not its last.
    pub(super) hungry: bool,
    /// Data written to the queue's inline doorbell page.
    pub(super) page: InlinePage,
}

impl TxQueue {
    pub fn new(ring: Ring) -> Self {
        Self { ring, jobs: VecDeque::new(), is_listed: false, hungry: false, page: InlinePage::default() }
    }

    /// Fetches descriptors if it is time.
    pub fn fetch(&mut self, bus: &mut dyn DeviceBus) {
        self.ring.fetch(bus, self.hungry);
    }
}
