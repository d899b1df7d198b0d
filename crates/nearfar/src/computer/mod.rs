//! Computers: hosts with kernels, devices in their slots, and programs that run on them.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | from a scenario's files to booted hosts |
//! | `kernel` | from a kernel's file to its parameters |
//! | `device/` | one file per kind of device: from its file to an endpoint in a slot |
//! | `kept` | cached results |
//! | `invariants` | what holds for every run |
//! | `network` | Ethernet cables, switches, captures |
//! | `vms` | virtual machines of hosts |
//! | `cluster` | cables between NTB adapters, lending |
//! | `traffic` | traffic sources and sinks |
//! | `budget` | traffic on the link to a NIC by kind, beside the analytic model |
//! | `packets` | link bytes per sent packet, beside the analytic model |
//! | `accounting` | CPU time |
//! | `balance` | sums of the hardware's counters |
//! | `counting` | counters and interrupts while each program ran |
//! | `disturbances` | bit errors, drops and flushes that cost more than one per cent |
//! | `tree` | the kernels' device trees, as in sysfs |
//! | `nvme` | Identify and log pages of drives |
//! | `processes` | the programs' processes, on kernels that events replace |
//! | `found` | what booted kernels have found |
//! | `programs` | command lines, and what they find on their hosts |
//! | `checks` | what a scenario says of kernels, when these have booted |
//! | `rules` | names of network devices, and what happens when they appear |
//! | `scope` | what a program's work goes through |
//! | `run` | running the programs |
//! | `session` | running beside virtual machines |
//! | `events` | events of the scenario |
//! | `warnings` | what kernels lack, and drivers that failed |
//! | `connections` | which hardware is connected and powered |
//!
//! docs/guide/src/add-a-device.md says what a new kind of device needs.

mod accounting;
mod balance;
mod budget;
mod checks;
mod cluster;
mod connections;
mod counting;
mod device;
mod disturbances;
mod events;
mod files;
mod finished;
mod found;
mod invariants;
mod kept;
mod kernel;
mod network;
mod nvme;
mod observer;
mod packets;
mod processes;
mod programs;
mod rogue;
mod rules;
mod run;
mod scope;
mod session;
mod settings;
mod traffic;
mod tree;
mod vms;
mod warnings;

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::rc::Rc;

