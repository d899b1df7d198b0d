//! Virtual machines of hosts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ::kernel::{BlockDevice, DmaMode, DmaParams, FunctionInfo, Kernel};
use drivers::virtio_blk::VirtioBlk;
use drivers::virtio_net::VirtioNet;
use engine::{Handle, Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::{Figure, HostSetup, HypervisorSetup, PassedSetup, Placement, VmSetup};
use platform::Error;
use platform::cpu::{CpuId, Node};
use platform::device::{FunctionIndex, PortIndex};
use platform::kernel::TaskParams;
use platform::pci::{PciDevice, PciDriver};
use virt::disk::{ServedDisk, Storage, Vdisk};
use virt::net::{Network, ServedNic, Vnic};
use virt::placement::{Client, IoThreads, Managed, Manager, Policy, Scheduler, Thresholds};
use virt::{GuestNode, InterruptSupport, Vfio, Vm, VmError, VmParams};
use wire::ethernet::MacAddr;
use wire::pcie::{Bdf, FunctionAddress};

use super::rules::Rules;
use super::{Computer, ComputerError, Computers, Init, device, functions, kernel};

/// Initially empty slots of a guest, for functions that it borrows at run time (assumed: as many as device managers
/// leave free).
const HOT_SLOTS: u8 = 4;

/// The VM part of a host before its kernel runs.
pub(super) struct Vms {
    /// The driver that claims functions to pass through.
    vfio: Rc<Vfio>,
    /// Passed-through devices of each virtual machine.
    passed: Vec<Vec<Passed>>,
}

/// A passed-through or lent device or function.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Passed {
    /// The whole device.
    Device(EndpointId),
    /// A virtual function: device, index of the physical function, and number.
    Virtual(EndpointId, usize, u16),
}

impl Passed {
    pub fn new(host: &HostSetup, devices: &[EndpointId], PassedSetup { device, vf }: PassedSetup) -> Self {
        let each = host.devices[device].vfs.max(1);
        match vf {
            None => Self::Device(devices[device]),
            Some(n) => Self::Virtual(devices[device], usize::from(n / each), n % each),
        }
    }

    /// The device, and its first function there; `None` for a virtual one that is not enabled.
    pub fn function(self, fabric: &Fabric) -> Option<(EndpointId, FunctionIndex)> {
        match self {
            Self::Device(device) => Some((device, FunctionIndex(0))),
            Self::Virtual(device, physical, n) => {
                let registers = &fabric.endpoint(device).core.registers;
                let of = registers.physical_below(PortIndex(0)).nth(physical)?;
                registers.config(of).virtual_functions().filter(|all| all.has(n))?;
                Some((device, registers.virtual_functions(of).nth(usize::from(n))?))
            }
        }
    }

    /// Its functions that exist; a virtual one exists while enabled.
    pub fn functions(self, fabric: &Fabric) -> Vec<Bdf> {
        match self {
            Self::Device(device) => functions(fabric, device, PortIndex(0)),
            Self::Virtual(device, physical, n) => {
                let registers = &fabric.endpoint(device).core.registers;
                let of = registers.physical_below(PortIndex(0)).nth(physical);
                let found = of.and_then(|of| {
                    let all = registers.config(of).virtual_functions().filter(|all| all.has(n))?;
                    Some(all.id(registers.id(of), n))
                });
                found.into_iter().collect()
            }
        }
    }
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
    fn functions(&self, hw: &Handle<Fabric>, vm: usize) -> Vec<PciDevice> {
        let of = |passed: &Passed| {
            let here = hw.with(|fabric, _| passed.functions(fabric));
            self.vfio.claimed().into_iter().filter(move |claimed| here.contains(&claimed.address().bdf))
        };
        self.passed[vm].iter().flat_map(of).collect()
    }
}

