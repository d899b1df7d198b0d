//! The clock and the event queue.

use crate::task::Wakeup;
use crate::wheel::{Key, Wheel};
use units::{Duration, Time};

/// A pending entry: world events and task timers share one queue and one order.
///
/// The kind has a word of its own, so that an event moves as a whole and not in pieces around its own kind.
#[repr(u64)]
pub(crate) enum Entry<E> {
    World(E),
    Wake(Wakeup),
}

/// Identifies an event that can be cancelled. Stale, and harmless, once the event has been handled; the default is of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKey(pub(crate) Key);

/// A simulation's clock and its pending events.
///
/// Events are handled in order of time and, at the same time, in the order of scheduling.
pub struct Scheduler<E> {
    wheel: Wheel<Entry<E>>,
    now: Time,
    processed: u64,
}

impl<E> Default for Scheduler<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Scheduler<E> {
    /// Creates a clock at [`Time::ZERO`] with nothing pending.
    pub fn new() -> Self {
        Self { wheel: Wheel::new(), now: Time::ZERO, processed: 0 }
    }

    /// Current time.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules `event` for `when`, behind events already scheduled for that instant.
    ///
    /// A time in the past is a bug in the caller: it panics in debug builds, and otherwise counts as the current time.
    #[inline(always)]
    pub fn at(&mut self, when: Time, event: E) {
        self.insert(when, Entry::World(event));
    }

    /// Schedules `event` for `delay` from now.
    #[inline(always)]
    pub fn after(&mut self, delay: Duration, event: E) {
        self.insert(self.now + delay, Entry::World(event));
    }

    /// Like [`at`](Self::at), for an event that may have to be [cancelled](Self::cancel): a replay timer, a completion
    /// timeout.
    #[inline(always)]
    pub fn at_cancellable(&mut self, when: Time, event: E) -> EventKey {
        EventKey(self.insert(when, Entry::World(event)))
    }

    /// Cancels an event that has not been handled yet.
    pub fn cancel(&mut self, key: EventKey) -> Option<E> {
        match self.wheel.remove(key.0)? {
            Entry::World(event) => Some(event),
            Entry::Wake(_) => None,
        }
    }

    /// Removes the next event and advances the clock to it.
    ///
    /// For a scheduler used on its own; a [`Simulation`](crate::Simulation) does this itself.
    #[inline]
    pub fn pop(&mut self) -> Option<E> {
        loop {
            match self.pop_entry(Time::NEVER)?.1.take()? {
                Entry::World(event) => return Some(event),
                Entry::Wake(wakeup) => wakeup.wake(),
            }
        }
    }

    /// Time of the next event or timer.
    pub fn next_time(&self) -> Option<Time> {
        self.wheel.next_time().map(Time::from_ps)
    }

    /// Number of pending events and timers, counted one by one.
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.next_time().is_none()
    }

    /// Number of events and timers processed.
    pub fn processed(&self) -> u64 {
        self.processed
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, when: Time, entry: Entry<E>) -> Key {
        debug_assert!(when >= self.now, "an event at {when} when it is already {}", self.now);
        self.wheel.insert(when.max(self.now).as_ps(), entry)
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.wheel.remove(key);
    }

    /// The next entry due at or before `limit`, to be taken out, and its time. After `None` the clock must be
    /// [advanced](Self::advance_to) to `limit`, unless nothing is pending.
    // Called for each event: when inlined, the entry is not copied.
    #[inline(always)]
    pub(crate) fn pop_entry(&mut self, limit: Time) -> Option<(Time, &mut Option<Entry<E>>)> {
        let (time, entry) = self.wheel.pop_until(limit.as_ps())?;
        self.now = Time::from_ps(time);
        self.processed += 1;
        Some((self.now, entry))
    }

    /// Moves the clock to `time`; nothing may be pending before it.
    pub(crate) fn advance_to(&mut self, time: Time) {
        if time > self.now {
            self.wheel.advance_to(time.as_ps());
            self.now = time;
        }
    }
}
