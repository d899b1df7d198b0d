//! What the suite runs on: a computer of two nodes with a drive, its kernel and driver, and programs on it.

use std::ops::Deref;
use std::rc::Rc;

use devices::nvme::{MemoryMedia, Nvme, NvmeControl, NvmeParams};
use drivers::nvme::{Controller, NvmeDriver, NvmeOptions};
use engine::Simulation;
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::endpoint::EndpointId;
use hardware::link::LinkParams;
use hardware::memory::NodeId;
use hardware::root::{HostId, RootPortParams};
use kernel::{BlockParams, DmaMode, KernelParams};
use platform::block::Segment;
use platform::device::FunctionIndex;
use platform::memory::{PAGE, PhysAddr};
use units::{Bytes, Duration};
use wire::pcie::config::header;
use wire::pcie::{Generation, Width};

use super::programs::Programs;
use crate::ground::board::{self, Board};
use crate::ground::{self, Computer};

pub struct Setup {
    /// How the IOMMU is used where the driver is; a guest finds none.
    pub mode: DmaMode,
    pub options: NvmeOptions,
    pub drive: fn(&mut NvmeParams),
    pub node: u8,
    /// Memory of each node.
    pub memory: Bytes,
    pub block: BlockParams,
}

impl Default for Setup {
    fn default() -> Self {
        let options = NvmeOptions {
            io_timeout: Duration::from_ms(1),
            admin_timeout: Duration::from_ms(2),
            ..NvmeOptions::default()
        };
        Self {
            mode: DmaMode::Off,
            options,
            drive: |_| {},
            node: 0,
            memory: Bytes::mib(64),
            block: BlockParams::default(),
        }
    }
}

pub struct Machine {
    programs: Programs,
    pub driver: Rc<NvmeDriver>,
    pub control: NvmeControl,
    pub drive: EndpointId,
    /// Whose memory the kernel has.
    pub host: HostId,
    pub computer: Computer,
}

/// Runs programs.
impl Deref for Machine {
    type Target = Programs;

    fn deref(&self) -> &Programs {
        &self.programs
    }
}

impl Machine {
    /// Whether its kernel is told of errors of the drive's bus, and recovers from them.
    pub const HEARS_OF_BUS_ERRORS: bool = Computer::HEARS_OF_BUS_ERRORS;

    /// Whether the drive's legacy interrupt can come to its kernel.
    pub const HAS_LINES: bool = Computer::HAS_LINES;

    /// A machine that has booted.
    pub fn new(setup: &Setup) -> Self {
        let machine = Self::off(setup);
        machine.boot();
        machine
    }

    pub fn boot(&self) {
        self.computer.boot(&self.simulation);
    }

    /// A machine that has not booted.
    pub fn off(setup: &Setup) -> Self {
        let mut params = NvmeParams::example();
        (setup.drive)(&mut params);
        // An uncached store takes its time to leave a core.
        let latency = Duration::from_ns(200);
        let port = RootPortParams { node: NodeId(setup.node), ..RootPortParams::ideal() };
        let board = Board {
            memory: setup.memory,
            stores: StoreParams {
                accept_latency: latency,
                uncached_latency: latency,
                ..StoreParams::ideal()
            },
            kernel: KernelParams { block: setup.block, ..board::kernel(setup.mode) },
            ports: vec![port; params.ports.into()],
            link: LinkParams::example(Generation::Gen3, Width::X4),
            first_link: None,
        };
        let nvme = Nvme::new(params, Box::new(MemoryMedia::default())).unwrap();
        let control = nvme.control();
        let mut fabric = Fabric::new();
        let parts = ground::parts(&mut fabric, board, Box::new(nvme));
        let simulation = Simulation::new(fabric);
        let computer = Computer::new(&simulation, parts);
        let driver = Rc::new(NvmeDriver::new(setup.options));
        computer.kernel.add_driver(Rc::clone(&driver) as _);
        let (kernel, drive, host) = (Rc::clone(&computer.kernel), computer.device, computer.host);
        let programs = Programs { simulation, kernel, disk: "/dev/nvme0n1" };
        Self { programs, driver, control, drive, host, computer }
    }

    /// Until nothing happens any more.
    pub fn settle(&self) {
        ground::settle(&self.simulation);
    }

    /// Puts the drive in, or takes it out.
    pub fn plug(&self, into: bool) {
        if into {
            return self.computer.plug(&self.simulation);
        }
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(self.drive));
        self.settle();
    }

    /// Whether the drive may send requests.
    pub fn is_master(&self) -> bool {
        self.simulation.with(|fabric, _| {
            let registers = &fabric.endpoint_mut(self.drive).core.registers;
            registers.config(FunctionIndex(0)).read(header::COMMAND, 2) as u16 & header::COMMAND_BUS_MASTER
                != 0
        })
    }

    pub fn controller(&self) -> Rc<Controller> {
        let first = self.driver.controllers().into_iter().next();
        first.unwrap_or_else(|| panic!("{:?}", self.kernel.log()))
    }

    /// What the driver has mapped, beyond what it has allocated.
    pub fn mapped(&self) -> u64 {
        let counters = self.controller().dma_counters();
        counters.maps - counters.unmaps
    }
}

/// Memory from `at` on in pieces of a page, backwards if so wanted, so that they do not run together.
pub fn scattered(at: PhysAddr, length: u64, backwards: bool) -> Vec<Segment> {
    let pages = length.div_ceil(PAGE);
    let place = |n: u64| if backwards { pages - 1 - n } else { n };
    (0..pages)
        .map(|n| Segment { at: at + place(n) * PAGE, length: PAGE.min(length - n * PAGE) as u32 })
        .collect()
}
