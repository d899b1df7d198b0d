//! Power management, and other occasional delays of requests.

use crate::figure::Figure;
use crate::read::{Check, record};
use crate::scalar::Count;
use std::collections::BTreeMap;
use units::{ByteRate, Duration};

record! {
    /// An idle state of the fabric between root ports and memory. It is entered after a time without requests, or at
    /// a tick without outstanding requests or after little traffic since the previous tick.
    pub struct IdleState {
        /// Time without requests after which it is entered.
        after: Option<Figure<Duration>>,
        /// Interval of ticks at which it is entered; no ticks if not given.
        tick: Option<Figure<Duration>>,
        /// Jitter of a tick as a share of the interval (0 to 1); 0 if not given.
        tick_jitter: Option<Figure<f64>>,
        /// Traffic in whole lines below which a tick enters it despite outstanding requests; never if not given.
        tick_below: Option<Figure<ByteRate>>,
        /// Delay of the next request while the fabric leaves it.
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
        /// Interval of its ticks. Each requests a transition, which happens at the first instant without a non-posted
        /// request.
        period: Figure<Duration>,
        /// Duration of a transition, in periods, during which the fabric is stopped.
        transition_periods: Figure<Count>,
        /// Share of transitions that take an additional period (0 to 1).
        longer_share: Figure<f64>,
        /// Time from the end of the last period until the fabric runs.
        exit_latency: Figure<Duration>,
        /// The same for slow exits.
        slow_exit_latency: Figure<Duration>,
        /// Share of transitions with a slow exit (0 to 1).
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
            format!("{} is not a share", figure.value),
            "from 0 to 1",
        );
    }
}

record! {
    /// Power management visible to devices.
    pub struct Power {
        /// The fabric's idle states by name.
        state: BTreeMap<String, IdleState>,
        /// The package controller, if it stops the fabric.
        controller: Option<PackageController>,
    }
}
