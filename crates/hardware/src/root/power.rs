//! Power management visible to devices: the fabric between root ports and memory sleeps and has to be woken.

use engine::Rng;
use units::{ByteRate, Bytes, Duration, Time};

/// An idle state of the fabric.
#[derive(Clone, Copy, Debug)]
pub struct IdleState {
    /// How it is entered.
    pub entry: Entry,
    /// Exit latency seen by the next request.
    pub exit: Duration,
}

/// How an idle state is entered.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// After this time without a request.
    After(Duration),
    /// At a housekeeping tick.
    Tick {
        /// Mean time between ticks.
        interval: Duration,
        /// Jitter of a tick, as a fraction of the interval (0 to 1).
        jitter: f64,
        /// The state is entered even with requests in flight if the traffic since the last tick, in whole lines and
        /// excluding time asleep, is below this; `None` requires an idle fabric.
        below: Option<ByteRate>,
    },
}

/// A package controller that stops the fabric to change voltage or frequency.
#[derive(Clone, Copy, Debug)]
pub struct PackageController {
    /// Time between its ticks; each requests a transition.
    pub period: Duration,
    /// Periods that a transition stops the fabric for.
    pub transition_periods: u32,
    /// Fraction of transitions that take one more period.
    pub longer_share: f64,
    /// From the end of the last period until the fabric runs again.
    pub exit: Duration,
    /// The same for slow transitions.
    pub slow_exit: Duration,
    /// Fraction of slow transitions.
    pub slow_share: f64,
    /// Fraction of periods without a transition.
    pub skipped_share: f64,
}

/// Power management parameters of a machine file.
#[derive(Clone, Debug, Default)]
pub struct PowerParams {
    /// The fabric's idle states.
    pub states: Vec<IdleState>,
    /// The package controller, if it stops the fabric.
    pub controller: Option<PackageController>,
}

/// Selects a fraction of a sequence of events, evenly spaced so that short runs are not biased.
#[derive(Debug)]
struct Evenly {
    share: f64,
    sum: f64,
}

impl Evenly {
    fn new(share: f64, rng: &mut Rng) -> Self {
        Self { share, sum: rng.unit_f64() }
    }

    fn next(&mut self) -> bool {
        self.sum += self.share;
        let is_one = self.sum >= 1.0;
        self.sum -= f64::from(u8::from(is_one));
        is_one
    }
}

/// A state's ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    next: Time,
    /// When the fabric last woke: the last tick, or the end of the sleep that began there.
    awake: Time,
    /// Bytes moved at the last tick.
    moved: Bytes,
}

/// Power state of the fabric.
#[derive(Debug)]
pub struct Power {
    params: PowerParams,
    rng: Rng,
    /// Latency that all devices tolerate; `None` if none has reported any.
    tolerated: Option<Duration>,
    /// When the last request in flight has been served.
    busy_until: Time,
    /// Bytes of requested lines.
    moved: Bytes,
    /// Ticks of each state that is entered at ticks.
    ticks: Vec<Ticks>,
    /// When the last read's completion has left.
    reads_until: Time,
    /// The controller's tick whose transition is still pending.
    asked: Option<Time>,
    /// Next tick of the controller.
    next_period: Time,
    /// End of the last granted transition.
    stopped_until: Time,
    longer: Evenly,
    slow: Evenly,
    skipped: Evenly,
}

impl Power {
    /// Creates a fabric that is awake.
    pub fn new(params: PowerParams, mut rng: Rng) -> Self {
        let ticks = vec![Ticks::default(); params.states.len()];
        let next_period = params.controller.map_or(Time::NEVER, |c| Time::ZERO + c.period);
        let (busy_until, reads_until, stopped_until) = (Time::ZERO, Time::ZERO, Time::ZERO);
        let mut evenly = |share: fn(&PackageController) -> f64| {
            Evenly::new(params.controller.as_ref().map_or(0.0, share), &mut rng)
        };
        let longer = evenly(|controller| controller.longer_share);
        let slow = evenly(|controller| controller.slow_share);
        let skipped = evenly(|controller| controller.skipped_share);
        let (moved, asked) = (Bytes::ZERO, None);
        Self {
            params,
            rng,
            tolerated: None,
            busy_until,
            moved,
            ticks,
            reads_until,
            asked,
            next_period,
            stopped_until,
            longer,
            slow,
            skipped,
        }
    }

