//! Finds the bottleneck: the resource of which more would help.
//!
//! Servers (links, channels, walkers, stages of a device) are the bottleneck when always busy. Then the resources
//! that lead to them fill up, too: credits and tags run out, rings stay full, cores spin. So a full server has
//! priority over resources that are only waited for. Among the latter, the one nearest to memory has priority: lack
//! of credits keeps buffers and tags in use, lack of tags keeps descriptors in the ring, and a full ring keeps the
//! core waiting. If nothing is full throughout, what was full for a while binds for that while.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use units::Duration;

use super::read::{LACKED, credits_in_words};
use super::{Counter, HostCounters, OfferedLoad, Window};

/// Kinds of resources: servers, then resources that are waited for, in the order in which one fills the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// An Ethernet wire.
    Wire,
    /// A direction of a PCIe link, of a device, a switch or an NTB cable.
    Link,
    /// The DRAM channels of a socket.
    Dram,
    /// A direction of a link between sockets.
    Interconnect,
    /// The LLC's port for device accesses.
    Llc,
    /// A root port's intake.
    RootPort,
    /// The lookups of an IOMMU.
    Lookups,
    /// The page walkers of an IOMMU.
    Walkers,
    /// A stage inside a device.
    Device,
    /// What was sent again on a link, and what waited for it.
    Replays,
    /// An IOMMU's places for requests of a direction, between lookup and translation.
    Translations,
    /// Flow control credits.
    Credits,
    /// A device's buffer: of reads in flight, or of a stage.
    Buffer,
    /// A device's tags.
    Tags,
    /// A descriptor ring.
    Ring,
    /// Invalidations that a core waits for: for the IOMMU's queue, which one core at a time has, and its answer.
    Invalidations,
    /// Places for lines that a core's own caches do not have: fill buffers, the super queue or the store buffer are full.
    Lines,
    /// Data of lines that a core's next step needs: more places would not bring them sooner, so they bind nothing.
    Data,
    /// A core's time, whatever it does.
    Core,
    /// Interrupts that a NIC holds back, to tell of several packets with one.
    Moderation,
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
            Self::Lookups => "lookups",
            Self::Walkers => "walkers",
            Self::Translations => "translations",
            Self::Invalidations => "invalidations",
            Self::Device => "device",
            Self::Replays => "replays",
            Self::Credits => "credits",
            Self::Buffer => "buffer",
            Self::Tags => "tags",
            Self::Ring => "ring",
            Self::Lines => "lines",
            Self::Data => "data",
            Self::Core => "core",
            Self::Moderation => "moderation",
        }
    }

    /// Whether it is a server, rather than held or waited for.
    const fn is_server(self) -> bool {
        !self.is_waited_for() && !matches!(self, Self::Ring | Self::Core)
    }

    /// Whether its share is the time in which something waits for it.
    const fn is_waited_for(self) -> bool {
        matches!(
            self,
            Self::Replays
                | Self::Translations
                | Self::Credits
                | Self::Buffer
                | Self::Tags
                | Self::Invalidations
                | Self::Lines
                | Self::Data
                | Self::Moderation
        )
    }

    /// Share of a window from which it counts as full. Even a bottleneck has a start and an end and waits
    /// occasionally.
    const fn full(self) -> f64 {
        match self {
            // A share of time with waiters, or of used entries: drivers keep some free.
            // What else the core does is hidden behind it.
            Self::Lines => 0.5,
            kind if kind.is_waited_for() => 0.75,
            Self::Ring => 0.75,
            // It sleeps between batches.
            Self::Core => 0.85,
            _ => 0.9,
        }
    }
}

/// What a NIC's receive rings are called together.
const RX_RING: &str = "rx-rings";

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
    /// Whether what was measured goes through it; others cannot bind it.
    pub on_path: bool,
}

