//! What happens when nothing happens.

use units::Time;

use super::Payload;
use super::connection::{Connection, Failure, Recovery, State};

impl<P: Payload> Connection<P> {
    /// When [`timer`](Self::timer) is to be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        [self.resend_at, self.ack_at, self.linger_until].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn timer(&mut self, now: Time) {
        if self.linger_until.is_some_and(|at| at <= now) {
            self.end_now(None);
        }
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            self.ack_now = true;
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_timer(now);
        }
    }

    fn resend_timer(&mut self, now: Time) {
        let most =
            if self.state <= State::SynReceived { self.params.syn_retries } else { self.params.retries };
        if self.retries >= most {
            return self.end_now(Some(Failure::TimedOut));
        }
        self.retries += 1;
        if self.nxt == self.una {
            self.probe = true;
            self.counters.probes += 1;
        } else {
            self.timed_out(now);
        }
        self.rtt.back_off();
        self.resend_at = Some(now + self.rtt.rto());
    }

    /// RFC 6298, 5.4 to 5.6, and RFC 6675, 5.1.
    fn timed_out(&mut self, now: Time) {
        self.counters.timeouts += 1;
        // A second timeout of the same data does not lower the threshold again (RFC 5681, 3.1).
        if !matches!(self.recovery, Recovery::Timeout { .. }) || self.retries == 1 {
            self.congestion.timed_out(now, self.nxt - self.una);
        }
        // If the peer held what comes first it would have acknowledged it: it has let go what it reported.
        if self.board.held(self.una, self.una + 1) > 0 {
            self.board.clear();
        }
        if !self.sack {
            self.board.clear();
        }
        self.duplicates = 0;
        self.timing = None;
        self.recovery = Recovery::Timeout { point: self.nxt, resent: self.una };
    }
}