use ::kernel::Kernel;
use connections::Connections;
use devices::nic::NicHandle;
use drivers::nic::NicDriver;
use drivers::nvme::NvmeDriver;
use drivers::team::TeamParams;
use engine::{Handle, Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::ethernet::CableId;
use hardware::link::LinkId;
use hardware::root::HostId;
use hardware::switch::SwitchId;
use machine::{ComputerSetup, Diagnostics, DmaMode, InterfaceSetup};
use network::Captures;
use platform::device::PortIndex;
use platform::kernel::{Kernel as KernelFace, TaskParams};
use platform::pci::PciDriver;
use platform::socket::{Network, Route};
use platform::sync::Completion;
use rules::{OwnTeam, Rules};
use thiserror::Error;
use traffic::TrafficSource;
use units::Time;
use virt::Vm;
use virt::disk::Vdisk;
use virt::net::{Network as VmNetwork, Vnic};
use virt::placement::Manager;
use wire::pcie::{Bdf, FunctionAddress};

use crate::counters::{Moment, Reading};
use crate::topology::{self, TopologyError};

pub use ::kernel::SysNode;
pub use accounting::Account;
use accounting::{Accounting, Booked};
pub use checks::check;
pub(crate) use checks::disks_of;
#[doc(hidden)]
pub use cluster::Cluster;
use counting::Counting;
pub(crate) use counting::device_names;
pub(crate) use counting::readings;
pub use counting::{Arrival, Counted};
use device::BlockFiles;
#[doc(hidden)]
pub use device::{drivers, nic_driver, nic_driver_params};
pub use files::{SystemFiles, system_files};
pub use finished::{Counts, FinishedProgram, Subject, Warning};
pub(crate) use kept::{is_repeatable, try_kept};
pub use nvme::{NvmePages, nvme_pages};
#[doc(hidden)]
pub use packets::{PacketCost, PacketCosts};
pub use programs::check_syntax;
pub use run::{run, run_all, run_counted};
#[doc(hidden)]
pub use traffic::PacketGenerator;
// Internals of a running simulation, for tests; not part of the public interface.
#[doc(hidden)]
pub use invariants::violations;
#[doc(hidden)]
pub use observer::Observer;
#[doc(hidden)]
pub use run::run_watched;
pub use session::{Session, in_session};
pub use tree::{configuration, tree};
use warnings::Warnings;

/// Why computers cannot be simulated.
#[derive(Debug, Error)]
pub enum ComputerError {
    /// The run was cancelled.
    #[error("the run was given up: nobody waits for it any more")]
    Unwanted,
    /// A file is wrong or incomplete.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// The hardware cannot be assembled.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There is no room for a drive's backing file.
    #[error("cannot make a temporary file for a drive's blocks: {0}; name one with `backing`, or set TMPDIR")]
    Temporary(std::io::Error),
    /// A file with a drive's blocks cannot be read or written.
    #[error("cannot go on with {file}: {problem}; this machine's disk failed, and no simulated drive")]
    Blocks {
        /// What it is.
        file: String,
        /// System error.
        problem: std::io::Error,
    },
    /// A capture cannot be written.
    #[error("cannot write the capture {file}: {problem}")]
    Capture {
        /// Path as in the scenario.
        file: String,
        /// System error.
        problem: std::io::Error,
    },
    /// A network device cannot be started.
    #[error("{host}: {device} does not start: {problem}")]
    Network {
        /// Host name in the scenario.
        host: String,
        /// Device name.
        device: String,
        /// The driver's error.
        problem: platform::Error,
    },
    /// Lending does not work.
    #[error("{host}: lending, {what}: {problem}")]
    Lending {
        /// Host name in the scenario.
        host: String,
        /// The service or the function concerned.
        what: String,
        /// The service's error.
        problem: platform::Error,
    },
    /// Events follow each other without end at the same time.
    #[error(
        "simulated time stands still at {at} while `{running}` runs: something polls without end, because a time or a rate of a \
         file or a change is 0 where it must not be"
    )]
    StandsStill {
        /// The time.
        at: Time,
        /// The programs that have not ended.
        running: String,
    },
    /// Programs that have not ended after the longest time that is simulated.
    #[error(
        "`{running}` has not ended after a simulated day, which is the most: a time, a size or a rate of a file, a change or the \
         command line is out of proportion"
    )]
    TooLong {
        /// The programs that have not ended.
        running: String,
    },
    /// Nothing is left to happen, but a task is still waiting.
    #[error("{0}")]
    Deadlock(#[from] engine::Deadlock),
}

/// Hosts with their kernels, in a simulation.
#[doc(hidden)]
pub struct Computers {
    // Dropped first, since tasks hold references to the kernels' contents.
    simulation: Simulation<Fabric>,
    hosts: Vec<Computer>,
    blocks: BlockFiles,
    captures: Captures,
    seed: u64,
    generators: Vec<PacketGenerator>,
    sources: Vec<TrafficSource>,
    connections: RefCell<Connections>,
    /// Ethernet cables, in the scenario's order.
    pub cables: Vec<CableId>,
    /// Cables between NTB adapters, in the scenario's order.
    pub ntb_cables: Vec<LinkId>,
    borrows: Vec<cluster::Borrow>,
}

/// A host with its kernel.
#[doc(hidden)]
pub struct Computer {
    /// Name in the scenario.
    pub name: String,
    /// Its hardware.
    pub host: HostId,
    /// Its kernel, which is replaced after a crash.
    pub kernel: Rc<Kernel>,
    /// PCIe switches and the links above them, in the scenario's order.
    pub switches: Vec<(SwitchId, LinkId)>,
    /// Devices, in the scenario's order.
    pub devices: Vec<EndpointId>,
    /// For links that can lead to several slots: the link from each slot, the usual one first.
    slots: BTreeMap<(usize, u8), Vec<LinkId>>,
    /// The NICs among the devices.
    pub nics: Vec<(EndpointId, NicHandle)>,
    software: Software,
    /// What was counted with earlier kernels.
    earlier: Earlier,
    /// Network devices made of others.
    teams: Vec<TeamParams>,
    /// Virtual functions to enable: device, port, number.
    vfs: Vec<(EndpointId, PortIndex, u16)>,
    /// Network devices that it should have.
    interfaces: Vec<InterfaceSetup>,
    routes: Vec<machine::RouteSetup>,
}