impl Resource {
    fn is_full(&self) -> bool {
        self.share >= self.kind.full()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.kind, &self.place) == (other.kind, &other.place)
    }

    /// Whether it does on the same host what another one does, and is as full.
    fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.parts().1) == (other.kind, other.parts().1)
            && self.is_full()
            && other.is_full()
            && (self.share - other.share).abs() <= TIE
    }

    /// The device, socket or core that it belongs to, and what of it; empty if it is the whole.
    fn parts(&self) -> (&str, &str) {
        self.place.split_once('/').unwrap_or((&self.place, ""))
    }

    /// The device, socket or core that it belongs to.
    pub(crate) fn owner(&self) -> &str {
        self.parts().0
    }

    /// Whether it is a ring whose share is that of the packets for which it had no buffer.
    fn is_starved_ring(&self) -> bool {
        self.kind == Kind::Ring && self.place.ends_with(RX_RING)
    }

    /// The resource of a host in words.
    pub fn words(&self, host: &str) -> String {
        let (owner, part) = self.parts();
        let link = match part {
            "link-up" => format!("the link of {host}'s {owner}, to the host"),
            "uplink-up" => format!("the uplink of {host}'s {owner}, to the host"),
            "uplink-down" => format!("the uplink of {host}'s {owner}, from the host"),
            "cable-out" => format!("the cable of {host}'s {owner}, from {host}"),
            "cable-in" => format!("the cable of {host}'s {owner}, to {host}"),
            _ => format!("the link of {host}'s {owner}, to the device"),
        };
        match self.kind {
            Kind::Wire => format!(
                "the Ethernet of {host}'s {owner}, {}",
                if part == "tx" { "sending" } else { "receiving" }
            ),
            Kind::Link => link,
            Kind::Dram => format!("the DRAM of {host}'s {owner}"),
            Kind::Interconnect if part.starts_with("die") => {
                format!("the link of {} of cores of {host}'s {owner}", part.replace('-', "'s "))
            }
            Kind::Interconnect => format!("the interconnect of {host}, {}", owner.replace('-', " to ")),
            Kind::Llc => format!("the LLC's port for devices in {host}'s {owner}"),
            Kind::RootPort if part == "peer-writes" => {
                format!("the path to other devices in {host}'s root {owner}")
            }
            Kind::RootPort if part == "peer-link" => {
                format!(
                    "the link between sockets that devices below {host}'s root {owner} use to reach others"
                )
            }
            Kind::RootPort if owner.starts_with("stack") => {
                format!("places for writes to memory in {host}'s I/O {owner}")
            }
            Kind::RootPort if part == "ordered-writes" => {
                format!("the order of writes to memory at {host}'s root {owner}, which are not relaxed")
            }
            Kind::RootPort if part == "ordered-peer-writes" => {
                format!(
                    "the order of writes to other devices at {host}'s root {owner}, which are not relaxed"
                )
            }
            Kind::RootPort if owner.starts_with("quadrant") => {
                format!("{part} of memory through {owner} of {host}'s I/O die")
            }
            Kind::RootPort => format!("the intake of {host}'s root {owner}"),
            Kind::Lookups => format!("the lookups of {host}'s {owner}"),
            Kind::Translations => format!("places for {part} in {host}'s {owner}"),
            Kind::Walkers => format!("the page walkers of {host}'s {owner} ({})", self.of),
            Kind::Invalidations => format!("the invalidation of pages that {host}'s {owner} unmaps"),
            Kind::Device => format!("{host}'s {owner} itself, its {}", part.replace('-', " ")),
            Kind::Replays => format!("bit errors on {link}"),
            Kind::Credits => format!("credits on {link}"),
            Kind::Buffer if part == "write-buffer" => format!("the write buffer of {host}'s {owner}"),
            Kind::Buffer => format!("the read buffer of {host}'s {owner}"),
            Kind::Tags if part == "peer-reads" => {
                format!("places for reads between devices in {host}'s root")
            }
            Kind::Tags => format!("the tags of {host}'s {owner}"),
            Kind::Ring if part == RX_RING => format!("the receive buffers of {host}'s {owner}"),
            Kind::Ring => format!("{host}'s {owner}, its {}", part.replace("-ring", " ring ")),
            Kind::Lines => format!("places for the lines that {host}'s {owner} needs"),
            Kind::Data => format!("the data of lines that {host}'s {owner} needs"),
            Kind::Core => format!("{host}'s {owner}"),
            Kind::Moderation => format!("interrupts that {host}'s {owner} holds back (moderation)"),
        }
    }

    fn verb(&self) -> &'static str {
        match self.kind {
            Kind::Ring => "full",
            kind if kind.is_waited_for() => "waited for",
            _ => "busy",
        }
    }
}

