//! A queue's ring of descriptors: posted, fetched and completed ones.

mod completions;
mod setup;

use std::rc::Rc;

use engine::Epoch;
use platform::device::DeviceBus;
use units::Time;
use wire::nic::Completion;
use wire::nic::descriptor::LEN;
use wire::nic::registers::{counter, queue};

use super::NicHandle;
use super::handle::Filled;
use super::params::NicParams;
use super::token::{Kind, Note, request};
use completions::Completions;
pub use setup::QueueId;
use setup::{CompletionMode, Setup};

/// Device-side state of a ring: its registers, prefetched descriptors, and completions.
pub struct Ring {
    setup: Setup,
    completions: Completions,
    /// Free-running indices: descriptors posted by the driver, fetched (or requested), used, and completed.
    tail: u16,
    fetched: u16,
    next: u16,
    done: u16,
    /// Descriptors cached in the device, at their index modulo `size`; `present` marks those from `next` on that have
    /// arrived. Empty until the queue runs, since most queues never do.
    size: usize,
    cache: Vec<[u8; LEN]>,
    present: Vec<bool>,
    dropped: u32,
    /// Fill level over time.
    filled: Rc<Filled>,
}

impl Ring {
    /// The ring of a queue that is stopped.
    pub fn new(id: QueueId, nic: &Rc<NicParams>, handle: &NicHandle) -> Self {
        Self::with(Setup::new(id, nic, handle, Epoch::default()), Rc::default())
    }

    fn with(setup: Setup, filled: Rc<Filled>) -> Self {
        Self {
            size: setup.path().cache.next_power_of_two().into(),
            setup,
            completions: Completions::default(),
            tail: 0,
            fetched: 0,
            next: 0,
            done: 0,
            cache: Vec::new(),
            present: Vec::new(),
            dropped: 0,
            filled,
        }
    }

    /// The same ring after a reset of the function. Notes from before are ignored.
    pub fn after_reset(&self) -> Self {
        Self::with(self.setup.after_reset(), Rc::default())
    }

    /// Stops the queue: clears everything but the registers. Notes from before are ignored afterwards.
    pub fn stop(&mut self) {
        self.restart(false, false);
    }

    fn restart(&mut self, is_running: bool, has_failed: bool) {
        let mut setup = self.setup.clone();
        setup.change(is_running, has_failed);
        self.filled.clear();
        *self = Self::with(setup, Rc::clone(&self.filled));
        if is_running {
            self.cache.resize(self.size, [0; LEN]);
            self.present.resize(self.size, false);
        }
    }

    /// Stops the queue because of invalid input.
    pub fn fail(&mut self) {
        self.setup.change(false, true);
    }

    /// Writes the control register. Returns whether the queue has to be stopped.
    pub fn control(&mut self, value: u32) -> bool {
        let Setup { is_running, has_failed, .. } = self.setup;
        let (was, is) = (is_running || has_failed, value & queue::ENABLE != 0);
        self.setup.set_register(queue::CONTROL, value);
        if is && !was {
            let fits = self.setup.registers.log2 <= self.setup.nic.log2_ring;
            self.restart(fits, !fits);
        }
        was && !is
    }

    /// Reads a register.
    pub fn register(&self, at: u64) -> u32 {
        match at {
            queue::TAIL => self.tail.into(),
            queue::HEAD => self.head().into(),
            queue::DROPPED => self.dropped,
            _ => self.setup.register(at),
        }
    }

    /// Writes a configuration register.
    pub fn set_register(&mut self, at: u64, value: u32) {
        self.setup.set_register(at, value);
    }

    /// Index of completed descriptors as read by the driver. In modes that write completions, excludes those whose
    /// completion is pending.
    fn head(&self) -> u16 {
        match self.setup.mode() {
            CompletionMode::Register => self.done,
            CompletionMode::InPlace | CompletionMode::Word | CompletionMode::Ring => {
                self.completions.visible()
            }
        }
    }

    pub const fn is_running(&self) -> bool {
        self.setup.is_running
    }

    pub const fn life(&self) -> Epoch {
        self.setup.life
    }

    /// Whether a note is of the queue's current life.
    pub const fn is_current(&self, note: Note) -> bool {
        note.is_of(self.setup.life)
    }

    /// A note of a request or timer for this queue.
    pub fn note(&self, kind: Kind) -> Note {
        self.setup.note(kind, kind)
    }

    /// Where the ring is.
    pub const fn address(&self) -> u64 {
        self.setup.registers.ring
    }

