//! Scheduling of a host's virtual machines and of the I/O threads of their virtual NICs.

use crate::read::{Check, record};
use crate::scalar::names;
use units::Duration;

names! {
    /// Placement policy for virtual machines and I/O threads.
    pub enum Placement {
        /// By load only, regardless of the device's node.
        Blind = "blind",
        /// As `blind`, but I/O threads and I/O-intensive virtual machines are placed at the device's node (NUMA I/O).
        Numa = "numa",
        /// All at the device's node if possible, as an upper bound.
        Local = "local",
        /// As the scenario places them.
        Fixed = "fixed",
    }
}

record! {
    /// The scheduler of a host's virtual machines.
    pub struct HypervisorEntry {
        /// Placement policy; `numa` if not given.
        placement: Option<Placement>,
        /// Interval between load checks; 2 s if not given.
        period: Option<Duration>,
    }
    check |hypervisor: &HypervisorEntry, check: &mut Check<'_>| {
        let looks = hypervisor.period.is_none_or(|period| period >= Duration::from_us(100));
        check.require(looks, "period", "loads cannot be told over so short a time", "100 us at least");
    }
}

/// Scheduling of a host's virtual machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HypervisorSetup {
    /// Placement policy.
    pub placement: Placement,
    /// Interval between load checks.
    pub period: Duration,
}

impl HypervisorSetup {
    /// Converts an entry.
    pub(super) fn of(entry: &HypervisorEntry) -> Self {
        Self {
            placement: entry.placement.unwrap_or(Placement::Numa),
            period: entry.period.unwrap_or(Duration::from_ms(2_000)),
        }
    }
}