/// A resource that was full for a part of the window.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Host of the resource.
    pub host: String,
    /// The resource; its share is that of the phase.
    pub resource: Resource,
    /// The phase's share of the window.
    pub of_time: f64,
    /// How many more of its kind took turns with it, such as cores that share work.
    pub alike: usize,
}

impl Phase {
    fn words(&self) -> String {
        let words = self.resource.words(&self.host);
        match self.alike {
            0 => words,
            alike => format!("{words} and {alike} like it in turn"),
        }
    }
}

/// The bottleneck.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    /// Host and resource; `None` if nothing is full. Of several phases, that of the longest.
    pub what: Option<(String, Resource)>,
    /// How many more of its kind are as full on that host, such as cores that share the work.
    pub alike: usize,
    /// The fullest of the others.
    pub next: Option<(String, Resource)>,
    /// What was full one after the other, longest first; empty if it was one resource throughout, or none.
    pub phases: Vec<Phase>,
    /// What asks for no more than is done; then nothing binds.
    pub offered: Option<OfferedLoad>,
    /// Which part of the program it binds; empty for all.
    pub part: String,
    /// If it is credits, which of them TLPs lacked for longest, such as "posted header"; empty otherwise.
    pub credits: String,
}

impl Binding {
    /// Kind of the bottleneck.
    pub fn kind(&self) -> Option<Kind> {
        self.what.as_ref().map(|(_, resource)| resource.kind)
    }

    /// What binds, without saying that it is what binds.
    pub fn sentence(&self) -> String {
        self.to_string().split_off(WHAT_BINDS.len())
    }
}

/// What the bottleneck begins with.
const WHAT_BINDS: &str = "what binds: ";

fn percent(share: f64) -> f64 {
    100.0 * share
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WHAT_BINDS)?;
        if !self.part.is_empty() {
            write!(f, "{}: ", self.part)?;
        }
        match &self.offered {
            Some(OfferedLoad::Generator(name)) => {
                return write!(f, "the load that {name} offers, all of which comes back");
            }
            Some(OfferedLoad::Pace(option)) => return write!(f, "nothing, as `{option}` asks for no more"),
            None => {}
        }
        if !self.phases.is_empty() {
            for (n, phase) in self.phases.iter().enumerate() {
                let (words, time) = (phase.words(), percent(phase.of_time));
                match &self.phases[..] {
                    [_] if phase.of_time >= 1.0 - TIE => {
                        let (verb, share) = (phase.resource.verb(), percent(phase.resource.share));
                        write!(f, "{words}, {verb} {share:.0} % of the time")?;
                    }
                    _ => write!(f, "{}{time:.0} % of the time {words}", if n == 0 { "" } else { ", " })?,
                }
            }
            return Ok(());
        }
        match &self.what {
            Some((host, resource)) => {
                let (mut words, share) = (resource.words(host), percent(resource.share));
                if !self.credits.is_empty() {
                    words = format!("{} {words}", self.credits);
                }
                if self.alike > 0 {
                    words += &format!(" and {} like it", self.alike);
                }
                match resource.is_starved_ring() {
                    true => write!(f, "{words}, lacking for {share:.1} % of the packets")?,
                    false => write!(f, "{words}, {} {share:.0} % of the time", resource.verb())?,
                }
            }
            None => write!(f, "nothing is full, each step waits for the one before")?,
        }
        if let Some((host, resource)) = &self.next {
            write!(f, "; next {}, {:.0} %", resource.words(host), percent(resource.share))?;
        }
        Ok(())
    }
}

