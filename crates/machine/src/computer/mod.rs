//! Scenarios with computers: hosts, their devices, and the programs that run on them.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | a scenario with the files that it refers to |
//! | `entry` | the scenario and its hosts as a file describes them |
//! | `setup` | what is resolved of a host |
//! | `place` | where devices and switches are plugged in |
//! | `device` | devices in a host's slots |
//! | `slot` | slots and links |
//! | `interface` | network devices, with the names and addresses that they get |
//! | `vm` | virtual machines |
//! | `hypervisor` | scheduling of virtual machines |
//! | `team` | stacked network devices |
//! | `live` | hosts that are virtual machines with a real Linux |
//! | `fit` | checks of drivers' settings against devices |

mod device;
mod entry;
mod fit;
mod hypervisor;
mod interface;
mod live;
mod place;
mod riser;
mod setup;
mod slot;
mod team;
mod vm;

use crate::cluster::ClusterSetup;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc::Doc;
use crate::event::{EventSetup, Surroundings};
use crate::host::Machine;
use crate::kernel_names::{self, KernelDevices, KernelName};
use crate::library::Library;
use crate::network::{NetworkSetup, Stations};
use crate::placed::Placed;
use crate::program::ProgramSetup;
use crate::traffic::{GeneratorSetup, SinkSetup, SourceSetup};
pub use settings::{DmaMode, TeamMode};
use units::Bytes;

use files::Folder;

pub(crate) use device::device_kinds;
use device::file;
pub use device::{DeviceEntry, DeviceFile, DeviceModel, DevicePlace, DeviceSetup, DiskSetup, DriveSetup};
use entry::MOST;
pub use entry::{ComputerScenario, HostEntry};
pub use hypervisor::{HypervisorEntry, HypervisorSetup, Placement};
pub use place::{FoundLink, LinkEntry, LinkSetup, PassedSetup, PcieSwitchEntry, SlotSetup};
pub use riser::RiserEntry;
pub use setup::{
    HostSetup, InterfaceSetup, PcieSwitchSetup, RouteSetup, TeamSetup, VirtualNicSetup, VmSetup,
};
pub use slot::links_found;
pub use team::TeamEntry;
pub(crate) use team::sockets_of;
pub use vm::VmEntry;

/// Default range for borrowed functions: more than drivers map at a time.
const DMA_WINDOW: Bytes = Bytes::gib(1);

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
    /// Names that only kernels give.
    pub kernel_names: Vec<KernelName>,
    /// What is possible, and perhaps not meant.
    pub doubts: Vec<Diagnostic>,
    /// Where the files that it names are written: its own folder, the current one for a built-in scenario.
    pub folder: Folder,
}

impl ComputerSetup {
    /// The same without files of its own: it writes no captures, and its drives keep nothing.
    #[must_use]
    pub fn without_files(&self) -> Self {
        let mut setup = self.clone();
        setup.network.captures.clear();
        device::keep_nothing(setup.hosts.iter_mut().flat_map(|host| &mut host.devices));
        setup
    }

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
        for host in &mut scenario.host {
            riser::resolve(&host.riser, &mut host.device, &mut wrong);
        }
        let mut hosts: Vec<HostSetup> =
            (0..).zip(&scenario.host).map(|(n, entry)| host(library, n, entry)).collect::<Result<_, _>>()?;
        slot::place(&scenario.host, &mut hosts, &mut wrong, &mut doubts);
        if !wrong.is_empty() {
            return Err(Diagnostics::new(wrong));
        }
        device::shared_backings(hosts.iter().flat_map(|host| &host.devices), &mut wrong);
        let cluster = (&scenario.cluster_switch[..], &scenario.ntb_cable[..], &scenario.borrow[..]);
        let vms: Vec<_> = scenario.host.iter().map(|host| &host.vm[..]).collect();
        vm::find(&vms, &mut hosts, &mut wrong);
        let cluster = ClusterSetup::find(library, &hosts, cluster, &mut wrong)?;
        interface::find(&mut hosts, &scenario.program, &cluster);
        live::settle(&scenario, &mut hosts, &mut wrong);
        let teams: Vec<_> = scenario.host.iter().map(|host| &host.team[..]).collect();
        team::find(&teams, &mut hosts, &mut wrong, &mut doubts);
        for (number, entry) in scenario.host.iter().enumerate() {
            fit::check(entry, (&hosts, number), &cluster, &mut wrong);
            hosts[number].routes = crate::route::routes(&entry.route, &hosts[number].interfaces, &mut wrong);
        }
        let programs: Vec<_> = scenario
            .program
            .iter()
            .filter_map(|entry| ProgramSetup::find((library, &own), &hosts, entry, &mut wrong))
            .collect();
        let (switches, cables) = (&scenario.switch, &scenario.cable);
        let ports: Vec<_> =
            hosts.iter().flat_map(|host| &host.devices).flat_map(|device| &device.ports).collect();
        crate::port::check(&ports, hosts.len(), &mut wrong);
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
        team::check_channels(&teams, &hosts, &network, &mut wrong);
        // Events refer to everything else, so they are resolved last.
        if !wrong.is_empty() {
            return Err(Diagnostics::new(wrong));
        }
        let around =
            Surroundings { stations, switches, network: &network, cluster: &cluster, programs: &programs };
        let events: Vec<_> =
            scenario.event.iter().filter_map(|entry| EventSetup::find(&around, entry, &mut wrong)).collect();
        if !wrong.is_empty() {
            return Err(Diagnostics::new(wrong));
        }
        let kernel_names = scenario.event.iter().zip(&events).filter_map(KernelName::of_event).collect();
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
            kernel_names,
            doubts,
            folder,
        })
    }

    /// Checks the names that only kernels give. `devices` are those of each host.
    ///
    /// # Errors
    /// All names that are wrong.
    pub fn check_kernel_names(&self, devices: &[KernelDevices]) -> Result<(), Diagnostics> {
        kernel_names::check(&self.kernel_names, &self.hosts, devices)
    }
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
    let switches = entry.switch.iter().map(|entry| slot::load_switch(library, entry));
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
        place: entry.name.place.clone(),
    })
}
