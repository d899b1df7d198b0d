//! Computers: hosts with kernels, devices in their slots, and programs that run on them.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | from a scenario's files to booted hosts |
//! | `kernel` | from a kernel's file to its parameters |
//! | `device/` | one file for each kind of device: from its file to an endpoint in a slot |
//! | `run` | the programs, and what they leave |
//!
//! A new kind of device takes a key of `DeviceEntry` and a variant of `DeviceFile` (crates/machine/src/computer.rs), a
//! file in `device/` and a line in [`device::plug`]; its driver a line in [`device::drivers`].

mod device;
mod kernel;
mod run;

use ::kernel::Kernel;
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use machine::{ComputerSetup, Diagnostics, DmaMode};
use thiserror::Error;

use crate::topology::{self, TopologyError};

pub use run::{Done, check, run};

/// Why computers cannot be simulated.
#[derive(Debug, Error)]
pub enum ComputerError {
    /// The files do not say what is needed.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// The hardware cannot be put together.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Nothing is left to happen, and yet somebody waits.
    #[error("{0}")]
    Deadlock(#[from] engine::Deadlock),
}

/// Hosts with their kernels, in a simulation.
pub struct Computers {
    // Dropped first: tasks hold what the kernels hold.
    simulation: Simulation<Fabric>,
    hosts: Vec<Computer>,
}

/// A host with its kernel.
pub struct Computer {
    /// What the scenario calls it.
    pub name: String,
    /// Its hardware.
    pub host: HostId,
    /// Its kernel.
    pub kernel: Kernel,
    /// What is in its slots, in the scenario's order.
    pub devices: Vec<EndpointId>,
}

impl Computers {
    /// Puts together what a scenario describes. Nothing has booted yet.
    ///
    /// # Errors
    /// If the files do not fit together.
    pub fn new(setup: &ComputerSetup) -> Result<Self, ComputerError> {
        let mut fabric = Fabric::new();
        let mut hosts = Vec::new();
        for host in &setup.hosts {
            let seed = Seed::new(setup.seed).part(&host.name);
            let id = topology::add_host(&mut fabric, &host.machine, host.iommu != DmaMode::Off, seed)?;
            let plugged = |(n, device)| {
                device::plug(&mut fabric, id, &host.machine.host, device, seed.part(&format!("device{n}")))
            };
            let devices = host.devices.iter().enumerate().map(plugged).collect::<Result<Vec<_>, _>>()?;
            hosts.push((host, id, devices));
        }
        let simulation = Simulation::new(fabric);
        let boot = |(host, id, devices): (&machine::HostSetup, _, _)| {
            let kernel = Kernel::new(&simulation.handle(), id, kernel::params(host)?);
            for driver in device::drivers() {
                kernel.add_driver(driver);
            }
            Ok(Computer { name: host.name.clone(), host: id, kernel, devices })
        };
        let hosts = hosts.into_iter().map(boot).collect::<Result<_, ComputerError>>()?;
        Ok(Self { simulation, hosts })
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
        Ok(())
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