/// A resource on the path, with its host.
type Candidate<'a> = (&'a str, &'a Resource);

/// Resources on the path that can bind. Of a core that waits for lines, what takes the most of its time counts: its own work, places
/// for lines, or their data, which binds nothing.
fn candidates<'a>(hosts: &'a [HostCounters], overrun: &BTreeSet<(&str, &str)>) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    for host in hosts {
        let share = |kind: Kind, place: &str| {
            let is_its = |other: &&Resource| (other.kind, &*other.place) == (kind, place);
            host.resources.iter().find(is_its).map_or(0.0, |other| other.share)
        };
        let is_less = |one: &Resource| {
            let [core, places, data] =
                [Kind::Core, Kind::Lines, Kind::Data].map(|kind| share(kind, &one.place));
            let own = core - places - data;
            match one.kind {
                Kind::Core => own < places.max(data),
                Kind::Lines => places < own.max(data),
                kind => kind == Kind::Data,
            }
        };
        let counts = |one: &&Resource| one.on_path && one.share > 0.0 && !is_less(one);
        all.extend(host.resources.iter().filter(counts).map(|one| (host.host.as_str(), one)));
    }
    all.retain(|(host, one)| !(one.kind == Kind::Wire && overrun.contains(&(*host, &*one.place))));
    // Interrupts are also held back of a core that is still at work on earlier packets, and then it costs nothing.
    let works = |(_, one): &Candidate<'_>| !one.kind.is_waited_for() && one.share >= MODERATED;
    if all.iter().any(works) {
        all.retain(|(_, one)| one.kind != Kind::Moderation);
    }
    all
}

/// Wires that bring more than their receiver takes, by host and place: a good part is dropped, which no sender has taken for
/// congestion. What keeps the receiver from more is not the wire.
fn overrun(hosts: &[HostCounters]) -> BTreeSet<(&str, &str)> {
    const GOOD_PART: f64 = 0.1;
    let drops = |host: &HostCounters, nic: &str| {
        let of = |what: &str| host.of(&format!("{nic}/{what}")) as f64;
        let (dropped, taken) = (of("rx-no-buffer") + of("rx-overflow"), of("rx-frames"));
        dropped > GOOD_PART * (dropped + taken)
    };
    let of_host = |host| {
        let HostCounters { host: name, resources, .. }: &HostCounters = host;
        let is_overrun = move |one: &&Resource| {
            one.kind == Kind::Wire && one.parts().1 == "rx" && drops(host, one.owner())
        };
        resources.iter().filter(is_overrun).map(move |one| (name.as_str(), one.place.as_str()))
    };
    hosts.iter().flat_map(of_host).collect()
}

/// Share of time from which on something works so much that moderation of interrupts is by the way.
const MODERATED: f64 = 0.5;

/// Share from which on a server has so little time to spare that nothing else can help much.
const NEARLY_FULL: f64 = 0.75;

/// A server that works for so much of the time in which something is waited for makes it wait.
const WORKS: f64 = 0.9;

/// Bit errors, if they take so much time that they are why cores are busy and reads take long.
fn errors<'a>(all: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    const SHOW: f64 = 0.5;
    all.iter().find(|(_, one)| one.kind == Kind::Replays && one.share >= SHOW).copied()
}

