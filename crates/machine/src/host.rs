//! What a machine file says: one host.

mod cache;
mod iommu;
mod memory;
mod power;
mod root;

pub use cache::{
    CacheGeometry, CombiningOrder, Core, EvictionNotice, Inclusion, Llc, PrivateCache, Replacement, SliceFold,
};
pub use iommu::{Invalidation, Iommu, Iotlb, StructureCaches, TranslationOrder};
pub use memory::{Dram, Interconnect, RemoteHit, RemoteWrite, SnoopMode};
pub use power::{IdleState, PackageController, Power};
pub use root::{CompletionOrder, CompletionSplit, Credits, RootComplex, RootPort};

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::read::{Check, record};
use crate::residuals::Residuals;
use crate::scalar::Count;
use std::collections::BTreeMap;

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
/// Most memory of a host: what the tags of caches tell apart, less what lies between it for PCIe (bytes).
const MOST_MEMORY: u64 = 504 << 30;

fn check_host(host: &Host, check: &mut Check<'_>) {
    let sockets = host.sockets.value.get();
    check.require(
        sockets <= MOST_SOCKETS,
        "sockets",
        format!("{sockets} sockets are more than the model has room for"),
        format!("from 1 to {MOST_SOCKETS}"),
    );
    let node = host.dram.size.value.get();
    check.at("dram").require(
        node.saturating_mul(sockets.into()) <= MOST_MEMORY,
        "size",
        format!("{sockets} nodes of {} are more than the model has room for", host.dram.size.value),
        "504 GiB for all of them together",
    );
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
            sockets > MOST_SOCKETS || interconnect.joins(sockets),
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