/// What has been counted with kernels that a host no longer has, and what was reset with them.
#[derive(Default)]
struct Earlier {
    counts: Reading,
    booked: Booked,
}

/// What comes with a kernel, and is replaced with it.
struct Software {
    /// Further network namespaces, by the device that each has.
    namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
    /// Rules for network devices.
    rules: Rc<Rules>,
    /// The driver of the NICs, unless another one was loaded.
    nic_driver: Option<Rc<NicDriver>>,
    /// The driver of the NVMe drives.
    nvme_driver: Option<Rc<NvmeDriver>>,
    /// The lending part, if it has an NTB adapter.
    lending: Option<Rc<cluster::Lending>>,
    /// Its virtual machines.
    vms: Option<vms::HostVms>,
}

impl Software {
    /// For the scenario's `number`th host, with a kernel that was not booted yet. `devices` are those of all hosts.
    fn new(
        setup: &ComputerSetup,
        number: usize,
        simulation: &Simulation<Fabric>,
        drivers: Vec<Rc<dyn PciDriver>>,
        (id, devices): (HostId, &[Vec<EndpointId>]),
    ) -> Result<(Rc<Kernel>, Self), ComputerError> {
        let (host, own) = (&setup.hosts[number], &devices[number]);
        let (nic_driver, nvme_driver) = (driver_of(&drivers), driver_of(&drivers));
        let (vms, drivers) = passing(host, simulation, own, drivers);
        let (lending, drivers) = lending(setup, number, simulation, own, drivers);
        let kernel = Kernel::new(&simulation.handle(), id, kernel::params(host)?);
        let programs = setup.programs.iter().filter(|program| program.host == number);
        let names = programs.filter_map(|program| program.namespace.as_ref());
        let namespaces = names.map(|name| (name.value.clone(), kernel.namespace())).collect();
        drivers.into_iter().for_each(|driver| kernel.add_driver(driver));
        let kernel = Rc::new(kernel);
        let endpoint = |host: usize, device: usize| devices[host][device];
        let rules = Rules::new(simulation.handle(), &kernel, host, &namespaces, endpoint);
        kernel.net().set_rules(Rc::clone(&rules) as _);
        Ok((kernel, Self { namespaces, rules, nic_driver, nvme_driver, lending, vms }))
    }
}

/// The driver of a type among a host's drivers.
fn driver_of<D: PciDriver>(drivers: &[Rc<dyn PciDriver>]) -> Option<Rc<D>> {
    drivers.iter().find_map(|driver| (Rc::clone(driver) as Rc<dyn Any>).downcast().ok())
}

/// The VM part of a host, and its drivers extended by the one for passed-through functions.
fn passing(
    host: &machine::HostSetup,
    simulation: &Simulation<Fabric>,
    devices: &[EndpointId],
    drivers: Vec<Rc<dyn PciDriver>>,
) -> (Option<vms::HostVms>, Vec<Rc<dyn PciDriver>>) {
    match vms::Vms::new(host, &simulation.handle(), devices) {
        None => (None, drivers),
        Some((vms, first)) => {
            let own = vms::HostVms::new(host, vms);
            (Some(own), [first].into_iter().chain(drivers).collect())
        }
    }
}

/// The lending part of a host, and its drivers extended by those for lending.
fn lending(
    setup: &ComputerSetup,
    number: usize,
    simulation: &Simulation<Fabric>,
    devices: &[EndpointId],
    drivers: Vec<Rc<dyn PciDriver>>,
) -> (Option<Rc<cluster::Lending>>, Vec<Rc<dyn PciDriver>>) {
    let own = match setup.hosts[number].live {
        true => None,
        false => cluster::Lending::new(setup, number, &simulation.handle(), devices),
    };
    match own {
        None => (None, drivers),
        Some((lending, [first, last])) => {
            let all = [first].into_iter().chain(drivers).chain([last]).collect();
            (Some(lending), all)
        }
    }
}

