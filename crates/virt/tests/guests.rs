//! Guests on a host with a drive: the same kernel and drivers, on cores that are tasks, in memory that is the host's.

use std::rc::Rc;

use devices::nvme::{MemoryMedia, Nvme, NvmeParams};
use drivers::nvme::{NvmeDriver, NvmeOptions};
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::RootPortParams;
use kernel::{
    BlockParams, CoreParams, DmaMode, DmaParams, InetParams, Kernel, KernelCosts, KernelParams, PciParams,
    SchedParams,
};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;
use units::{Bytes, Duration, Frequency};
use virt::{Exit, GuestNode, InterruptSupport, Vfio, VirtCosts, Vm, VmError, VmParams};
use wire::pcie::{Generation, Width};

fn params(mode: DmaMode) -> KernelParams {
    KernelParams {
        core: CoreParams::haswell(Frequency::mhz(2_500)),
        costs: KernelCosts::linux(),
        sched: SchedParams::linux(),
        pci: PciParams::default(),
        dma: DmaParams::linux(mode),
        block: BlockParams::default(),
        inet: InetParams::linux(),
    }
}

struct Host {
    // Dropped first: tasks hold what kernels hold.
    simulation: Simulation<Fabric>,
    kernel: Rc<Kernel>,
    vfio: Rc<Vfio>,
    interrupts: InterruptSupport,
}

/// A host with a drive, which is for guests if `passes`.
fn host(mode: DmaMode, passes: bool) -> Host {
    host_with(mode, passes, InterruptSupport::Software)
}

fn host_with(mode: DmaMode, passes: bool, interrupts: InterruptSupport) -> Host {
    let posts_interrupts = interrupts == InterruptSupport::Posted;
    let iommu = IommuParams { posts_interrupts, ..IommuParams::default() };
    let mut memory = MemoryParams::example();
    for socket in &mut memory.sockets {
        socket.memory[0].size = Bytes::mib(512);
    }
    let iommus = (0..2).map(|n| Iommu::new(iommu.clone(), NodeId(n), Seed::new(7)).unwrap()).collect();
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&memory), iommus);
    let port = RootPortParams { node: NodeId(0), ..RootPortParams::ideal() };
    let link = fabric.add_root_port(host, port, LinkParams::example(Generation::Gen3, Width::X4), 0..=0);
    let nvme = Nvme::new(NvmeParams::example(), Box::new(MemoryMedia::default())).unwrap();
    fabric.add_endpoint(EndpointParams::ideal(256), &[link], Box::new(nvme));
    let simulation = Simulation::new(fabric);
    let kernel = Rc::new(Kernel::new(&simulation.handle(), host, params(mode)));
    let vfio = Vfio::new(move |_| passes);
    kernel.add_driver(Rc::clone(&vfio) as _);
    kernel.add_driver(Rc::new(NvmeDriver::new(NvmeOptions::default())) as _);
    simulation.block_on(kernel.boot()).expect("the host boots");
    Host { simulation, kernel, vfio, interrupts }
}

impl Host {
    /// A guest of the host's cores that has booted.
    fn guest(&self, name: &str, cores: &[u16]) -> Result<Rc<Vm>, VmError> {
        let vm = VmParams {
            name: name.to_owned(),
            vcpus: cores.iter().map(|&core| vec![CpuId(core)]).collect(),
            nodes: vec![GuestNode { memory: Bytes::mib(64), host: Node(0) }],
            slots: 0,
            pin_limit: None,
            interrupts: self.interrupts,
            costs: VirtCosts::linux(),
            kernel: params(DmaMode::Off),
        };
        let vm = Vm::start(&self.simulation.handle(), &self.kernel, vm, self.vfio.claimed());
        let vm = self.simulation.block_on(vm).expect("it is put together")?;
        vm.kernel().add_driver(Rc::new(NvmeDriver::new(NvmeOptions::default())) as _);
        self.simulation.block_on(vm.kernel().boot()).expect("the guest boots");
        Ok(vm)
    }

    /// Runs a program on a core of a kernel to its end.
    fn run<T: 'static>(
        &self,
        kernel: &Kernel,
        on: u16,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> T {
        let result = start(kernel, on, program);
        let ended = self.simulation.block_on(async move { result.wait().await });
        ended.unwrap_or_else(|deadlock| panic!("{deadlock}: {:#?}", kernel.log()))
    }
}

fn start<T: 'static>(
    kernel: &Kernel,
    on: u16,
    program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
) -> Completion<T> {
    let result = Completion::new();
    let end = result.clone();
    kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
        Box::pin(async move {
            let value = program(cpu.clone()).await;
            cpu.sync().await;
            end.complete(value);
        })
    });
    result
}

