//! A host: hardware, kernel, and what comes with the kernel.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;

use ::kernel::Kernel;
use devices::nic::NicHandle;
use drivers::nic::NicDriver;
use drivers::nvme::NvmeDriver;
use drivers::team::TeamParams;
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::link::LinkId;
use hardware::root::HostId;
use hardware::switch::SwitchId;
use machine::{ComputerSetup, InterfaceSetup};
use platform::device::PortIndex;
use platform::kernel::Kernel as KernelFace;
use platform::pci::PciDriver;
use units::Time;
use virt::Vm;
use virt::disk::Vdisk;
use virt::net::{Network as VmNetwork, Vnic};
use virt::placement::Manager;

use super::booked::Booked;
use super::error::ComputerError;
use super::init::Init;
use super::kernel;
use super::lending::Lending;
use super::rules::Rules;
use super::vms::{HostVms, Vms};
use crate::counters::Reading;

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
    pub(super) slots: BTreeMap<(usize, u8), Vec<LinkId>>,
    /// The NICs among the devices.
    pub nics: Vec<(EndpointId, NicHandle)>,
    pub(super) software: Software,
    /// What was counted with earlier kernels.
    pub(super) earlier: Earlier,
    /// Network devices made of others.
    pub(super) teams: Vec<TeamParams>,
    /// Virtual functions to enable: device, port, number.
    pub(super) vfs: Vec<(EndpointId, PortIndex, u16)>,
    /// Network devices that it should have.
    pub(super) interfaces: Vec<InterfaceSetup>,
    pub(super) routes: Vec<machine::RouteSetup>,
}

/// What has been counted with kernels that a host no longer has, and what was reset with them.
#[derive(Default)]
pub(super) struct Earlier {
    pub counts: Reading,
    pub booked: Booked,
}

/// What comes with a kernel, and is replaced with it.
pub(super) struct Software {
    /// Further network namespaces, by the device that each has.
    pub namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
    /// Rules for network devices.
    pub rules: Rc<Rules>,
    /// The driver of the NICs, unless another one was loaded.
    pub nic_driver: Option<Rc<NicDriver>>,
    /// The driver of the NVMe drives.
    pub nvme_driver: Option<Rc<NvmeDriver>>,
    /// The lending part, if it has an NTB adapter.
    pub lending: Option<Rc<Lending>>,
    /// Its virtual machines.
    pub vms: Option<HostVms>,
}

impl Software {
    /// For the scenario's `number`th host, with a kernel that was not booted yet. `devices` are those of all hosts.
    pub fn new(
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
) -> (Option<HostVms>, Vec<Rc<dyn PciDriver>>) {
    match Vms::new(host, &simulation.handle(), devices) {
        None => (None, drivers),
        Some((vms, first)) => {
            let own = HostVms::new(host, vms);
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
) -> (Option<Rc<Lending>>, Vec<Rc<dyn PciDriver>>) {
    let own = match setup.hosts[number].live {
        true => None,
        false => Lending::new(setup, number, &simulation.handle(), devices),
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
    pub(super) fn kernel_of(&self, vm: Option<usize>) -> Option<Rc<Kernel>> {
        match vm {
            Some(vm) => self.vms().get(vm).map(|vm| vm.kernel()),
            None => Some(Rc::clone(&self.kernel)),
        }
    }

    /// CPU time accounted up to now.
    pub(super) fn booked(&self, now: Time) -> Booked {
        Booked::of(&self.kernel, &self.teams, &self.earlier.booked, now)
    }

    /// Halts it and its virtual machines.
    pub(super) fn halt(&self) {
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
    pub(super) fn init(&self) -> Init {
        Init {
            host: self.name.clone(),
            kernel: Rc::clone(&self.kernel),
            namespaces: self.software.namespaces.clone(),
            routes: self.routes.clone(),
        }
    }
}