    pub const fn entries(&self) -> u32 {
        self.setup.entries()
    }

    /// Shows the fill level to the handle.
    pub fn show(&self) {
        self.setup.handle.watch_ring(self.setup.id, &self.filled);
    }

    /// Records the fill level from `now` on.
    pub fn note_filled(&self, now: Time) {
        self.filled.becomes(now, self.entries(), self.tail.wrapping_sub(self.done));
    }

    /// Handles the doorbell. Returns `false` if the value is invalid.
    pub fn set_tail(&mut self, now: Time, tail: u16) -> bool {
        let is_possible = u32::from(tail.wrapping_sub(self.done)) <= self.entries()
            && tail.wrapping_sub(self.done) >= self.tail.wrapping_sub(self.done);
        if is_possible {
            self.tail = tail;
            self.note_filled(now);
        }
        is_possible
    }

    /// Descriptors posted by the driver and not used yet.
    pub const fn posted(&self) -> u16 {
        self.tail.wrapping_sub(self.next)
    }

    /// Whether the driver has posted again the buffer that it posted as number `count`.
    pub fn has_passed(&self, count: u16) -> bool {
        u32::from(self.tail.wrapping_sub(count)) > self.entries()
    }

    /// Descriptors in the device or being fetched.
    pub const fn held(&self) -> u16 {
        self.fetched.wrapping_sub(self.next)
    }

    /// Fetches descriptors if it is time: a full batch, or any number if the device has run dry (`hungry`).
    pub fn fetch(&mut self, bus: &mut dyn DeviceBus, hungry: bool) {
        let batch = self.setup.path().fetch;
        while let Some((count, address, number)) = self.next_fetch(batch, hungry) {
            self.setup.count(counter::FETCHES, 1);
            self.setup.count(counter::FETCHED, number.into());
            let note = self.setup.note(Kind::TxFetch, Kind::RxFetch).with(count, number);
            bus.read(request(self.setup.id.function, address, u32::from(number) * LEN as u32, note));
        }
    }

