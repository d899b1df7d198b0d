//! A queue of items that take effect at future times.

use std::collections::VecDeque;

use units::Time;

/// A queue of items that take effect at future times, in insertion order.
///
/// Every TLP checks it and it is seldom due, so the time of the first item is stored separately. Few have more than one
/// item, so the last one has its own place.
#[derive(Debug)]
pub struct Due<T> {
    /// When the first item is due; [`Time::NEVER`] if empty.
    first: Time,
    last: Option<(Time, T)>,
    /// Items before the last one.
    earlier: VecDeque<(Time, T)>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Self { first: Time::NEVER, last: None, earlier: VecDeque::new() }
    }
}

impl<T> Due<T> {
    /// Appends an item that is due at `at`.
    #[inline]
    pub fn push(&mut self, at: Time, what: T) {
        match self.last.replace((at, what)) {
            None => self.first = at,
            Some(before) => self.earlier.push_back(before),
        }
    }

    /// When the first item is due; [`Time::NEVER`] if empty.
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// The last item, mutably.
    #[inline]
    pub fn last_mut(&mut self) -> Option<(Time, &mut T)> {
        self.last.as_mut().map(|(at, what)| (*at, what))
    }

    /// The first item, mutably.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        self.earlier.front_mut().or(self.last.as_mut()).map(|(_, what)| what)
    }

    /// Takes the first item if it is due by `now`.
    #[inline]
    pub fn take(&mut self, now: Time) -> Option<(Time, T)> {
        if self.first <= now { self.pop() } else { None }
    }

    fn pop(&mut self) -> Option<(Time, T)> {
        let taken = self.earlier.pop_front().or_else(|| self.last.take());
        self.first = self.earlier.front().or(self.last.as_ref()).map_or(Time::NEVER, |&(at, _)| at);
        taken
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, T)> {
        self.earlier.iter().chain(&self.last)
    }
}
