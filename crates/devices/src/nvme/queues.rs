//! Queues of a controller, and arbitration among submission queues (section 4.1 and "Command Arbitration").

use std::collections::BTreeMap;

/// A submission queue, from the controller's side.
#[derive(Clone, Debug)]
pub(super) struct SubmissionQueue {
    pub base: u64,
    pub entries: u32,
    /// Tail as written by the host.
    pub tail: u32,
    /// Entries fetched so far.
    pub head: u32,
    /// A fetch is in progress.
    pub fetching: bool,
    /// The queue is being deleted: no more fetches.
    pub closed: bool,
    /// 0 urgent, 1 high, 2 medium, 3 low.
    pub completion_queue: u16,
}

impl SubmissionQueue {
    /// An empty queue.
    pub fn new(base: u64, entries: u32, completion_queue: u16) -> Self {
        Self { base, entries, tail: 0, head: 0, fetching: false, closed: false, completion_queue }
    }

    pub fn waiting(&self) -> u32 {
        (self.tail + self.entries - self.head) % self.entries
    }
}

/// A completion queue, from the controller's side.
#[derive(Clone, Debug)]
pub(super) struct CompletionQueue {
    pub base: u64,
    pub entries: u32,
    pub tail: u32,
    /// Head as written by the host.
    pub head: u32,
    pub phase: bool,
    /// Entries that raise interrupts and have not been consumed by the host.
    pub unread: u32,
    /// Interrupt vector, if interrupts are enabled.
    pub vector: Option<u16>,
}

impl CompletionQueue {
    pub fn new(base: u64, entries: u32, vector: Option<u16>) -> Self {
        Self { base, entries, tail: 0, head: 0, phase: true, unread: 0, vector }
    }

    /// Allocates the next entry. Returns its address and phase, or `None` while the queue is full.
    pub fn take(&mut self) -> Option<(u64, bool)> {
        let next = (self.tail + 1) % self.entries;
        if next == self.head {
            return None;
        }
        let at = (self.base + u64::from(self.tail) * 16, self.phase);
        self.tail = next;
        if next == 0 {
            self.phase = !self.phase;
        }
        Some(at)
    }
}

/// Entries to fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fetch {
    pub queue: u16,
    pub address: u64,
    pub count: u32,
}

/// Round-robin arbitration over submission queues, including the admin queue.
#[derive(Default)]
pub(super) struct Arbiter {
    /// The queue that was served last.
    last: u16,
}

impl Arbiter {
    /// The next fetch. `arbitration` is the feature's value; I/O commands are limited to `slots`.
    pub fn pick(
        &mut self,
        queues: &mut BTreeMap<u16, SubmissionQueue>,
        arbitration: u32,
        slots: u32,
    ) -> Option<Fetch> {
        let burst = if arbitration & 7 == 7 { u32::MAX } else { 1 << (arbitration & 7) };
        let is_ready = |(id, queue): &(&u16, &SubmissionQueue)| {
            !queue.fetching && !queue.closed && queue.waiting() > 0 && (**id == 0 || slots > 0)
        };
        let behind = queues.range(self.last.saturating_add(1)..).find(is_ready);
        let id = *behind.or_else(|| queues.range(..=self.last).find(is_ready))?.0;
        self.last = id;
        let queue = queues.get_mut(&id)?;
        let most = if id == 0 { u32::MAX } else { slots };
        let count = queue.waiting().min(burst).min(queue.entries - queue.head).min(most);
        queue.fetching = true;
        Some(Fetch { queue: id, address: queue.base + u64::from(queue.head) * 64, count })
    }
}
