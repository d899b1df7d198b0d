//! The machine file: a host.

mod cache;
mod iommu;
mod memory;
mod power;
mod root;

pub use cache::{CacheGeometry, Core, CoreDie, Inclusion, Llc, Prefetch, PrivateCache};
pub use iommu::{Iommu, Iotlb, StructureCaches};
pub use memory::{Dram, Expander, Interconnect};
pub use power::{IdleState, PackageController, Power};
pub use root::{CompletionOrder, CompletionSplit, Credits, RootComplex, RootPort};

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::read::{Check, record};
use crate::residuals::Residuals;
use crate::scalar::Count;
use std::collections::BTreeMap;
use units::Bytes;

record! {
    /// A host as a machine file describes it.
    pub struct Machine {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The machine file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// How directories of measured results refer to it.
        measured_as: Option<MeasuredAs>,
        /// The host's hardware.
        host: Host,
        /// Remaining errors of this machine's results, by directory and series.
        residuals: Residuals,
    }
}

impl Kindred for Machine {
    const WORD: &'static str = "machine";
    const FOLDER: &'static str = "machines";
    const ABOUT: &'static str =
        "A computer without the devices in its slots: sockets, caches, memory, root ports.";
    const TEMPLATE: Option<[&'static str; 2]> =
        Some(["dell-t430", "host.llc.ddio_ways = { value = 4, source = \"assumed: twice as many\" }"]);
    const OWN: &'static [&'static str] = &["residuals"];
    const SIBLINGS: Option<[&'static str; 2]> = Some(["host", "port"]);

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// How directories of measured results refer to a machine.
    pub struct MeasuredAs {
        /// The CPU's name, such as `E5-2630v4`.
        cpu: String,
        /// The chassis, such as `dell-t430`; any with that CPU if not given.
        system: Option<String>,
        /// Directories of results that figures of this file were fitted to.
        directories: Vec<String>,
        /// Present if the machine's own results do not repeat. For information only.
        unsteady: Option<Unsteady>,
    }
}

record! {
    /// How well a machine repeats its own results.
    pub struct Unsteady {
        /// Median difference between rows that were measured twice, percent.
        apart_pct: f64,
        /// The rows that show it, and the cause.
        evidence: String,
    }
    check |unsteady: &Unsteady, check: &mut Check<'_>| {
        check.require(
            unsteady.apart_pct > 0.0 && unsteady.apart_pct.is_finite(),
            "apart_pct",
            format!("{} % is not a difference", unsteady.apart_pct),
            "more than 0",
        );
    }
}

record! {
    /// A host's hardware. All sockets are identical.
    pub struct Host {
        /// The CPU's name.
        cpu: String,
        /// The CPU's microarchitecture, such as `haswell-ep`.
        microarchitecture: String,
        /// Number of sockets, each with one NUMA node.
        sockets: Figure<Count>,
        /// The cores of one socket.
        core: Core,
        /// Dies with some of a socket's cores, each with a link of its own to memory; none if nothing limits them.
        core_die: Option<CoreDie>,
        /// A core's L1 data cache.
        l1: PrivateCache,
        /// A core's L2 cache.
        l2: PrivateCache,
        /// Super queue and prefetchers of a core's L2.
        prefetch: Option<Prefetch>,
        /// A socket's last-level cache.
        llc: Llc,
        /// The memory of one NUMA node.
        dram: Dram,
        /// CXL memory, a node without cores, if there is any.
        expander: Option<Expander>,
        /// The interconnect between sockets; required if there are several.
        interconnect: Option<Interconnect>,
        /// Connects PCIe ports with caches and memory.
        root_complex: RootComplex,
        /// The PCIe slots by name.
        port: BTreeMap<String, RootPort>,
        /// The IOMMU, if any. The scenario decides whether it translates.
        iommu: Option<Iommu>,
        /// Power management, if it affects results.
        power: Option<Power>,
    }
    check check_host
}

/// Maximum number of sockets.
const MOST_SOCKETS: u32 = 8;

fn check_host(host: &Host, check: &mut Check<'_>) {
    let sockets = host.sockets.value.get();
    check.require_within("sockets", sockets.into(), (1, MOST_SOCKETS.into()), "sockets are not modelled");
    if sockets > MOST_SOCKETS {
        // Further checks depend on this number.
        return;
    }
    check_memory(host, check);
    check_expander(host, check);
    if let Some(die) = &host.core_die {
        let (cores, of) = (host.core.count.value.get(), die.cores.value.get().max(1));
        check.at("core_die").require(
            cores % of == 0,
            "cores",
            format!("a socket's {cores} cores are not on dies of {of}"),
            "as many as divide `core.count`",
        );
    }
    check.require(
        sockets == 1 || host.interconnect.is_some(),
        "sockets",
        "several sockets need something that joins them",
        "add a table `host.interconnect`",
    );
    if let Some(interconnect) = &host.interconnect {
        let outside = interconnect.all_links().flat_map(|(pair, ..)| pair).find(|&&node| node >= sockets);
        check.at("interconnect").require(
            outside.is_none(),
            "links",
            format!("there is no socket {}", outside.unwrap_or(&0)),
            format!("sockets are numbered 0 to {}", sockets - 1),
        );
        let pairs: Vec<[u32; 2]> = interconnect
            .all_links()
            .filter_map(|(pair, ..)| pair.try_into().ok())
            .map(|[a, b]: [u32; 2]| [a.min(b), a.max(b)])
            .collect();
        let twice = pairs.iter().enumerate().find(|(number, pair)| pairs[..*number].contains(pair));
        let [a, b] = twice.map_or([0; 2], |(_, pair)| *pair);
        check.at("interconnect").require(
            twice.is_none(),
            "links",
            format!("sockets {a} and {b} are joined twice"),
            "each pair is in one of `interconnect.links` and `interconnect.near.links`; `bandwidth` is that of all links of a pair",
        );
        check.at("interconnect").require(
            interconnect.joins(sockets),
            "links",
            "some sockets cannot be reached from socket 0",
            "add links until every socket can be reached",
        );
    }
    for (name, port) in &host.port {
        let socket = port.socket.value;
        check.at("port").at(name).require(
            port.quadrant.is_none() || host.root_complex.quadrant_rate.is_some(),
            "quadrant",
            "nothing says what a quadrant carries",
            "give `quadrant_rate` in `host.root_complex`",
        );
        check.at("port").at(name).require(
            socket < sockets,
            "socket",
            format!("there is no socket {socket}"),
            format!("sockets are numbered 0 to {}", sockets - 1),
        );
    }
    check.require(
        !host.port.is_empty(),
        "port",
        "the host has no PCIe slot",
        "add a table such as `host.port.slot1`",
    );
}