/// Bit errors, if credits are waited for because of these: what is sent again takes the credits of what is not.
fn damaged<'a>(all: &[Candidate<'a>], (host, credits): Candidate<'a>) -> Option<Candidate<'a>> {
    const GOOD_PART: f64 = 0.5;
    let is_its = |(other, one): &&Candidate<'_>| {
        let is_same = (*other, &one.place) == (host, &credits.place);
        one.kind == Kind::Replays && is_same && one.share >= GOOD_PART * credits.share
    };
    all.iter().find(is_its).copied().or_else(|| errors(all))
}

/// A core with less time to spare than a server that is not full, either.
fn busier_core<'a>(all: &[Candidate<'a>], (_, server): Candidate<'a>) -> Option<Candidate<'a>> {
    let is_busier = |(_, core): &&Candidate<'_>| {
        core.kind == Kind::Core && core.is_full() && core.share > server.share && !server.is_full()
    };
    all.iter().filter(is_busier).max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).copied()
}

/// Shares that differ by less are alike.
const TIE: f64 = 0.02;

/// Whether something is waited for long enough to matter; shorter waits are occasional. Lines are part of a core's work.
/// A ring that is full for most of the time is waited for by who fills it.
fn is_waited_for(one: &Resource) -> bool {
    const SHOWS: f64 = 0.25;
    /// Credits are waited for in bursts, as they come back in batches; interrupts are held back on both ends of an exchange.
    const OFTEN: f64 = 0.5;
    let shows = if matches!(one.kind, Kind::Credits | Kind::Moderation | Kind::Ring) { OFTEN } else { SHOWS };
    (one.kind.is_waited_for() || one.kind == Kind::Ring) && one.kind != Kind::Lines && one.share >= shows
}

/// Whether another resource at the same place is waited for.
fn waits_for(all: &[Candidate<'_>], (host, one): &Candidate<'_>, kind: Kind) -> bool {
    let is_its = |(other, waited): &Candidate<'_>| {
        (other, waited.kind, &waited.place) == (host, kind, &one.place) && is_waited_for(waited)
    };
    all.iter().any(is_its)
}

/// The server with the least time to spare, if that is not much.
fn busiest<'a>(all: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let busy = all.iter().filter(|(_, one)| one.kind.is_server() && one.share >= WORKS * NEARLY_FULL);
    busy.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).copied()
}

/// Requests meet at one of a device's parallel units while others are idle, so these keep it from more from a lower share on than
/// a stage of one unit or a core does, unless that is always busy.
fn meeting<'a>(all: &[Candidate<'a>], found: Candidate<'a>) -> Candidate<'a> {
    const MEET: f64 = 0.7;
    const ALWAYS: f64 = 0.97;
    let (host, one) = found;
    let is_stage = one.kind == Kind::Device && one.of == 1;
    if !(is_stage || one.kind == Kind::Core) || one.share >= ALWAYS {
        return found;
    }
    let is_parallel = |(other, units): &&Candidate<'_>| {
        let is_its = !is_stage || units.owner() == one.owner();
        *other == host && units.kind == Kind::Device && units.of > 1 && units.share >= MEET && is_its
    };
    let units = all.iter().filter(is_parallel).max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share));
    units.copied().unwrap_or(found)
}

/// A write buffer is as full as the drive's own stages leave it: faster ones would empty it sooner, and more room would be filled
/// as well. Only one that is too small for its stages to work at the same time binds.
fn drained<'a>(all: &[Candidate<'a>], found: Candidate<'a>) -> Candidate<'a> {
    const WORK_TOGETHER: f64 = 0.3;
    let (host, one) = found;
    if !(one.kind == Kind::Buffer && one.place.ends_with("/write-buffer")) {
        return found;
    }
    let is_its = |(other, stage): &&Candidate<'_>| {
        *other == host && stage.kind == Kind::Device && stage.owner() == one.owner()
    };
    let stages = all.iter().filter(is_its).filter(|(_, stage)| stage.share >= WORK_TOGETHER);
    stages.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).copied().unwrap_or(found)
}

