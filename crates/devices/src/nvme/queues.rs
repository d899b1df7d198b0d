//! Queues of a controller, doorbells, and arbitration among submission queues (section 4.1, "Command Arbitration").

use std::collections::BTreeMap;

use wire::nvme::command::LEN as COMMAND_LEN;
use wire::nvme::{AsyncEvent, Status};

/// A submission queue, from the controller's side.
pub(super) struct SubmissionQueue {
    base: u64,
    entries: u32,
    /// Tail as written by the host.
    tail: u32,
    /// Entries fetched so far.
    head: u32,
    /// A fetch is in progress.
    fetching: bool,
    /// No more fetches: the queue is being deleted, or the controller has failed.
    closed: bool,
    completion_queue: u16,
}

impl SubmissionQueue {
    /// An empty queue.
    pub fn new(base: u64, entries: u32, completion_queue: u16) -> Self {
        Self { base, entries, tail: 0, head: 0, fetching: false, closed: false, completion_queue }
    }

    fn waiting(&self) -> u32 {
        (self.tail + self.entries - self.head) % self.entries
    }
}

/// A completion queue, from the controller's side.
pub(super) struct CompletionQueue {
    base: u64,
    entries: u32,
    tail: u32,
    /// Head as written by the host.
    head: u32,
    phase: bool,
    /// Entries that raise interrupts and have not been consumed by the host.
    unread: u32,
    /// Interrupt vector, if interrupts are enabled.
    vector: Option<u16>,
}

impl CompletionQueue {
    /// An empty queue.
    pub fn new(base: u64, entries: u32, vector: Option<u16>) -> Self {
        Self { base, entries, tail: 0, head: 0, phase: true, unread: 0, vector }
    }

