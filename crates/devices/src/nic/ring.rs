//! Device-side state of a descriptor ring: posted, fetched and completed descriptors.

use std::rc::Rc;

use units::{Duration, Time};
use wire::nic::descriptor::LEN;
use wire::nic::registers::queue::{ALWAYS_ARMED, COMPLETION_MODE, IN_PLACE, TO_RING, TO_WORD};

use super::handle::Filled;
use super::token::LIVES;

/// Registers that configure a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    pub ring: u64,
    pub log2: u8,
    pub vector: u32,
    pub completions: u64,
    pub control: u32,
    pub batch: u16,
    pub delay_ns: u32,
    /// Log2 of the distance of completions in bytes, if their entries have room for frames.
    pub stride: Option<u8>,
}

/// Where completions are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionMode {
    Register,
    InPlace,
    Word,
    Ring,
}

impl Setup {
    pub fn mode(&self) -> CompletionMode {
        match self.control & COMPLETION_MODE {
            IN_PLACE => CompletionMode::InPlace,
            TO_WORD => CompletionMode::Word,
            TO_RING => CompletionMode::Ring,
            _ => CompletionMode::Register,
        }
    }

    pub fn is_always_armed(&self) -> bool {
        self.control & ALWAYS_ARMED != 0
    }
}

/// A ring, its prefetched descriptors, and its pending completions.
pub struct Ring {
    pub setup: Setup,
    pub running: bool,
    pub failed: bool,
    /// Changes whenever the queue starts or stops.
    pub life: u16,
    /// Free-running indices: descriptors posted by the driver, fetched (or requested), used, and completed.
    pub tail: u16,
    pub fetched: u16,
    pub next: u16,
    pub done: u16,
    /// Descriptors cached in the device, at their index modulo `size`; `present` marks those from `next` on that have
    /// arrived.
    size: usize,
    cache: Vec<[u8; LEN]>,
    present: Vec<bool>,
    /// Pending completion entries, in order, without owner bits.
    pub waiting: Vec<[u8; LEN]>,
    /// Index of the first of them: of descriptors (in place) or of completions (ring).
    pub written: u16,
    /// Packets that the pending completions end.
    pub waiting_packets: u16,
    /// Index up to which the last of them completes descriptors.
    pub reported: u16,
    /// Whether a timer is set to write them.
    pub flush_set: bool,
    /// Index up to which the driver can see completions, and whether it wants an interrupt for more.
    pub visible: u16,
    pub armed: bool,
    pub dropped: u32,
    /// Fill level over time.
    pub filled: Rc<Filled>,
}

impl Ring {
    pub fn new(cache: u16) -> Self {
        let cache = usize::from(cache.next_power_of_two());
        Self {
            setup: Setup { vector: wire::nic::registers::NO_VECTOR, ..Setup::default() },
            running: false,
            failed: false,
            life: 0,
            tail: 0,
            fetched: 0,
            next: 0,
            done: 0,
            size: cache,
            cache: Vec::new(),
            present: Vec::new(),
            waiting: Vec::new(),
            written: 0,
            waiting_packets: 0,
            reported: 0,
            flush_set: false,
            visible: 0,
            armed: false,
            dropped: 0,
            filled: Rc::default(),
        }
    }

    /// Clears all state. Notes from before are ignored afterwards.
    pub fn restart(&mut self, running: bool) {
        let fresh = Self::new(self.size as u16);
        let filled = Rc::clone(&self.filled);
        filled.clear();
        *self = Self { setup: self.setup, running, life: (self.life + 1) & LIVES, filled, ..fresh };
        if running {
            // Allocated here because most queues never run.
            self.cache.resize(self.size, [0; LEN]);
            self.present.resize(self.size, false);
        }
    }

    /// Records the fill level from `now` on.
    pub fn note_filled(&self, now: Time) {
        self.filled.becomes(now, self.entries(), self.tail.wrapping_sub(self.done));
    }

    /// Index of completed descriptors as read by the driver. In modes that write completions, excludes those whose
    /// completion is pending.
    pub fn head(&self) -> u16 {
        match self.setup.mode() {
            CompletionMode::Register => self.done,
            CompletionMode::InPlace | CompletionMode::Word | CompletionMode::Ring => self.visible,
        }
    }

    pub fn entries(&self) -> u32 {
        1 << self.setup.log2
    }

    /// Distance of completions in bytes, if their entries have room for frames.
    pub fn has_slots(&self) -> Option<u64> {
        self.setup.stride.filter(|_| self.setup.mode() == CompletionMode::Ring).map(|log2| 1 << log2)
    }

    /// Stops the queue because of invalid input.
    pub fn fail(&mut self) {
        self.running = false;
        self.failed = true;
        self.life = (self.life + 1) & LIVES;
    }

    /// Handles the doorbell. Returns `false` if the value is invalid.
    pub fn set_tail(&mut self, tail: u16) -> bool {
        let is_possible = u32::from(tail.wrapping_sub(self.done)) <= self.entries()
            && tail.wrapping_sub(self.done) >= self.tail.wrapping_sub(self.done);
        if is_possible {
            self.tail = tail;
        }
        is_possible
    }

    /// Descriptors posted but not requested yet.
    pub fn available(&self) -> u16 {
        self.tail.wrapping_sub(self.fetched)
    }

    /// Descriptors in the device or being fetched.
    pub fn held(&self) -> u16 {
        self.fetched.wrapping_sub(self.next)
    }

