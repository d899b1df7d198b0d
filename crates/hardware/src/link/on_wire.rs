//! Wire of one direction: transmission times and occupancy.

use units::{Duration, Time};
use wire::pcie::{Framing, Generation, Width, link};

/// Bytes of a DLLP on the wire, framing included, where it is not in a FLIT.
pub const DLLP_BYTES: u64 = 8;
/// Bytes that must have arrived before a TLP can be routed: framing and a four-doubleword header.
const HEADER_BYTES_TO_ROUTE: u64 = 20;

/// Wire occupancy of a TLP.
#[derive(Clone, Copy)]
pub struct WireBytes {
    /// TLP bytes, framing included.
    pub tlp: u64,
    /// Padding bytes that its sender adds around it.
    pub padding: u64,
}

/// A TLP's way over a wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct WireTimes {
    /// When its first byte is sent.
    pub start: Time,
    /// When the wire is free again.
    pub end: Time,
    /// When it is delivered.
    pub arrival: Time,
}

/// Wire of one direction, from its transmitter's output to the receiver's transaction layer.
#[derive(Debug)]
pub struct Wire {
    /// Picoseconds per byte, times 2^16: exact enough for any TLP, and avoids a division per TLP.
    ps_per_byte_q16: u64,
    /// The same without the factor.
    ps_per_byte: f64,
    /// Bytes of framing, sequence number and LCRC of a TLP.
    framing: u64,
    /// Bytes of a DLLP.
    dllp: u64,
    /// Time of a FLIT; zero without them.
    flit: Duration,
    /// Width of the transmitter in bytes, less one: a TLP takes whole beats.
    beat_less_one: u64,
    /// From the last symbol of a TLP leaving the transmitter until the receiver's transaction layer has it.
    latency: Duration,
    /// Whether the receiver gets a TLP with its header, before its end has arrived.
    cut_through: bool,
    /// Interval of SKP ordered sets, and the time that one takes.
    skip: (Duration, Duration),
    /// When the next SKP ordered set is due.
    next_skip: Time,
    /// When everything scheduled has been sent.
    free: Time,
}

impl Wire {
    /// An idle wire.
    ///
    /// # Panics
    /// If `beat` is no power of two.
    pub fn new(speed: (Generation, Width), beat: u32, latency: Duration, cut_through: bool) -> Self {
        assert!(beat.is_power_of_two(), "a transmitter is as wide as a power of two, not {beat} B");
        let mut new = Self {
            ps_per_byte_q16: 0,
            ps_per_byte: 0.0,
            framing: 0,
            dllp: 0,
            flit: Duration::ZERO,
            beat_less_one: u64::from(beat) - 1,
            latency,
            cut_through,
            skip: (Duration::ZERO, Duration::ZERO),
            next_skip: Time::ZERO,
            free: Time::ZERO,
        };
        new.set_speed(speed);
        new
    }

    /// Changes the speed of everything not yet scheduled.
    pub fn set_speed(&mut self, (generation, width): (Generation, Width)) {
        let rate = link::data_rate(generation, width);
        self.ps_per_byte_q16 = ((8_000_000_000_000u128 << 16) / u128::from(rate.bits_per_s())) as u64;
        self.ps_per_byte = self.ps_per_byte_q16 as f64 / 65536.0;
        self.framing = link::framing_bytes(generation);
        self.dllp = generation.framing().dllp_len() as u64;
        self.flit = match generation.framing() {
            Framing::Flits => {
                let lanes = u64::from(width.lanes());
                Duration::from_ps(link::FLIT_BYTES * 8 * 1_000_000 / (generation.mt_per_s() * lanes))
            }
            Framing::Symbols | Framing::Tokens => Duration::ZERO,
        };
        self.skip = link::skip_interval(generation, width);
    }

    /// Sets whether the receiver gets TLPs as soon as their headers have arrived.
    pub fn set_cut_through(&mut self, on: bool) {
        self.cut_through = on;
    }

    /// Wire time of a byte in picoseconds.
    #[inline]
    pub fn ps_per_byte(&self) -> f64 {
        self.ps_per_byte
    }

    /// Bytes of framing, sequence number and LCRC of a TLP.
    #[inline]
    pub fn framing_bytes(&self) -> u64 {
        self.framing
    }

    /// Wire occupancy of a TLP of `length` bytes without framing, and of its padding.
    #[inline(always)]
    pub fn bytes(&self, length: usize, padding: u16) -> WireBytes {
        WireBytes { tlp: length as u64 + self.framing, padding: padding.into() }
    }

