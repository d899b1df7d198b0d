//! A TX queue.

use std::collections::VecDeque;

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
    pub hungry: bool,
    /// Data written to the queue's inline doorbell page.
    pub(super) page: InlinePage,
}

impl TxQueue {
    pub fn new(cache: u16) -> Self {
        Self {
            ring: Ring::new(cache),
            jobs: VecDeque::new(),
            is_listed: false,
            hungry: false,
            page: InlinePage::default(),
        }
    }
}
