//! Wire of one direction: transmission times and occupancy.

use units::{Duration, Time};
use wire::pcie::{Generation, Width, link};

/// Wire of one direction, with its transmitter.
#[derive(Debug)]
pub struct Wire {
    /// Picoseconds per byte, times 2^16: exact enough for any TLP, and avoids a division per TLP.
    ps_per_byte_q16: u64,
    /// The same without the factor.
    ps_per_byte: f64,
    /// Width of the transmitter in bytes, less one: a TLP takes whole beats.
    beat_less_one: u64,
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
    pub fn new(speed: (Generation, Width), beat: u32) -> Self {
        assert!(beat.is_power_of_two(), "a transmitter is as wide as a power of two, not {beat} B");
        let mut new = Self {
            ps_per_byte_q16: 0,
            ps_per_byte: 0.0,
            beat_less_one: u64::from(beat) - 1,
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
        self.skip = link::skip_interval(generation, width);
    }

    /// Wire time of a byte in picoseconds.
    #[inline]
    pub fn ps_per_byte(&self) -> f64 {
        self.ps_per_byte
    }

    /// Wire time of bytes other than a whole TLP.
    #[inline]
    pub fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_ps((bytes * self.ps_per_byte_q16) >> 16)
    }

    /// Wire time of a TLP of `bytes`, framing included.
    #[inline(always)]
    pub fn tlp_time(&self, bytes: u64) -> Duration {
        self.time_for((bytes + self.beat_less_one) & !self.beat_less_one)
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

    /// Earliest start of a transmission that is ready at `at`, behind scheduled ones and pending SKP ordered sets.
    #[inline(always)]
    pub fn begin(&mut self, at: Time) -> Time {
        let start = at.max(self.free);
        if start >= self.next_skip { self.after_skip(start) } else { start }
    }

    /// Occupies the wire with a transmission that [begins](Self::begin) there, until `end`.
    #[inline(always)]
    pub fn occupy_until(&mut self, end: Time) {
        self.free = end;
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
