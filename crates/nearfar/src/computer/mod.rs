//! Computers: hosts with kernels, devices in their slots, and programs that run on them.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | from a scenario's files to booted hosts |
//! | `kernel` | from a kernel's file to its parameters |
//! | `device/` | one file for each kind of device: from its file to an endpoint in a slot |
//! | `network` | cables and switches between them, captures |
//! | `traffic` | traffic sources at their ends |
//! | `budget` | what a link to a NIC carried, by kind, beside the analytic model |
//! | `packets` | what a sent packet takes of the link to its NIC, held against the analytic model |
//! | `accounting` | where the cores' time went |
//! | `tree` | what their kernels find, as sysfs shows it |
//! | `programs` | command lines, held against what their hosts have |
//! | `run` | the programs, and what they leave |
//! | `events` | what happens while they run |
//!
//! A new kind of device takes a key of `DeviceEntry` and a variant of `DeviceFile` (crates/machine/src/computer/device.rs), a
//! file in `device/` and a line in [`device::plug`]; its driver a line in [`device::drivers`].

mod accounting;
mod budget;
mod device;
mod events;
mod kernel;
mod network;
mod packets;
mod programs;
mod run;
mod traffic;
mod tree;

use std::collections::BTreeMap;
use std::rc::Rc;

use ::kernel::Kernel;
use devices::nic::NicHandle;
use drivers::team::{Team, TeamParams};
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::ethernet::CableId;
use hardware::link::LinkId;
use hardware::root::HostId;
use hardware::switch::SwitchId;
use machine::{ComputerSetup, Diagnostics, DmaMode};
use network::Captures;
use platform::device::PortIndex;
use platform::kernel::{Kernel as KernelFace, TaskParams};
use platform::pci::PciDriver;
use platform::socket::Route;
use platform::sync::Completion;
use thiserror::Error;
use traffic::TrafficSource;
use wire::pcie::{Bdf, FunctionAddress};

use crate::topology::{self, TopologyError};

pub use ::kernel::SysNode;
pub use accounting::{Account, Accounting};
pub(crate) use device::{nic_driver, nic_driver_params};
pub use packets::{PacketCost, PacketCosts};
pub use programs::check;
pub use run::{Done, Observer, run, run_accounted, run_all, run_watched};
pub use tree::tree;

/// Why computers cannot be simulated.
#[derive(Debug, Error)]
pub enum ComputerError {
    /// The files do not say what is needed.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// The hardware cannot be put together.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There is no room for a drive's blocks.
    #[error("cannot make a temporary file for a drive's blocks: {0}; name one with `backing`, or set TMPDIR")]
    Temporary(std::io::Error),
    /// A capture cannot be written.
    #[error("cannot write the capture {file}: {problem}")]
    Capture {
        /// The file.
        file: String,
        /// What the system says.
        problem: std::io::Error,
    },
    /// A network device does not start.
    #[error("{host}: {device} does not start: {problem}")]
    Network {
        /// Its host.
        host: String,
        /// Its name.
        device: String,
        /// What its driver says.
        problem: platform::Error,
    },
    /// Nothing is left to happen, and yet somebody waits.
    #[error("{0}")]
    Deadlock(#[from] engine::Deadlock),
}

/// Hosts with their kernels, in a simulation.
pub struct Computers {
    // Dropped first: tasks hold what the kernels hold.
    simulation: Simulation<Fabric>,
    hosts: Vec<Computer>,
    captures: Captures,
    sources: Vec<TrafficSource>,
    /// For each host, whose virtual functions are to be enabled: device, port, how many.
    vfs: Vec<Vec<(EndpointId, PortIndex, u16)>>,
    /// The cables between them, in the scenario's order.
    pub cables: Vec<CableId>,
}

/// A host with its kernel.
pub struct Computer {
    /// What the scenario calls it.
    pub name: String,
    /// Its hardware.
    pub host: HostId,
    /// Its kernel.
    pub kernel: Kernel,
    /// Its PCIe switches with the links above them, in the scenario's order.
    pub switches: Vec<(SwitchId, LinkId)>,
    /// What is in its slots, in the scenario's order.
    pub devices: Vec<EndpointId>,
    /// The NICs among them.
    pub nics: Vec<(EndpointId, NicHandle)>,
    /// Network devices that are to be made of others.
    teams: Vec<TeamParams>,
    /// The network devices that it is to have.
    interfaces: Vec<machine::InterfaceSetup>,
    /// The routes that it gives.
    routes: Vec<machine::RouteSetup>,
    /// Network namespaces beside the first, by the device that each has.
    namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
}

impl Computer {
    /// What a program of a namespace sees of the kernel.
    pub fn face(&self, namespace: Option<&str>) -> Rc<dyn KernelFace> {
        match namespace.and_then(|name| self.namespaces.get(name)) {
            Some(face) => Rc::clone(face),
            None => self.kernel.face(),
        }
    }
}

impl Computers {
    /// Puts together what a scenario describes. Nothing has booted yet.
    ///
    /// # Errors
    /// If the files do not fit together.
    pub fn new(setup: &ComputerSetup) -> Result<Self, ComputerError> {
        Self::with_drivers(setup, device::drivers)
    }

