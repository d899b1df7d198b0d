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

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_us(20);

    fn us(us: u64) -> Time {
        Time::ZERO + Duration::from_us(us)
    }

    #[test]
    fn the_wait_begins_when_a_line_is_missed() {
        let mut patience = Patience::default();
        assert!(!patience.look(us(1), true, false), "nothing is missing");
        assert!(patience.look(us(2), false, true));
        assert!(!patience.look(us(5), false, true), "the timer runs already");
        // It came, and another one is missing.
        assert!(!patience.look(us(7), true, true));
        assert_eq!(patience.ends(us(22), true, Time::ZERO, PATIENCE), Some(us(27)));
        assert!(!patience.look(us(23), false, true), "the timer was set again");
        assert_eq!(patience.ends(us(27), true, Time::ZERO, PATIENCE), Some(us(27)));
        assert!(patience.look(us(28), false, true), "the next one");
    }

    #[test]
    fn a_line_without_credits_is_not_missed() {
        let mut patience = Patience::default();
        assert!(patience.look(us(2), false, true));
        assert_eq!(patience.ends(us(22), true, us(10), PATIENCE), Some(us(30)));
        assert_eq!(patience.ends(us(30), true, us(10), PATIENCE), Some(us(30)));
    }

    #[test]
    fn what_arrives_in_time_is_not_given_up() {
        let mut patience = Patience::default();
        assert!(patience.look(us(2), false, true));
        assert_eq!(patience.ends(us(22), false, Time::ZERO, PATIENCE), None);
        assert!(patience.look(us(30), false, true), "the timer does not run");
    }
}
