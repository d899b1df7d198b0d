//! A host that has the device itself.
#![allow(dead_code, reason = "suites use what they need")]

#[path = "board.rs"]
pub mod board;

use std::rc::Rc;

use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::iommu::IommuParams;
use hardware::root::HostId;
use kernel::{DmaMode, Kernel};
use platform::device::Device;

use board::{Board, Parts};

pub fn parts(fabric: &mut Fabric, board: Board, device: Box<dyn Device>) -> Parts {
    let iommu = (board.kernel.dma.mode != DmaMode::Off).then(IommuParams::default);
    let memory = board.memory;
    board.add(fabric, memory, iommu, device)
}

/// A computer with a device.
pub struct Computer {
    /// Where the suite's drivers and programs are.
    pub kernel: Rc<Kernel>,
    pub device: EndpointId,
    /// Whose memory its kernel has.
    pub host: HostId,
}

impl Computer {
    /// Whether the suite's kernel is told of errors of the device's bus, and recovers from them.
    pub const HEARS_OF_BUS_ERRORS: bool = true;
    /// Whether legacy interrupts of the device can come here.
    pub const HAS_LINES: bool = true;

    /// One that is to boot when it has its drivers.
    pub fn new(simulation: &Simulation<Fabric>, parts: Parts) -> Self {
        let Parts { board, host, device } = parts;
        let kernel = Rc::new(Kernel::new(&simulation.handle(), host, board.kernel));
        Self { kernel, device, host }
    }

    pub fn boot(&self, simulation: &Simulation<Fabric>) {
        simulation.block_on(self.kernel.boot()).expect("the kernel boots");
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