/// The full resource that fills the others, if any. Among equally busy cores, prefers those of host `own`, whose program
/// sets the pace.
fn full<'a>(all: &[Candidate<'a>], own: &str) -> Option<Candidate<'a>> {
    // A ring before a reader that has no time to spare is full because of the reader.
    let reads = |(_, one): &Candidate<'_>| {
        matches!(one.kind, Kind::Device | Kind::Wire | Kind::Link) && one.share >= NEARLY_FULL
    };
    let is_fed = all.iter().any(reads);
    // Servers are ranked by their fullness; the others by their order.
    let rank = |(host, resource): &Candidate<'_>| {
        let order = if resource.kind.is_server() { Kind::Wire } else { resource.kind };
        let fullness = (100.0 * resource.share / resource.kind.full()).round() as u64;
        // Reads between devices hold their tags while they wait for a place in the root.
        let is_nearer = resource.kind == Kind::Tags && resource.owner() == "root";
        (Reverse(order), is_nearer, fullness, *host == own)
    };
    // So is a drive's queue before a core that has no time to end its requests.
    let is_late = |host: &str, ring: &Resource| {
        let is_busy =
            |(other, one): &Candidate<'_>| *other == host && one.kind == Kind::Core && one.is_full();
        ring.place.contains("submission") && all.iter().any(is_busy)
    };
    let yields = |host: &str, one: &Resource| one.kind == Kind::Ring && (is_fed || is_late(host, one));
    let full = all.iter().filter(|(host, one)| one.is_full() && !yields(host, one));
    // The first of equals.
    let full = full.rev().max_by_key(|one| rank(one)).copied()?;
    let full = meeting(all, drained(all, full));
    let cause = match full.1.kind {
        // Errors also interrupt cores, which ask the devices what has happened.
        Kind::Core => errors(all),
        // What is waited for while a server works is waited for because of the server.
        Kind::Buffer | Kind::Tags => {
            errors(all).or_else(|| busiest(all).filter(|(_, server)| server.share >= WORKS * full.1.share))
        }
        // Credits come back in batches.
        kind if kind.is_waited_for() => {
            let tie = if kind == Kind::Credits { TIE } else { 0.0 };
            let server =
                busiest(all).filter(|(_, one)| one.share >= NEARLY_FULL && one.share + tie >= full.1.share);
            let damaged = Some(full).filter(|_| kind == Kind::Credits).and_then(|full| damaged(all, full));
            damaged.or_else(|| server.map(|server| busier_core(all, server).unwrap_or(server)))
        }
        _ => None,
    };
    Some(cause.unwrap_or(full))
}

/// If nothing is full, what is nearly, or waited for most.
fn nearly<'a>(all: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    // Reads that queue for a stage of their own device hold its tags, but really wait for the stage.
    let queues = |(host, tags): &Candidate<'_>| {
        let is_before = |(other, stage): &Candidate<'_>| {
            (other, stage.kind) == (host, Kind::Device)
                && stage.owner() == tags.owner()
                && stage.share >= tags.share
        };
        tags.kind == Kind::Tags && all.iter().any(is_before)
    };
    // Credits that are waited for as long as their link works are waited for because it does.
    let is_worked = |(host, credits): &Candidate<'_>| {
        let is_its = |(other, link): &&Candidate<'_>| {
            (*other, link.kind, &link.place) == (*host, Kind::Link, &credits.place)
        };
        let link = all.iter().find(is_its).map_or(0.0, |(_, link)| link.share);
        link + TIE >= credits.share && credits.share >= WORKS * link
    };
    let of_core = |host: &str, core: &Resource, kind: Kind| {
        let is_its =
            |(other, one): &&Candidate<'_>| (*other, one.kind, &one.place) == (host, kind, &core.place);
        all.iter().find(is_its).map_or(0.0, |(_, one)| one.share)
    };
    let shows = |one: &&Candidate<'a>| match one.1.kind {
        Kind::Credits => {
            // What is sent again takes the credits of what is not.
            is_waited_for(one.1) && !waits_for(all, one, Kind::Replays) && !is_worked(one)
        }
        // A core that works for longer than it waits would rather be faster.
        Kind::Invalidations => is_waited_for(one.1) && one.1.share >= of_core(one.0, one.1, Kind::Core),
        _ => is_waited_for(one.1) && !queues(one),
    };
    // A run's start and end leave even its busiest core time to spare.
    let is_busy_core = |(host, one): &&Candidate<'_>| {
        let waits = of_core(host, one, Kind::Invalidations);
        one.kind == Kind::Core && one.share > waits && one.share + waits >= NEARLY_FULL
    };
    let cores = all.iter().filter(is_busy_core).copied();
    let server = busiest(all).filter(|(_, server)| server.share >= NEARLY_FULL);
    let waited = all.iter().filter(shows).copied().chain(server).chain(cores.rev());
    waited.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share)).map(|found| meeting(all, drained(all, found)))
}

