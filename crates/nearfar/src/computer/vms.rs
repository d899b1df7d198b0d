//! Virtual machines of hosts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ::kernel::{BlockDevice, DmaMode, DmaParams, Kernel};
use engine::{Handle, Seed};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::{Figure, HostSetup, HypervisorSetup, Placement, VmSetup};
use platform::cpu::{CpuId, Node};
use platform::device::PortIndex;
use platform::pci::{PciDevice, PciDriver};
use virt::disk::{Storage, Vdisk};
use virt::net::{Network, Vnic};
use virt::placement::{Client, IoThreads, Managed, Manager, Policy, Scheduler, Thresholds};
use virt::{GuestNode, InterruptSupport, Vfio, Vm, VmParams};

use super::error::ComputerError;
use super::kernel;
use super::passed::{Passed, functions};

/// Initially empty slots of a guest, for functions that it borrows at run time (assumed: as many as device managers
/// leave free).
const HOT_SLOTS: u8 = 4;

/// The VM part of a host before its kernel runs.
pub(super) struct Vms {
    /// The driver that claims functions to pass through.
    pub vfio: Rc<Vfio>,
    /// Passed-through devices of each virtual machine.
    passed: Vec<Vec<Passed>>,
}

impl Vms {
    /// For a host with virtual machines; its driver goes before all others.
    pub fn new(
        host: &HostSetup,
        hw: &Handle<Fabric>,
        devices: &[EndpointId],
    ) -> Option<(Self, Rc<dyn PciDriver>)> {
        if host.vms.is_empty() {
            return None;
        }
        let of = |vm: &VmSetup| {
            vm.devices.iter().map(|&passed| Passed::new(host, devices, passed)).collect::<Vec<_>>()
        };
        let passed: Vec<_> = host.vms.iter().map(of).collect();
        let (hw, all) = (hw.clone(), passed.concat());
        let vfio = Vfio::new(move |at| {
            let is_of = |passed: &Passed| hw.with(|fabric, _| passed.functions(fabric).contains(&at.bdf));
            at.segment == Default::default() && all.iter().any(is_of)
        });
        Some((Self { vfio: Rc::clone(&vfio), passed }, vfio as _))
    }

    /// Functions of a virtual machine, in the scenario's order.
    pub fn functions(&self, hw: &Handle<Fabric>, vm: usize) -> Vec<PciDevice> {
        let of = |passed: &Passed| {
            let here = hw.with(|fabric, _| passed.functions(fabric));
            self.vfio.claimed().into_iter().filter(move |claimed| here.contains(&claimed.address().bdf))
        };
        self.passed[vm].iter().flat_map(of).collect()
    }
}

/// Parameters of a virtual machine: kernel parameters of the host, without an IOMMU.
pub(super) fn params(host: &HostSetup, vm: &VmSetup) -> Result<VmParams, ComputerError> {
    let own = kernel::params(host)?;
    let dma = DmaParams { low_first: own.dma.low_first, ..DmaParams::linux(DmaMode::Off) };
    Ok(VmParams {
        name: vm.name.clone(),
        vcpus: vm.vcpus.iter().map(|&core| cores(host, vm, core)).collect(),
        nodes: vec![GuestNode { memory: vm.memory, host: Node(vm.node) }],
        slots: HOT_SLOTS,
        pin_limit: None,
        interrupts: interrupts(host),
        costs: kernel::virt_costs(host)?,
        kernel: ::kernel::KernelParams { dma, ..own },
    })
}

/// Hardware support for guests' interrupts; an IOMMU alone is not enough.
fn interrupts(host: &HostSetup) -> InterruptSupport {
    let is_set = |figure: Option<&Figure<bool>>| figure.is_some_and(|figure| figure.value);
    let machine = &host.machine.host;
    let posts = machine.iommu.as_ref().and_then(|iommu| iommu.posts_interrupts.as_ref());
    match is_set(machine.core.virtual_interrupts.as_ref()) {
        true if is_set(posts) => InterruptSupport::Posted,
        true => InterruptSupport::Virtual,
        false => InterruptSupport::Software,
    }
}

/// Host cores for a vCPU: its own, or all of the home node if the machine is scheduled.
fn cores(host: &HostSetup, vm: &VmSetup, own: u16) -> Vec<CpuId> {
    if host.hypervisor.is_none_or(|hypervisor| hypervisor.placement == Placement::Fixed) {
        return vec![CpuId(own)];
    }
    let each = host.machine.host.core.count.value.get() as u16;
    (0..each).map(|n| CpuId(u16::from(vm.node) * each + n)).collect()
}

/// Virtual devices of a machine, with the numbers of the host devices.
pub(super) type Served = Vec<(usize, Rc<dyn Client>)>;

