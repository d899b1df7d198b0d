//! A scenario with computers, and its hosts, as its file describes them.

use std::collections::BTreeSet;

use super::device::DeviceEntry;
use super::hypervisor::HypervisorEntry;
use super::place::PcieSwitchEntry;
use super::riser::RiserEntry;
use super::team::TeamEntry;
use super::vm::VmEntry;
use crate::cluster::{BorrowEntry, ClusterSwitchEntry, NtbCableEntry};
use crate::diagnostic::Diagnostic;
use crate::doc::Kindred;
use crate::event::EventEntry;
use crate::limits::check_name;
use crate::network::{CableEntry, CaptureEntry, SwitchEntry};
use crate::nic_driver::NicDriverEntry;
use crate::nvme_driver::NvmeDriverEntry;
use crate::placed::Placed;
use crate::program::ProgramEntry;
use crate::read::{Check, record};
use crate::route::RouteEntry;
use crate::scenario::Changes;
use crate::traffic::{GeneratorEntry, SinkEntry, SourceEntry};
use settings::DmaMode;
use units::Bytes;

/// Maximum number of hosts, devices per host, and traffic sources: each is counted by a byte of an address.
pub(super) const MOST: usize = 254;

record! {
    /// An experiment with computers as a scenario file describes it.
    pub struct ComputerScenario {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// Purpose, in one line.
        summary: String,
        /// Seed of all random numbers; 1 if not given.
        seed: Option<u64>,
        /// The hosts, each with its machine, kernel and devices.
        host: Vec<HostEntry>,
        /// The programs; by default, all start together.
        program: Vec<ProgramEntry>,
        /// Ethernet cables.
        cable: Vec<CableEntry>,
        /// Ethernet switches.
        switch: Vec<SwitchEntry>,
        /// Traffic sources.
        source: Vec<SourceEntry>,
        /// Sinks of TCP streams.
        sink: Vec<SinkEntry>,
        /// Generators of UDP packets.
        generator: Vec<GeneratorEntry>,
        /// Ports at which frames are captured.
        capture: Vec<CaptureEntry>,
        /// Cables between NTB adapters.
        ntb_cable: Vec<NtbCableEntry>,
        /// Switches between the cables of NTB adapters.
        cluster_switch: Vec<ClusterSwitchEntry>,
        /// Functions lent to other hosts.
        borrow: Vec<BorrowEntry>,
        /// Events while the programs run.
        event: Vec<EventEntry>,
    }
    check check_names
}

impl Kindred for ComputerScenario {
    const WORD: &'static str = "scenario";
    const FOLDER: &'static str = "scenarios";
    const ABOUT: &'static str = "Computers with devices, cables between them, and programs that run on them.";
    const EXTENDS: bool = false;

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// A host of a scenario.
    pub struct HostEntry {
        /// Name, by which the rest of the scenario refers to the host.
        name: Placed<String>,
        /// The machine: a name, or the path of a file.
        machine: Placed<String>,
        /// The kernel: a name, or the path of a file; `linux` if not given.
        kernel: Option<Placed<String>>,
        /// Whether it is a virtual machine with a real Linux, for `nearfar serve` and `nearfar live`: its devices, switches
        /// and links are simulated, its cores and memory are not. It runs no programs of the scenario.
        live: Option<Placed<bool>>,
        /// IOMMU mode of the kernel; `off` if not given.
        iommu: Option<Placed<DmaMode>>,
        /// Size of the IOMMU address range that each borrowed function can reach: a power of two, 1 GiB if not given.
        /// Without an IOMMU, it reaches all memory.
        dma_window: Option<Placed<Bytes>>,
        /// Changes to the machine, with the keys of a machine file.
        change: Option<Changes>,
        /// Changes to the kernel, with the keys of a kernel file.
        change_kernel: Option<Changes>,
        /// Parameters of the NIC's driver.
        nic_driver: Option<Placed<NicDriverEntry>>,
        /// Parameters of the NVMe driver.
        nvme_driver: Option<Placed<NvmeDriverEntry>>,
        /// PCIe switches in its slots.
        switch: Vec<PcieSwitchEntry>,
        /// Risers in its slots.
        riser: Vec<RiserEntry>,
        /// Devices in its slots.
        device: Vec<DeviceEntry>,
        /// Stacked network devices.
        team: Vec<TeamEntry>,
        /// Its virtual machines.
        vm: Vec<VmEntry>,
        /// Scheduling of the virtual machines; they stay where the scenario places them if not given.
        hypervisor: Option<HypervisorEntry>,
        /// Routes besides those to the networks of its ports.
        route: Vec<RouteEntry>,
    }
}

fn check_names(scenario: &ComputerScenario, check: &mut Check<'_>) {
    check.require(!scenario.host.is_empty(), "host", "there is no host", "add a table `[[host]]`");
    let counts = [
        ("host", scenario.host.len()),
        ("source", scenario.source.len()),
        ("sink", scenario.sink.len()),
        ("generator", scenario.generator.len()),
    ];
    for (key, count) in counts {
        check.require(count <= MOST, key, format!("{count} of them"), format!("at most {MOST}"));
    }
    let mut seen = BTreeSet::new();
    let hosts = scenario.host.iter().map(|host| ("hosts", &host.name));
    let sources = scenario.source.iter().map(|source| ("hosts or sources", &source.name));
    let sinks = scenario.sink.iter().map(|sink| ("hosts, sources or sinks", &sink.name));
    let generators = scenario.generator.iter().map(|generator| ("testers", &generator.name));
    let switches = scenario.switch.iter().map(|switch| ("hosts, sources, sinks or switches", &switch.name));
    let clusters =
        scenario.cluster_switch.iter().map(|switch| ("hosts, sources, sinks or switches", &switch.name));
    let switches = switches.chain(clusters);
    let programs = scenario.program.iter().filter_map(|program| program.name.as_ref());
    let cables = scenario.cable.iter().filter_map(|cable| cable.name.as_ref());
    let cables = cables.chain(scenario.ntb_cable.iter().filter_map(|cable| cable.name.as_ref()));
    let named =
        programs.chain(cables).map(|name| ("hosts, sources, sinks, switches, programs or cables", name));
    for (what, name) in hosts.chain(sources).chain(sinks).chain(generators).chain(switches).chain(named) {
        check_name(name, &mut check.complaints.0);
        if !seen.insert(&name.value) {
            let message = format!("there are two {what} called `{}`", name.value);
            check.complaints.push(Diagnostic::new(&name.place, message).help("a name of its own for each"));
        }
    }
    for host in &scenario.host {
        let mut seen = BTreeSet::new();
        let devices = host.device.iter().filter_map(|device| device.name.as_ref());
        let risers = host.riser.iter().map(|riser| &riser.name);
        for name in host.switch.iter().map(|switch| &switch.name).chain(risers).chain(devices) {
            check_name(name, &mut check.complaints.0);
            if !seen.insert(&name.value) {
                let message = format!("there are two switches, risers or devices called `{}`", name.value);
                check
                    .complaints
                    .push(Diagnostic::new(&name.place, message).help("a name of its own for each"));
            }
        }
    }
}