    /// The next descriptors to read, as index, address and number, if it is time.
    fn next_fetch(&mut self, batch: u16, hungry: bool) -> Option<(u16, u64, u16)> {
        let size = self.size as u16;
        let (room, available) = (size - self.held(), self.tail.wrapping_sub(self.fetched));
        let batch = batch.clamp(1, size);
        let wanted = available.min(batch).min(room);
        let is_time = wanted == batch || (hungry || self.held() == 0) && wanted > 0;
        if !self.is_running() || !is_time {
            return None;
        }
        let entries = self.entries();
        let index = u32::from(self.fetched) & (entries - 1);
        let number = u32::from(wanted).min(entries - index) as u16;
        let (count, address) = (self.fetched, self.address().wrapping_add(u64::from(index) * LEN as u64));
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

    /// Uses up `number` descriptors that have arrived. Returns the index of the first.
    pub fn consume(&mut self, number: u16) -> u16 {
        let (first, mask) = (self.next, self.size - 1);
        for _ in 0..number {
            self.present[usize::from(self.next) & mask] = false;
            self.next = self.next.wrapping_add(1);
        }
        first
    }

    /// Whether the cache is full of descriptors that have arrived, not counting those in flight.
    pub fn is_cache_full(&self) -> bool {
        usize::from(self.held()) == self.size && self.present.iter().all(|&here| here)
    }

    /// One more descriptor is done. Returns how many are.
    pub const fn finish(&mut self) -> u16 {
        self.done = self.done.wrapping_add(1);
        self.done
    }

    /// A packet was dropped.
    pub const fn count_dropped(&mut self) {
        self.dropped += 1;
    }

    /// Whether a packet's descriptor number `number` of `of` has a completion, given whether one is asked for.
    #[inline]
    pub fn has_completion(&self, is_last: bool, is_asked: bool) -> bool {
        match self.setup.mode() {
            CompletionMode::InPlace => true,
            CompletionMode::Ring => is_last && is_asked,
            CompletionMode::Word | CompletionMode::Register => is_last,
        }
    }

    /// Room for a frame next to its completion.
    pub fn inline_room(&self) -> usize {
        self.setup.slot().map_or(0, |slot| slot as usize - LEN)
    }

    /// Adds a completion, to be written now or together with others. It ends `packets` packets. Returns the packets that
    /// the driver can see from now on.
    #[inline]
    pub fn complete(&mut self, bus: &mut dyn DeviceBus, completion: Completion, packets: u16) -> Option<u16> {
        self.completions.add(bus, &self.setup, completion, packets)
    }

    /// Writes the completion of a packet together with its frame, if completions have [room](Self::inline_room) for it.
    pub fn complete_inline(&mut self, bus: &mut dyn DeviceBus, completion: Completion, frame: &[u8]) {
        if let Some(slot) = self.setup.slot() {
            self.completions.write_slot(bus, &self.setup, slot, completion, 1, frame);
        }
    }

    /// Writes all pending completions. Returns the packets that the driver can see from now on.
    pub fn flush(&mut self, bus: &mut dyn DeviceBus) -> Option<u16> {
        self.completions.flush(bus, &self.setup)
    }

    /// Completions have been written, or have waited long enough. Returns the packets that the driver can see from now on.
    #[inline]
    pub fn completions_due(&mut self, bus: &mut dyn DeviceBus, note: Note) -> Option<u16> {
        if self.is_current(note) { self.completions.due(bus, &self.setup, note) } else { None }
    }

    /// The vector that tells of completions.
    pub const fn vector(&self) -> u32 {
        self.setup.registers.vector
    }

    /// Whether the driver wants an interrupt for further completions.
    pub const fn is_armed(&self) -> bool {
        self.completions.is_armed() || self.setup.registers.control & queue::ALWAYS_ARMED != 0
    }

    /// The driver has processed completions up to `seen` and asks to be interrupted for more. Returns how many it can
    /// see already.
    pub fn arm(&mut self, seen: u16) -> u16 {
        let unseen = self.completions.arm(seen);
        if self.is_running() { unseen } else { 0 }
    }

    /// The driver has been interrupted.
    pub const fn disarm(&mut self) {
        self.completions.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ethernet::MacAddr;

    fn ring(log2: u8, cache: u16) -> Ring {
        let mut params = NicParams::modern(MacAddr::local(1));
        params.tx.cache = cache;
        let id = QueueId { function: 0, number: 0, is_tx: true };
        let mut ring = Ring::new(id, &Rc::new(params), &NicHandle::new(1));
        ring.set_register(queue::SIZE, log2.into());
        ring.control(queue::ENABLE);
        ring
    }

    fn set_tail(ring: &mut Ring, tail: u16) -> bool {
        ring.set_tail(Time::ZERO, tail)
    }

    /// If the driver reads a head without a completion for it, it takes the completion for lost.
    #[test]
    fn the_head_is_not_ahead_of_completions() {
        let mut ring = ring(5, 16);
        let written = ring.note(Kind::TxCompletion).with(1, 2);
        ring.completions.written(written);
        (0..3).for_each(|_| _ = ring.finish());
        for (control, head) in [(0, 3), (queue::IN_PLACE, 2), (queue::TO_WORD, 2), (queue::TO_RING, 2)] {
            ring.set_register(queue::CONTROL, control);
            assert_eq!(ring.register(queue::HEAD), head);
        }
    }

    #[test]
    fn fetches_full_batches_unless_it_has_run_dry() {
        let mut ring = ring(5, 16);
        assert!(set_tail(&mut ring, 3));
        assert_eq!(ring.next_fetch(8, false), Some((0, 0, 3)), "dry: takes what is there");
        assert!(set_tail(&mut ring, 10));
        assert_eq!(ring.next_fetch(8, false), None, "no full batch");
        assert!(set_tail(&mut ring, 32));
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
        assert!(set_tail(&mut ring, 3));
        assert_eq!(ring.next_fetch(8, false), Some((0, 0, 3)));
        ring.store(0, &[0; 48]);
        ring.consume(3);
        (0..3).for_each(|_| _ = ring.finish());
        assert!(set_tail(&mut ring, 7));
        assert_eq!(ring.next_fetch(8, false), Some((3, 48, 1)));
        assert_eq!(ring.next_fetch(8, true), Some((4, 0, 3)));
    }

    #[test]
    fn doorbells_that_make_no_sense() {
        let mut ring = ring(2, 16);
        assert!(!set_tail(&mut ring, 5), "more than the ring holds");
        assert!(set_tail(&mut ring, 4));
        assert!(!set_tail(&mut ring, 3), "backwards");
        (0..4).for_each(|_| _ = ring.finish());
        assert!(!set_tail(&mut ring, 3), "back to what is done");
        assert!(set_tail(&mut ring, 8));
    }
}