    /// States whose exit takes longer than this are not entered from now on.
    pub fn tolerate(&mut self, latency: Option<Duration>) {
        self.tolerated = latency;
    }

    /// When the fabric is awake for a request of `lines` whole lines that arrives at `now`.
    pub fn admit(&mut self, now: Time, lines: Bytes) -> Time {
        if self.params.states.is_empty() && self.params.controller.is_none() {
            return now;
        }
        let idle_from = self.busy_until.min(now);
        let mut by_timer = Duration::ZERO;
        let mut by_tick = Duration::ZERO;
        for index in 0..self.params.states.len() {
            let state = self.params.states[index];
            let is_tolerated = self.tolerated.is_none_or(|most| state.exit <= most);
            match state.entry {
                Entry::After(after) if is_tolerated && now.since(idle_from) > after => {
                    by_timer = by_timer.max(state.exit);
                }
                Entry::After(_) => {}
                Entry::Tick { interval, jitter, below } => {
                    if self.ticked(index, (interval, jitter), below, idle_from, now) && is_tolerated {
                        by_tick = by_tick.max(state.exit);
                        self.ticks[index].awake = now + state.exit;
                    }
                }
            }
        }
        self.moved += lines;
        let awake = (now + by_timer + by_tick).max(self.transition(now));
        self.busy_until = self.busy_until.max(awake);
        awake
    }

