//! Patience with a line that does not arrive.

use units::{Duration, Time};

/// How long a missing line has held up a queue, and the timer that ends the wait.
#[derive(Default)]
pub struct Patience {
    /// Since when a missing line has held up others.
    since: Option<Time>,
    /// Whether the timer runs.
    is_set: bool,
}

impl Patience {
    /// The queue took lines (`goes_on`) or not, and a line is missing or not. Returns whether to set the timer.
    pub fn look(&mut self, now: Time, goes_on: bool, is_missing: bool) -> bool {
        if goes_on || !is_missing {
            self.since = None;
        }
        if is_missing {
            self.since.get_or_insert(now);
        }
        let is_new = self.since.is_some() && !self.is_set;
        self.is_set |= is_new;
        is_new
    }

    /// The timer expired. If a line is missing, returns when it is to be given up; if that is in the future, the timer is
    /// to be set again. The line may have waited for credits until `credits_back`.
    pub fn ends(
        &mut self,
        now: Time,
        is_missing: bool,
        credits_back: Time,
        patience: Duration,
    ) -> Option<Time> {
        let since = self.since.filter(|_| is_missing);
        let end = since.map(|since| since.max(credits_back) + patience);
        self.is_set = end.is_some_and(|end| end > now);
        if !self.is_set {
            self.since = None;
        }
        end
    }
}
