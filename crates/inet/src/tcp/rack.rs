//! Loss detection by time (RACK, RFC 8985, section 6): what was sent before something that has arrived is lost when it
//! has not arrived a little later.

use units::{Duration, Time};

use super::flight::{Flight, Sent};

/// Segments beyond a hole that make it lost at once, as long as no reordering was seen (RFC 5681, RFC 6675).
const DUPLICATES: u64 = 3;

/// What is known of the latest that was delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    /// The segment that was sent last of all that were delivered: its turn and its end.
    latest: Option<(u64, u64)>,
    /// Its round trip.
    rtt: Duration,
    /// The highest position that was delivered.
    highest: u64,
    /// Something arrived after what was sent later.
    pub reordering: bool,
    /// Quarters of a round trip that are waited beside the first, since what was taken for lost had not been.
    patience: u32,
    /// Recoveries after which that is forgotten.
    persists: u8,
    /// Position whose acknowledgement ends the round trip in which something had come again.
    round: Option<u64>,
}

/// Recoveries for which a lesson holds (RFC 8985, 6.2, step 4).
const PERSISTS: u8 = 16;

impl Rack {
    /// Part of the flight was delivered (6.2, steps 1 to 4). `least` is the least round trip that was measured.
    pub fn delivered(&mut self, now: Time, sent: Sent, least: Option<Duration>) {
        if sent.end < self.highest && !sent.again {
            self.reordering = true;
        }
        self.highest = self.highest.max(sent.end);
        let rtt = now.since(sent.at);
        // It was the first copy that arrived, not the one that was sent last.
        if sent.again && least.is_some_and(|least| rtt < least) {
            return;
        }
        if self.latest.is_none_or(|latest| (sent.turn, sent.end) > latest) {
            self.latest = Some((sent.turn, sent.end));
            self.rtt = rtt;
        }
    }

    /// The peer tells of something that came again: it was sent again too early. Once in a round trip (6.2, step 4).
    pub fn repeated(&mut self, una: u64, nxt: u64) {
        if self.round.is_none_or(|round| una >= round) {
            (self.round, self.persists) = (Some(nxt), PERSISTS);
            self.patience += 1;
        }
    }

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.persists = self.persists.saturating_sub(1);
        if self.persists == 0 {
            self.patience = 0;
        }
    }

    /// How much later than a round trip something may arrive without being lost (6.2, step 4): nothing once three
    /// segments' worth has overtaken it, or in recovery, as long as nothing was ever reordered.
    fn window(&self, flight: &Flight, rtts: Rtts, in_recovery: bool) -> Duration {
        let overtaken =
            flight.held() > (DUPLICATES - 1) * rtts.mss || flight.held_ranges() as u64 >= DUPLICATES;
        if !self.reordering && (in_recovery || overtaken) {
            return Duration::ZERO;
        }
        (Duration::from_ps(rtts.least.as_ps() / 4) * u64::from(1 + self.patience)).min(rtts.smoothed)
    }

    /// Marks what is lost (6.2, step 5). When more will be, if nothing of it arrives.
    pub fn look(&self, now: Time, flight: &mut Flight, rtts: Rtts, in_recovery: bool) -> Option<Time> {
        let latest = self.latest?;
        if !flight.has_holes() {
            return None;
        }
        let wait = self.rtt + self.window(flight, rtts, in_recovery);
        let mut next = None;
        flight.lose(|sent| {
            let overtaken = (sent.turn, sent.end) < latest;
            let due = sent.at + wait;
            if overtaken && due > now {
                next = next.max(Some(due));
            }
            overtaken && due <= now
        });
        next
    }

    /// Whether something that was sent at a time counts as lost when the retransmission timer goes off (6.3).
    pub fn is_late(&self, now: Time, sent: &Sent) -> bool {
        self.latest.is_none() || sent.at + self.rtt <= now
    }
}

/// Round trips and the size of segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtts {
    pub least: Duration,
    pub smoothed: Duration,
    pub mss: u64,
}
