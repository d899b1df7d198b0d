//! Counters: traffic by place and cause over a window of time, and the bottleneck.
//!
//! A counter's name is `place/what` or `place/what/cause`: `socket0/dram-read/dma`,
//! `socket0-socket1/bytes/mmio-doorbell`, `core3/busy/net`, `nic0/link-up-bytes/posted`, `iommu0/lookups/miss`.
//! Places belong to one host. `up` on a link is towards the host.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | counters and windows |
//! | `read` | reads counters and resources from hardware and kernel |
//! | `samples` | utilization over parts of a window |
//! | `binding` | finds the bottleneck |

mod binding;
mod read;
mod samples;

use std::collections::BTreeMap;

use platform::cpu::Part;
use serde::{Deserialize, Serialize};
use units::{Duration, Time};

pub use binding::{Binding, Kind, Phase, Resource};
pub use read::CountedDevice;
pub(crate) use read::{CountedSwitch, Reading, Waited};
pub(crate) use samples::Samples;

/// Spelling of a part of the software in counters and accounts.
pub(crate) fn part_name(part: Part) -> &'static str {
    match part {
        Part::User => "user",
        Part::Kernel => "kernel",
        Part::Irq => "irq",
        Part::Softirq => "softirq",
        Part::Scheduler => "scheduler",
        Part::Net => "net",
        Part::Block => "block",
        Part::Driver => "driver",
        Part::Dma => "dma",
        Part::Memory => "memory",
        Part::Copy => "copy",
        Part::Virt => "virt",
        Part::Poll => "poll",
    }
}

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes transferred.
    Bytes,
    /// Number of events: lines, TLPs, frames, lookups.
    Events,
    /// Time (ps).
    Time,
    /// Descriptors times the time that each stayed (ps).
    Held,
    /// Bytes held at the end of the window.
    Kept,
}

impl Unit {
    /// Spelling in tables and `--json`.
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

/// A counter and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Place, what, and cause.
    pub name: String,
    /// What [`value`](Self::value) counts.
    pub unit: Unit,
    /// Number, picoseconds, or nanoseconds times descriptors.
    pub value: u64,
}

impl Counter {
    /// Value in the unit of [`Unit::name`].
    pub fn amount(&self) -> f64 {
        match self.unit {
            Unit::Bytes | Unit::Events | Unit::Held | Unit::Kept => self.value as f64,
            Unit::Time => self.value as f64 / 1e3,
        }
    }

    /// First component of the name: the place.
    pub fn place(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// A host's counters over a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostCounters {
    /// The host's name.
    pub host: String,
    /// Counters that changed, in order of place.
    pub counters: Vec<Counter>,
    /// Utilization of its resources.
    pub resources: Vec<Resource>,
}

impl HostCounters {
    /// The value of a counter; 0 if it did not change.
    pub fn of(&self, name: &str) -> u64 {
        self.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// Adds what was counted later, for this share of all the time.
    fn add(&mut self, later: &Self, share: f64) {
        for counter in &later.counters {
            match self.counters.iter_mut().find(|own| own.name == counter.name) {
                Some(own) if own.unit == Unit::Kept => own.value = counter.value,
                Some(own) => own.value += counter.value,
                None => self.counters.push(counter.clone()),
            }
        }
        for own in &mut self.resources {
            own.share *= 1.0 - share;
        }
        for resource in &later.resources {
            match self.resources.iter_mut().find(|own| own.is(resource)) {
                Some(own) => own.share += share * resource.share,
                None => self.resources.push(Resource { share: share * resource.share, ..resource.clone() }),
            }
        }
    }

    /// The sum of the counters whose names start with `begin`.
    pub fn sum(&self, begin: &str) -> u64 {
        self.counters.iter().filter(|counter| counter.name.starts_with(begin)).map(|c| c.value).sum()
    }

    /// Bytes of frames sent and received by its NICs: the network payload.
    pub fn network_bytes(&self) -> u64 {
        let is_frames = |name: &str| name.ends_with("/tx-bytes") || name.ends_with("/rx-bytes");
        self.counters.iter().filter(|counter| is_frames(&counter.name)).map(|counter| counter.value).sum()
    }
}

/// Differences of the hosts' counters between two readings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// What the program does in it, if it does several things that are measured apart; empty otherwise.
    pub part: String,
    /// Simulated time between the readings.
    #[serde(with = "picoseconds")]
    pub length: Duration,
    /// One entry per host.
    pub hosts: Vec<HostCounters>,
    /// What was full for parts of it, longest first; empty if these do not explain the window.
    pub phases: Vec<Phase>,
    /// What asked for no more than was done: more of anything would bring no more.
    pub offered: Option<OfferedLoad>,
}

/// What asks for no more than is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OfferedLoad {
    /// A generator of packets, by its name: all that it sent came back.
    Generator(String),
    /// An option of the program's.
    Pace(String),
}