    /// The next descriptors to read, as index, address and number, if it is time: a full batch, or any number if the
    /// device has run dry (`hungry`).
    pub fn next_fetch(&mut self, batch: u16, hungry: bool) -> Option<(u16, u64, u16)> {
        let room = self.size as u16 - self.held();
        let available = self.available();
        let batch = batch.clamp(1, self.size as u16);
        let wanted = available.min(batch).min(room);
        let is_time = wanted == batch || (hungry || self.held() == 0) && wanted > 0;
        if !self.running || !is_time {
            return None;
        }
        let entries = self.entries();
        let index = u32::from(self.fetched) & (entries - 1);
        let number = u32::from(wanted).min(entries - index) as u16;
        let (count, address) = (self.fetched, self.setup.ring.wrapping_add(u64::from(index) * LEN as u64));
        self.fetched = self.fetched.wrapping_add(number);
        Some((count, address, number))
    }

    /// Descriptors arrived.
    pub fn store(&mut self, count: u16, bytes: &[u8]) {
        let mask = self.size - 1;
        for (n, descriptor) in bytes.chunks_exact(LEN).enumerate() {
            let at = (usize::from(count) + n) & mask;
            self.cache[at].copy_from_slice(descriptor);
            self.present[at] = true;
        }
    }

    /// Takes entries from an inline doorbell if they directly follow all fetched ones and there is room. The doorbell
    /// has been rung already.
    pub fn take_inline(&mut self, count: u16, bytes: &[u8]) -> bool {
        let number = (bytes.len() / LEN) as u16;
        let fits = self.held() + number <= self.size as u16;
        let is_next = self.fetched == count && self.tail == count.wrapping_add(number);
        if fits && is_next {
            self.fetched = self.tail;
            self.store(count, bytes);
        }
        fits && is_next
    }

    /// The descriptor `ahead` of the next one to use, if it has arrived.
    pub fn peek(&self, ahead: u16) -> Option<&[u8; LEN]> {
        if ahead >= self.held() {
            return None;
        }
        let at = usize::from(self.next.wrapping_add(ahead)) & (self.size - 1);
        self.present[at].then(|| &self.cache[at])
    }

    /// Uses up `number` descriptors that have arrived.
    pub fn consume(&mut self, number: u16) {
        let mask = self.size - 1;
        for _ in 0..number {
            self.present[usize::from(self.next) & mask] = false;
            self.next = self.next.wrapping_add(1);
        }
    }

    /// Whether the cache is full of descriptors that have arrived, not counting those in flight.
    pub fn is_cache_full(&self) -> bool {
        usize::from(self.held()) == self.size && self.present.iter().all(|&here| here)
    }

    /// Number of completions per write.
    pub fn batch(&self, part: u16) -> u16 {
        if self.setup.batch == 0 { part.max(1) } else { self.setup.batch }
    }

    /// How long a completion waits for others.
    pub fn delay(&self, part: Duration) -> Duration {
        if self.setup.delay_ns == 0 { part } else { Duration::from_ns(self.setup.delay_ns.into()) }
    }

    /// When the flush timer has to expire, if it has to be set now.
    pub fn set_flush(&mut self, now: Time, part: Duration) -> Option<Time> {
        if self.flush_set || self.waiting_packets == 0 {
            return None;
        }
        self.flush_set = true;
        Some(now + self.delay(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(log2: u8, cache: u16) -> Ring {
        let mut ring = Ring::new(cache);
        ring.setup.log2 = log2;
        ring.restart(true);
        ring
    }

    /// If the driver reads a head without a completion for it, it takes the completion for lost.
    #[test]
    fn the_head_is_not_ahead_of_completions() {
        let mut ring = ring(5, 16);
        (ring.done, ring.visible) = (3, 2);
        for (control, head) in [(0, 3), (IN_PLACE, 2), (TO_WORD, 2), (TO_RING, 2)] {
            ring.setup.control = control;
            assert_eq!(ring.head(), head);
        }
    }

    #[test]
    fn fetches_full_batches_unless_it_has_run_dry() {
        let mut ring = ring(5, 16);
        assert!(ring.set_tail(3));
        assert_eq!(ring.next_fetch(8, false), Some((0, 0, 3)), "dry: takes what is there");
        assert!(ring.set_tail(10));
        assert_eq!(ring.next_fetch(8, false), None, "no full batch");
        assert!(ring.set_tail(32));
        assert_eq!(ring.next_fetch(8, false), Some((3, 48, 8)));
        assert_eq!(ring.next_fetch(8, false), None, "no room for another batch");
        ring.store(3, &[1; 128]);
        assert_eq!(ring.peek(0), None, "the first ones have not come");
        ring.store(0, &[2; 48]);
        assert_eq!((ring.peek(0), ring.peek(3), ring.peek(11)), (Some(&[2; 16]), Some(&[1; 16]), None));
        ring.consume(11);
        assert_eq!(ring.next_fetch(32, true), Some((11, 176, 16)));
    }

    #[test]
    fn a_read_ends_where_the_ring_does() {
        let mut ring = ring(2, 16);
        assert!(ring.set_tail(3));
        assert_eq!(ring.next_fetch(8, false), Some((0, 0, 3)));
        ring.store(0, &[0; 48]);
        ring.consume(3);
        ring.done = 3;
        assert!(ring.set_tail(7));
        assert_eq!(ring.next_fetch(8, false), Some((3, 48, 1)));
        assert_eq!(ring.next_fetch(8, true), Some((4, 0, 3)));
    }

    #[test]
    fn doorbells_that_make_no_sense() {
        let mut ring = ring(2, 16);
        assert!(!ring.set_tail(5), "more than the ring holds");
        assert!(ring.set_tail(4));
        assert!(!ring.set_tail(3), "backwards");
        ring.done = 4;
        assert!(!ring.set_tail(3), "back to what is done");
        assert!(ring.set_tail(8));
    }
}