/// Parameters of a virtual machine: kernel parameters of the host, without an IOMMU.
fn params(host: &HostSetup, vm: &VmSetup) -> Result<VmParams, ComputerError> {
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

/// Starts and boots the hosts' virtual machines one after the other.
pub(super) fn start(computers: &Computers) -> Result<(), ComputerError> {
    let simulation = &computers.simulation;
    let hw = simulation.handle();
    for (number, host) in computers.hosts.iter().enumerate() {
        let Some(own) = &host.software.vms else { continue };
        for (n, vm) in own.setup.vms.iter().enumerate() {
            let functions = own.vms.functions(&hw, n);
            let started = Vm::start(&hw, &host.kernel, params(&own.setup, vm)?, functions);
            let started = simulation.block_on(started)?;
            let started = started.map_err(|error| {
                let help = match error {
                    VmError::Memory(_) => {
                        Some("less `memory`, another `node`, or fewer virtual machines".to_owned())
                    }
                    VmError::Function(at, Error::Busy) => {
                        help_with_group(&host.kernel, at, "virtual machine")
                    }
                    VmError::Function(..) => Some("`iommu = \"strict\"` of its host".to_owned()),
                };
                vm.complaint(format!("it does not start: {error}"), help)
            })?;
            started.follow(&own.vms.vfio);
            own.running.borrow_mut().push(Rc::clone(&started));
            computers.cluster().start_borrowings(|borrow| borrow.by == number && borrow.vm == Some(n))?;
            device::drivers(&own.setup).into_iter().for_each(|driver| started.kernel().add_driver(driver));
            simulation.block_on(started.kernel().boot())?;
            let mut served = Served::new();
            if let Some(disk) = &vm.disk {
                let storage = own.storage(host, &hw, disk.drive, vm)?;
                let (vdisk, way) = storage.add(&started, disk.part.clone());
                let costs = kernel::driver_costs(&own.setup)?.virtio_blk;
                let face = started.kernel().face();
                let probed = started.kernel().run(TaskParams::named("virtio-blk"), async move |cpu| {
                    VirtioBlk::probe(&face, &cpu, way, costs).await
                });
                let probed = simulation.block_on(async move { probed.wait().await })?;
                probed.map_err(|problem| {
                    vm.complaint(format!("its virtual disk does not start: {problem}"), None)
                })?;
                own.vdisks.borrow_mut().push(Rc::clone(&vdisk));
                served.push((disk.drive, Rc::new(ServedDisk { storage, vdisk })));
            }
            if let Some(nic) = &vm.nic {
                let network = own.network(host, nic.uplink)?;
                let (vnic, way) = network.add(&started, MacAddr(nic.mac), 0);
                let costs = kernel::driver_costs(&own.setup)?.virtio_net;
                VirtioNet::new(started.kernel().face(), way, costs);
                own.vnics.borrow_mut().push(Rc::clone(&vnic));
                served.push((nic.uplink, Rc::new(ServedNic { network, vnic })));
            }
            start_interfaces(simulation, host, vm, &started.kernel())?;
            own.served.borrow_mut().push(served);
        }
        own.manage(host, Seed::new(computers.seed).part(&host.name));
    }
    Ok(())
}

/// What to do about a function whose IOMMU group is in use for something else than `user`; `None` if it is alone in its group.
pub(super) fn help_with_group(kernel: &Kernel, at: FunctionAddress, user: &str) -> Option<String> {
    let others = kernel.group_of(at);
    let name =
        |other: &FunctionInfo| format!("{} ({})", other.address(), other.driver.unwrap_or("no driver"));
    let names: Vec<String> = others.iter().map(name).collect();
    (!others.is_empty()).then(|| {
        format!(
            "its IOMMU group also has {}; all devices of a group go to one {user}, and a switch with `access_control` \
             or a slot of its own gives a device a group of its own",
            names.join(", ")
        )
    })
}

/// Starts the network devices that a guest has at boot; later ones are started when they appear.
fn start_interfaces(
    simulation: &Simulation<Fabric>,
    host: &Computer,
    vm: &VmSetup,
    kernel: &Rc<Kernel>,
) -> Result<(), ComputerError> {
    let init = Init {
        host: format!("{}/{}", host.name, vm.name),
        kernel: Rc::clone(kernel),
        namespaces: BTreeMap::new(),
        routes: Vec::new(),
    };
    let polled = vm.nic.filter(|nic| nic.polled).map(|nic| nic.number);
    let is_there = |name: &str| kernel.net().devices().iter().any(|device| device.name() == name);
    for (n, interface) in vm.interfaces.iter().enumerate() {
        if Some(n) != polled && is_there(&interface.name) {
            simulation.block_on(init.start(interface))??;
        }
    }
    let rules = Rules::of_guest(simulation.handle(), kernel, &vm.interfaces);
    kernel.net().set_rules(rules);
    Ok(())
}

/// Virtual devices of a machine, with the numbers of the host devices.
type Served = Vec<(usize, Rc<dyn Client>)>;

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
    served: RefCell<Vec<Served>>,
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
    /// Starts the manager that schedules virtual machines, if the scenario has one.
    fn manage(&self, host: &Computer, seed: Seed) {
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
        let manager = Manager::start(&host.kernel, devices, vms.collect(), scheduler, period);
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
    fn network(&self, host: &Computer, uplink: usize) -> Result<Rc<Network>, ComputerError> {
        if let Some(network) = self.networks.borrow().get(&uplink) {
            return Ok(Rc::clone(network));
        }
        let mut interfaces = self.setup.interfaces.iter();
        let own = interfaces.find(|interface| (interface.port.1, interface.port.2) == (uplink, 0));
        let device = own.map_or_else(String::new, |interface| interface.name.clone());
        let network = Network::new(&host.kernel, &device, kernel::vhost_costs(&self.setup)?);
        let host = host.name.clone();
        let network = network.map_err(|problem| ComputerError::Network { host, device, problem })?;
        self.networks.borrow_mut().insert(uplink, Rc::clone(&network));
        Ok(network)
    }

    /// The storage of a drive, created on first use.
    fn storage(
        &self,
        host: &Computer,
        hw: &Handle<Fabric>,
        drive: usize,
        vm: &VmSetup,
    ) -> Result<Rc<Storage>, ComputerError> {
        if let Some(storage) = self.storages.borrow().get(&drive) {
            return Ok(Rc::clone(storage));
        }
        let own = hw.with(|fabric, _| functions(fabric, host.devices[drive], PortIndex(0)));
        let is_its = |device: &Rc<BlockDevice>| device.function().is_some_and(|at| own.contains(&at.bdf));
        let device = host.kernel.block().devices().into_iter().find(is_its);
        let device = device.ok_or_else(|| vm.complaint("the host has no disk of the drive", None))?;
        let storage = Storage::new(&host.kernel, device, kernel::vhost_costs(&self.setup)?);
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