/// Counters of all hosts at one time.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: Time,
    hosts: Vec<(String, Reading)>,
}

impl Moment {
    /// Counters of zero, which most are, are not kept: they have not changed.
    pub(crate) fn new(at: Time, mut hosts: Vec<(String, Reading)>) -> Self {
        for (_, reading) in &mut hosts {
            reading.counters.retain(|counter| counter.value > 0);
            reading.counters.shrink_to_fit();
        }
        Self { at, hosts }
    }

    /// All that was counted until here.
    pub(crate) fn since_power_on(&self) -> Window {
        let nothing = |(host, _): &(String, Reading)| (host.clone(), Reading::default());
        Self { at: Time::ZERO, hosts: self.hosts.iter().map(nothing).collect() }.until(self)
    }

    /// The differences from here to `later`. Counters that did not change are omitted.
    pub(crate) fn until(&self, later: &Self) -> Window {
        let length = later.at.since(self.at);
        let hosts = self.hosts.iter().zip(&later.hosts).map(|((host, before), (_, after))| {
            let known: BTreeMap<&str, u64> = before.counters.iter().map(|c| (&*c.name, c.value)).collect();
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
        Window { length, hosts: hosts.collect(), ..Window::default() }
    }
}

impl Window {
    /// The bottleneck of a program on host `own`: the full resource that fills the others, if any.
    pub fn binding(&self, own: &str) -> Binding {
        binding::of(self, own)
    }

    /// Resources that were used for more than the length of the window, each with its host: of none, unless the simulator is
    /// wrong.
    pub(crate) fn overused(&self) -> impl Iterator<Item = (&str, &Resource)> {
        // A share is a quotient of picoseconds, rounded.
        let is_over = |resource: &Resource| !(0.0..=1.0 + 1e-9).contains(&resource.share);
        let all = self.hosts.iter().flat_map(|host| host.resources.iter().map(|own| (&*host.host, own)));
        all.filter(move |(_, resource)| is_over(resource))
    }

    /// Finds what was full in parts of it, which `slices` have with their lengths; each may be a measurement of its own.
    pub(crate) fn find_phases(&mut self, slices: &[(f64, Vec<HostCounters>)], own: &str, are_whole: bool) {
        self.phases = binding::phases(slices, (&self.hosts, own), are_whole);
    }

    /// Several windows of the same hosts as one.
    pub(crate) fn together(all: &[Self]) -> Self {
        let mut sum = Self::default();
        for window in all {
            sum.length += window.length;
            for own in &window.hosts {
                match sum.hosts.iter_mut().find(|host| host.host == own.host) {
                    Some(host) => {
                        host.add(own, window.length.as_s_f64() / sum.length.as_s_f64().max(f64::MIN_POSITIVE))
                    }
                    None => sum.hosts.push(own.clone()),
                }
            }
        }
        sum
    }

    /// A host's counters.
    pub fn host(&self, name: &str) -> Option<&HostCounters> {
        self.hosts.iter().find(|host| host.host == name)
    }
}

/// Serializes a time as a number of picoseconds, for stored results.
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
