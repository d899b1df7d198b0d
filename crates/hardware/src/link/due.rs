//! What is to take effect at times to come.

use std::collections::VecDeque;

use units::Time;

/// What is to take effect at times to come, in the order in which it was told.
///
/// Every TLP asks whether anything is due, and seldom something is: the time of the first stands by itself.
#[derive(Debug)]
pub struct Due<T> {
    /// When the first is due; [`Time::NEVER`] if there is none.
    first: Time,
    queue: VecDeque<(Time, T)>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Self { first: Time::NEVER, queue: VecDeque::new() }
    }
}

impl<T> Due<T> {
    /// Adds what is due at `at`, behind all that there is.
    pub fn push(&mut self, at: Time, what: T) {
        if self.queue.is_empty() {
            self.first = at;
        }
        self.queue.push_back((at, what));
    }

    /// When the first is due; [`Time::NEVER`] if there is none.
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// The one told last.
    #[inline]
    pub fn last(&self) -> Option<&(Time, T)> {
        self.queue.back()
    }

    /// The one told last, to change what it says.
    #[inline]
    pub fn last_mut(&mut self) -> Option<(Time, &mut T)> {
        self.queue.back_mut().map(|(at, what)| (*at, what))
    }

    /// The first one, to change what it says.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        self.queue.front_mut().map(|(_, what)| what)
    }

    /// Takes the first if it is due by `now`.
    #[inline]
    pub fn take(&mut self, now: Time) -> Option<(Time, T)> {
        if self.first <= now { self.pop() } else { None }
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let taken = self.queue.pop_front();
        self.first = self.queue.front().map_or(Time::NEVER, |&(at, _)| at);
        taken
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, T)> {
        self.queue.iter()
    }

    /// All of them, to change what they say.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Time, &mut T)> {
        self.queue.iter_mut().map(|(at, what)| (*at, what))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}
