//! Reads under way at one place: whether a request meets others there, rather than its own lines.

use units::Time;

/// Until when reads are under way, those of the last request apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWay {
    request: u64,
    own: Time,
    others: Time,
}

impl UnderWay {
    /// When the last read of a request other than `request` is answered. What is noted from now on is `request`'s.
    #[inline]
    pub(super) fn others_until(&mut self, request: u64) -> Time {
        if request != self.request {
            self.request = request;
            self.others = self.others.max(self.own);
            self.own = Time::ZERO;
        }
        self.others
    }

    /// A read of the request asked for last is under way until `until`.
    #[inline]
    pub(super) fn note(&mut self, until: Time) {
        self.own = self.own.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_does_not_meet_its_own_lines() {
        let mut reads = UnderWay::default();
        let until = Time::from_ps(100);
        assert_eq!(reads.others_until(1), Time::ZERO);
        reads.note(until);
        assert_eq!(reads.others_until(1), Time::ZERO);
        assert_eq!(reads.others_until(2), until);
        reads.note(Time::from_ps(50));
        assert_eq!(reads.others_until(3), until);
    }
}