    /// As [`new`](Self::new), with other drivers.
    ///
    /// # Errors
    /// If the files do not fit together.
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
            places.push(device::Place::new(id, host));
        }
        places.iter_mut().for_each(|place| place.plug_switches(&mut fabric));
        let mut hosts = Vec::new();
        for (own, host) in setup.hosts.iter().enumerate() {
            let id = places[own].host;
            let plugged = |(n, device): (usize, &machine::DeviceSetup)| {
                let seed = seed_of(host).part(&format!("device{n}"));
                device::plug(&mut fabric, &places, own, (n, device), seed)
            };
            let devices = host.devices.iter().enumerate().map(plugged).collect::<Result<Vec<_>, _>>()?;
            let (devices, nics): (Vec<EndpointId>, Vec<_>) = devices.into_iter().unzip();
            let nics = devices.iter().zip(nics).filter_map(|(&device, nic)| Some((device, nic?))).collect();
            let switches = places[own].switches.iter().flatten().copied().collect();
            hosts.push((host, id, devices, nics, switches));
        }
        let devices: Vec<Vec<EndpointId>> = hosts.iter().map(|(_, _, devices, ..)| devices.clone()).collect();
        let vfs = (0..hosts.len()).map(|host| {
            let found = machine::links_found(&setup.hosts, host).into_iter().map(|at| {
                let vfs = setup.hosts[at.host].devices[at.device].vfs;
                (devices[at.host][at.device], PortIndex(at.link as u8), vfs)
            });
            found.filter(|&(.., vfs)| vfs > 0).collect()
        });
        let vfs = vfs.collect();
        let seed = Seed::new(setup.seed).part("network");
        let sources: Vec<_> = (0..)
            .zip(&setup.sources)
            .map(|(n, source)| TrafficSource::new(&mut fabric, n, source, seed))
            .collect();
        let sinks = (0..).zip(&setup.sinks).map(|(n, sink)| traffic::sink(&mut fabric, n, sink, seed));
        let sinks: Vec<EndpointId> = sinks.collect();
        let ends = network::Ends { devices: &devices, sources: &sources, sinks: &sinks };
        let (cables, captures) = network::connect(&mut fabric, &setup.network, ends, seed)?;
        let simulation = Simulation::new(fabric);
        let boot =
            |(number, (host, id, devices, nics, switches)): (usize, (&machine::HostSetup, _, _, _, _))| {
                let kernel = Kernel::new(&simulation.handle(), id, kernel::params(host)?);
                let programs = setup.programs.iter().filter(|program| program.host == number);
                let names = programs.filter_map(|program| program.namespace.as_ref());
                let namespaces = names.map(|name| (name.value.clone(), kernel.namespace())).collect();
                for driver in drivers(host) {
                    kernel.add_driver(driver);
                }
                let (name, interfaces, routes) =
                    (host.name.clone(), host.interfaces.clone(), host.routes.clone());
                Ok(Computer {
                    name,
                    host: id,
                    kernel,
                    switches,
                    devices,
                    nics,
                    teams: device::teams(host)?,
                    interfaces,
                    routes,
                    namespaces,
                })
            };
        let hosts = hosts.into_iter().enumerate().map(boot).collect::<Result<_, ComputerError>>()?;
        Ok(Self { simulation, hosts, captures, sources, cables, vfs })
    }

    /// Boots all hosts together.
    ///
    /// # Errors
    /// If one of them never finishes.
    pub fn boot(&self) -> Result<(), ComputerError> {
        let booted: Vec<_> = self.hosts.iter().map(|host| host.kernel.boot()).collect();
        self.simulation.block_on(async move {
            for host in booted {
                host.await;
            }
        })?;
        for (host, vfs) in self.hosts.iter().zip(&self.vfs) {
            self.enable_virtual_functions(host, vfs)?;
        }
        self.hosts.iter().try_for_each(|host| self.open_network(host))
    }

    /// Enables the virtual functions that a scenario asks for.
    fn enable_virtual_functions(
        &self,
        host: &Computer,
        vfs: &[(EndpointId, PortIndex, u16)],
    ) -> Result<(), ComputerError> {
        for &(device, port, count) in vfs {
            let functions: Vec<Bdf> = self.simulation.with(|fabric, _| {
                let registers = &fabric.endpoint(device).core.registers;
                registers.physical_below(port).map(|function| registers.id(function)).collect()
            });
            for function in functions {
                let enabled = host.kernel.set_virtual_functions(
                    FunctionAddress { bdf: function, ..FunctionAddress::default() },
                    count,
                );
                self.simulation.block_on(enabled)?.map_err(|problem| ComputerError::Network {
                    host: host.name.clone(),
                    device: function.to_string(),
                    problem,
                })?;
            }
        }
        Ok(())
    }

    /// Makes a host's teams, starts its network devices and adds its routes, as its init would.
    fn open_network(&self, host: &Computer) -> Result<(), ComputerError> {
        for team in &host.teams {
            Team::create(host.kernel.face(), team.clone()).map_err(|problem| {
                let (host, device) = (host.name.clone(), team.name.clone());
                ComputerError::Network { host, device, problem }
            })?;
        }
        for interface in &host.interfaces {
            let (done, name) = (Completion::new(), interface.name.clone());
            let (told, network) = (done.clone(), host.face(Some(&name)).network());
            let (address, prefix) = (interface.address, interface.prefix);
            host.kernel.spawn(TaskParams::named("ifup"), move |cpu| {
                Box::pin(async move { told.complete(network.configure(&cpu, &name, address, prefix).await) })
            });
            self.simulation.block_on(async move { done.wait().await })?.map_err(|problem| {
                ComputerError::Network { host: host.name.clone(), device: interface.name.clone(), problem }
            })?;
        }
        host.routes.iter().try_for_each(|route| {
            let (network, prefix) = route.network.value;
            let (device, gateway) = (route.device.clone(), route.gateway);
            let face = host.face(device.as_deref());
            let added = face.network().add_route(&Route { network, prefix, device, gateway });
            added.map_err(|problem| {
                let message = format!("no route to {network}/{prefix}: {problem}");
                route.network.complaint(message, None).into()
            })
        })
    }

    /// Lets all sources begin now, whatever the scenario says of their start.
    pub fn start_sources(&self) {
        let now = self.simulation.now();
        self.sources.iter().for_each(|source| source.start(&self.simulation, now));
    }

    /// Writes what is left of the captures.
    ///
    /// # Errors
    /// If one of them could not be written.
    pub fn finish_captures(&self) -> Result<(), ComputerError> {
        self.captures.iter().try_for_each(|(file, capture)| {
            let written = capture.borrow_mut().finish();
            written.map(|_| ()).map_err(|problem| ComputerError::Capture { file: file.clone(), problem })
        })
    }

    /// The hosts, in the scenario's order.
    pub fn hosts(&self) -> &[Computer] {
        &self.hosts
    }

    /// The simulation that they live in.
    pub fn simulation(&self) -> &Simulation<Fabric> {
        &self.simulation
    }
}