/// The virtual machines of a host.
pub(super) struct HostVms {
    pub setup: HostSetup,
    pub vms: Vms,
    pub running: RefCell<Vec<Rc<Vm>>>,
    /// Networks by the number of the uplink.
    networks: RefCell<BTreeMap<usize, Rc<Network>>>,
    /// Storages by the number of the drive.
    storages: RefCell<BTreeMap<usize, Rc<Storage>>>,
    /// Virtual devices of each machine.
    pub served: RefCell<Vec<Served>>,
    pub vnics: RefCell<Vec<Rc<Vnic>>>,
    pub vdisks: RefCell<Vec<Rc<Vdisk>>>,
    manager: RefCell<Option<Rc<Manager>>>,
}

/// The policy of a manager; `None` if there is none, and everything stays where the scenario has it.
pub fn policy(placement: Placement) -> Option<Policy> {
    match placement {
        Placement::Fixed => None,
        Placement::Blind => Some(Policy::Blind),
        Placement::Numa => Some(Policy::Numa),
        Placement::Local => Some(Policy::Local),
    }
}

impl HostVms {
    /// Starts the manager that schedules virtual machines of the host with this kernel, if the scenario has one.
    pub fn manage(&self, host: &Rc<Kernel>, seed: Seed) {
        let Some(HypervisorSetup { placement, period }) = self.setup.hypervisor else { return };
        let Some(policy) = policy(placement) else { return };
        let (networks, storages) = (self.networks.borrow(), self.storages.borrow());
        let networks = networks.iter().map(|(&device, own)| (device, Rc::clone(own) as Rc<dyn IoThreads>));
        let storages = storages.iter().map(|(&device, own)| (device, Rc::clone(own) as _));
        let (numbers, devices): (Vec<usize>, Vec<_>) = networks.chain(storages).unzip();
        let (running, served) = (self.running.borrow(), self.served.borrow());
        let vms = self.setup.vms.iter().zip(&*running).zip(&*served).map(|((setup, vm), served)| {
            let io = served.iter().filter_map(|(device, client)| {
                Some((numbers.iter().position(|number| number == device)?, Rc::clone(client)))
            });
            let io = io.collect();
            Managed::new(Rc::clone(vm), setup.memory, Node(setup.node), io)
        });
        let scheduler = Scheduler::new(policy, Thresholds::usual(), seed.component("placement"));
        let manager = Manager::start(host, devices, vms.collect(), scheduler, period);
        *self.manager.borrow_mut() = Some(manager);
    }

    pub fn new(setup: &HostSetup, vms: Vms) -> Self {
        Self {
            setup: setup.clone(),
            vms,
            running: RefCell::default(),
            networks: RefCell::default(),
            storages: RefCell::default(),
            served: RefCell::default(),
            vnics: RefCell::default(),
            vdisks: RefCell::default(),
            manager: RefCell::default(),
        }
    }

    /// The network of an uplink, created on first use.
    pub fn network(&self, host: &Rc<Kernel>, uplink: usize) -> Result<Rc<Network>, ComputerError> {
        if let Some(network) = self.networks.borrow().get(&uplink) {
            return Ok(Rc::clone(network));
        }
        let mut interfaces = self.setup.interfaces.iter();
        let own = interfaces.find(|interface| (interface.port.1, interface.port.2) == (uplink, 0));
        let device = own.map_or_else(String::new, |interface| interface.name.clone());
        let network = Network::new(host, &device, kernel::vhost_costs(&self.setup)?);
        let host = self.setup.name.clone();
        let network = network.map_err(|problem| ComputerError::Network { host, device, problem })?;
        self.networks.borrow_mut().insert(uplink, Rc::clone(&network));
        Ok(network)
    }

    /// The storage of a drive, the device `endpoint`, created on first use.
    pub fn storage(
        &self,
        host: &Rc<Kernel>,
        hw: &Handle<Fabric>,
        (drive, endpoint): (usize, EndpointId),
        vm: &VmSetup,
    ) -> Result<Rc<Storage>, ComputerError> {
        if let Some(storage) = self.storages.borrow().get(&drive) {
            return Ok(Rc::clone(storage));
        }
        let own = hw.with(|fabric, _| functions(fabric, endpoint, PortIndex(0)));
        let is_its = |device: &Rc<BlockDevice>| device.function().is_some_and(|at| own.contains(&at.bdf));
        let device = host.block().devices().into_iter().find(is_its);
        let device = device.ok_or_else(|| vm.complaint("the host has no disk of the drive", None))?;
        let storage = Storage::new(host, device, kernel::vhost_costs(&self.setup)?);
        self.storages.borrow_mut().insert(drive, Rc::clone(&storage));
        Ok(storage)
    }

    /// Networks with the names of their uplinks.
    pub fn uplinks(&self) -> Vec<(String, Rc<Network>)> {
        let name = |uplink: usize| self.setup.devices[uplink].name.clone().unwrap_or_default();
        self.networks.borrow().iter().map(|(&uplink, network)| (name(uplink), Rc::clone(network))).collect()
    }

    /// The manager that schedules the machines.
    pub fn manager(&self) -> Option<Rc<Manager>> {
        self.manager.borrow().clone()
    }
}
