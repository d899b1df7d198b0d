//! A queue of packets to be sent.

use std::collections::VecDeque;

use crate::nic::inline::InlinePage;
use crate::nic::ring::Ring;

/// A TX queue.
pub struct TxQueue {
    pub ring: Ring,
    /// Packets whose data is on its way, oldest first: places in the jobs' table.
    pub(super) jobs: VecDeque<u16>,
    /// Whether it waits for its turn.
    pub(super) is_listed: bool,
    /// A packet's first descriptors are here, its last are not.
    pub hungry: bool,
    /// What has been written to the queue's page.
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
