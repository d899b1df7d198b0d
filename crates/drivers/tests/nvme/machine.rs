//! A two-socket host with a drive, its kernel and driver, and programs on it.

use std::rc::Rc;

use devices::nvme::{MemoryMedia, Nvme, NvmeControl, NvmeParams};
use drivers::nvme::{Controller, NvmeDriver, NvmeOptions};
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::{HostId, RootPortParams};
use kernel::{
    BlockParams, CoreParams, DmaMode, DmaParams, Kernel, KernelCosts, KernelParams, PciParams, SchedParams,
};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::device::FunctionIndex;
use platform::kernel::TaskParams;
use platform::memory::{PAGE, PhysAddr, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};
use platform::sync::Completion;
use units::{Bytes, Duration, Frequency, HostPhysical};
use wire::pcie::config::header;
use wire::pcie::{Generation, Width};

pub struct Setup {
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
    // Dropped first: tasks hold what the kernel holds.
    pub simulation: Simulation<Fabric>,
    pub kernel: Kernel,
    pub driver: Rc<NvmeDriver>,
    pub control: NvmeControl,
    pub drive: EndpointId,
    pub host: HostId,
}

fn link() -> LinkParams {
    LinkParams::example(Generation::Gen3, Width::X4)
}

impl Machine {
    /// Whether its kernel is told of errors of the drive's bus, and recovers from them.
    pub const HEARS_OF_BUS_ERRORS: bool = true;

    /// A machine that has booted.
    pub fn new(setup: &Setup) -> Self {
        let machine = Self::off(setup);
        machine.boot();
        machine
    }

    pub fn boot(&self) {
        self.simulation.block_on(self.kernel.boot()).expect("the kernel boots");
    }

    /// A machine that has not booted.
    pub fn off(setup: &Setup) -> Self {
        let mut memory = MemoryParams::example();
        for socket in &mut memory.sockets {
            socket.memory[0].size = setup.memory;
        }
        let mut params = NvmeParams::example();
        (setup.drive)(&mut params);
        let ports = params.ports;
        let nvme = Nvme::new(params, Box::new(MemoryMedia::default())).unwrap();
        let control = nvme.control();
        let iommus = match setup.mode {
            DmaMode::Off => Vec::new(),
            _ => {
                (0..2).map(|n| Iommu::new(IommuParams::default(), NodeId(n), Seed::new(7)).unwrap()).collect()
            }
        };
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&memory), iommus);
        // An uncached store takes its time to leave a core.
        let latency = Duration::from_ns(200);
        let stores =
            StoreParams { accept_latency: latency, uncached_latency: latency, ..StoreParams::ideal() };
        fabric.host_mut(host).set_store_params(&stores);
        let port = RootPortParams { node: NodeId(setup.node), ..RootPortParams::ideal() };
        let links: Vec<_> =
            (0..ports).map(|_| fabric.add_root_port(host, port.clone(), link(), 0..=0)).collect();
        let drive = fabric.add_endpoint(EndpointParams::ideal(256), &links, Box::new(nvme));
        let simulation = Simulation::new(fabric);
        let params = KernelParams {
            core: CoreParams::haswell(Frequency::mhz(2_500)),
            costs: KernelCosts::linux(),
            sched: SchedParams::linux(),
            pci: PciParams::default(),
            dma: DmaParams::linux(setup.mode),
            block: setup.block,
            inet: kernel::InetParams::linux(),
        };
        let kernel = Kernel::new(&simulation.handle(), host, params);
        let driver = Rc::new(NvmeDriver::new(setup.options));
        kernel.add_driver(Rc::clone(&driver) as _);
        Self { simulation, kernel, driver, control, drive, host }
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

    pub fn file(&self) -> Rc<dyn BlockFile> {
        self.kernel.face().open_block("/dev/nvme0n1").unwrap_or_else(|| panic!("{:?}", self.kernel.log()))
    }

    /// Runs a program on a core to its end.
    pub fn run<T: 'static>(&self, on: u16, program: impl FnOnce(Cpu) -> Async<'static, T> + 'static) -> T {
        let result = Completion::new();
        let end = result.clone();
        self.kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
            Box::pin(async move {
                let value = program(cpu.clone()).await;
                cpu.sync().await;
                end.complete(value);
            })
        });
        self.simulation.block_on(async move { result.wait().await }).unwrap_or_else(|deadlock| {
            panic!(
                "{deadlock}: {:#?} {:?}",
                self.kernel.log(),
                self.driver.controllers().first().map(|c| c.counters())
            )
        })
    }

    /// Takes pages of a node; a program's memory.
    pub fn memory(&self, pages: u64, node: u8) -> PhysAddr {
        let kernel = self.kernel.face();
        self.run(0, move |cpu| {
            Box::pin(async move {
                let order = pages.next_power_of_two().trailing_zeros() as u8;
                kernel.alloc_pages(&cpu, order, Policy::Bind(Node(node))).unwrap().start
            })
        })
    }

    pub fn put(&self, at: PhysAddr, bytes: &[u8]) {
        self.simulation.with(|fabric, _| {
            fabric.host_mut(self.host).memory.bytes_mut().write(HostPhysical::new(at.0), bytes).unwrap();
        });
    }

    pub fn get(&self, at: PhysAddr, length: usize) -> Vec<u8> {
        self.simulation.with(|fabric, _| {
            let mut bytes = vec![0; length];
            fabric.host(self.host).memory.bytes().read(HostPhysical::new(at.0), &mut bytes).unwrap();
            bytes
        })
    }

    /// One direct request, to its end.
    pub fn direct(
        &self,
        on: u16,
        op: BlockOp,
        offset: u64,
        memory: Vec<Segment>,
        length: u64,
    ) -> Result<(), Error> {
        let file = self.file();
        self.run(on, move |cpu| {
            Box::pin(async move {
                let completions = IoCompletions::new();
                file.submit(&cpu, vec![IoRequest { op, offset, length, memory, token: 7 }], &completions);
                let done = completions.next().await;
                assert_eq!(done.token, 7);
                done.result
            })
        })
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