impl Computer {
    /// The kernel interface for programs of a namespace.
    pub fn face(&self, namespace: Option<&str>) -> Rc<dyn KernelFace> {
        self.init().face(namespace)
    }

    /// Its virtual machines, in the scenario's order.
    pub fn vms(&self) -> Vec<Rc<Vm>> {
        self.software.vms.as_ref().map(|own| own.running.borrow().clone()).unwrap_or_default()
    }

    /// Networks of its uplinks, in the scenario's order.
    pub fn networks(&self) -> Vec<Rc<VmNetwork>> {
        self.uplinks().into_iter().map(|(_, network)| network).collect()
    }

    /// Networks with the names of their uplinks.
    pub fn uplinks(&self) -> Vec<(String, Rc<VmNetwork>)> {
        self.software.vms.as_ref().map(|own| own.uplinks()).unwrap_or_default()
    }

    /// The manager of its virtual machines.
    pub fn manager(&self) -> Option<Rc<Manager>> {
        self.software.vms.as_ref().and_then(|own| own.manager())
    }

    /// Virtual NICs of its virtual machines, in the scenario's order.
    pub fn vnics(&self) -> Vec<Rc<Vnic>> {
        self.software.vms.as_ref().map(|own| own.vnics.borrow().clone()).unwrap_or_default()
    }

    /// Virtual disks of its virtual machines, in the scenario's order.
    pub fn vdisks(&self) -> Vec<Rc<Vdisk>> {
        self.software.vms.as_ref().map(|own| own.vdisks.borrow().clone()).unwrap_or_default()
    }

    /// Its own kernel, or that of one of its virtual machines; `None` if the host has not started that.
    fn kernel_of(&self, vm: Option<usize>) -> Option<Rc<Kernel>> {
        match vm {
            Some(vm) => self.vms().get(vm).map(|vm| vm.kernel()),
            None => Some(Rc::clone(&self.kernel)),
        }
    }

    /// Halts it and its virtual machines.
    fn halt(&self) {
        self.vms().iter().for_each(|vm| vm.kernel().halt());
        self.kernel.halt();
    }

    /// The NTB adapter used for lending, once the kernel has found it.
    pub fn adapter(&self) -> Option<Rc<drivers::ntb::NtbAdapter>> {
        self.software.lending.as_ref().and_then(|lending| lending.adapter())
    }

    /// Counters of its lending service, if it has one.
    pub fn lent(&self) -> Option<lending::Counters> {
        self.software.lending.as_ref().and_then(|lending| lending.counters())
    }

    /// The steps of its init after boot.
    fn init(&self) -> Init {
        Init {
            host: self.name.clone(),
            kernel: Rc::clone(&self.kernel),
            namespaces: self.software.namespaces.clone(),
            routes: self.routes.clone(),
        }
    }
}

/// The steps of a host's init.
struct Init {
    host: String,
    kernel: Rc<Kernel>,
    namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
    routes: Vec<machine::RouteSetup>,
}

impl Init {
    fn face(&self, namespace: Option<&str>) -> Rc<dyn KernelFace> {
        match namespace.and_then(|name| self.namespaces.get(name)) {
            Some(face) => Rc::clone(face),
            None => self.kernel.face(),
        }
    }

    fn problem(&self, device: &dyn ToString) -> impl FnOnce(platform::Error) -> ComputerError + use<> {
        let (host, device) = (self.host.clone(), device.to_string());
        move |problem| ComputerError::Network { host, device, problem }
    }

    /// Whether the kernel has found a function.
    fn finds(&self, bdf: Bdf) -> bool {
        self.kernel.root_port_of(FunctionAddress { bdf, ..FunctionAddress::default() }).is_some()
    }

    /// Enables virtual functions.
    async fn enable(&self, bdf: Bdf, count: u16) -> Result<(), ComputerError> {
        let at = FunctionAddress { bdf, ..FunctionAddress::default() };
        self.kernel.set_virtual_functions(at, count).await.map_err(self.problem(&bdf))
    }

    /// Creates the teams that have a member.
    fn make(&self, teams: &[TeamParams]) -> Result<Vec<OwnTeam>, ComputerError> {
        let make = |team: &TeamParams| OwnTeam::make(self.face(None), team).map_err(self.problem(&team.name));
        teams.iter().map(make).collect()
    }