    /// Wire time of bytes other than a whole TLP.
    #[inline]
    fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_ps((bytes * self.ps_per_byte_q16) >> 16)
    }

    /// Wire time of a TLP of `bytes`, framing included.
    #[inline(always)]
    pub fn tlp_time(&self, bytes: u64) -> Duration {
        self.time_for((bytes + self.beat_less_one) & !self.beat_less_one)
    }

    /// Wire time of a DLLP.
    #[inline]
    pub fn dllp_time(&self) -> Duration {
        self.time_for(self.dllp)
    }

    /// From the last symbol of a packet leaving the transmitter until the receiver has it.
    #[inline]
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// When a TLP that starts at `start` ends on the wire, and when it is delivered.
    #[inline(always)]
    pub fn crossing(&self, bytes: WireBytes, start: Time) -> WireTimes {
        let end = start + self.tlp_time(bytes.tlp + bytes.padding);
        let routed = match self.cut_through {
            true => start + self.time_for(HEADER_BYTES_TO_ROUTE.min(bytes.tlp)),
            false => end,
        };
        WireTimes { start, end, arrival: self.checked(routed) + self.latency }
    }

    /// When what has been sent by `at` has passed its check: with FLITs, at the end of the one that it is in.
    #[inline(always)]
    fn checked(&self, at: Time) -> Time {
        match self.flit.as_ps() {
            0 => at,
            flit => Time::from_ps(at.as_ps().next_multiple_of(flit)),
        }
    }

    /// From delivery of a TLP of `bytes`, without framing, until its last byte arrives.
    #[inline]
    pub fn tail(&self, bytes: u64) -> Duration {
        if !self.cut_through {
            return Duration::ZERO;
        }
        let bytes = bytes + self.framing;
        self.tlp_time(bytes).saturating_sub(self.time_for(HEADER_BYTES_TO_ROUTE.min(bytes)))
    }

    /// When everything scheduled has been sent.
    pub fn free(&self) -> Time {
        self.free
    }

    /// Starts at `ready`, when the link has trained. No SKP ordered set is pending.
    pub fn start(&mut self, ready: Time) {
        self.free = ready;
        self.next_skip = ready + self.skip.0;
    }

    /// Pauses for `time` after everything scheduled has been sent.
    pub fn pause(&mut self, now: Time, time: Duration) {
        self.free = self.free.max(now) + time;
    }

    /// Sends a TLP that is ready at `at`, behind scheduled ones and pending SKP ordered sets. `expected` is its way if
    /// nothing delays it, if known.
    #[inline(always)]
    pub fn carry(&mut self, at: Time, bytes: WireBytes, expected: Option<WireTimes>) -> WireTimes {
        let start = self.begin(at);
        let crossing = match expected {
            Some(crossing) if crossing.start == start => crossing,
            _ => self.crossing(bytes, start),
        };
        self.free = crossing.end;
        crossing
    }

    /// Sends a DLLP that is due at `due`. It is inserted between two TLPs: it delays later ones by its own length and
    /// waits for none. Returns when it has been sent.
    #[inline]
    pub fn insert_dllp(&mut self, due: Time) -> Time {
        let time = self.dllp_time();
        self.free = self.begin(due) + time;
        due + time
    }

    /// Earliest start of a transmission that is ready at `at`, behind scheduled ones and pending SKP ordered sets.
    #[inline(always)]
    fn begin(&mut self, at: Time) -> Time {
        let start = at.max(self.free);
        if start >= self.next_skip { self.after_skip(start) } else { start }
    }

    /// Start of a TLP that would start at `start`, after the pending SKP ordered sets (one per interval).
    ///
    /// An SKP ordered set never interrupts a TLP: it waits for the end of the TLP (base spec 4.2.7.3), and the next TLP
    /// waits for it. Sets on an idle wire only delay a TLP that would start just then.
    #[cold]
    fn after_skip(&mut self, start: Time) -> Time {
        let (interval, time) = self.skip;
        let elapsed = |until: Time| until.since(self.next_skip).as_ps() / interval.as_ps().max(1);
        let put_off = if self.free >= self.next_skip { elapsed(self.free) + 1 } else { 0 };
        let last = self.next_skip + interval * elapsed(start);
        let last_done = if last > self.free { last + time } else { start };
        self.next_skip = last + interval;
        start.max(self.free + time * put_off).max(last_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_ps(7_000);

    /// 2.5 GT/s on eight lanes: two bytes a nanosecond, and eight bytes of framing.
    fn wire(beat: u32, cut_through: bool) -> Wire {
        Wire::new((Generation::Gen1, Width::X8), beat, LATENCY, cut_through)
    }

    fn ps(n: u64) -> Time {
        Time::from_ps(n)
    }

    #[test]
    fn packets_take_as_long_as_their_bytes() {
        let wire = wire(1, false);
        assert_eq!((wire.ps_per_byte(), wire.framing_bytes(), wire.latency()), (500.0, 8, LATENCY));
        assert_eq!(wire.dllp_time(), Duration::from_ps(4_000));
        let bytes = wire.bytes(92, 4);
        assert_eq!((bytes.tlp, bytes.padding), (100, 4));
        assert_eq!(wire.tlp_time(100), Duration::from_ps(50_000));
        // Whole beats.
        let wide = self::wire(16, false);
        assert_eq!([96, 97, 112].map(|bytes| wide.tlp_time(bytes).as_ps()), [48_000, 56_000, 56_000]);
        let crossing = wire.crossing(bytes, ps(1_000));
        assert_eq!((crossing.start, crossing.end, crossing.arrival), (ps(1_000), ps(53_000), ps(60_000)));
        assert_eq!(wire.tail(92), Duration::ZERO);
    }

    /// A header and its framing are 20 bytes.
    #[test]
    fn a_packet_cut_through_arrives_with_its_header() {
        let mut wire = wire(1, true);
        let arrives = |wire: &Wire, length| wire.crossing(wire.bytes(length, 8), ps(1_000)).arrival;
        assert_eq!(
            (arrives(&wire, 92), arrives(&wire, 4)),
            (ps(1_000 + 10_000 + 7_000), ps(1_000 + 6_000 + 7_000))
        );
        assert_eq!((wire.tail(92), wire.tail(4)), (Duration::from_ps(40_000), Duration::ZERO));
        wire.set_cut_through(false);
        assert_eq!(arrives(&wire, 92), ps(1_000 + 54_000 + 7_000));
    }

    /// Sixteen lanes of 64 GT/s send a FLIT of 256 bytes in 2 ns, of which 236 are of packets.
    #[test]
    fn packets_in_flits_arrive_with_their_flits() {
        let mut wire = Wire::new((Generation::Gen6, Width::X16), 1, LATENCY, false);
        wire.start(ps(0));
        assert_eq!((wire.framing_bytes(), wire.dllp_time()), (0, Duration::ZERO));
        let mut arrival = |length| wire.carry(ps(0), wire.bytes(length, 0), None).arrival.as_ps() - 7_000;
        // 118 and 118 bytes fill the first, and the next needs the second and the third.
        assert_eq!([118, 117, 238].map(&mut arrival), [2_000, 2_000, 6_000]);
        let through = Wire::new((Generation::Gen6, Width::X16), 1, LATENCY, true);
        assert_eq!(through.crossing(through.bytes(472, 0), ps(0)).arrival, ps(2_000 + 7_000));
    }

    #[test]
    fn packets_follow_one_another_and_dllps_go_between() {
        let mut wire = wire(1, false);
        wire.start(ps(10_000));
        let bytes = wire.bytes(12, 0);
        let sent = |crossing: WireTimes| (crossing.start.as_ps(), crossing.end.as_ps());
        assert_eq!(sent(wire.carry(ps(0), bytes, None)), (10_000, 20_000));
        assert_eq!(sent(wire.carry(ps(12_000), bytes, None)), (20_000, 30_000));
        // What was expected counts if it begins as expected.
        let expected = |start| Some(WireTimes { start: ps(start), end: ps(35_000), arrival: ps(1) });
        assert_eq!(wire.carry(ps(0), bytes, expected(30_000)).arrival, ps(1));
        assert_eq!(sent(wire.carry(ps(0), bytes, expected(30_000))), (35_000, 45_000));
        // A DLLP waits for none, and delays what comes later.
        assert_eq!(wire.insert_dllp(ps(36_000)), ps(40_000));
        assert_eq!(wire.free(), ps(49_000));
        assert_eq!((wire.insert_dllp(ps(60_000)), wire.free()), (ps(64_000), ps(64_000)));
        wire.pause(ps(50_000), Duration::from_ps(1_000));
        assert_eq!(wire.free(), ps(65_000));
        wire.pause(ps(70_000), Duration::from_ps(1_000));
        assert_eq!(wire.free(), ps(71_000));
    }

    /// Base spec 4.2.7.3: an ordered set goes between packets; those due on an idle wire delay none.
    #[test]
    fn skip_sets_take_their_time_when_they_are_due() {
        let (interval, time) = link::skip_interval(Generation::Gen1, Width::X8);
        let (interval, time) = (interval.as_ps(), time.as_ps());
        let start = |busy_until: u64, at: u64| {
            let mut wire = wire(1, false);
            wire.start(ps(0));
            let length = busy_until / 500;
            if length > 0 {
                wire.carry(ps(0), WireBytes { tlp: length, padding: 0 }, None);
            }
            let first = wire.carry(ps(at), wire.bytes(0, 0), None).start.as_ps();
            (first, wire.carry(ps(0), wire.bytes(0, 0), None).start.as_ps())
        };
        let short = 4_000;
        assert_eq!(
            start(0, interval - 500),
            (interval - 500, interval - 500 + short + time),
            "it waits for the packet"
        );
        assert_eq!(start(0, interval), (interval + time, interval + time + short), "and the next one for it");
        let (within, behind) = (interval + time / 2 / 500 * 500, interval + time + 500);
        assert_eq!(start(0, within).0, interval + time, "it is under way");
        assert_eq!(start(0, behind), (behind, behind + short), "it is past");
        assert_eq!(start(0, 5 * interval + 500).0, 5 * interval + time, "of many on an idle wire, the last");
        // Behind a packet over one and over three intervals.
        let busy = interval + 20_000 / 500 * 500;
        assert_eq!(start(busy, 0), (busy / 500 * 500 + time, busy / 500 * 500 + time + short));
        let busy = (3 * interval + 20_000) / 500 * 500;
        assert_eq!(start(busy, 0).0, busy + 3 * time);
    }
}
