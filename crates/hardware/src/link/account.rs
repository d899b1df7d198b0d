//! Credits of one flow class at a transmitter.

use units::Time;

use super::due::Due;
use super::params::Credits;

/// Credits of a transmitter, available and in flight.
#[derive(Debug)]
pub struct CreditAccount {
    /// Advertised by the receiver; `None` is infinite.
    limit: Option<Credits>,
    /// Available credits; `None` is infinite.
    available: Option<Credits>,
    /// Credits announced by UpdateFCs in flight, and when they take effect.
    under_way: Due<Credits>,
}

impl CreditAccount {
    /// An account with all the credits of a receiver.
    pub fn new(limit: Option<Credits>) -> Self {
        Self { limit, available: limit, under_way: Due::default() }
    }

    /// The receiver advertises its credits anew.
    pub fn clear(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Adds the credits that have arrived by `now`. Returns whether there were any.
    #[inline]
    pub fn collect(&mut self, now: Time) -> bool {
        let any = self.under_way.first() <= now;
        if any {
            self.collect_arrived(now);
        }
        any
    }

    #[inline(never)]
    fn collect_arrived(&mut self, now: Time) {
        while let Some((_, credits)) = self.under_way.take(now) {
            self.refund(credits);
        }
    }

    /// Whether the available credits cover `need`.
    pub fn covers(&self, need: Credits) -> bool {
        self.available.is_none_or(|available| available.header >= need.header && available.data >= need.data)
    }

    /// Whether there are no header credits left.
    pub fn is_out_of_headers(&self) -> bool {
        self.available.is_some_and(|available| available.header == 0)
    }

    /// Consumes credits that it [covers](Self::covers).
    pub fn pay(&mut self, need: Credits) {
        if let Some(available) = &mut self.available {
            *available -= need;
        }
    }

    /// Returns consumed credits.
    pub fn refund(&mut self, paid: Credits) {
        if let Some(available) = &mut self.available {
            *available += paid;
        }
    }

    /// Adds credits that an UpdateFC brings at `at`.
    pub fn receive(&mut self, at: Time, credits: Credits) {
        if self.available.is_some() {
            self.under_way.push(at, credits);
        }
    }

    /// When the first UpdateFC that arrives after `now` takes effect.
    pub fn next(&self, now: Time) -> Option<Time> {
        self.under_way.iter().map(|&(at, _)| at).filter(|&at| at > now).min()
    }

    /// Credits available or in flight, to check that none is lost.
    pub fn outstanding(&self) -> Option<Credits> {
        self.available.map(|now| now + self.under_way.iter().map(|&(_, credits)| credits).sum())
    }
}
