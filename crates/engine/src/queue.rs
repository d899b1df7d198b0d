//! The clock and the event queue.

use crate::task::Wakeup;
use crate::wheel::{Key, Wheel};
use units::{Duration, Time};

/// What is pending: the world's events and the timers of tasks share one queue and one order.
///
/// Its kind has a word of its own, so that an event moves as a whole and not, around its own kind, in pieces.
#[repr(u64)]
pub(crate) enum Entry<E> {
    World(E),
    Wake(Wakeup),
}

/// Names an event that may yet be cancelled. Stale, and harmless, once the event has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKey(pub(crate) Key);

/// A simulation's clock and its pending events.
///
/// Events happen in order of time and, at the same time, in the order in which they were scheduled.
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
    /// A clock at [`Time::ZERO`] with nothing pending.
    pub fn new() -> Self {
        Self { wheel: Wheel::new(), now: Time::ZERO, processed: 0 }
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules `event` for `when`, behind what is already scheduled for that instant.
    ///
    /// An instant in the past is an error of the caller: a panic in debug builds, the present
    /// otherwise.
    #[inline(always)]
    pub fn at(&mut self, when: Time, event: E) {
        self.insert(when, Entry::World(event));
    }

    /// Schedules `event` for `delay` from now.
    #[inline]
    pub fn after(&mut self, delay: Duration, event: E) {
        self.insert(self.now + delay, Entry::World(event));
    }

    /// As [`at`](Self::at), for an event that may have to be [cancelled](Self::cancel): a replay
    /// timer, a completion timeout.
    #[inline]
    pub fn at_cancellable(&mut self, when: Time, event: E) -> EventKey {
        EventKey(self.insert(when, Entry::World(event)))
    }

    /// Takes back an event that has not happened yet.
    pub fn cancel(&mut self, key: EventKey) -> Option<E> {
        match self.wheel.remove(key.0)? {
            Entry::World(event) => Some(event),
            Entry::Wake(_) => None,
        }
    }

    /// Takes the next event out and moves the clock to it.
    ///
    /// For a scheduler used on its own; inside a [`Simulation`](crate::Simulation) the simulation
    /// does this.
    #[inline]
    pub fn pop(&mut self) -> Option<E> {
        loop {
            match self.pop_entry(Time::NEVER)? {
                Entry::World(event) => return Some(event),
                Entry::Wake(wakeup) => wakeup.wake(),
            }
        }
    }

    /// When the next event or timer is due.
    pub fn next_time(&self) -> Option<Time> {
        self.wheel.next_time().map(Time::from_ps)
    }

    /// How many events and timers are pending.
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many events and timers have happened.
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

    /// The next entry that is due at `limit` or before. After `None` the clock must be
    /// [advanced](Self::advance_to) to `limit`, unless nothing is pending.
    // Once for each event: inlined, the entry is not copied on its way.
    #[inline(always)]
    pub(crate) fn pop_entry(&mut self, limit: Time) -> Option<Entry<E>> {
        let (time, entry) = self.wheel.pop_until(limit.as_ps())?;
        self.now = Time::from_ps(time);
        self.processed += 1;
        Some(entry)
    }

    /// Moves the clock to `time`; nothing may be pending before it.
    pub(crate) fn advance_to(&mut self, time: Time) {
        if time > self.now {
            self.wheel.advance_to(time.as_ps());
            self.now = time;
        }
    }
}
