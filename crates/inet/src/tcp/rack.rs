//! Time-based loss detection (RACK, RFC 8985, section 6): data sent before something that has been delivered are lost
//! if they do not arrive within a short time.

use units::{Duration, Time};

use super::flight::{Flight, Sent};

/// Segments delivered beyond a hole that make it lost at once, as long as no reordering was seen (RFC 5681, RFC
/// 6675).
const DUPLICATES: u64 = 3;

/// The most recently sent data that were delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    /// The segment that was sent last of all delivered ones: its turn and its end.
    latest: Option<(u64, u64)>,
    /// Its round trip.
    rtt: Duration,
    /// The highest delivered position.
    highest: u64,
    /// Whether something was delivered after data that were sent later.
    pub reordering: bool,
    /// Quarters of a round trip that are waited beside the first, since what was taken for lost had not been.
    patience: u32,
    /// Recoveries after which that is forgotten.
    persists: u8,
    /// Position whose acknowledgement ends the round trip in which a duplicate was reported.
    round: Option<u64>,
}

/// Number of recoveries for which a widened window persists (RFC 8985, 6.2, step 4).
const PERSISTS: u8 = 16;

impl Rack {
    /// Data were delivered (6.2, steps 1 to 4). `least` is the minimum round trip measured.
    pub fn delivered(&mut self, now: Time, sent: Sent, least: Option<Duration>) {
        if sent.end < self.highest && !sent.again {
            self.reordering = true;
        }
        self.highest = self.highest.max(sent.end);
        let rtt = now.since(sent.at);
        // The original arrived, not the retransmission.
        if sent.again && least.is_some_and(|least| rtt < least) {
            return;
        }
        if self.latest.is_none_or(|latest| (sent.turn, sent.end) > latest) {
            self.latest = Some((sent.turn, sent.end));
            self.rtt = rtt;
        }
    }

    /// The peer reports a duplicate, so data were retransmitted too early. Counts once per round trip (6.2, step 4).
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

    /// How much later than a round trip data may arrive without being lost (6.2, step 4). Zero if nothing was ever
    /// reordered and either three segments have overtaken the data or recovery is in progress.
    fn window(&self, flight: &Flight, rtts: Rtts, in_recovery: bool) -> Duration {
        let overtaken =
            flight.held() > (DUPLICATES - 1) * rtts.mss || flight.held_ranges() as u64 >= DUPLICATES;
        if !self.reordering && (in_recovery || overtaken) {
            return Duration::ZERO;
        }
        (Duration::from_ps(rtts.least.as_ps() / 4) * u64::from(1 + self.patience)).min(rtts.smoothed)
    }

    /// Marks lost data (6.2, step 5). Returns when more will be lost unless they arrive.
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

    /// Whether data sent at a time count as lost when the retransmission timer expires (6.3).
    pub fn is_late(&self, now: Time, sent: &Sent) -> bool {
        self.latest.is_none() || sent.at + self.rtt <= now
    }
}

/// Round-trip times and segment size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtts {
    pub least: Duration,
    pub smoothed: Duration,
    pub mss: u64,
}
