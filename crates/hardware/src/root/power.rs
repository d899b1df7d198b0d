//! Power management that devices notice: the fabric between root ports and memory sleeps and has to be woken.

use engine::Rng;
use units::{Duration, Time};

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
    /// At a housekeeping tick that finds the fabric idle.
    Tick {
        /// Mean time between ticks.
        interval: Duration,
        /// By which part of the interval a tick may come early or late (0 to 1).
        jitter: f64,
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
    /// Chance, for each period, that a transition does not wait for an idle instant.
    pub forced_share: f64,
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

/// The fabric's sleep and what keeps it awake.
#[derive(Debug)]
pub struct Power {
    params: PowerParams,
    rng: Rng,
    /// When the last request under way has been served.
    busy_until: Time,
    /// For each state entered at ticks: when its next tick is.
    next_tick: Vec<Time>,
    /// When the last read under way has been served.
    reads_until: Time,
    /// The controller's request that has not been granted.
    asked: Option<Asked>,
    /// When the controller ticks next.
    next_period: Time,
    /// When the transition that was granted last is over.
    stopped_until: Time,
}

/// The controller asks for a transition.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The tick at which it did so.
    tick: Time,
    /// Whether it does not wait for an idle instant.
    forced: bool,
}

impl Power {
    /// A fabric that is awake.
    pub fn new(params: PowerParams, rng: Rng) -> Self {
        let next_tick = vec![Time::ZERO; params.states.len()];
        let next_period = params.controller.map_or(Time::NEVER, |c| Time::ZERO + c.period);
        let (busy_until, reads_until, stopped_until) = (Time::ZERO, Time::ZERO, Time::ZERO);
        Self { params, rng, busy_until, next_tick, reads_until, asked: None, next_period, stopped_until }
    }

    /// When a request that arrives at `now` finds the fabric awake.
    pub fn admit(&mut self, now: Time) -> Time {
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
                Entry::Tick { interval, jitter } => {
                    if self.ticked(index, interval, jitter, idle_from, now) {
                        by_tick = by_tick.max(state.exit);
                    }
                }
            }
        }
        let awake = (now + by_timer + by_tick).max(self.transition(now));
        self.busy_until = self.busy_until.max(awake);
        awake
    }

    /// Notes that a write is under way until `until`.
    pub fn write_until(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Notes that a read is under way until `until`.
    pub fn read_until(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
        self.reads_until = self.reads_until.max(until);
    }

    /// Whether a tick of state `index` fell between `from` and `now`.
    fn ticked(&mut self, index: usize, interval: Duration, jitter: f64, from: Time, now: Time) -> bool {
        let mut found = false;
        let mut next = self.next_tick[index];
        // A long sleep holds many ticks, and one is enough.
        if now.since(next) > interval * 4 {
            next = now - interval;
            found = next >= from;
        }
        while next <= now {
            found |= next >= from;
            let spread = 1.0 + jitter * (2.0 * self.rng.unit_f64() - 1.0);
            next += Duration::from_ps((interval.as_ps() as f64 * spread) as u64);
        }
        self.next_tick[index] = next;
        found
    }

    /// When a transition that keeps a request of `now` waiting is over; `now` if none does.
    fn transition(&mut self, now: Time) -> Time {
        let Some(controller) = self.params.controller else { return now };
        while self.next_period <= now {
            let tick = self.next_period;
            self.next_period += controller.period;
            if tick >= self.stopped_until && !self.rng.chance(controller.skipped_share) {
                self.asked = Some(Asked { tick, forced: self.rng.chance(controller.forced_share) });
            }
        }
        // It takes the first instant without a read under way, unless it is forced: what is posted can wait in buffers.
        if let Some(asked) = self.asked.filter(|asked| asked.forced || self.reads_until < now) {
            self.asked = None;
            let longer = u32::from(self.rng.chance(controller.longer_share));
            let slow = self.rng.chance(controller.slow_share);
            let exit = if slow { controller.slow_exit } else { controller.exit };
            let periods = u64::from(controller.transition_periods + longer);
            self.stopped_until = asked.tick + controller.period * periods + exit;
        }
        now.max(self.stopped_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            forced_share: 0.0,
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
        assert_eq!(power.admit(at(1_000_000)), at(1_000_000));
    }

    #[test]
    fn a_timer_decides_who_waits() {
        let entry = Entry::After(Duration::from_ns(500));
        let state = IdleState { entry, exit: Duration::from_ns(650) };
        let mut power = power(PowerParams { states: vec![state], controller: None });
        power.read_until(at(10_000));
        assert_eq!(power.admit(at(10_400)), at(10_400));
        power.read_until(at(10_500));
        assert_eq!(power.admit(at(11_500)), at(12_150));
    }

    #[test]
    fn a_transition_holds_what_comes_meanwhile() {
        let mut power = stopping();
        assert_eq!(power.admit(at(900_000)), at(900_000));
        assert_eq!(power.admit(at(1_000_100)), at(3_008_000));
        assert_eq!(power.admit(at(2_000_000)), at(3_008_000));
    }

    #[test]
    fn a_transition_waits_for_reads_but_not_for_writes() {
        let mut power = stopping();
        power.write_until(at(1_000_500));
        power.read_until(at(1_000_200));
        assert_eq!(power.admit(at(1_000_100)), at(1_000_100));
        assert_eq!(power.admit(at(1_000_300)), at(3_008_000));
    }
}
