//! Power management, and what else keeps a request waiting now and then.

use crate::figure::Figure;
use crate::read::{Check, record};
use crate::scalar::Count;
use std::collections::BTreeMap;
use units::{ByteRate, Duration};

record! {
    /// An idle state of the fabric between root ports and memory. It is entered
    /// after a time without requests, or at a tick if there is none just then or
    /// there has been little traffic since the tick before.
    pub struct IdleState {
        /// After how long without a request it is entered.
        after: Option<Figure<Duration>>,
        /// Interval of the ticks at which it is entered; no ticks if not given.
        tick: Option<Figure<Duration>>,
        /// By which part of the interval a tick may come early or late (0 to 1); 0 if not given.
        tick_jitter: Option<Figure<f64>>,
        /// Traffic, counted in whole lines, below which a tick enters it although requests are under
        /// way; never if not given.
        tick_below: Option<Figure<ByteRate>>,
        /// How long the next request waits for the fabric to leave it.
        exit_latency: Figure<Duration>,
    }
    check |state: &IdleState, check: &mut Check<'_>| {
        check.require(
            state.after.is_some() != state.tick.is_some(),
            if state.after.is_some() { "after" } else { "exit_latency" },
            "a state is entered after a time, or at ticks",
            "give `after` or `tick`, not both",
        );
        let of_ticks = [
            ("tick_jitter", state.tick_jitter.is_some()),
            ("tick_below", state.tick_below.is_some()),
        ];
        for (key, is_given) in of_ticks {
            let help = "give `tick`, or leave it out";
            check.require(!is_given || state.tick.is_some(), key, "there are no ticks", help);
        }
        share(check, "tick_jitter", state.tick_jitter.as_ref());
        check.require(
            state.tick.as_ref().is_none_or(|tick| !tick.value.is_zero()),
            "tick",
            "no interval at all",
            "such as \"9 us\"",
        );
    }
}

record! {
    /// A package controller that stops the fabric to change voltage or frequency.
    pub struct PackageController {
        /// Interval of its ticks; each asks for a transition, which takes
        /// the first instant without a non-posted request.
        period: Figure<Duration>,
        /// For how many periods a transition stops the fabric.
        transition_periods: Figure<Count>,
        /// Share of transitions that take a period more (0 to 1).
        longer_share: Figure<f64>,
        /// From the end of the last period until the fabric runs.
        exit_latency: Figure<Duration>,
        /// The same, the slow way.
        slow_exit_latency: Figure<Duration>,
        /// Share of transitions that go the slow way (0 to 1).
        slow_share: Figure<f64>,
        /// Share of periods without a transition (0 to 1).
        skipped_share: Figure<f64>,
    }
    check |controller: &PackageController, check: &mut Check<'_>| {
        check.require(
            controller.period.value >= Duration::from_us(1),
            "period",
            "no controller ticks so often",
            "from 1 us, such as \"1 ms\"",
        );
        let periods = u64::from(controller.transition_periods.value.get());
        check.require_within("transition_periods", periods, (1, 1000), "periods are too many");
        share(check, "longer_share", Some(&controller.longer_share));
        share(check, "slow_share", Some(&controller.slow_share));
        share(check, "skipped_share", Some(&controller.skipped_share));
    }
}

fn share(check: &mut Check<'_>, key: &str, figure: Option<&Figure<f64>>) {
    if let Some(figure) = figure {
        check.require(
            (0.0..=1.0).contains(&figure.value),
            key,
            format!("{} is no share", figure.value),
            "from 0 to 1",
        );
    }
}

record! {
    /// Power management that devices notice.
    pub struct Power {
        /// The fabric's idle states by name.
        state: BTreeMap<String, IdleState>,
        /// The package controller, if it stops the fabric.
        controller: Option<PackageController>,
    }
}
