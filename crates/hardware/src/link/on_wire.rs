//! The wire of one direction: how long bytes take, and when it is free.

use units::{Duration, Time, steps};
use wire::pcie::{Generation, Width, link};

/// The wire of one direction, with the transmitter that feeds it.
#[derive(Debug)]
pub struct Wire {
    /// Picoseconds per byte, times 2^16: exact enough for any TLP, and no division per TLP.
    ps_per_byte_q16: u64,
    /// Bytes that the transmitter moves at once: a TLP takes whole beats.
    beat: u64,
    /// Time between SKP ordered sets and the time that one takes.
    skip: (Duration, Duration),
    /// When the next SKP ordered set is due.
    next_skip: Time,
    /// When it has sent all that was handed to it.
    free: Time,
}

impl Wire {
    /// An idle wire.
    pub fn new(speed: (Generation, Width), beat: u32) -> Self {
        let mut new = Self {
            ps_per_byte_q16: 0,
            beat: beat.max(1).into(),
            skip: (Duration::ZERO, Duration::ZERO),
            next_skip: Time::ZERO,
            free: Time::ZERO,
        };
        new.set_speed(speed);
        new
    }

    /// Lets what has no place on it yet go at another speed.
    pub fn set_speed(&mut self, (generation, width): (Generation, Width)) {
        let rate = link::data_rate(generation, width);
        self.ps_per_byte_q16 = ((8_000_000_000_000u128 << 16) / u128::from(rate.bits_per_s())) as u64;
        self.skip = link::skip_interval(generation, width);
    }

    /// Picoseconds that a byte takes.
    pub fn ps_per_byte(&self) -> f64 {
        self.ps_per_byte_q16 as f64 / 65536.0
    }

    /// What bytes take that are no whole TLP.
    #[inline]
    pub fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_ps((bytes * self.ps_per_byte_q16) >> 16)
    }

    /// What a TLP of so many bytes takes, framing included.
    #[inline]
    pub fn tlp_time(&self, bytes: u64) -> Duration {
        self.time_for(steps::up(bytes, self.beat))
    }

    /// When it has sent all that was handed to it.
    pub fn free(&self) -> Time {
        self.free
    }

    /// Begins to send at `ready`, when the link has trained: no SKP ordered set is due from before.
    pub fn start(&mut self, ready: Time) {
        self.free = ready;
        self.next_skip = ready + self.skip.0;
    }

    /// Sends nothing more for a while, once what it has is sent.
    pub fn pause(&mut self, now: Time, time: Duration) {
        self.free = self.free.max(now) + time;
    }

    /// When what is to leave at `at` can begin: behind what there is to send, and the SKP ordered sets that are due.
    #[inline(always)]
    pub fn begin(&mut self, at: Time) -> Time {
        let start = at.max(self.free);
        if start >= self.next_skip { self.after_skip(start) } else { start }
    }

    /// What [has begun](Self::begin) ends at `end`.
    #[inline(always)]
    pub fn occupy_until(&mut self, end: Time) {
        self.free = end;
    }

    /// When a TLP begins that would begin at `start`, after the SKP ordered sets, one in every interval, that are due.
    ///
    /// A set never interrupts a TLP: what falls due meanwhile waits for its end (base spec 4.2.7.3), and the next TLP
    /// for the set. Sets that fall into an idle wire are in the way of none but a TLP that begins just then.
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
