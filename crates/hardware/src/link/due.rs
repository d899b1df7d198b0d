//! A queue of items that take effect at future times.

use std::collections::VecDeque;

use units::Time;

/// A queue of items that take effect at future times, in insertion order.
///
/// Every TLP checks it and it is seldom due, so the time of the first item is stored separately.
#[derive(Debug)]
pub struct Due<T> {
    /// When the first item is due; [`Time::NEVER`] if empty.
    first: Time,
    queue: VecDeque<(Time, T)>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Self { first: Time::NEVER, queue: VecDeque::new() }
    }
}

impl<T> Due<T> {
    /// Appends an item that is due at `at`.
    pub fn push(&mut self, at: Time, what: T) {
        if self.queue.is_empty() {
            self.first = at;
        }
        self.queue.push_back((at, what));
    }

    /// When the first item is due; [`Time::NEVER`] if empty.
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// The last item.
    #[inline]
    pub fn last(&self) -> Option<&(Time, T)> {
        self.queue.back()
    }

    /// The last item, mutably.
    #[inline]
    pub fn last_mut(&mut self) -> Option<(Time, &mut T)> {
        self.queue.back_mut().map(|(at, what)| (*at, what))
    }

    /// The first item, mutably.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        self.queue.front_mut().map(|(_, what)| what)
    }

    /// Takes the first item if it is due by `now`.
    #[inline]
    pub fn take(&mut self, now: Time) -> Option<(Time, T)> {
        if self.first <= now { self.pop() } else { None }
    }

    /// Takes the first item.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let taken = self.queue.pop_front();
        self.first = self.queue.front().map_or(Time::NEVER, |&(at, _)| at);
        taken
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, T)> {
        self.queue.iter()
    }

    /// All items, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Time, &mut T)> {
        self.queue.iter_mut().map(|(at, what)| (*at, what))
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}
