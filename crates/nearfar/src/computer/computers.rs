//! Assembled hosts, and what connects them.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::ethernet::CableId;
use hardware::link::LinkId;
use machine::{ComputerSetup, DmaMode};
use platform::device::PortIndex;
use platform::pci::PciDriver;
use wire::pcie::FunctionAddress;

use super::connections::Connections;
use super::device::{self, BlockFiles};
use super::error::ComputerError;
use super::host::{Computer, Earlier, Software};
use super::lending::{self, Borrow};
use super::network::{self, Captures};
use super::passed::functions;
use super::reading::reading;
use super::traffic::{self, PacketGenerator, TrafficSource};
use crate::counters::{Moment, Reading};
use crate::topology;

/// Hosts with their kernels, in a simulation.
#[doc(hidden)]
pub struct Computers {
    // Dropped first, since tasks hold references to the kernels' contents.
    pub(super) simulation: Simulation<Fabric>,
    pub(super) hosts: Vec<Computer>,
    blocks: BlockFiles,
    captures: Captures,
    pub(super) seed: u64,
    pub(super) generators: Vec<PacketGenerator>,
    pub(super) sources: Vec<TrafficSource>,
    pub(super) connections: RefCell<Connections>,
    /// Ethernet cables, in the scenario's order.
    pub cables: Vec<CableId>,
    /// Cables between NTB adapters, in the scenario's order.
    pub ntb_cables: Vec<LinkId>,
    pub(super) borrows: Vec<Borrow>,
}

impl Computers {
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
        let ntb_cables = lending::connect(&mut fabric, setup, &devices);
        let borrows = lending::borrows(setup, &devices);
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

    /// What a host has counted so far.
    pub(super) fn reading(&self, setup: &ComputerSetup, number: usize) -> Reading {
        let now = self.simulation.now();
        let (host, setup) = (&self.hosts[number], &setup.hosts[number]);
        self.simulation.with(|fabric, _| reading(fabric, now, host, setup))
    }

    /// What each host has counted so far, by name.
    pub(super) fn readings(&self, setup: &ComputerSetup) -> Vec<(String, Reading)> {
        let (hosts, now) = (self.hosts.iter().zip(&setup.hosts), self.simulation.now());
        self.simulation.with(|fabric, _| {
            hosts.map(|(host, setup)| (host.name.clone(), reading(fabric, now, host, setup))).collect()
        })
    }

    /// What all hosts have counted so far.
    pub(crate) fn moment(&self, setup: &ComputerSetup) -> Moment {
        Moment::new(self.simulation.now(), self.readings(setup))
    }

    /// Applies changes of connections and power to the hardware.
    pub(super) fn settle(&self) {
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
    pub(super) fn device_of(&self, host: usize, at: FunctionAddress) -> Option<usize> {
        self.device_with(host, at, |fabric, device, link| {
            functions(fabric, device, link).into_iter().any(|bdf| bdf == at.bdf)
        })
    }

    /// The same by the address of one of its virtual functions.
    pub(super) fn device_of_virtual(&self, host: usize, at: FunctionAddress) -> Option<usize> {
        self.device_with(host, at, |fabric, device, link| {
            let registers = &fabric.endpoint(device).core.registers;
            let mut all = registers.physical_below(link).flat_map(|of| registers.virtual_functions(of));
            all.any(|function| registers.id(function) == at.bdf)
        })
    }

    /// A host's device of which a link has a function at an address.
    fn device_with(
        &self,
        host: usize,
        at: FunctionAddress,
        has: impl Fn(&Fabric, EndpointId, PortIndex) -> bool,
    ) -> Option<usize> {
        self.simulation.with(|fabric, _| {
            let is_of = |&device: &EndpointId| {
                let mut links = (0..fabric.endpoint(device).links().count() as u8).map(PortIndex);
                links.any(|link| has(fabric, device, link))
            };
            self.hosts[host].devices.iter().position(is_of).filter(|_| at.segment.0 == 0)
        })
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
