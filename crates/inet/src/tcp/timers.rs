//! What happens when nothing happens.

use units::{Duration, Time};

use super::Payload;
use super::connection::{Connection, Failure, Recovery, State};

impl<P: Payload> Connection<P> {
    /// When [`timer`](Self::timer) is to be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let keep_at = self.keep_alive_at();
        let all = [self.resend_at, self.ack_at, self.linger_until, self.reorder_at, self.tail.at(), keep_at];
        all.into_iter().flatten().min()
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
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.look_for_loss(now);
        }
        if self.tail.at().is_some_and(|at| at <= now) {
            self.tail_timer(now);
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_timer(now);
        }
        if self.keep_alive_at().is_some_and(|at| at <= now) {
            self.keep_alive_timer();
        }
    }

    /// When the peer is to be asked whether it is there: only of a connection on which nothing is under way.
    fn keep_alive_at(&self) -> Option<Time> {
        let idle = (State::Established..State::TimeWait).contains(&self.state) && self.resend_at.is_none();
        let keep = self.params.keep_alive.filter(|_| idle)?;
        let (heard, probes) = self.heard;
        Some(heard + keep.idle + Duration::from_ps(keep.interval.as_ps() * u64::from(probes)))
    }

    fn keep_alive_timer(&mut self) {
        if self.params.keep_alive.is_some_and(|keep| self.heard.1 >= keep.probes) {
            return self.end_now(Some(Failure::TimedOut));
        }
        self.heard.1 += 1;
        self.probe = true;
        self.counters.keep_alives += 1;
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
            self.may_undo();
        }
        // If the peer held what comes first it would have acknowledged it: it has let go what it reported.
        if self.flight.first_is_held() {
            self.flight.forget_held();
        }
        let (una, sack, rack) = (self.una, self.sack, self.rack);
        self.flight.lose(|sent| !sack || sent.start == una || rack.is_late(now, sent));
        self.must_resend = true;
        self.window_reduced();
        self.tail.forget();
        self.duplicates = 0;
        self.timing = None;
        self.recovery = Recovery::Timeout { point: self.nxt };
    }
}
