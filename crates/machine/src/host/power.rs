//! Power management, and what else keeps a request waiting now and then.

use crate::figure::Figure;
use crate::read::{Check, record};
use std::collections::BTreeMap;
use units::Duration;

record! {
    /// A state that the package enters when no request arrives for a while.
    pub struct PowerState {
        /// After how long without a request it is entered.
        entry_after: Figure<Duration>,
        /// How long the next request waits for the package to leave it.
        exit_latency: Figure<Duration>,
    }
}

record! {
    /// Something beside the devices that takes the path to memory at intervals.
    pub struct Agent {
        /// Mean interval between its turns.
        interval: Figure<Duration>,
        /// For how long it keeps the path.
        duration: Figure<Duration>,
    }
    check |agent: &Agent, check: &mut Check<'_>| {
        let (duration, interval) = (agent.duration.value, agent.interval.value);
        check.require(
            duration < interval,
            "duration",
            format!("a turn of {duration} does not end within the interval of {interval}"),
            "less than `interval`",
        );
    }
}

record! {
    /// Power management of a package.
    pub struct Power {
        /// Its states by name, such as `PC3`.
        state: BTreeMap<String, PowerState>,
        /// Other agents on the path to memory, by name.
        agent: BTreeMap<String, Agent>,
    }
}