/// The receive rings for want of whose buffers most packets were dropped, if those are enough to slow a stream: TCP
/// takes them for congestion.
fn starved(hosts: &[HostCounters]) -> Option<(String, Resource)> {
    const SLOWS: f64 = 0.001;
    let of_host = |host: &HostCounters| {
        let rings = host.counters.iter().filter(|counter| counter.name.ends_with("/rx-no-buffer"));
        let is_used = |place: &str| {
            host.resources.iter().any(|one| one.on_path && one.owner() == place && one.kind != Kind::Wire)
        };
        let ring = |counter: &Counter| {
            let (place, dropped) = (counter.place(), counter.value as f64);
            let share = dropped / (dropped + host.of(&format!("{place}/rx-frames")) as f64);
            let place = format!("{place}/{RX_RING}");
            (host.host.clone(), Resource { kind: Kind::Ring, place, of: 1, share, on_path: true })
        };
        rings.filter(|counter| is_used(counter.place())).map(ring).collect::<Vec<_>>()
    };
    let all = hosts.iter().flat_map(of_host).filter(|(_, ring)| ring.share >= SLOWS);
    all.max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share))
}

/// What was full in parts of a window, longest first; none if these make up little of it. What `are_whole` measurements binds
/// may also be nearly full.
pub(super) fn phases(
    slices: &[(f64, Vec<HostCounters>)],
    (whole, own): (&[HostCounters], &str),
    are_whole: bool,
) -> Vec<Phase> {
    /// Parts of a window that are shorter are by the way.
    const SHORTEST: f64 = 0.1;
    /// Less of a window does not explain it.
    const LEAST: f64 = 0.6;
    let mut found: Vec<Phase> = Vec::new();
    let mut places: BTreeSet<(String, String)> = BTreeSet::new();
    let overrun = overrun(whole);
    for (length, hosts) in slices {
        let all = candidates(hosts, &overrun);
        // While nothing else is to be done, interrupts are often held back.
        let bound = full(&all, own).or_else(|| nearly(&all).filter(|_| are_whole));
        let bound = bound.filter(|(_, one)| one.kind != Kind::Moderation);
        let Some((host, resource)) = bound else { continue };
        let is_new = places.insert((host.to_owned(), format!("{} {}", resource.kind.name(), resource.place)));
        // Cores that share work take turns.
        let is_same = |phase: &&mut Phase| {
            let is_core = resource.kind == Kind::Core && phase.resource.kind == Kind::Core;
            phase.host == host && (is_core || phase.resource.is(resource))
        };
        match found.iter_mut().find(is_same) {
            Some(phase) => {
                let whole = phase.of_time + length;
                let share = phase.resource.share * phase.of_time + resource.share * length;
                (phase.resource.share, phase.of_time) = (share / whole, whole);
                phase.alike += usize::from(is_new);
            }
            None => {
                let (host, resource) = (host.to_owned(), resource.clone());
                found.push(Phase { host, resource, of_time: *length, alike: 0 });
            }
        }
    }
    let whole: f64 = slices.iter().map(|(length, _)| length).sum();
    found.iter_mut().for_each(|phase| phase.of_time /= whole);
    found.retain(|phase| phase.of_time >= SHORTEST);
    found.sort_by(|a, b| b.of_time.total_cmp(&a.of_time));
    if found.iter().map(|phase| phase.of_time).sum::<f64>() < LEAST {
        found.clear();
    }
    found
}

