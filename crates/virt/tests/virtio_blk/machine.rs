//! What the suite runs on: a guest with a virtual disk, and its host, which has the drive.
#![allow(dead_code, reason = "suites use what they need")]

use std::rc::Rc;

use devices::nvme::{MemoryMedia, Nvme, NvmeControl, NvmeParams};
use drivers::nvme::{NvmeDriver, NvmeOptions};
use drivers::virtio_blk::{VirtioBlk, VirtioBlkCosts};
use engine::Simulation;
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::link::LinkParams;
use hardware::root::RootPortParams;
use kernel::{BlockParams, DmaMode, Kernel, KernelParams};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::{PhysAddr, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};
use platform::sync::Completion;
use platform::virtio::VirtualDisk;
use units::{Bytes, Duration};
use virt::disk::{Storage, Vdisk};
use virt::{InterruptSupport, VhostCosts, Vm};
use wire::pcie::{Generation, Width};

use crate::ground::board::{self, Board};
use crate::ground::vm;

pub struct Setup {
    /// Of the host's driver.
    pub options: NvmeOptions,
    pub drive: fn(&mut NvmeParams),
    /// Memory of each node of the guest.
    pub memory: Bytes,
    /// Of the guest's kernel.
    pub block: BlockParams,
}

impl Default for Setup {
    fn default() -> Self {
        let options = NvmeOptions {
            io_timeout: Duration::from_ms(1),
            admin_timeout: Duration::from_ms(2),
            ..NvmeOptions::default()
        };
        Self { options, drive: |_| {}, memory: Bytes::mib(64), block: BlockParams::default() }
    }
}

pub struct Machine {
    // Dropped first: tasks hold what the kernels hold.
    pub simulation: Simulation<Fabric>,
    /// The guest's.
    pub kernel: Rc<Kernel>,
    pub control: NvmeControl,
    driver: Rc<NvmeDriver>,
    pub host: Rc<Kernel>,
    pub vm: Rc<Vm>,
    pub storage: Rc<Storage>,
    pub vdisk: Rc<Vdisk>,
    /// The guest's way to it.
    pub way: Rc<dyn VirtualDisk>,
}

impl Machine {
    /// A guest that has booted and drives its disk.
    pub fn new(setup: &Setup) -> Self {
        let machine = Self::undriven(setup);
        machine.probe();
        machine
    }

    /// One whose disk nobody drives.
    pub fn undriven(setup: &Setup) -> Self {
        let mut params = NvmeParams::example();
        (setup.drive)(&mut params);
        let board = Board {
            memory: setup.memory,
            stores: StoreParams::ideal(),
            kernel: KernelParams { block: setup.block, ..board::kernel(DmaMode::Off) },
            ports: vec![RootPortParams::ideal(); params.ports.into()],
            link: LinkParams::example(Generation::Gen3, Width::X4),
            first_link: None,
        };
        let nvme =
            Nvme::new(params, Box::new(MemoryMedia::default())).expect("its registers can be laid out");
        let control = nvme.control();
        let mut fabric = Fabric::new();
        let memory = board.memory + vm::HOSTS_OWN;
        let parts = board.add(&mut fabric, memory, None, Box::new(nvme));
        let simulation = Simulation::new(fabric);
        let host = Rc::new(Kernel::new(&simulation.handle(), parts.host, board::kernel(DmaMode::Off)));
        let driver = Rc::new(NvmeDriver::new(setup.options));
        host.add_driver(Rc::clone(&driver) as _);
        simulation.block_on(host.boot()).expect("the host boots");
        let params = vm::params(&host, &parts.board, InterruptSupport::Posted);
        let vm = simulation.block_on(Vm::start(&simulation.handle(), &host, params, Vec::new()));
        let vm = vm.expect("it is put together").expect("there is all that it needs");
        let kernel = vm.kernel();
        simulation.block_on(kernel.boot()).expect("the guest boots");
        let drive = host.block().devices().into_iter().next().expect("the host has a drive");
        let bytes = drive.open().bytes();
        let storage = Storage::new(&host, drive, VhostCosts::linux());
        let (vdisk, way) = storage.add(&vm, 0..bytes);
        Self { simulation, kernel, control, driver, host, vm, storage, vdisk, way }
    }

    /// Gives the guest's disk a driver of the kernel that the guest runs now.
    pub fn probe(&self) {
        let (kernel, way) = (self.vm.kernel(), Rc::clone(&self.way));
        let face = kernel.face();
        let probed = kernel.run(TaskParams::named("virtio-blk"), async move |cpu: Cpu| {
            VirtioBlk::probe(&face, &cpu, way, VirtioBlkCosts::linux()).await
        });
        let probed = self.simulation.block_on(async move { probed.wait().await }).expect("it ends");
        assert!(probed.is_ok(), "{:?}", kernel.log());
    }

    /// Bytes of the host's memory that are free.
    pub fn free(&self) -> u64 {
        self.host.memory().iter().map(|node| node.free.get()).sum()
    }

    /// Lets a future come to its end.
    pub fn wait<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.simulation.block_on(future).expect("it ends")
    }

    /// Until nothing happens any more.
    pub fn settle(&self) {
        self.simulation.run();
    }

    pub fn file(&self) -> Rc<dyn BlockFile> {
        self.kernel.face().open_block("/dev/vda").unwrap_or_else(|| panic!("{:?}", self.kernel.log()))
    }

    /// Runs a program on a core of the guest to its end.
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
        let ended = self.simulation.block_on(async move { result.wait().await });
        ended.unwrap_or_else(|deadlock| panic!("{deadlock}: {:#?} {:#?}", self.kernel.log(), self.host.log()))
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
        assert!(self.kernel.ground().poke(at, bytes));
    }

    pub fn get(&self, at: PhysAddr, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.kernel.ground().peek(at, &mut bytes));
        bytes
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
                completions.next().await.result
            })
        })
    }

    /// What the host's driver has mapped, beyond what it has allocated.
    pub fn mapped(&self) -> u64 {
        let controllers = self.driver.controllers();
        let counters = controllers.first().expect("it has the drive").dma_counters();
        counters.maps - counters.unmaps
    }
}