    /// Records that a write is in flight until `until`.
    pub fn write_until(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Records that a read is served until `served`, and that its completion is ready at `ready` and takes `on_wire` of
    /// link time.
    pub fn read_until(&mut self, served: Time, ready: Time, on_wire: Duration) {
        self.busy_until = self.busy_until.max(served);
        self.reads_until = self.reads_until.max(ready) + on_wire;
    }

    /// Whether a tick of state `index` between `from` and `now`, or one with little traffic, put the fabric to sleep.
    fn ticked(
        &mut self,
        index: usize,
        (interval, jitter): (Duration, f64),
        below: Option<ByteRate>,
        from: Time,
        now: Time,
    ) -> bool {
        let mut ticks = self.ticks[index];
        let mut found = false;
        // A long sleep spans many ticks; processing one is enough.
        if now.since(ticks.next) > interval * 4 {
            ticks.next = now - interval;
            found = ticks.next >= from;
        }
        while ticks.next <= now {
            let little = below.is_some_and(|rate| {
                let seconds = ticks.next.since(ticks.awake).as_s_f64();
                ((self.moved - ticks.moved).get() as f64) < rate.bytes_per_s() as f64 * seconds
            });
            found |= little || ticks.next >= from;
            (ticks.awake, ticks.moved) = (ticks.next, self.moved);
            let spread = 1.0 + jitter * (2.0 * self.rng.unit_f64() - 1.0);
            ticks.next += Duration::from_ps((interval.as_ps() as f64 * spread) as u64);
        }
        self.ticks[index] = ticks;
        found
    }

    /// End of the transition that delays a request at `now`; `now` if there is none.
    fn transition(&mut self, now: Time) -> Time {
        let Some(controller) = self.params.controller else { return now };
        while self.next_period <= now {
            let tick = self.next_period;
            self.next_period += controller.period;
            if tick >= self.stopped_until && !self.skipped.next() {
                self.asked = Some(tick);
            }
        }
        // It starts when no read is in flight; posted writes can wait in buffers.
        if let Some(tick) = self.asked.filter(|_| self.reads_until < now) {
            self.asked = None;
            let longer = u32::from(self.longer.next());
            let exit = if self.slow.next() { controller.slow_exit } else { controller.exit };
            let periods = u64::from(controller.transition_periods + longer);
            self.stopped_until = tick + controller.period * periods + exit;
        }
        now.max(self.stopped_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Bytes = Bytes::new(64);

    fn power(params: PowerParams) -> Power {
        Power::new(params, engine::Seed::new(1).component("power"))
    }

    /// A fabric stopped for two periods of a millisecond and 8 us.
    fn stopping() -> Power {
        let controller = PackageController {
            period: Duration::from_ms(1),
            transition_periods: 2,
            longer_share: 0.0,
            exit: Duration::from_us(8),
            slow_exit: Duration::from_us(8),
            slow_share: 0.0,
            skipped_share: 0.0,
        };
        power(PowerParams { states: Vec::new(), controller: Some(controller) })
    }

    fn at(ns: u64) -> Time {
        Time::from_ps(ns * 1_000)
    }

    #[test]
    fn a_fabric_without_states_never_sleeps() {
        let mut power = power(PowerParams::default());
        assert_eq!(power.admit(at(1_000_000), LINE), at(1_000_000));
    }

    #[test]
    fn a_timer_decides_who_waits() {
        let entry = Entry::After(Duration::from_ns(500));
        let state = IdleState { entry, exit: Duration::from_ns(650) };
        let mut power = power(PowerParams { states: vec![state], controller: None });
        power.read_until(at(10_000), at(10_000), Duration::ZERO);
        assert_eq!(power.admit(at(10_400), LINE), at(10_400));
        power.read_until(at(10_500), at(10_500), Duration::ZERO);
        assert_eq!(power.admit(at(11_500), LINE), at(12_150));
    }

    #[test]
    fn a_state_that_a_device_does_not_tolerate_is_not_entered() {
        let by_timer = Entry::After(Duration::from_ns(500));
        let by_tick = Entry::Tick { interval: Duration::from_ns(500), jitter: 0.0, below: None };
        let states = [(by_timer, 650), (by_tick, 2_000)];
        let states = states.map(|(entry, exit)| IdleState { entry, exit: Duration::from_ns(exit) });
        for (tolerated, delay) in [(None, 2_650), (Some(2_000), 2_650), (Some(1_999), 650), (Some(649), 0)] {
            let mut power = power(PowerParams { states: states.to_vec(), controller: None });
            power.tolerate(tolerated.map(Duration::from_ns));
            assert_eq!(power.admit(at(100_000), LINE), at(100_000 + delay), "{tolerated:?}");
        }
    }

    #[test]
    fn a_transition_holds_what_comes_meanwhile() {
        let mut power = stopping();
        assert_eq!(power.admit(at(900_000), LINE), at(900_000));
        assert_eq!(power.admit(at(1_000_100), LINE), at(3_008_000));
        assert_eq!(power.admit(at(2_000_000), LINE), at(3_008_000));
    }

    #[test]
    fn a_transition_waits_for_reads_but_not_for_writes() {
        let mut power = stopping();
        power.write_until(at(1_000_500));
        power.read_until(at(1_000_200), at(1_000_200), Duration::ZERO);
        assert_eq!(power.admit(at(1_000_100), LINE), at(1_000_100));
        assert_eq!(power.admit(at(1_000_300), LINE), at(3_008_000));
    }

    #[test]
    fn a_tick_that_finds_little_traffic_puts_the_fabric_to_sleep() {
        // One line every 50 ns, whose read takes 100 ns: never idle.
        let sleeps = |below| {
            let entry = Entry::Tick { interval: Duration::from_us(10), jitter: 0.0, below };
            let state = IdleState { entry, exit: Duration::from_us(2) };
            let mut power = power(PowerParams { states: vec![state], controller: None });
            let mut awake = |n: u64| {
                power.read_until(at(n * 50 + 125), at(n * 50 + 125), Duration::ZERO);
                power.admit(at(n * 50 + 25), LINE) == at(n * 50 + 25)
            };
            (20..2_000).filter(|&n| !awake(n)).count()
        };
        assert_eq!(sleeps(None), 0);
        assert_eq!(sleeps(Some("1 GB/s".parse().unwrap())), 0);
        assert_eq!(sleeps(Some("2 GB/s".parse().unwrap())), 9);
    }

    #[test]
    fn shares_are_kept_evenly() {
        let mut evenly = Evenly::new(0.2, &mut engine::Seed::new(1).component("power"));
        for _ in 0..20 {
            assert_eq!((0..5).filter(|_| evenly.next()).count(), 1);
        }
    }
}
