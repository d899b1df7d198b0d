//! Virtual machines of hosts.

use std::rc::Rc;

use ::kernel::{DmaMode, DmaParams, Kernel};
use engine::Handle;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::{Figure, HostSetup, VmSetup};
use platform::cpu::{CpuId, Node};
use platform::device::PortIndex;
use platform::pci::{PciDevice, PciDriver};
use virt::{GuestNode, InterruptSupport, Vfio, Vm, VmParams};

use super::{Computer, ComputerError, Computers, device, functions, kernel};

/// Slots of a guest that are empty at first, for what it borrows while it runs (assumed: as many as device managers leave free).
const HOT_SLOTS: u8 = 4;

/// What of virtual machines a host has.
pub(super) struct Vms {
    /// By which the host keeps functions that are passed through.
    vfio: Rc<Vfio>,
    /// By virtual machine: the devices.
    devices: Vec<Vec<EndpointId>>,
}

impl Vms {
    /// For a host with virtual machines; its driver comes before all others.
    pub fn new(
        host: &HostSetup,
        hw: &Handle<Fabric>,
        devices: &[EndpointId],
    ) -> Option<(Self, Rc<dyn PciDriver>)> {
        if host.vms.is_empty() {
            return None;
        }
        let of = |vm: &VmSetup| vm.devices.iter().map(|&device| devices[device]).collect::<Vec<_>>();
        let devices: Vec<_> = host.vms.iter().map(of).collect();
        let (hw, all) = (hw.clone(), devices.concat());
        let vfio = Vfio::new(move |at| {
            let is_of = |&device: &EndpointId| {
                hw.with(|fabric, _| functions(fabric, device, PortIndex(0)).contains(&at.bdf))
            };
            at.segment == Default::default() && all.iter().any(is_of)
        });
        Some((Self { vfio: Rc::clone(&vfio), devices }, vfio as _))
    }

    /// The functions of a virtual machine's devices, in the scenario's order.
    fn functions(&self, hw: &Handle<Fabric>, vm: usize) -> Vec<PciDevice> {
        let of = |&device: &EndpointId| {
            let here = hw.with(|fabric, _| functions(fabric, device, PortIndex(0)));
            self.vfio.claimed().into_iter().filter(move |claimed| here.contains(&claimed.address().bdf))
        };
        self.devices[vm].iter().flat_map(of).collect()
    }
}

/// What a guest's kernel is booted with: as the host's, without an IOMMU.
fn params(host: &HostSetup, vm: &VmSetup) -> Result<VmParams, ComputerError> {
    let own = kernel::params(host)?;
    let dma = DmaParams { low_first: own.dma.low_first, ..DmaParams::linux(DmaMode::Off) };
    Ok(VmParams {
        name: vm.name.clone(),
        vcpus: vm.vcpus.iter().map(|&core| vec![CpuId(core)]).collect(),
        nodes: vec![GuestNode { memory: vm.memory, host: Node(vm.node) }],
        slots: HOT_SLOTS,
        pin_limit: None,
        interrupts: interrupts(host),
        costs: kernel::virt_costs(host)?,
        kernel: ::kernel::KernelParams { dma, ..own },
    })
}

/// How a host's processor and IOMMU help with interrupts of guests: an IOMMU alone is of no use.
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

impl Computers {
    /// Starts the hosts' virtual machines, one after the other, and boots them.
    pub(super) fn start_vms(&self) -> Result<(), ComputerError> {
        let hw = self.simulation.handle();
        for (number, host) in self.hosts.iter().enumerate() {
            let Some(own) = &host.vms else { continue };
            for (n, vm) in own.setup.vms.iter().enumerate() {
                let functions = own.vms.functions(&hw, n);
                let started = Vm::start(&hw, &host.kernel, params(&own.setup, vm)?, functions);
                let started = self.simulation.block_on(started)?;
                let started =
                    started.map_err(|error| vm.complaint(format!("it does not start: {error}"), None))?;
                started.follow(&own.vms.vfio);
                own.running.borrow_mut().push(Rc::clone(&started));
                self.borrow_at_once(|borrow| borrow.by == number && borrow.vm == Some(n))?;
                device::drivers(&own.setup)
                    .into_iter()
                    .for_each(|driver| started.kernel().add_driver(driver));
                self.simulation.block_on(started.kernel().boot())?;
            }
        }
        Ok(())
    }
}

/// A host's virtual machines, from their description to those that run.
pub(super) struct HostVms {
    pub setup: HostSetup,
    pub vms: Vms,
    pub running: std::cell::RefCell<Vec<Rc<Vm>>>,
}

impl Computer {
    /// Its virtual machines, in the scenario's order.
    pub fn vms(&self) -> Vec<Rc<Vm>> {
        self.vms.as_ref().map(|own| own.running.borrow().clone()).unwrap_or_default()
    }

    /// The kernel of one of its virtual machines, or its own.
    pub fn kernel_of(&self, vm: Option<usize>) -> Rc<Kernel> {
        match vm.and_then(|vm| self.vms().get(vm).cloned()) {
            Some(vm) => vm.kernel(),
            None => Rc::clone(&self.kernel),
        }
    }

    /// It stops, and its virtual machines with it.
    pub(super) fn halt(&self) {
        self.vms().iter().for_each(|vm| vm.kernel().halt());
        self.kernel.halt();
    }
}
