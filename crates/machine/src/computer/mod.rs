//! Scenarios with computers: hosts, their devices, and the programs that run on them.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the scenario and its hosts, with the files that they refer to |
//! | `device` | devices in a host's slots |
//! | `slot` | slots and links |
//! | `found` | devices that a kernel will find, with their names |
//! | `vm` | virtual machines |
//! | `hypervisor` | scheduling of virtual machines |
//! | `team` | stacked network devices |
//! | `live` | hosts that are virtual machines with a real Linux |
//! | `fit` | checks of drivers' settings against devices |

mod device;
mod fit;
mod found;
mod hypervisor;
mod live;
mod riser;
mod slot;
mod team;
mod vm;

use std::collections::BTreeSet;

use crate::cluster::{BorrowEntry, ClusterSetup, ClusterSwitchEntry, NtbCableEntry};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc::{Doc, Kindred};
use crate::event::{EventEntry, EventSetup, Surroundings};
use crate::host::Machine;
use crate::kernel::KernelFile;
use crate::library::Library;
use crate::limits::check_name;
use crate::network::{CableEntry, CaptureEntry, NetworkSetup, Stations, SwitchEntry};
use crate::nic_driver::NicDriverEntry;
use crate::nvme_driver::NvmeDriverEntry;
use crate::placed::Placed;
use crate::program::{ProgramEntry, ProgramSetup};
use crate::read::{Check, record};
use crate::route::{RouteEntry, RouteSetup};
use crate::scenario::Changes;
use crate::traffic::{GeneratorEntry, GeneratorSetup, SinkEntry, SinkSetup, SourceEntry, SourceSetup};
pub use settings::{DmaMode, TeamMode};
use units::Bytes;

use files::Folder;

pub use device::{DeviceEntry, DeviceFile, DeviceModel, DevicePlace, DeviceSetup, DriveSetup};
pub use found::{DiskSetup, InterfaceSetup};
pub use hypervisor::{HypervisorEntry, HypervisorSetup, Placement};
pub use riser::RiserEntry;
pub use slot::{FoundLink, LinkEntry, LinkSetup, PcieSwitchEntry, PcieSwitchSetup, SlotSetup, links_found};
pub use team::{TeamEntry, TeamSetup};
pub(crate) use vm::named_function;
pub use vm::{PassedSetup, VirtualNicSetup, VmEntry, VmSetup};

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

/// Default range for borrowed functions: more than drivers map at a time.
const DMA_WINDOW: Bytes = Bytes::gib(1);

/// Maximum number of hosts, devices per host, and traffic sources: each is counted by a byte of an address.
const MOST: usize = 254;

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

/// A host of a scenario with the files that it refers to.
#[derive(Debug, Clone)]
pub struct HostSetup {
    /// Name in the scenario.
    pub name: String,
    /// The machine, with the scenario's changes.
    pub machine: Machine,
    /// The kernel, with the scenario's changes.
    pub kernel: KernelFile,
    /// Whether it is a virtual machine with a real Linux.
    pub live: bool,
    /// IOMMU mode of the kernel.
    pub iommu: DmaMode,
    /// Size of the IOMMU address range that each borrowed function can reach.
    pub dma_window: Bytes,
    /// Parameters of the NIC's driver.
    pub nic_driver: Option<NicDriverEntry>,
    /// Parameters of the NVMe driver.
    pub nvme_driver: Option<NvmeDriverEntry>,
    /// PCIe switches in its slots.
    pub switches: Vec<PcieSwitchSetup>,
    /// Devices in its slots.
    pub devices: Vec<DeviceSetup>,
    /// Stacked network devices.
    pub teams: Vec<TeamSetup>,
    /// Its virtual machines.
    pub vms: Vec<VmSetup>,
    /// Scheduling of the virtual machines, if any.
    pub hypervisor: Option<HypervisorSetup>,
    /// Routes beyond those to the networks of its own addresses.
    pub routes: Vec<RouteSetup>,
    /// Network devices that its kernel will find.
    pub interfaces: Vec<InterfaceSetup>,
    /// Block devices that its kernel will find.
    pub disks: Vec<DiskSetup>,
    place: crate::source::Place,
}

impl HostSetup {
    /// Whether its NIC driver makes one network device of a card's functions.
    pub(super) fn combines(&self, nic: &crate::Nic) -> bool {
        let driver = self.nic_driver.as_ref().and_then(|driver| driver.multi_pf.as_ref());
        driver.is_some_and(|multi_pf| multi_pf.value) && nic.functions_are_one_station()
    }
}

/// A scenario with computers and all files that it refers to, checked for consistency.
#[derive(Debug, Clone)]
pub struct ComputerSetup {
    /// The scenario's name.
    pub name: String,
    /// Purpose.
    pub summary: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The hosts, in the scenario's order.
    pub hosts: Vec<HostSetup>,
    /// The programs, in the scenario's order.
    pub programs: Vec<ProgramSetup>,
    /// Traffic sources.
    pub sources: Vec<SourceSetup>,
    /// Stations that receive TCP streams.
    pub sinks: Vec<SinkSetup>,
    /// Stations that send UDP packets and check those that come back.
    pub generators: Vec<GeneratorSetup>,
    /// The network between the hosts.
    pub network: NetworkSetup,
    /// NTB cables, cluster switches and loans.
    pub cluster: ClusterSetup,
    /// Events while the programs run.
    pub events: Vec<EventSetup>,
    /// What is possible, and perhaps not meant.
    pub doubts: Vec<Diagnostic>,
    /// Where the files that it names are written: its own folder, the current one for a built-in scenario.
    pub folder: Folder,
}