/// Reports CXL memory that hangs nowhere or whose node has no number.
fn check_expander(host: &Host, check: &mut Check<'_>) {
    let (Some(expander), sockets) = (&host.expander, host.sockets.value.get()) else { return };
    check.at("expander").require(
        expander.socket.value < sockets,
        "socket",
        format!("there is no socket {}", expander.socket.value),
        format!("sockets are numbered 0 to {}", sockets - 1),
    );
    check.require(
        sockets < MOST_SOCKETS && host.memory_nodes() == sockets && host.interconnect.is_some(),
        "expander",
        "the host has no node to spare for CXL memory",
        format!("fewer than {MOST_SOCKETS} sockets, each with memory, and a table `host.interconnect` that says how nodes are told"),
    );
}

/// End of the memory addresses that caches can distinguish: 64 sets with tags of 27 bits.
const TOP: Bytes = Bytes::gib(512);
/// Address space below 4 GiB for devices; memory continues above.
const DEVICES: Bytes = Bytes::gib(2);

/// Reports memory that exceeds the address space, or that caches cannot cover.
fn check_memory(host: &Host, check: &mut Check<'_>) {
    let (sockets, size) = (u64::from(host.memory_nodes()), host.dram.size.value);
    check.at("dram").require(
        host.memory_nodes() <= host.sockets.value.get(),
        "sockets",
        format!("the host has {} sockets", host.sockets.value),
        format!("from 1 to {}", host.sockets.value),
    );
    let low = size.min(DEVICES).get();
    // Memory continues above 4 GiB.
    let expander = host.expander.as_ref().map_or(0, |expander| expander.size.value.get());
    let above = (size.get().saturating_mul(sockets) - low).saturating_add(expander);
    let top = Bytes::new(if above == 0 { low } else { above.saturating_add(2 * DEVICES.get()) });
    // The IOMMU itself rejects fewer than 32 or more than 52 bits.
    let bits = host
        .iommu
        .as_ref()
        .map(|iommu| iommu.address_bits.value.get())
        .filter(|bits| (32..=52).contains(bits));
    let end = bits.map(|bits| 1 << bits);
    let room = end.map_or(TOP, |end| TOP.min(Bytes::new(end)));
    let whose =
        if room < TOP { "the IOMMU has no more `address_bits`" } else { "no more addresses are modelled" };
    check.at("dram").require(
        top <= room,
        "size",
        format!("{size} for each of {sockets} sockets end at {top}"),
        format!(
            "from 1 MiB to {} for each of so many sockets: {whose} than for {room}, {DEVICES} of them for devices",
            Bytes::new((room - DEVICES).get() / sockets)
        ),
    );
    check.at("dram").require(
        size.get() % 64 == 0,
        "size",
        format!("{size} is not a whole number of lines"),
        "a multiple of 64 B",
    );
    cache::check_caches(host, top.min(TOP), check);
}

/// Memory below this address, as far as the machine has that much.
const LOW_MEMORY: Bytes = Bytes::gib(2);
/// BARs and the interrupt range are between low memory and this address.
const HIGH_MEMORY: Bytes = Bytes::gib(4);

impl Host {
    /// Number of sockets with memory; these are the first ones.
    pub fn memory_nodes(&self) -> u32 {
        self.dram.sockets.as_ref().unwrap_or(&self.sockets).value.get()
    }

    /// Number of nodes with memory: those of sockets, then that of CXL memory.
    pub fn nodes(&self) -> u32 {
        self.memory_nodes() + u32::from(self.expander.is_some())
    }

    /// All memory, that of CXL too.
    pub fn memory_size(&self) -> Bytes {
        let expander = self.expander.as_ref().map_or(0, |expander| expander.size.value.get());
        let sockets = self.dram.size.value.get().saturating_mul(self.memory_nodes().into());
        Bytes::new(sockets.saturating_add(expander))
    }

    /// End of all memory, including the hole below 4 GiB.
    pub fn memory_end(&self) -> Bytes {
        let total = self.dram.size.value * u64::from(self.memory_nodes());
        let end = if total <= LOW_MEMORY { total } else { HIGH_MEMORY + (total - LOW_MEMORY) };
        self.expander.as_ref().map_or(end, |expander| end.max(HIGH_MEMORY) + expander.size.value)
    }
}
