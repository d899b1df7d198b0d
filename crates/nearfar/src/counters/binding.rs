//! Finds the bottleneck: the resource that is full.
//!
//! Servers (links, channels, walkers, stages of a device) are the bottleneck when always busy. Then the resources
//! that lead to them fill up, too: credits and tags run out, rings stay full, cores spin. So a full server has
//! priority over resources that are only waited for. Among the latter, the one nearest to memory has priority: lack
//! of credits keeps buffers and tags in use, lack of tags keeps descriptors in the ring, and a full ring keeps the
//! core waiting.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Window;

/// Kinds of resources: servers, then resources that are waited for, in the order in which one fills the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// An Ethernet wire.
    Wire,
    /// A direction of a PCIe link.
    Link,
    /// The DRAM channels of a socket.
    Dram,
    /// A direction of a link between sockets.
    Interconnect,
    /// The LLC's port for device accesses.
    Llc,
    /// A root port's intake.
    RootPort,
    /// The page walkers of an IOMMU.
    Walkers,
    /// A stage inside a device.
    Device,
    /// Flow control credits.
    Credits,
    /// A device's read buffer.
    Buffer,
    /// A device's tags.
    Tags,
    /// A descriptor ring.
    Ring,
    /// Lines that a core waits for, which its own caches do not have: fill buffers and places of the super queue are
    /// full, or each load needs the one before it.
    Lines,
    /// A core's time, whatever it does.
    Core,
}

impl Kind {
    /// Spelling in tables and `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Link => "link",
            Self::Dram => "dram",
            Self::Interconnect => "interconnect",
            Self::Llc => "llc",
            Self::RootPort => "root-port",
            Self::Walkers => "walkers",
            Self::Device => "device",
            Self::Credits => "credits",
            Self::Buffer => "buffer",
            Self::Tags => "tags",
            Self::Ring => "ring",
            Self::Lines => "lines",
            Self::Core => "core",
        }
    }

    /// Whether it is a server, rather than held or waited for.
    const fn is_server(self) -> bool {
        !matches!(self, Self::Credits | Self::Buffer | Self::Tags | Self::Ring | Self::Lines | Self::Core)
    }

    /// Share of a window from which it counts as full. Even a bottleneck has a start and an end and waits
    /// occasionally.
    const fn full(self) -> f64 {
        match self {
            // A share of time with waiters, or of used entries: drivers keep some free.
            Self::Buffer | Self::Tags | Self::Ring | Self::Credits | Self::Lines => 0.75,
            // It sleeps between batches.
            Self::Core => 0.85,
            _ => 0.9,
        }
    }
}

/// Utilisation of a resource.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Kind of resource, which decides from which share on it is full.
    pub kind: Kind,
    /// Where on the host, such as `octo/link-up`.
    pub place: String,
    /// Number of parallel units.
    pub of: u64,
    /// Share of time busy, or waited for.
    pub share: f64,
}

impl Resource {
    fn is_full(&self) -> bool {
        self.share >= self.kind.full()
    }

    /// Whether others wait for it long enough that more of it would help.
    fn is_waited_for(&self) -> bool {
        /// Below this share, waits are occasional.
        const SHOWS: f64 = 0.25;
        matches!(self.kind, Kind::Credits | Kind::Buffer | Kind::Tags) && self.share >= SHOWS
    }

