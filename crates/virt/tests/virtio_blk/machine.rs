//! What the suite runs on: a guest with a virtual disk, and its host, which has the drive.
#![allow(dead_code, reason = "suites use what they need")]

use std::ops::Deref;
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
use platform::cpu::Cpu;
use platform::kernel::TaskParams;
use platform::virtio::VirtualDisk;
use units::{Bytes, Duration};
use virt::disk::{Storage, Vdisk};
use virt::{InterruptSupport, VhostCosts, Vm};
use wire::pcie::{Generation, Width};

use super::programs::Programs;
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
    /// Of the guest.
    programs: Programs,
    pub control: NvmeControl,
    driver: Rc<NvmeDriver>,
    pub host: Rc<Kernel>,
    pub vm: Rc<Vm>,
    pub storage: Rc<Storage>,
    pub vdisk: Rc<Vdisk>,
    /// The guest's way to it.
    pub way: Rc<dyn VirtualDisk>,
}

/// Runs programs.
impl Deref for Machine {
    type Target = Programs;

    fn deref(&self) -> &Programs {
        &self.programs
    }
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
        let programs = Programs { simulation, kernel, disk: "/dev/vda" };
        Self { programs, control, driver, host, vm, storage, vdisk, way }
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

    /// What the host's driver has mapped, beyond what it has allocated.
    pub fn mapped(&self) -> u64 {
        let controllers = self.driver.controllers();
        let counters = controllers.first().expect("it has the drive").dma_counters();
        counters.maps - counters.unmaps
    }
}