/// What is full throughout, or one after the other in phases, or nearly; with the phases.
fn bottleneck<'a>(
    window: &'a Window,
    all: &[Candidate<'a>],
    own: &str,
) -> (Option<Candidate<'a>>, Vec<Phase>) {
    let throughout = full(all, own);
    // What is waited for while one server works, and then while another one does, is waited for because of both.
    let is_worked = |one: &Resource| {
        let served = window.phases.iter().filter(|phase| phase.resource.kind.is_server());
        let is_caused = one.kind.is_waited_for() && one.kind != Kind::Replays;
        is_caused && served.map(|phase| phase.of_time).sum::<f64>() + TIE >= one.share
    };
    let throughout = throughout.filter(|(_, one)| !is_worked(one));
    let phases = if throughout.is_some() { &[][..] } else { &window.phases[..] };
    let longest = phases.first().map(|phase| (phase.host.as_str(), &phase.resource));
    (throughout.or(longest).or_else(|| nearly(all)), phases.to_vec())
}

/// The credits that TLPs have lacked for longest, if that is what is waited for.
fn lacked(window: &Window, host: &str, one: &Resource) -> String {
    let counters = window.host(host).filter(|_| one.kind == Kind::Credits).map(|own| &own.counters[..]);
    let of_link = |counter: &Counter| {
        let (place, credits) = counter.name.split_once(LACKED)?;
        (place == one.place).then(|| (counter.value, credits_in_words(credits)))
    };
    let all = counters.unwrap_or_default().iter().filter_map(of_link);
    all.max().map_or_else(String::new, |(_, credits)| credits)
}

/// What takes less time than this is over before anything fills.
const SHORTEST: Duration = Duration::from_ns(1_000);

/// Finds the bottleneck of a window of a program on host `own`.
pub(super) fn of(window: &Window, own: &str) -> Binding {
    let all = candidates(&window.hosts, &overrun(&window.hosts));
    let offered = window.offered.clone();
    let is_long = window.length >= SHORTEST;
    let (what, phases) = match offered.is_none() && is_long {
        true => bottleneck(window, &all, own),
        false => Default::default(),
    };
    let is_alike = |(host, one): &&Candidate<'_>| {
        what.is_some_and(|(of, what)| of == *host && (what.is(one) || what.is_like(one)))
    };
    let alike = all.iter().filter(is_alike).count().saturating_sub(1);
    let next = all.iter().filter(|one| !is_alike(one)).max_by(|(_, a), (_, b)| a.share.total_cmp(&b.share));
    let owned = |(host, resource): Candidate<'_>| (host.to_owned(), resource.clone());
    let lacking = || if offered.is_some() { None } else { starved(&window.hosts) };
    // Interrupts are held back from a stream that is slow for want of buffers, too.
    let is_by_the_way = |(_, one): &Candidate<'_>| one.kind == Kind::Moderation;
    let what = match what {
        Some(what) if is_by_the_way(&what) => lacking().or(Some(owned(what))),
        what => what.map(owned).or_else(lacking),
    };
    let credits = what.as_ref().map_or_else(String::new, |(host, one)| lacked(window, host, one));
    let next = next.copied().map(owned);
    Binding { what, alike, next, phases, offered, part: window.part.clone(), credits }
}