    /// Starts a network device; starts at once.
    fn start(&self, interface: &InterfaceSetup) -> impl Future<Output = Result<(), ComputerError>> + use<> {
        let (network, name) = (self.face(Some(&interface.name)).network(), interface.name.clone());
        let started = if_up(&self.kernel, network, name, (interface.address, interface.prefix));
        let problem = self.problem(&interface.name);
        async move { started.wait().await.map_err(problem) }
    }

    fn add_routes(&self) -> Result<(), ComputerError> {
        self.routes.iter().try_for_each(|route| {
            let (network, prefix) = route.network.value;
            let (device, gateway) = (route.device.clone(), route.gateway);
            let face = self.face(device.as_deref());
            let added = face.network().add_route(&Route { network, prefix, device, gateway });
            added.map_err(|problem| {
                let message = format!("no route to {network}/{prefix}: {problem}");
                route.network.complaint(message, None).into()
            })
        })
    }
}

/// A host that boots, with what its init finds and starts.
struct Boot {
    init: Init,
    hw: Handle<Fabric>,
    /// Virtual functions to enable: device, port, number.
    vfs: Vec<(EndpointId, PortIndex, u16)>,
    teams: Vec<TeamParams>,
    interfaces: Vec<InterfaceSetup>,
    rules: Rc<Rules>,
    lending: Option<Rc<cluster::Lending>>,
    /// Whether devices may be missing behind links that are cut.
    lacks_links: bool,
}

/// Boots hosts' kernels at once, and takes all hosts through their inits, step by step. The kernels boot even if the
/// future is dropped.
fn boot(hosts: Vec<Boot>) -> impl Future<Output = Result<(), ComputerError>> {
    let kernels: Vec<_> = hosts.iter().map(|host| host.init.kernel.boot()).collect();
    async move {
        for kernel in kernels {
            kernel.await;
        }
        for host in &hosts {
            host.enable_functions().await?;
        }
        for host in &hosts {
            host.start_network().await?;
        }
        for host in &hosts {
            host.start_lending().await?;
        }
        Ok(())
    }
}

impl Boot {
    async fn enable_functions(&self) -> Result<(), ComputerError> {
        for &(device, link, count) in &self.vfs {
            for function in self.hw.with(|fabric, _| functions(fabric, device, link)) {
                if !self.lacks_links || self.init.finds(function) {
                    self.init.enable(function, count).await?;
                }
            }
        }
        Ok(())
    }

    async fn start_network(&self) -> Result<(), ComputerError> {
        let teams = self.init.make(&self.teams)?;
        for interface in &self.interfaces {
            let is_there = self.init.kernel.net().device(&interface.name).is_some();
            if is_there || !(self.lacks_links || is_awaited(&teams, interface)) {
                self.init.start(interface).await?;
            }
        }
        self.init.add_routes()?;
        self.rules.run(teams);
        Ok(())
    }

    async fn start_lending(&self) -> Result<(), ComputerError> {
        let Some(lending) = &self.lending else { return Ok(()) };
        lending.start(&self.init.kernel).await.map_err(|problem| ComputerError::Lending {
            host: self.init.host.clone(),
            what: "the service".to_owned(),
            problem,
        })
    }
}

/// Whether a network device is that of a team that has no member yet.
fn is_awaited(teams: &[OwnTeam], interface: &InterfaceSetup) -> bool {
    teams.iter().any(|team| team.is_awaited(&interface.name))
}

/// Starts a network device.
fn if_up(
    kernel: &Kernel,
    network: Rc<dyn Network>,
    name: String,
    (address, prefix): (Ipv4Addr, u8),
) -> Completion<Result<(), platform::Error>> {
    let params = TaskParams::named("ifup");
    kernel.run(params, async move |cpu| network.configure(&cpu, &name, address, prefix).await)
}

/// Physical functions behind a device's link.
fn functions(fabric: &Fabric, device: EndpointId, link: PortIndex) -> Vec<Bdf> {
    let registers = &fabric.endpoint(device).core.registers;
    registers.physical_below(link).map(|function| registers.id(function)).collect()
}

