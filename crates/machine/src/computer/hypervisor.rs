//! What schedules a host's virtual machines and the I/O threads of their virtual NICs.

use crate::read::{Check, record};
use crate::scalar::names;
use units::Duration;

names! {
    /// By what virtual machines and I/O threads are placed.
    pub enum Placement {
        /// By load alone, whatever node a device is at.
        Blind = "blind",
        /// As `blind`, and I/O threads and virtual machines with much I/O by the device's node (NUMA I/O).
        Numa = "numa",
        /// All at the device's node, whatever fits: a bound.
        Local = "local",
        /// Where the scenario puts them.
        Fixed = "fixed",
    }
}

record! {
    /// The scheduler of a host's virtual machines.
    pub struct HypervisorEntry {
        /// By what they are placed; `numa` if not given.
        placement: Option<Placement>,
        /// How often it looks at loads; 2 s if not given.
        period: Option<Duration>,
    }
    check |hypervisor: &HypervisorEntry, check: &mut Check<'_>| {
        let looks = hypervisor.period.is_none_or(|period| period >= Duration::from_us(100));
        check.require(looks, "period", "loads cannot be told over so short a time", "100 us at least");
    }
}

/// How a host's virtual machines are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HypervisorSetup {
    /// By what they are placed.
    pub placement: Placement,
    /// How often loads are looked at.
    pub period: Duration,
}

impl HypervisorSetup {
    /// What an entry says.
    pub(super) fn of(entry: &HypervisorEntry) -> Self {
        Self {
            placement: entry.placement.unwrap_or(Placement::Numa),
            period: entry.period.unwrap_or(Duration::from_ms(2_000)),
        }
    }
}