    /// Allocates the next entry. Returns its address and phase, or `None` while the queue is full.
    fn take(&mut self) -> Option<(u64, bool)> {
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
pub(super) struct Fetch {
    pub queue: u16,
    pub address: u64,
    pub count: u32,
}

/// A place for a completion entry, and what the entry says of its queues.
pub(super) struct CompletionSlot {
    pub address: u64,
    pub phase: bool,
    /// Head of the submission queue.
    pub head: u16,
    /// The completion queue.
    pub queue: u16,
    /// Interrupt vector, if interrupts are enabled.
    pub vector: Option<u16>,
}

/// What a doorbell has changed.
pub(super) enum Rung {
    /// A submission queue may have entries.
    Tail,
    /// A completion queue may have room.
    Head,
}

/// The queues of a controller.
#[derive(Default)]
pub(super) struct Queues {
    submission: BTreeMap<u16, SubmissionQueue>,
    completion: BTreeMap<u16, CompletionQueue>,
    /// The submission queue that was served last.
    last: u16,
    /// I/O commands fetched and not done.
    in_hand: u32,
}

impl Queues {
    /// Adds the admin queues.
    pub fn start(&mut self, submission: SubmissionQueue, completion: CompletionQueue) {
        self.submission.insert(0, submission);
        self.completion.insert(0, completion);
    }

    /// Handles a write of doorbell `number` (SQyTDBL, CQyHDBL).
    pub fn ring(&mut self, number: u64, value: u32) -> Result<Rung, AsyncEvent> {
        let queue = u16::try_from(number / 2).map_err(|_| AsyncEvent::INVALID_DOORBELL)?;
        if number % 2 == 0 {
            let queue = self.submission.get_mut(&queue).ok_or(AsyncEvent::INVALID_DOORBELL)?;
            if value >= queue.entries {
                return Err(AsyncEvent::INVALID_DOORBELL_VALUE);
            }
            queue.tail = value;
            return Ok(Rung::Tail);
        }
        let queue = self.completion.get_mut(&queue).ok_or(AsyncEvent::INVALID_DOORBELL)?;
        let used = (queue.tail + queue.entries - queue.head) % queue.entries;
        let taken = (value + queue.entries - queue.head) % queue.entries;
        if value >= queue.entries || taken > used {
            return Err(AsyncEvent::INVALID_DOORBELL_VALUE);
        }
        queue.head = value;
        queue.unread = queue.unread.saturating_sub(taken);
        Ok(Rung::Head)
    }

    /// Begins the next fetch: round robin over the submission queues, including the admin queue. `arbitration` is the
    /// feature's value; at most `commands` I/O commands are in hand.
    pub fn pick(&mut self, arbitration: u32, commands: u32) -> Option<Fetch> {
        let slots = commands.saturating_sub(self.in_hand);
        let burst = if arbitration & 7 == 7 { u32::MAX } else { 1 << (arbitration & 7) };
        let is_ready = |(id, queue): &(&u16, &SubmissionQueue)| {
            !queue.fetching && !queue.closed && queue.waiting() > 0 && (**id == 0 || slots > 0)
        };
        let behind = self.submission.range(self.last.saturating_add(1)..).find(is_ready);
        let id = *behind.or_else(|| self.submission.range(..=self.last).find(is_ready))?.0;
        self.last = id;
        let queue = self.submission.get_mut(&id)?;
        let most = if id == 0 { u32::MAX } else { slots };
        let count = queue.waiting().min(burst).min(queue.entries - queue.head).min(most);
        queue.fetching = true;
        if id != 0 {
            self.in_hand += count;
        }
        let address = queue.base + u64::from(queue.head) * COMMAND_LEN as u64;
        Some(Fetch { queue: id, address, count })
    }

    /// Ends a fetch. Its entries are void if this returns false: the queue no longer exists.
    pub fn fetched(&mut self, fetch: &Fetch) -> bool {
        let Some(queue) = self.submission.get_mut(&fetch.queue) else { return false };
        queue.head = (queue.head + fetch.count) % queue.entries;
        queue.fetching = false;
        true
    }

    /// A command of an I/O queue is done.
    pub fn done(&mut self) {
        self.in_hand -= 1;
    }

    /// Allocates a place for a completion of `submission`. `None` while there is no room.
    pub fn take_place(&mut self, submission: u16) -> Option<CompletionSlot> {
        let submission = self.submission.get(&submission)?;
        let (queue, head) = (submission.completion_queue, submission.head as u16);
        let completion = self.completion.get_mut(&queue)?;
        let (address, phase) = completion.take()?;
        Some(CompletionSlot { address, phase, head, queue, vector: completion.vector })
    }

    pub fn has_submission(&self, queue: u16) -> bool {
        self.submission.contains_key(&queue)
    }

    pub fn has_io_queues(&self) -> bool {
        self.completion.len() > 1
    }

    /// Counts an entry that raises an interrupt.
    pub fn count_unread(&mut self, completion: u16) {
        if let Some(queue) = self.completion.get_mut(&completion) {
            queue.unread += 1;
        }
    }

    /// There are entries that raise interrupts and have not been consumed by the host.
    pub fn has_unread(&self) -> bool {
        self.completion.values().any(|queue| queue.unread > 0)
    }

    /// Adds an I/O completion queue.
    pub fn create_completion(&mut self, id: u16, queue: CompletionQueue) -> Result<(), Status> {
        if self.completion.contains_key(&id) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        self.completion.insert(id, queue);
        Ok(())
    }

    /// Adds an I/O submission queue.
    pub fn create_submission(&mut self, id: u16, queue: SubmissionQueue) -> Result<(), Status> {
        if !self.completion.contains_key(&queue.completion_queue) {
            return Err(Status::CQ_INVALID.dnr());
        }
        if self.submission.contains_key(&id) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        self.submission.insert(id, queue);
        Ok(())
    }

    /// Deletes an I/O completion queue (section 5.5).
    pub fn delete_completion(&mut self, id: u16) -> Result<(), Status> {
        if id == 0 || !self.completion.contains_key(&id) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if self.submission.values().any(|submission| submission.completion_queue == id) {
            return Err(Status::INVALID_QUEUE_DELETION.dnr());
        }
        self.completion.remove(&id);
        Ok(())
    }

    /// Stops fetching from an I/O submission queue that is to be deleted.
    pub fn close(&mut self, id: u16) -> Result<(), Status> {
        let queue = self.submission.get_mut(&id).filter(|queue| id != 0 && !queue.closed);
        queue.ok_or(Status::INVALID_QUEUE_ID.dnr())?.closed = true;
        Ok(())
    }

    /// A fetch from a submission queue is in progress.
    pub fn is_fetching(&self, id: u16) -> bool {
        self.submission.get(&id).is_some_and(|queue| queue.fetching)
    }

    /// Deletes a closed submission queue.
    pub fn delete_submission(&mut self, id: u16) {
        self.submission.remove(&id);
    }

    /// Stops all fetching.
    pub fn close_all(&mut self) {
        for queue in self.submission.values_mut() {
            queue.closed = true;
        }
    }
}
