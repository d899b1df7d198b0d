//! Counters: what passed where and for what, over a window of time, and what binds.
//!
//! A counter is named `place/what` or `place/what/cause`: `socket0/dram-read/dma`, `socket0-socket1/bytes/mmio-doorbell`,
//! `core3/busy/net`, `nic0/link-up-bytes/posted`, `iommu0/lookups/miss`. Places are those of one host. A link's `up` is
//! towards the host.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | counters and windows |
//! | `read` | from hardware and kernel to counters and resources |
//! | `binding` | which resource binds |

mod binding;
mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{Duration, Time};

pub use binding::{Binding, Kind, Resource};
pub use read::CountedDevice;

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// Data that passed.
    Bytes,
    /// Things that happen: lines, TLPs, frames, lookups.
    Events,
    /// Time, in picoseconds.
    Time,
    /// Descriptors, each for as long as it stayed, in picoseconds.
    Held,
    /// Bytes that are kept when the window ends.
    Kept,
}

impl Unit {
    /// As tables and `--json` spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Events => "events",
            Self::Time => "ns",
            Self::Held => "descriptor ns",
            Self::Kept => "bytes at the end",
        }
    }
}

/// A counter with what it counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Place, what, and for what.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// How many, or picoseconds.
    pub value: u64,
}

impl Counter {
    /// Its value in its [unit's](Unit::name).
    pub fn amount(&self) -> f64 {
        match self.unit {
            Unit::Bytes | Unit::Events | Unit::Kept => self.value as f64,
            Unit::Time | Unit::Held => self.value as f64 / 1e3,
        }
    }

    /// Its first part: where it counts.
    pub fn place(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// What a host had counted at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    counters: Vec<Counter>,
    resources: Vec<read::Used>,
}

impl Reading {
    /// A counter's amount; `None` if there is none of that name.
    pub(crate) fn amount(&self, name: &str) -> Option<f64> {
        self.counters.iter().find(|counter| counter.name == name).map(Counter::amount)
    }

    /// All counters.
    pub(crate) fn counters(&self) -> &[Counter] {
        &self.counters
    }
}

/// What one host counted in a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostCounters {
    /// The host's name.
    pub host: String,
    /// What changed, place by place.
    pub counters: Vec<Counter>,
    /// How full its resources were.
    pub resources: Vec<Resource>,
}

impl HostCounters {
    /// What a counter counted; 0 if nothing.
    pub fn of(&self, name: &str) -> u64 {
        self.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// The sum of counters whose name begins so.
    pub fn sum(&self, begin: &str) -> u64 {
        self.counters.iter().filter(|counter| counter.name.starts_with(begin)).map(|c| c.value).sum()
    }

    /// Bytes of frames that its NICs sent and received: the network's payload.
    pub fn network_bytes(&self) -> u64 {
        let is_frames = |name: &str| name.ends_with("/tx-bytes") || name.ends_with("/rx-bytes");
        self.counters.iter().filter(|counter| is_frames(&counter.name)).map(|counter| counter.value).sum()
    }
}

/// What hosts counted between two readings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// How long it was.
    #[serde(with = "picoseconds")]
    pub length: Duration,
    /// Host by host.
    pub hosts: Vec<HostCounters>,
}

/// What all hosts had counted at one time.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: Time,
    hosts: Vec<(String, Reading)>,
}

impl Moment {
    pub(crate) fn new(at: Time, hosts: Vec<(String, Reading)>) -> Self {
        Self { at, hosts }
    }

    /// What was counted from here to `later`. Counters that did not change are left out.
    pub(crate) fn until(&self, later: &Self) -> Window {
        let length = later.at.since(self.at);
        let hosts = self.hosts.iter().zip(&later.hosts).map(|((host, before), (_, after))| {
            let known: BTreeMap<&str, u64> = before.counters.iter().map(|c| (&*c.name, c.value)).collect();
            // A device that was reset begins anew.
            let since = |counter: &Counter| match counter.unit {
                Unit::Kept => counter.value,
                _ => counter.value.saturating_sub(known.get(&*counter.name).copied().unwrap_or_default()),
            };
            let counters = after.counters.iter().map(|c| Counter { value: since(c), ..c.clone() });
            HostCounters {
                host: host.clone(),
                counters: counters.filter(|counter| counter.value > 0).collect(),
                resources: read::between(&before.resources, &after.resources, length),
            }
        });
        Window { length, hosts: hosts.collect() }
    }
}

impl Window {
    /// What binds what a program of host `own` does: the resource whose fullness fills others, or nothing.
    pub fn binding(&self, own: &str) -> Binding {
        binding::of(self, own)
    }

    /// A host's counters.
    pub fn host(&self, name: &str) -> Option<&HostCounters> {
        self.hosts.iter().find(|host| host.host == name)
    }
}

/// A time as a number of picoseconds, for who keeps results.
pub(crate) mod picoseconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use units::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        time.as_ps().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_ps)
    }
}
