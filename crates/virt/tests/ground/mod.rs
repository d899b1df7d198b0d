//! A guest with as many cores and nodes as its host, which has the device for it.
#![allow(dead_code, reason = "suites use what they need")]

#[path = "../../../drivers/tests/ground/board.rs"]
pub mod board;
pub mod vm;

use std::rc::Rc;

use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::iommu::IommuParams;
use hardware::root::HostId;
use kernel::{DmaMode, Kernel};
use platform::device::Device;
use virt::{InterruptSupport, Vfio, Vm};

use board::{Board, Parts};

pub fn parts(fabric: &mut Fabric, board: Board, device: Box<dyn Device>) -> Parts {
    let iommu = IommuParams { posts_interrupts: true, ..IommuParams::default() };
    let memory = board.memory + vm::HOSTS_OWN;
    board.add(fabric, memory, Some(iommu), device)
}

/// A guest with a device.
pub struct Computer {
    /// The guest's.
    pub kernel: Rc<Kernel>,
    pub device: EndpointId,
    /// Whose memory its kernel has.
    pub host: HostId,
    vm: Rc<Vm>,
    host_kernel: Rc<Kernel>,
}

impl Computer {
    /// The host is, which takes the device from the guest.
    pub const HEARS_OF_BUS_ERRORS: bool = false;
    /// Whether legacy interrupts of the device can come here.
    pub const HAS_LINES: bool = true;

    /// A guest that is to boot when it has its drivers, on a host that has.
    pub fn new(simulation: &Simulation<Fabric>, parts: Parts) -> Self {
        let Parts { board, host, device } = parts;
        let (handle, params) = (simulation.handle(), board.kernel_with(DmaMode::Strict));
        let host_kernel = Rc::new(Kernel::new(&handle, host, params));
        let vfio = Vfio::new(|_| true);
        host_kernel.add_driver(Rc::clone(&vfio) as _);
        simulation.block_on(host_kernel.boot()).expect("the host boots");
        let params = vm::params(&host_kernel, &board, InterruptSupport::Posted);
        let vm = simulation.block_on(Vm::start(&handle, &host_kernel, params, vfio.claimed()));
        let vm = vm.expect("it is put together").expect("there is all that it needs");
        vm.follow(&vfio);
        Self { kernel: vm.kernel(), device, host, vm, host_kernel }
    }

    pub fn boot(&self, simulation: &Simulation<Fabric>) {
        simulation.block_on(self.kernel.boot()).expect("the guest boots");
    }

    /// The device comes back to who had it.
    pub fn plug(&self, simulation: &Simulation<Fabric>) {
        simulation.with(|fabric, scheduler| fabric.running(scheduler).insert_device(self.device));
        settle(simulation);
    }
}

/// Until nothing happens any more.
pub fn settle(simulation: &Simulation<Fabric>) {
    simulation.run();
}