    pub(super) fn words(&self, host: &str) -> String {
        let (device, part) = self.place.split_once('/').unwrap_or((&self.place, ""));
        let way = |up: &str, down: &str| if part == "link-up" { up.to_owned() } else { down.to_owned() };
        match self.kind {
            Kind::Wire => format!(
                "the Ethernet of {host}'s {device}, {}",
                if part == "tx" { "sending" } else { "receiving" }
            ),
            Kind::Link => format!("the link of {host}'s {device}, {}", way("to the host", "to the device")),
            Kind::Dram => format!("the DRAM of {host}'s {device}"),
            Kind::Interconnect => format!("the interconnect of {host}, {}", device.replace('-', " to ")),
            Kind::Llc => format!("the LLC's port for devices in {host}'s {device}"),
            Kind::RootPort => format!("the intake of {host}'s root {device}"),
            Kind::Walkers => format!("the page walkers of {host}'s {device} ({})", self.of),
            Kind::Device => format!("{host}'s {device} itself, its {}", part.replace('-', " ")),
            Kind::Credits => {
                format!("credits on the link of {host}'s {device}, {}", way("to the host", "to the device"))
            }
            Kind::Buffer => format!("the read buffer of {host}'s {device}"),
            Kind::Tags => format!("the tags of {host}'s {device}"),
            Kind::Ring => format!("{host}'s {device}, its {}", part.replace("-ring", " ring ")),
            Kind::Lines => format!("the lines that {host}'s {device} needs"),
            Kind::Core => format!("{host}'s {device}"),
        }
    }
}

/// The bottleneck.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    /// Host and resource; `None` if nothing is full.
    pub what: Option<(String, Resource)>,
    /// The fullest of the others.
    pub next: Option<(String, Resource)>,
}

impl Binding {
    /// Kind of the bottleneck.
    pub fn kind(&self) -> Option<Kind> {
        self.what.as_ref().map(|(_, resource)| resource.kind)
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        let verb = |resource: &Resource| match resource.kind {
            Kind::Buffer | Kind::Tags | Kind::Credits | Kind::Lines => "waited for",
            Kind::Ring => "full",
            _ => "busy",
        };
        match &self.what {
            Some((host, resource)) => {
                let (words, share) = (resource.words(host), percent(resource.share));
                write!(f, "what binds: {words}, {} {share:.0} % of the time", verb(resource))?;
            }
            None => write!(f, "what binds: nothing is full, each step waits for the one before")?,
        }
        if let Some((host, resource)) = &self.next {
            write!(f, "; next {}, {:.0} %", resource.words(host), percent(resource.share))?;
        }
        Ok(())
    }
}

/// Finds the bottleneck of a window. Among equally busy cores, prefers those of host `own`, whose program sets the
/// pace.
pub(super) fn of(window: &Window, own: &str) -> Binding {
    let mut all: Vec<(String, Resource)> = Vec::new();
    for host in &window.hosts {
        // A core that does nothing but wait for lines is busy, but a faster one would wait as long.
        let waits = |core: &Resource| {
            let lines = |other: &Resource| other.kind == Kind::Lines && other.place == core.place;
            core.kind == Kind::Core && host.resources.iter().any(|other| lines(other) && other.is_full())
        };
        let works = host.resources.iter().filter(|resource| !waits(resource));
        all.extend(works.map(|resource| (host.host.clone(), resource.clone())));
    }
    let full = all.iter().filter(|(_, resource)| resource.is_full());
    // Servers are ranked by their fullness; the others by their order.
    let rank = |(host, resource): &(String, Resource)| {
        let order = if resource.kind.is_server() { Kind::Wire } else { resource.kind };
        let fullness = (100.0 * resource.share / resource.kind.full()).round() as u64;
        (std::cmp::Reverse(order), fullness, host == own)
    };
    // The first of equals.
    let what = full.rev().max_by_key(|one| rank(one)).cloned();
    // If nothing is full, report what is waited for most.
    let device = |resource: &Resource| resource.place.split('/').next().map(str::to_owned);
    // Reads that queue for a stage of their own device hold its tags, but really wait for the stage.
    let queues = |(host, tags): &(String, Resource)| {
        let is_before = |(other, stage): &(String, Resource)| {
            (other, stage.kind) == (host, Kind::Device)
                && device(stage) == device(tags)
                && stage.share >= tags.share
        };
        tags.kind == Kind::Tags && all.iter().any(is_before)
    };
    let waited = all.iter().filter(|one| one.1.is_waited_for() && !queues(one));
    let what = what.or_else(|| waited.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).cloned());
    let others = all.into_iter().filter(|other| Some(other) != what.as_ref());
    let next = others.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).filter(|(_, r)| r.share > 0.0);
    Binding { what, next }
}
