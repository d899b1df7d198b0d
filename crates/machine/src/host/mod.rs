//! What a machine file says: one host.

mod cache;
mod iommu;
mod memory;
mod power;
mod root;

pub use cache::{CacheGeometry, Core, Inclusion, Llc, Prefetch, PrivateCache};
pub use iommu::{Iommu, Iotlb, StructureCaches};
pub use memory::{Dram, Interconnect, RemoteWrite};
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
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The machine file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the machine is, in a line.
        summary: String,
        /// Under which names directories of measured results refer to it.
        measured_as: Option<MeasuredAs>,
        /// The host's hardware.
        host: Host,
        /// What results of this very machine leave unexplained, by directory and series.
        residuals: Residuals,
    }
}

impl Kindred for Machine {
    const WHAT: &'static str = "machine";
    const FOLDER: &'static str = "machines";
    const OWN: &'static [&'static str] = &["residuals"];
}

record! {
    /// How directories of measured results name a machine.
    pub struct MeasuredAs {
        /// The CPU's name, such as `E5-2630v4`.
        cpu: String,
        /// The box's name, such as `dell-t430`; any box with that CPU if none is given.
        system: Option<String>,
        /// The directories of results that figures of this file were fitted to.
        directories: Vec<String>,
        /// That the machine's own results do not repeat; not given for one whose results do. Readers are told, nothing is
        /// judged by it.
        unsteady: Option<Unsteady>,
    }
}

record! {
    /// How far a machine is from repeating its own results.
    pub struct Unsteady {
        /// Half of the rows that were measured twice lie at least so far apart, percent.
        apart_pct: f64,
        /// Which rows say so, and what the machine does.
        evidence: String,
    }
    check |unsteady: &Unsteady, check: &mut Check<'_>| {
        check.require(
            unsteady.apart_pct > 0.0 && unsteady.apart_pct.is_finite(),
            "apart_pct",
            format!("{} % is no distance", unsteady.apart_pct),
            "more than 0",
        );
    }
}

record! {
    /// A host's hardware. All sockets are alike.
    pub struct Host {
        /// The CPU's name.
        cpu: String,
        /// The CPU's design, such as `haswell-ep`.
        microarchitecture: String,
        /// Number of sockets, each with one NUMA node.
        sockets: Figure<Count>,
        /// The cores of one socket.
        core: Core,
        /// A core's L1 data cache.
        l1: PrivateCache,
        /// A core's L2 cache.
        l2: PrivateCache,
        /// What a core's L2 has under way and asks for ahead.
        prefetch: Option<Prefetch>,
        /// A socket's last-level cache.
        llc: Llc,
        /// The memory of one NUMA node.
        dram: Dram,
        /// What joins the sockets; needed where there are several.
        interconnect: Option<Interconnect>,
        /// What joins PCIe ports with caches and memory.
        root_complex: RootComplex,
        /// The PCIe slots by name.
        port: BTreeMap<String, RootPort>,
        /// The IOMMU, if the host has one. Whether it translates is a scenario's choice.
        iommu: Option<Iommu>,
        /// Power management, if it matters.
        power: Option<Power>,
    }
    check check_host
}

/// Most sockets of a host.
const MOST_SOCKETS: u32 = 8;

fn check_host(host: &Host, check: &mut Check<'_>) {
    let sockets = host.sockets.value.get();
    check.require_within("sockets", sockets.into(), (1, MOST_SOCKETS.into()), "sockets are not modelled");
    if sockets > MOST_SOCKETS {
        // Whatever follows from that number says nothing.
        return;
    }
    check_memory(host, check);
    check.require(
        sockets == 1 || host.interconnect.is_some(),
        "sockets",
        "several sockets need something that joins them",
        "add a table `host.interconnect`",
    );
    if let Some(interconnect) = &host.interconnect {
        let outside = interconnect.links.value.iter().flatten().find(|&&node| node >= sockets);
        check.at("interconnect").require(
            outside.is_none(),
            "links",
            format!("there is no socket {}", outside.unwrap_or(&0)),
            format!("sockets are numbered 0 to {}", sockets - 1),
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

/// Where addresses of memory end that caches can tell apart: 64 sets with tags of 27 bits.
const TOP: Bytes = Bytes::gib(512);
/// What devices have of the addresses below 4 GiB, so that memory goes on above.
const DEVICES: Bytes = Bytes::gib(2);

/// Complains of more memory than there are addresses for, and of caches that do not go with it.
fn check_memory(host: &Host, check: &mut Check<'_>) {
    let (sockets, size) = (u64::from(host.memory_nodes()), host.dram.size.value);
    check.at("dram").require(
        host.memory_nodes() <= host.sockets.value.get(),
        "sockets",
        format!("the host has {} sockets", host.sockets.value),
        format!("from 1 to {}", host.sockets.value),
    );
    let low = size.min(DEVICES).get();
    // Memory goes on above 4 GiB.
    let above = size.get().saturating_mul(sockets) - low;
    let top = Bytes::new(if above == 0 { low } else { above.saturating_add(2 * DEVICES.get()) });
    // Fewer than 32 bits, or more than 52, the IOMMU itself has been refused for.
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
        format!("{size} are no whole lines"),
        "a multiple of 64 B",
    );
    cache::check_caches(host, top.min(TOP), check);
}

/// Memory below this address, where a machine has as much.
const LOW_MEMORY: Bytes = Bytes::gib(2);
/// Between low memory and here lie BARs and the interrupt range.
const HIGH_MEMORY: Bytes = Bytes::gib(4);

impl Host {
    /// Nodes that have memory, the first ones.
    pub fn memory_nodes(&self) -> u32 {
        self.dram.sockets.as_ref().unwrap_or(&self.sockets).value.get()
    }

    /// The end of memory: that of all sockets, but for the hole below 4 GiB.
    pub fn memory_end(&self) -> Bytes {
        let total = self.dram.size.value * u64::from(self.memory_nodes());
        if total <= LOW_MEMORY { total } else { HIGH_MEMORY + (total - LOW_MEMORY) }
    }
}
