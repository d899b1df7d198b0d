//! Power management that devices notice: the fabric between root ports and memory sleeps and has to be woken.

use engine::Rng;
use units::{ByteRate, Bytes, Duration, Time};

/// An idle state of the fabric.
#[derive(Clone, Copy, Debug)]
pub struct IdleState {
    /// How it is entered.
    pub entry: Entry,
    /// How long the next request waits for the fabric to leave it.
    pub exit: Duration,
}

/// How an idle state is entered.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// After so long without a request.
    After(Duration),
    /// At a housekeeping tick.
    Tick {
        /// Mean time between ticks.
        interval: Duration,
        /// By which part of the interval a tick may come early or late (0 to 1).
        jitter: f64,
        /// Traffic since the tick before, in whole lines and without the time asleep, below which it is entered even
        /// though requests are under way; `None` if the tick has to find the fabric idle.
        below: Option<ByteRate>,
    },
}

/// A package controller that stops the fabric to change voltage or frequency.
#[derive(Clone, Copy, Debug)]
pub struct PackageController {
    /// Time between its ticks, each of which asks for a transition.
    pub period: Duration,
    /// Periods for which a transition stops the fabric.
    pub transition_periods: u32,
    /// Share of transitions that take a period more.
    pub longer_share: f64,
    /// From the end of the last period until the fabric runs.
    pub exit: Duration,
    /// The same, the slow way.
    pub slow_exit: Duration,
    /// Share of transitions that go the slow way.
    pub slow_share: f64,
    /// Share of periods without a transition.
    pub skipped_share: f64,
}

/// What a machine file says about power management.
#[derive(Clone, Debug, Default)]
pub struct PowerParams {
    /// The fabric's idle states.
    pub states: Vec<IdleState>,
    /// The package controller, if it stops the fabric.
    pub controller: Option<PackageController>,
}

/// Tells every so manieth of a row of events apart, evenly: no row of them is luckier than another.
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
    /// Since when the fabric has been awake: the last tick, or the end of the sleep that began there.
    awake: Time,
    /// Bytes that had been moved at the last tick.
    moved: Bytes,
}

/// The fabric's sleep and what keeps it awake.
#[derive(Debug)]
pub struct Power {
    params: PowerParams,
    rng: Rng,
    /// When the last request under way has been served.
    busy_until: Time,
    /// Bytes of lines that requests have asked for.
    moved: Bytes,
    /// For each state its ticks, if it is entered at ticks.
    ticks: Vec<Ticks>,
    /// When the answer to the last read has left.
    reads_until: Time,
    /// The tick of the controller's request that has not been granted.
    asked: Option<Time>,
    /// When the controller ticks next.
    next_period: Time,
    /// When the transition that was granted last is over.
    stopped_until: Time,
    longer: Evenly,
    slow: Evenly,
    skipped: Evenly,
}

impl Power {
    /// A fabric that is awake.
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

    /// When a request for `lines` whole lines that arrives at `now` finds the fabric awake.
    pub fn admit(&mut self, now: Time, lines: Bytes) -> Time {
        if self.params.states.is_empty() && self.params.controller.is_none() {
            return now;
        }
        let idle_from = self.busy_until.min(now);
        let mut by_timer = Duration::ZERO;
        let mut by_tick = Duration::ZERO;
        for index in 0..self.params.states.len() {
            let state = self.params.states[index];
            match state.entry {
                Entry::After(after) if now.since(idle_from) > after => by_timer = by_timer.max(state.exit),
                Entry::After(_) => {}
                Entry::Tick { interval, jitter, below } => {
                    if self.ticked(index, (interval, jitter), below, idle_from, now) {
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

    /// Notes that a write is under way until `until`.
    pub fn write_until(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Notes that a read is being served until `served`, and that its answer, from `ready` on, takes `on_wire` of the link.
    pub fn read_until(&mut self, served: Time, ready: Time, on_wire: Duration) {
        self.busy_until = self.busy_until.max(served);
        self.reads_until = self.reads_until.max(ready) + on_wire;
    }

    /// Whether a tick of state `index` between `from` and `now`, or one that found little traffic, put the fabric to
    /// sleep.
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
        // A long sleep holds many ticks, and one is enough.
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

    /// When a transition that keeps a request of `now` waiting is over; `now` if none does.
    fn transition(&mut self, now: Time) -> Time {
        let Some(controller) = self.params.controller else { return now };
        while self.next_period <= now {
            let tick = self.next_period;
            self.next_period += controller.period;
            if tick >= self.stopped_until && !self.skipped.next() {
                self.asked = Some(tick);
            }
        }
        // It takes the first instant without a read under way: what is posted can wait in buffers.
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

    /// A fabric that is stopped for two periods of a millisecond and 8 us.
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
        // A line every 50 ns, whose read takes 100: never idle.
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