/// Writes to a drive, reads it back elsewhere, and says how long a read takes.
fn write_and_read(host: &Host, kernel: &Rc<Kernel>) -> Duration {
    let face = kernel.face();
    host.run(kernel, 1, move |cpu| {
        Box::pin(async move {
            let file = face.open_block("/dev/nvme0n1").expect("the drive is found");
            let at = face.alloc_pages(&cpu, 4, Policy::Local).unwrap().start;
            let data: Vec<u8> = (0..32_768u32).map(|n| ((n * 7) >> 3) as u8).collect();
            cpu.store(at, &data);
            let completions = IoCompletions::new();
            let mut took = Duration::ZERO;
            let read = (BlockOp::Read, at + 32_768);
            // The first read waits for the drive to have programmed what was written: for that it does not matter when it came.
            for (op, memory) in [(BlockOp::Write { fua: false }, at), read, read] {
                let memory = vec![Segment { at: memory, length: 32_768 }];
                let began = cpu.now();
                file.submit(
                    &cpu,
                    vec![IoRequest { op, offset: 8192, length: 32_768, memory, token: 1 }],
                    &completions,
                );
                assert_eq!(completions.next().await.result, Ok(()));
                cpu.sync().await;
                took = cpu.now().since(began);
            }
            let mut back = vec![0; 32_768];
            cpu.load(at + 32_768, &mut back);
            assert_eq!(back, data);
            took
        })
    })
}

#[test]
fn a_guest_boots_and_drives_what_is_passed_through() {
    let native = host(DmaMode::PassThrough, false);
    let alone = write_and_read(&native, &native.kernel);
    for support in [InterruptSupport::Software, InterruptSupport::Virtual, InterruptSupport::Posted] {
        let host = host_with(DmaMode::Strict, true, support);
        assert!(host.kernel.face().open_block("/dev/nvme0n1").is_none(), "the host leaves it alone");
        let vm = host.guest("x", &[2, 3]).unwrap();
        // The root port and the drive below it.
        assert_eq!(vm.kernel().pci().len(), 2, "{}", vm.kernel().pci_text());
        let before = vm.exits();
        let (forwarded, posted) = (vm.interrupts_forwarded(), vm.interrupts_posted());
        let took = write_and_read(&host, &vm.kernel());
        let exits = vm.exits().since(&before);
        for exit in [Exit::Config, Exit::Mmio, Exit::Unmapped] {
            assert_eq!(exits.of(exit), 0, "registers are the guest's own");
        }
        assert!(before.of(Exit::Config) > 30 && before.of(Exit::Mmio) > 4, "{before:?}");
        let (forwarded, posted) = (vm.interrupts_forwarded() - forwarded, vm.interrupts_posted() - posted);
        let counts = (exits.of(Exit::Interrupt), exits.of(Exit::EndOfInterrupt), forwarded, posted);
        println!("{support:?}: a read of 32 KiB takes {took}, natively {alone}; {counts:?}");
        match support {
            InterruptSupport::Software => assert_eq!(counts, (3, 3, 3, 0)),
            // The core was idle, or left for the host's handler.
            InterruptSupport::Virtual => {
                assert!(counts.0 <= 3 && (counts.1, counts.2, counts.3) == (0, 3, 0))
            }
            InterruptSupport::Posted => assert_eq!(counts, (0, 0, 0, 3)),
        }
        // Slower by its exits, some microseconds, and no more; most of it is the drive's.
        assert!(took > alone && took < alone + Duration::from_us(30), "{took}, alone {alone}");
        assert_eq!(host.kernel.iommu_faults(), []);
        assert_eq!(vm.memory().pinned(), Bytes::mib(64));
        assert!(vm.memory().tlb_misses() > 0);
    }
}

#[test]
fn guests_that_share_a_core_take_turns() {
    let host = host(DmaMode::Strict, false);
    let work = Duration::from_ms(20);
    let compute = move |cpu: Cpu| -> Async<'static, Duration> {
        Box::pin(async move {
            let began = cpu.now();
            for _ in 0..200 {
                cpu.stall(work / 200);
                cpu.sync().await;
            }
            cpu.now().since(began)
        })
    };
    let one = host.guest("one", &[2]).unwrap();
    let alone = host.run(&one.kernel(), 0, compute);
    assert!(alone >= work && alone < work + work / 20, "{alone}");
    let two = host.guest("two", &[2]).unwrap();
    let both = [&one, &two].map(|vm| start(&vm.kernel(), 0, compute));
    for ended in both {
        let took = host.simulation.block_on(async move { ended.wait().await }).unwrap();
        assert!(took > work * 3 / 2 && took < work * 5 / 2, "{took}");
    }
    // What the guest thinks that it has computed is what its core has: what the other had is stolen.
    assert!(one.kernel().busy() < work * 5 / 2, "{}", one.kernel().busy());
}

#[test]
fn nothing_is_passed_through_without_an_iommu() {
    let host = host(DmaMode::Off, true);
    let refused = host.guest("x", &[2]).err();
    assert!(matches!(refused, Some(VmError::Function(_, Error::NotSupported))), "{refused:?}");
}
