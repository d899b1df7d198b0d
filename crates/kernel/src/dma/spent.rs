//! Time that cores spend on something. They run ahead of the clock, so that some of it is for later.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use units::{Duration, Time};

/// Time spent, of which only what has passed counts.
#[derive(Default)]
pub(super) struct Spent {
    passed: Cell<Duration>,
    /// Spans that had not passed when they were last looked at, in the order in which they were added.
    later: RefCell<VecDeque<(Time, Time)>>,
}

impl Spent {
    /// Adds a span, at the time `now` of the clock.
    pub fn add(&self, now: Time, from: Time, until: Time) {
        self.settle(now);
        self.later.borrow_mut().push_back((from, until));
    }

    /// Adds so much time at `from`, or behind what was added before: what interrupts a core's wait and waits itself delays the
    /// rest of it.
    pub fn add_behind(&self, now: Time, from: Time, time: Duration) {
        let last = self.later.borrow().iter().map(|&(_, until)| until).max();
        let from = last.map_or(from, |last| last.max(from));
        self.add(now, from, from + time);
    }

    /// How much has been spent until `now`.
    pub fn until(&self, now: Time) -> Duration {
        self.settle(now);
        let begun = |&(from, until): &(Time, Time)| until.min(now).since(from.min(now));
        self.passed.get() + self.later.borrow().iter().map(begun).sum::<Duration>()
    }

    fn settle(&self, now: Time) {
        self.later.borrow_mut().retain(|&(from, until)| {
            let is_later = until > now;
            if !is_later {
                self.passed.set(self.passed.get() + until.since(from));
            }
            is_later
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_later_does_not_count_yet() {
        let (spent, at) = (Spent::default(), |ns| Time::ZERO + Duration::from_ns(ns));
        spent.add(at(0), at(10), at(30));
        spent.add(at(0), at(30), at(40));
        let until = |ns| spent.until(at(ns)).as_ps() / 1_000;
        assert_eq!([5, 10, 15, 30, 35, 40, 99].map(until), [0, 0, 5, 20, 25, 30, 30]);
        let (spent, until) = (Spent::default(), |spent: &Spent, ns| spent.until(at(ns)).as_ps() / 1_000);
        spent.add_behind(at(0), at(20), Duration::from_ns(10));
        assert_eq!(until(&spent, 25), 5);
        spent.add_behind(at(25), at(22), Duration::from_ns(20));
        assert_eq!([25, 30, 40, 99].map(|ns| until(&spent, ns)), [5, 10, 20, 30]);
    }
}