impl ComputerSetup {
    /// Loads the scenario and the files that it refers to.
    ///
    /// # Errors
    /// All errors of the scenario; if there are none, those of the first invalid file; if there are none, all
    /// inconsistencies.
    pub fn load(library: &Library, scenario: &Doc<ComputerScenario>) -> Result<Self, Diagnostics> {
        let own = library.folder_of(scenario.name(), scenario.text());
        let folder = Folder::new(own.clone());
        let mut scenario = scenario.read()?;
        let (mut wrong, mut doubts) = (Vec::new(), Vec::new());
        riser::resolve(&mut scenario.host, &mut wrong);
        let mut hosts: Vec<HostSetup> =
            (0..).zip(&scenario.host).map(|(n, entry)| host(library, n, entry)).collect::<Result<_, _>>()?;
        slot::place(&scenario.host, &mut hosts, &mut wrong, &mut doubts);
        if !wrong.is_empty() {
            return Err(Diagnostics::new(wrong));
        }
        device::shared_backings(&hosts, &mut wrong);
        let cluster = (&scenario.cluster_switch[..], &scenario.ntb_cable[..], &scenario.borrow[..]);
        vm::find(&scenario.host, &mut hosts, &mut wrong);
        let cluster = ClusterSetup::find(library, &hosts, cluster, &mut wrong)?;
        found::find(&mut hosts, &scenario.program, &cluster);
        live::settle(&scenario, &mut hosts, &mut wrong);
        team::find(&scenario.host, &mut hosts, &mut wrong, &mut doubts);
        for (entry, host) in scenario.host.iter().zip(&mut hosts) {
            fit::check(entry, host, &mut wrong);
            host.routes = crate::route::routes(&entry.route, &host.interfaces, &mut wrong);
        }
        let programs: Vec<_> = scenario
            .program
            .iter()
            .filter_map(|entry| ProgramSetup::find((library, &own), &hosts, entry, &mut wrong))
            .collect();
        let (switches, cables) = (&scenario.switch, &scenario.cable);
        crate::port::check(&hosts, &mut wrong);
        let sources = SourceSetup::find(&scenario.source, &hosts, &mut wrong);
        let sinks = SinkSetup::find(&scenario.sink, &hosts, &sources, &mut wrong);
        let generators = GeneratorSetup::find(&scenario.generator, &hosts, &mut wrong);
        let stations = Stations {
            hosts: &hosts,
            sources: &scenario.source,
            sinks: &scenario.sink,
            generators: &scenario.generator,
        };
        let network = NetworkSetup::find(stations, switches, cables, &scenario.capture, &mut wrong);
        team::check_channels(&scenario.host, &hosts, &network, &mut wrong);
        // Events refer to everything else, so they are resolved last.
        if !wrong.is_empty() {
            return Err(Diagnostics::new(wrong));
        }
        let around =
            Surroundings { stations, switches, network: &network, cluster: &cluster, programs: &programs };
        let events =
            scenario.event.iter().filter_map(|entry| EventSetup::find(&around, entry, &mut wrong)).collect();
        if !wrong.is_empty() {
            return Err(Diagnostics::new(wrong));
        }
        let (name, summary) = (scenario.name, scenario.summary);
        let seed = scenario.seed.unwrap_or(1);
        Ok(Self {
            name,
            summary,
            seed,
            hosts,
            programs,
            sources,
            sinks,
            generators,
            network,
            cluster,
            events,
            doubts,
            folder,
        })
    }
}

impl HostSetup {
    /// Whether a whole device is passed through to one of its virtual machines.
    pub fn passes(&self, device: usize) -> bool {
        self.passes_function(PassedSetup { device, vf: None })
    }

    /// Whether a device or one of its virtual functions is passed through.
    pub(crate) fn passes_function(&self, passed: PassedSetup) -> bool {
        self.vms.iter().any(|vm| vm.devices.contains(&passed))
    }

    /// Whether a device backs virtual NICs or virtual disks.
    pub fn serves_vms(&self, device: usize) -> bool {
        let uplink = |vm: &VmSetup| vm.nic.is_some_and(|nic| nic.uplink == device);
        self.vms.iter().any(|vm| uplink(vm) || vm.disk.as_ref().is_some_and(|disk| disk.drive == device))
    }

    /// Index of the virtual machine with this name, or an error and its remedy.
    pub(crate) fn vm(&self, name: &str) -> Result<usize, (String, String)> {
        self.vms.iter().position(|vm| vm.name == name).ok_or_else(|| {
            let names = crate::suggest::list(self.vms.iter().map(|vm| vm.name.as_str()));
            let help = match names.is_empty() {
                true => "give the host a `[[host.vm]]`".to_owned(),
                false => format!("it has {names}"),
            };
            (format!("`{}` has no virtual machine `{name}`", self.name), help)
        })
    }

