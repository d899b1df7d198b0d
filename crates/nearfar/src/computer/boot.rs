//! Booting hosts, at first and again.

use std::collections::BTreeSet;
use std::rc::Rc;

use drivers::team::TeamParams;
use engine::Handle;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::{ComputerSetup, InterfaceSetup};
use platform::device::PortIndex;

use super::computers::Computers;
use super::error::ComputerError;
use super::host::{Computer, Earlier, Software};
use super::init::Init;
use super::lending::Lending;
use super::passed::functions;
use super::rules::{OwnTeam, Rules};
use super::{device, guests};
use crate::counters::Reading;

impl Computers {
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
        guests::start(self)
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

    /// Creates and boots a new kernel on a host whose power has returned. Resolves when its network devices are up;
    /// the kernel boots even if the future is dropped.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn boot_again(
        &mut self,
        setup: &ComputerSetup,
        number: usize,
    ) -> Result<impl Future<Output = Result<(), ComputerError>> + use<>, ComputerError> {
        let (id, now) = (self.hosts[number].host, self.simulation.now());
        let before = self.reading(setup, number);
        let booked = self.hosts[number].booked(now).ended();
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
    lending: Option<Rc<Lending>>,
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