impl Computers {
    /// Borrowings between the hosts.
    pub fn cluster(&self) -> cluster::Cluster<'_> {
        cluster::Cluster(self)
    }

    /// Assembles a scenario's hosts, without booting them.
    ///
    /// # Errors
    /// If the files are inconsistent.
    pub fn new(setup: &ComputerSetup) -> Result<Self, ComputerError> {
        if let Some(host) = setup.hosts.iter().find(|host| host.live) {
            let message = format!("host `{}` is live: a virtual machine, which is not simulated", host.name);
            let help = "`nearfar live` starts it, `nearfar serve` serves its devices";
            return Err(host.complaint(message, Some(help.to_owned())).into());
        }
        Self::with_drivers(setup, device::drivers)
    }

    /// As [`new`](Self::new), with other drivers.
    ///
    /// # Errors
    /// If the files are inconsistent.
    pub fn with_drivers(
        setup: &ComputerSetup,
        drivers: impl Fn(&machine::HostSetup) -> Vec<Rc<dyn PciDriver>>,
    ) -> Result<Self, ComputerError> {
        let mut fabric = Fabric::new();
        let seed_of = |host: &machine::HostSetup| Seed::new(setup.seed).part(&host.name);
        let mut places = Vec::new();
        for host in &setup.hosts {
            let id =
                topology::add_host(&mut fabric, &host.machine, host.iommu != DmaMode::Off, seed_of(host))?;
            places.push(device::HostSlots::new(id, host));
        }
        places.iter_mut().for_each(|place| place.plug_switches(&mut fabric));
        let (mut plugged_in, mut devices) = (Vec::new(), Vec::new());
        let blocks = BlockFiles::new(setup.folder.clone());
        for (own, host) in setup.hosts.iter().enumerate() {
            let id = places[own].host;
            let plugged = |(n, device): (usize, &machine::DeviceSetup)| {
                let seed = seed_of(host).part(&format!("device{n}"));
                let node = machine::node(&setup.hosts, own, n);
                device::plug(&mut fabric, &places, own, (n, device, node), &blocks, seed)
            };
            let all = host.devices.iter().enumerate().map(plugged).collect::<Result<Vec<_>, _>>()?;
            let (own_devices, nics): (Vec<EndpointId>, Vec<_>) = all.into_iter().unzip();
            let nics: Vec<_> =
                own_devices.iter().zip(nics).filter_map(|(&device, nic)| Some((device, nic?))).collect();
            let switches: Vec<_> = places[own].switches.iter().flatten().copied().collect();
            let slots = device::other_slots(&mut fabric, &places, host, &own_devices);
            plugged_in.push((id, slots, nics, switches));
            devices.push(own_devices);
        }
        let vfs = (0..plugged_in.len()).map(|host| {
            let found = machine::links_found(&setup.hosts, host).into_iter().map(|at| {
                let vfs = setup.hosts[at.host].devices[at.device].vfs;
                (devices[at.host][at.device], PortIndex(at.link as u8), vfs)
            });
            found.filter(|&(.., vfs)| vfs > 0).collect()
        });
        let vfs: Vec<Vec<_>> = vfs.collect();
        let seed = Seed::new(setup.seed).part("network");
        let sources: Vec<_> = (0..)
            .zip(&setup.sources)
            .map(|(n, source)| TrafficSource::new(&mut fabric, n, source, seed))
            .collect();
        let sinks = (0..).zip(&setup.sinks).map(|(n, sink)| traffic::sink(&mut fabric, n, sink, seed));
        let sinks: Vec<EndpointId> = sinks.collect();
        let generators = (0..).zip(&setup.generators);
        let generators: Vec<_> =
            generators.map(|(n, setup)| PacketGenerator::new(&mut fabric, n, setup)).collect();
        let ends =
            network::Ends { devices: &devices, sources: &sources, sinks: &sinks, generators: &generators };
        let (cables, captures) = network::connect(&mut fabric, (&setup.network, &setup.folder), ends, seed)?;
        let ntb_cables = cluster::connect(&mut fabric, setup, &devices);
        let borrows = cluster::borrows(setup, &devices);
        let simulation = Simulation::new(fabric);
        let mut hosts = Vec::new();
        for (number, ((host, slots, nics, switches), vfs)) in plugged_in.into_iter().zip(vfs).enumerate() {
            let own = &setup.hosts[number];
            let (kernel, software) =
                Software::new(setup, number, &simulation, drivers(own), (host, &devices))?;
            hosts.push(Computer {
                name: own.name.clone(),
                host,
                kernel,
                software,
                earlier: Earlier::default(),
                switches,
                devices: devices[number].clone(),
                slots,
                nics,
                teams: device::teams(own)?,
                vfs,
                interfaces: own.interfaces.clone(),
                routes: own.routes.clone(),
            });
        }
        let connections = RefCell::new(Connections::new(setup));
        Ok(Self {
            simulation,
            hosts,
            blocks,
            captures,
            sources,
            generators,
            seed: setup.seed,
            connections,
            cables,
            ntb_cables,
            borrows,
        })
    }

    /// Creates and boots a new kernel on a host whose power has returned. Resolves when its network devices are up;
    /// the kernel boots even if the future is dropped.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn boot_again(
        &mut self,
        setup: &ComputerSetup,
        number: usize,
    ) -> Result<impl Future<Output = Result<(), ComputerError>> + use<>, ComputerError> {
        let (id, now) = (self.hosts[number].host, self.simulation.now());
        let before = self.reading(setup, number);
        let booked = Booked::of(&self.hosts[number], now).ended();
        self.simulation.with(|fabric, _| fabric.host_mut(id).reset());
        let devices: Vec<_> = self.hosts.iter().map(|host| host.devices.clone()).collect();
        let drivers = device::drivers(&setup.hosts[number]);
        // Its virtual machines are not restarted, and keep their functions.
        let (kernel, software) = Software::new(setup, number, &self.simulation, drivers, (id, &devices))?;
        (self.hosts[number].kernel, self.hosts[number].software) = (kernel, software);
        self.hosts[number].earlier = Earlier::default();
        let counts = Reading::forgotten(&before, &self.reading(setup, number));
        self.hosts[number].earlier = Earlier { counts, booked };
        Ok(boot(vec![self.to_boot(&self.hosts[number])]))
    }

    /// What a host has counted so far.
    fn reading(&self, setup: &ComputerSetup, number: usize) -> Reading {
        let now = self.simulation.now();
        let (host, setup) = (&self.hosts[number], &setup.hosts[number]);
        self.simulation.with(|fabric, _| counting::reading(fabric, now, host, setup))
    }

    /// What each host has counted so far, by name.
    fn readings(&self, setup: &ComputerSetup) -> Vec<(String, Reading)> {
        let (hosts, now) = (self.hosts.iter().zip(&setup.hosts), self.simulation.now());
        self.simulation.with(|fabric, _| {
            hosts
                .map(|(host, setup)| (host.name.clone(), counting::reading(fabric, now, host, setup)))
                .collect()
        })
    }

    /// What all hosts have counted so far.
    pub(crate) fn moment(&self, setup: &ComputerSetup) -> Moment {
        Moment::new(self.simulation.now(), self.readings(setup))
    }

    /// Boots all hosts in parallel.
    ///
    /// # Errors
    /// If a host does not finish booting.
    pub fn boot(&self) -> Result<(), ComputerError> {
        let booted = self.boot_all();
        self.check_blocks()?;
        booted
    }

    fn boot_all(&self) -> Result<(), ComputerError> {
        self.simulation.with(|fabric, scheduler| {
            let slots = self.hosts.iter().flat_map(|host| host.slots.values());
            slots.flat_map(|slots| &slots[1..]).for_each(|&empty| fabric.running(scheduler).pull(empty));
        });
        self.settle();
        let hosts = self.hosts.iter().map(|host| self.to_boot(host)).collect();
        self.simulation.block_on(boot(hosts))??;
        self.cluster().start_borrowings(|borrow| borrow.vm.is_none())?;
        vms::start(self)
    }

    /// A host that is to boot now.
    fn to_boot(&self, host: &Computer) -> Boot {
        let absent = self.absent();
        Boot {
            init: host.init(),
            hw: self.simulation.handle(),
            vfs: host.vfs.iter().filter(|(device, ..)| !absent.contains(device)).copied().collect(),
            teams: host.teams.clone(),
            interfaces: self.present(host),
            rules: Rc::clone(&host.software.rules),
            lending: host.software.lending.clone(),
            lacks_links: self.connections.borrow().has_cut_slots(),
        }
    }

    /// Applies changes of connections and power to the hardware.
    fn settle(&self) {
        let cables = (&self.cables[..], &self.ntb_cables[..]);
        self.connections.borrow_mut().settle(&self.simulation, &self.hosts, cables);
    }

    /// Unplugs a device or plugs it back in.
    pub fn set_present(&self, device: (usize, usize), present: bool) {
        match present {
            true => self.connections.borrow_mut().out.remove(&device),
            false => self.connections.borrow_mut().out.insert(device),
        };
        self.settle();
    }

    /// Connects a device's link to another of its slots.
    pub(crate) fn assign(&self, (host, device, link): (usize, usize, u8), slot: usize) {
        let of = &self.hosts[host];
        // With a single slot, the link already leads there.
        let Some(&to) = of.slots.get(&(device, link)).and_then(|slots| slots.get(slot)) else { return };
        self.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).assign_path(of.devices[device], PortIndex(link), to);
        });
    }

    /// A host's device by the address of one of its physical functions in the kernel; `None` if it is not the host's own.
    fn device_of(&self, host: usize, at: FunctionAddress) -> Option<usize> {
        let devices = &self.hosts[host].devices;
        self.simulation.with(|fabric, _| {
            let has = |&device: &EndpointId| {
                let links = (0..fabric.endpoint(device).links().count() as u8).map(PortIndex);
                links.flat_map(|link| functions(fabric, device, link)).any(|bdf| bdf == at.bdf)
            };
            devices.iter().position(has).filter(|_| at.segment.0 == 0)
        })
    }

    /// Devices without power, or out of their slots.
    fn absent(&self) -> BTreeSet<EndpointId> {
        let connections = self.connections.borrow();
        let all = self.hosts.iter().enumerate().flat_map(|(n, host)| {
            host.devices.iter().enumerate().map(move |(device, &id)| ((n, device), id))
        });
        all.filter(|(device, _)| !connections.has_power(*device)).map(|(_, id)| id).collect()
    }

    /// Network devices of a host whose hardware is present, and teams, whose members may be.
    fn present(&self, host: &Computer) -> Vec<InterfaceSetup> {
        let connections = self.connections.borrow();
        let is_there = |interface: &&InterfaceSetup| {
            let is_team = host.teams.iter().any(|team| team.name == interface.name);
            // Borrowed devices are started when they appear.
            interface.segment == 0 && (is_team || connections.has_power((interface.port.0, interface.port.1)))
        };
        host.interfaces.iter().filter(is_there).cloned().collect()
    }

    /// Packet generators, in the scenario's order.
    pub fn generators(&self) -> &[PacketGenerator] {
        &self.generators
    }

    /// Starts all sources and generators now, regardless of the scenario.
    pub fn start_sources(&self) {
        let now = self.simulation.now();
        self.generators.iter().for_each(|generator| generator.start(&self.simulation));
        self.sources.iter().for_each(|source| source.start(&self.simulation, now));
    }

    /// Whether a file with a drive's blocks has failed.
    pub(crate) fn have_blocks_failed(&self) -> bool {
        self.blocks.have_failed()
    }

    /// Ends a run in which a file with a drive's blocks has failed.
    ///
    /// # Errors
    /// The first fault of such a file.
    pub(crate) fn check_blocks(&self) -> Result<(), ComputerError> {
        self.blocks.check()
    }

    /// Finishes all captures.
    ///
    /// # Errors
    /// If a capture cannot be written.
    pub fn finish_captures(&self) -> Result<(), ComputerError> {
        self.captures.iter().try_for_each(|(file, capture)| {
            let file = || file.display().to_string();
            capture.finish().map_err(|problem| ComputerError::Capture { file: file(), problem })
        })
    }

    /// The hosts, in the scenario's order.
    pub fn hosts(&self) -> &[Computer] {
        &self.hosts
    }

    /// The simulation of the hosts.
    pub fn simulation(&self) -> &Simulation<Fabric> {
        &self.simulation
    }
}