    /// Whether its IOMMU translates.
    pub fn translates(&self) -> bool {
        self.iommu.translates()
    }

    /// Whether its drives are reserved for programs.
    pub fn has_user_drives(&self) -> bool {
        self.nvme_driver.as_ref().is_some_and(|driver| driver.user_space == Some(true))
    }

    /// Whether its NICs are reserved for programs.
    pub fn has_user_nics(&self) -> bool {
        let given = self.nic_driver.as_ref().and_then(|driver| driver.user_space.as_ref());
        given.is_some_and(|given| given.value)
    }

    /// Number of cores that its kernel uses.
    pub fn cores(&self) -> u32 {
        let all = self.machine.host.sockets.value.get() * self.machine.host.core.count.value.get();
        self.kernel.scheduler.maxcpus.as_ref().map_or(all, |most| most.value.get().min(all))
    }

    /// The node of a core: sockets have the same number each, in order.
    pub fn node_of(&self, core: u16) -> u8 {
        (u32::from(core) / self.machine.host.core.count.value.get()) as u8
    }

    /// Size of the address range that a borrowed function reaches.
    pub fn reached_by_borrowed(&self) -> Bytes {
        match self.iommu {
            DmaMode::Strict | DmaMode::Lazy => self.dma_window,
            DmaMode::Off | DmaMode::PassThrough => self.machine.host.memory_end(),
        }
    }

    /// An error about this host, at its name in the scenario.
    pub fn complaint(&self, message: impl Into<String>, help: Option<String>) -> Diagnostics {
        let mut diagnostic = Diagnostic::new(&self.place, message);
        diagnostic.help = help;
        Diagnostics::new(vec![diagnostic])
    }
}

/// Loads the file `name` and applies changes.
fn file<T: Kindred>(
    library: &Library,
    name: &Placed<String>,
    changes: Option<&Changes>,
) -> Result<T, Diagnostics> {
    let mut doc = Doc::<T>::load_at(library, &name.value, &name.place)?;
    for changed in changes.iter().flat_map(|changes| &changes.0) {
        doc.lay(changed)?;
    }
    doc.read()
}

fn host(library: &Library, number: usize, entry: &HostEntry) -> Result<HostSetup, Diagnostics> {
    let machine: Machine = file(library, &entry.machine, entry.change.as_ref())?;
    let linux = Placed { value: "linux".to_owned(), place: entry.machine.place.clone() };
    let kernel = file(library, entry.kernel.as_ref().unwrap_or(&linux), entry.change_kernel.as_ref())?;
    let iommu = entry.iommu.as_ref().map_or(DmaMode::Off, |mode| mode.value);
    if let Some(mode) = &entry.iommu
        && mode.value != DmaMode::Off
        && machine.host.iommu.is_none()
    {
        let message = format!("{} has no IOMMU", machine.name);
        return Err(Diagnostics::new(vec![Diagnostic::new(&mode.place, message).help("`off`")]));
    }
    let dma_window = entry.dma_window.as_ref().map_or(DMA_WINDOW, |window| window.value);
    if let Some(given) = &entry.dma_window
        && !(given.value.get().is_power_of_two() && (1 << 20..1 << 40).contains(&given.value.get()))
    {
        let message = format!("a window of {dma_window} is not possible");
        return Err(given.complaint(message, Some("a power of two, 1 MiB at least".into())));
    }
    if let Some(first_too_many) = entry.device.get(MOST) {
        let message = format!("{} devices in a host", entry.device.len());
        let help = format!("at most {MOST}");
        return Err(Diagnostics::new(vec![Diagnostic::new(first_too_many.place(), message).help(help)]));
    }
    let place =
        |number_of_device| DevicePlace { host: (number, &entry.name.value), number: number_of_device };
    let devices = (0..).zip(&entry.device).map(|(n, entry)| DeviceSetup::load(library, entry, place(n)));
    let devices: Vec<DeviceSetup> = devices.collect::<Result<_, _>>()?;
    let switches = entry.switch.iter().map(|entry| PcieSwitchSetup::load(library, entry));
    let switches = switches.collect::<Result<_, _>>()?;
    Ok(HostSetup {
        name: entry.name.value.clone(),
        machine,
        kernel,
        live: entry.live.as_ref().is_some_and(|live| live.value),
        iommu,
        dma_window,
        nic_driver: entry.nic_driver.as_ref().map(|driver| driver.value.clone()),
        nvme_driver: entry.nvme_driver.as_ref().map(|driver| driver.value.clone()),
        switches,
        devices,
        teams: Vec::new(),
        vms: Vec::new(),
        hypervisor: entry.hypervisor.as_ref().map(HypervisorSetup::of),
        routes: Vec::new(),
        interfaces: Vec::new(),
        disks: Vec::new(),
        place: entry.name.place.clone(),
    })
}
