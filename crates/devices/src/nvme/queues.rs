//! Queues of a controller, and which submission queue's turn it is (section 4.1 and "Command Arbitration").

use std::collections::BTreeMap;

/// A submission queue as its consumer has it.
#[derive(Clone, Debug)]
pub(super) struct SubmissionQueue {
    pub base: u64,
    pub entries: u32,
    /// What the host told.
    pub tail: u32,
    /// What has been fetched.
    pub head: u32,
    /// A fetch is under way.
    pub fetching: bool,
    /// Nothing is fetched any more.
    pub closed: bool,
    /// 0 urgent, 1 high, 2 medium, 3 low.
    pub priority: u8,
    pub completion_queue: u16,
}

impl SubmissionQueue {
    /// An empty queue.
    pub fn new(base: u64, entries: u32, priority: u8, completion_queue: u16) -> Self {
        Self { base, entries, tail: 0, head: 0, fetching: false, closed: false, priority, completion_queue }
    }

    pub fn waiting(&self) -> u32 {
        (self.tail + self.entries - self.head) % self.entries
    }
}

/// A completion queue as its producer has it.
#[derive(Clone, Debug)]
pub(super) struct CompletionQueue {
    pub base: u64,
    pub entries: u32,
    pub tail: u32,
    /// What the host told.
    pub head: u32,
    pub phase: bool,
    /// Entries that the host is to be interrupted for and has not taken yet.
    pub unread: u32,
    /// Interrupt vector, if interrupts are wanted.
    pub vector: Option<u16>,
}

impl CompletionQueue {
    pub fn new(base: u64, entries: u32, vector: Option<u16>) -> Self {
        Self { base, entries, tail: 0, head: 0, phase: true, unread: 0, vector }
    }

    /// Takes the next entry: its address and phase. `None` while the host has not made room.
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

/// Entries to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fetch {
    pub queue: u16,
    pub address: u64,
    pub count: u32,
}

/// Chooses the next submission queue.
#[derive(Default)]
pub(super) struct Arbiter {
    /// The queue that was served last, of each class.
    last: [u16; 5],
    /// Commands that high, medium and low priority may still have in this round.
    credits: [u32; 3],
}

impl Arbiter {
    /// The next fetch. `arbitration` is the feature's value; I/O commands are limited to `slots`.
    pub fn pick(
        &mut self,
        queues: &mut BTreeMap<u16, SubmissionQueue>,
        weighted: bool,
        arbitration: u32,
        slots: u32,
    ) -> Option<Fetch> {
        let [burst, low, medium, high] = arbitration.to_le_bytes();
        let burst = if burst & 7 == 7 { u32::MAX } else { 1 << (burst & 7) };
        let weights = [high, medium, low].map(|weight| u32::from(weight) + 1);
        let class = |id: u16, queue: &SubmissionQueue| match (weighted, id) {
            (false, _) | (true, 0) => 0,
            (true, _) => usize::from(queue.priority) + 1,
        };
        let ready = |id: u16, queue: &SubmissionQueue| {
            !queue.fetching && !queue.closed && queue.waiting() > 0 && (id == 0 || slots > 0)
        };
        // Two rounds: the second with new credits.
        for _ in 0..2 {
            for wanted in 0..5 {
                if wanted >= 2 && self.credits[wanted - 2] == 0 {
                    continue;
                }
                let last = self.last[wanted];
                let fits = |item: &(&u16, &SubmissionQueue)| {
                    class(*item.0, item.1) == wanted && ready(*item.0, item.1)
                };
                let id = queues
                    .range(last.saturating_add(1)..)
                    .find(fits)
                    .or_else(|| queues.range(..=last).find(fits))
                    .map(|(&id, _)| id);
                let Some(id) = id else { continue };
                self.last[wanted] = id;
                let queue = queues.get_mut(&id)?;
                let mut count = queue.waiting().min(burst).min(queue.entries - queue.head);
                if id != 0 {
                    count = count.min(slots);
                }
                if wanted >= 2 {
                    count = count.min(self.credits[wanted - 2]);
                    self.credits[wanted - 2] -= count;
                }
                queue.fetching = true;
                return Some(Fetch { queue: id, address: queue.base + u64::from(queue.head) * 64, count });
            }
            // Credits are for a round in which there is something to do.
            if !queues.iter().any(|(&id, queue)| class(id, queue) >= 2 && ready(id, queue)) {
                return None;
            }
            self.credits = weights;
        }
        None
    }
}
