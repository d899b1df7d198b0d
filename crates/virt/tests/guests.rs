//! Guests on a host with a drive: the same kernel and drivers, on cores that are tasks, in memory that is the host's.

use std::cell::Cell;
use std::rc::Rc;

use devices::nvme::{MemoryMedia, Nvme, NvmeParams};
use drivers::nvme::{NvmeDriver, NvmeOptions};
use drivers::vfio::VfioDriver;
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::RootPortParams;
use kernel::{CoreParams, DmaMode, Kernel, KernelParams};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::{Priority, TaskParams};
use platform::memory::{PhysAddr, Policy};
use platform::mmio::{MemoryType, Mmio, Store};
use platform::pci::PciDevice;
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;
use units::{Bytes, Duration, Frequency};
use virt::{Exit, GuestNode, InterruptSupport, Vfio, VirtCosts, Vm, VmError, VmParams};
use wire::pcie::{Generation, Width};

fn params(mode: DmaMode) -> KernelParams {
    KernelParams::linux(CoreParams::haswell(Frequency::mhz(2_500)), mode)
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
    let iommus = (0..2).map(|n| Iommu::new(iommu, NodeId(n), Seed::new(7)).unwrap()).collect();
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
        let vm = self.start(name, cores)?;
        vm.kernel().add_driver(Rc::new(NvmeDriver::new(NvmeOptions::default())) as _);
        self.simulation.block_on(vm.kernel().boot()).expect("the guest boots");
        Ok(vm)
    }

    /// One that has not booted.
    fn start(&self, name: &str, cores: &[u16]) -> Result<Rc<Vm>, VmError> {
        let vm = self.params(name, cores);
        let vm = Vm::start(&self.simulation.handle(), &self.kernel, vm, self.vfio.claimed());
        let vm = self.simulation.block_on(vm).expect("it is put together")?;
        vm.follow(&self.vfio);
        Ok(vm)
    }

    /// What a guest of the host's cores is made of.
    fn params(&self, name: &str, cores: &[u16]) -> VmParams {
        VmParams {
            name: name.to_owned(),
            vcpus: cores.iter().map(|&core| vec![CpuId(core)]).collect(),
            nodes: vec![GuestNode { memory: Bytes::mib(64), host: Node(0) }],
            slots: 0,
            pin_limit: None,
            interrupts: self.interrupts,
            costs: VirtCosts::linux(),
            kernel: params(DmaMode::Off),
        }
    }

    /// What a future gives.
    fn wait<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.simulation.block_on(future).unwrap_or_else(|deadlock| panic!("{deadlock}"))
    }

    /// Bytes of the host's memory that are free.
    fn free(&self) -> u64 {
        self.kernel.memory().iter().map(|node| node.free.get()).sum()
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
    for vm in [&one, &two] {
        assert!(vm.stolen() > work / 3 && vm.stolen() < work * 3 / 2, "{}", vm.stolen());
    }
}

/// A core of a guest that spins on a lock, a word in the guest's memory, spins for as long as the holder's core is somebody else's, too.
#[test]
fn who_waits_for_a_lock_waits_while_its_holder_has_no_core() {
    let held = Duration::from_ms(20);
    let waited = |others: bool| {
        let host = host(DmaMode::Strict, false);
        let vm = host.guest("guest", &[2, 3]).unwrap();
        let face = vm.kernel().face();
        let lock = host.run(&vm.kernel(), 0, move |cpu| {
            Box::pin(async move {
                let lock = face.alloc_pages(&cpu, 0, Policy::Local).unwrap().start;
                cpu.store_u64(lock, 1);
                lock
            })
        });
        if others {
            // The host has something else for the core of the first.
            drop(start(&host.kernel, 2, move |cpu| {
                Box::pin(async move {
                    for _ in 0..1000 {
                        cpu.stall(Duration::from_us(100));
                        cpu.sync().await;
                    }
                })
            }));
        }
        let holder = start(&vm.kernel(), 0, move |cpu| {
            Box::pin(async move {
                for _ in 0..200 {
                    cpu.stall(held / 200);
                    cpu.sync().await;
                }
                cpu.store_u64(lock, 0);
            })
        });
        let before = vm.stolen();
        let waited = host.run(&vm.kernel(), 1, move |cpu| {
            Box::pin(async move {
                let began = cpu.now();
                while cpu.load_u64(lock) != 0 {
                    cpu.stall(Duration::from_us(1));
                    cpu.sync().await;
                }
                cpu.now().since(began)
            })
        });
        host.simulation.block_on(async move { holder.wait().await }).unwrap();
        (waited, vm.stolen() - before)
    };
    let (alone, none) = waited(false);
    assert!(alone >= held && alone < held + held / 20, "{alone}");
    assert!(none < held / 20, "{none}");
    let (longer, stolen) = waited(true);
    assert!(longer > held * 3 / 2 && longer < held * 3, "{longer}");
    // Of the two cores only the holder's was taken: the other has spun all the time.
    let difference = longer - held;
    assert!(stolen > difference * 9 / 10 && stolen < difference * 11 / 10, "{stolen} of {longer}");
}

#[test]
fn nothing_is_passed_through_without_an_iommu() {
    let host = host(DmaMode::Off, true);
    let refused = host.guest("x", &[2]).err();
    assert!(matches!(refused, Some(VmError::Function(_, Error::NotSupported))), "{refused:?}");
}

/// Reads of 4 KiB, one after the other, for as long as they succeed; how many have.
fn read_on(kernel: &Rc<Kernel>, on: u16, done: &Rc<Cell<u64>>) {
    let (face, done) = (kernel.face(), Rc::clone(done));
    start(kernel, on, move |cpu| {
        Box::pin(async move {
            let file = face.open_block("/dev/nvme0n1").expect("the drive is found");
            let at = face.alloc_pages(&cpu, 0, Policy::Local).unwrap().start;
            let completions = IoCompletions::new();
            for n in 0u64.. {
                let memory = vec![Segment { at, length: 4096 }];
                let request =
                    IoRequest { op: BlockOp::Read, offset: n % 64 * 4096, length: 4096, memory, token: n };
                file.submit(&cpu, vec![request], &completions);
                if completions.next().await.result.is_err() {
                    return;
                }
                done.set(done.get() + 1);
            }
        })
    });
}

/// Whether interrupts come as messages of the host or as posted ones, a core that computes takes them.
#[test]
fn a_busy_core_takes_interrupts() {
    for support in [InterruptSupport::Software, InterruptSupport::Virtual, InterruptSupport::Posted] {
        let host = host_with(DmaMode::Strict, true, support);
        let vm = host.guest("x", &[2, 3]).unwrap();
        let busy = Completion::new();
        let (ended, idle) =
            (busy.clone(), TaskParams { priority: Priority::Idle, ..TaskParams::named("busy") });
        vm.kernel().spawn(idle.on(CpuId(1)), move |cpu| {
            Box::pin(async move {
                for _ in 0..2_000 {
                    cpu.stall(Duration::from_us(1));
                    cpu.sync().await;
                }
                ended.complete(());
            })
        });
        let (done, before, posted) = (Rc::new(Cell::new(0)), vm.exits(), vm.interrupts_posted());
        read_on(&vm.kernel(), 1, &done);
        host.wait(async move { busy.wait().await });
        let (exits, posted) = (vm.exits().since(&before), vm.interrupts_posted() - posted);
        println!("{support:?}: {} reads, {posted} posted, {exits:?}", done.get());
        assert!(done.get() > 5, "{}", done.get());
        match support {
            InterruptSupport::Posted => {
                assert!(posted >= done.get());
                assert_eq!((exits.of(Exit::Interrupt), exits.of(Exit::EndOfInterrupt)), (0, 0));
            }
            _ => assert!(exits.of(Exit::Interrupt) >= done.get(), "{exits:?}"),
        }
    }
}

#[test]
fn a_paused_guest_loses_nothing() {
    let host = host_with(DmaMode::Strict, true, InterruptSupport::Posted);
    let vm = host.guest("x", &[2, 3]).unwrap();
    let done = Rc::new(Cell::new(0));
    read_on(&vm.kernel(), 1, &done);
    let hw = host.simulation.handle();
    let sleep = move |time| {
        let hw = hw.clone();
        async move { hw.sleep(time).await }
    };
    host.wait(sleep(Duration::from_ms(1)));
    vm.pause();
    host.wait(sleep(Duration::from_us(50)));
    let stood = done.get();
    assert!(stood > 5, "{stood}");
    host.wait(sleep(Duration::from_ms(2)));
    assert_eq!(done.get(), stood);
    vm.resume();
    host.wait(sleep(Duration::from_ms(1)));
    assert!(done.get() > stood + 5, "{} after {stood}", done.get());
}

#[test]
fn a_guest_that_is_killed_while_it_reads_leaves_nothing() {
    let host = host_with(DmaMode::Strict, true, InterruptSupport::Posted);
    let free = host.free();
    for _ in 0..3 {
        let vm = host.guest("x", &[2, 3]).unwrap();
        let done = Rc::new(Cell::new(0));
        read_on(&vm.kernel(), 1, &done);
        let hw = host.simulation.handle();
        host.wait(async move { hw.sleep(Duration::from_us(503)).await });
        host.wait(vm.kill());
        assert!(done.get() > 1, "{}", done.get());
        drop(vm);
        assert!(host.free() >= free - (1 << 20), "{} of {free}", host.free());
        assert_eq!(host.kernel.iommu_faults(), []);
    }
}

#[test]
fn a_guest_that_is_reset_boots_again() {
    let host = host_with(DmaMode::Strict, true, InterruptSupport::Posted);
    let vm = host.guest("x", &[2, 3]).unwrap();
    let done = Rc::new(Cell::new(0));
    read_on(&vm.kernel(), 1, &done);
    let hw = host.simulation.handle();
    host.wait(async move { hw.sleep(Duration::from_us(703)).await });
    host.wait(vm.reset());
    vm.kernel().add_driver(Rc::new(NvmeDriver::new(NvmeOptions::default())) as _);
    host.wait(vm.kernel().boot());
    write_and_read(&host, &vm.kernel());
}

/// All of a guest's memory goes to the other node while the guest uses it: it reads what it wrote, and no core goes where a page was.
#[test]
fn pages_move_below_a_guest() {
    let host = host_with(DmaMode::Strict, false, InterruptSupport::Software);
    let vm = host.guest("x", &[2, 3]).unwrap();
    let face = vm.kernel().face();
    let at = host.run(&vm.kernel(), 0, move |cpu| {
        Box::pin(async move {
            let at = face.alloc_pages(&cpu, 12, Policy::Local).unwrap().start;
            (0..4096).for_each(|page: u64| cpu.store_u64(at + page * 4096, page ^ 0x5555));
            at
        })
    });
    let moved = {
        let vm = Rc::clone(&vm);
        host.run(&host.kernel, 0, move |cpu| {
            Box::pin(async move {
                for page in 0..32 {
                    let page = platform::memory::PhysAddr(page << 21);
                    assert_eq!(vm.memory().node_of(page), Some(Node(0)));
                    let old = vm.memory().place(page).unwrap().0;
                    vm.memory().move_page(&cpu, page, Node(1)).unwrap();
                    assert_eq!(vm.memory().node_of(page), Some(Node(1)));
                    // Whoever gets the old page writes something else there.
                    cpu.store_u64(old, u64::MAX);
                    cpu.sync().await;
                }
                vm.memory().moved()
            })
        })
    };
    assert_eq!(moved, 32);
    let right = host.run(&vm.kernel(), 0, move |cpu| {
        Box::pin(async move {
            (0..4096).filter(|page: &u64| cpu.load_u64(at + page * 4096) == page ^ 0x5555).count()
        })
    });
    assert_eq!(right, 4096);
}

#[test]
fn a_page_that_a_device_reaches_stays() {
    let host = host_with(DmaMode::Strict, true, InterruptSupport::Software);
    let vm = host.guest("x", &[2]).unwrap();
    let memory = Rc::clone(vm.memory());
    let refused = host.run(&host.kernel, 0, move |cpu| {
        Box::pin(async move { memory.move_page(&cpu, platform::memory::PhysAddr(0), Node(1)) })
    });
    assert_eq!(refused, Err(Error::Busy));
    assert_eq!(vm.memory().moved(), 0);
}

#[test]
fn memory_that_cannot_be_held_is_told() {
    let host = host_with(DmaMode::Strict, true, InterruptSupport::Software);
    let free = host.free();
    let vm = VmParams { pin_limit: Some(Bytes::mib(62)), ..host.params("x", &[2]) };
    let started = Vm::start(&host.simulation.handle(), &host.kernel, vm, host.vfio.claimed());
    let refused = host.wait(started).err();
    assert!(matches!(refused, Some(VmError::Function(_, Error::NoMemory))), "{refused:?}");
    assert!(host.free() >= free - (1 << 20));
}

/// Gives a queue of 64 entries, its completions a page behind, the `n`th command; whether that is answered.
async fn command(
    cpu: &Cpu,
    registers: &Mmio,
    (queue, at): (u64, PhysAddr),
    n: u64,
    words: &[u8; 64],
) -> bool {
    cpu.store(at + n % 64 * 64, words);
    registers.write_u32(cpu, 0x1000 + 8 * queue, (n as u32 + 1) % 64);
    let completion = at + 4096 + n % 64 * 16 + 12;
    let phase = u32::from(n / 64 % 2 == 0) << 16;
    let deadline = cpu.now() + Duration::from_ms(5);
    while cpu.load_u32(completion) & 1 << 16 != phase && cpu.now() < deadline {
        cpu.cycles(1_000).await;
    }
    registers.write_u32(cpu, 0x1004 + 8 * queue, (n as u32 + 1) % 64);
    cpu.load_u32(completion) & 1 << 16 == phase
}

/// 100,000 accesses of a guest that wants out: by the drive to addresses where it has no memory, and by its cores to addresses where it
/// has no registers.
#[test]
fn a_rogue_guest_reaches_nothing_else() {
    const DMA: u64 = 100_000;
    const ACCESSES: u64 = 100_000;
    let host = host_with(DmaMode::Strict, true, InterruptSupport::Posted);
    let vm = host.start("x", &[2, 3]).unwrap();
    vm.kernel().add_driver(Rc::new(VfioDriver::nvme()) as _);
    host.wait(vm.kernel().boot());
    let face = host.kernel.face();
    let kept = host.run(&host.kernel, 0, move |cpu| {
        Box::pin(async move {
            let at = face.alloc_pages(&cpu, 4, Policy::Local).unwrap().start;
            (0..8192).for_each(|word: u64| cpu.store_u64(at + word * 8, word * 3));
            at
        })
    });
    let (face, ground) = (vm.kernel().face(), vm.kernel().ground());
    let before = vm.exits();
    let answered = host.run(&vm.kernel(), 1, move |cpu| {
        Box::pin(async move {
            let mut random = 7u64;
            let mut next = move || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random
            };
            let drive = face.open_file("vfio0").expect("the drive is the program's");
            let drive = drive.downcast::<PciDevice>().expect("it is a function");
            let rings = face.alloc_pages(&cpu, 2, Policy::Local).unwrap().start;
            let registers = drive.ioremap_bar(0, MemoryType::Uncached).unwrap();
            // NVMe base specification, 3.1: the admin queues of 64 entries, then the controller is enabled.
            cpu.store(rings + 4096, &[0; 4096]);
            registers.write_u32(&cpu, 0x24, 63 << 16 | 63);
            registers.write_u64(&cpu, 0x28, rings.0);
            registers.write_u64(&cpu, 0x30, rings.0 + 4096);
            registers.write_u32(&cpu, 0x14, 4 << 20 | 6 << 16 | 1);
            while registers.read_u32(&cpu, 0x1c).await & 1 == 0 {
                cpu.sleep(Duration::from_us(10)).await;
            }
            // Section 5.3 and 5.4: queues for reads and writes, behind the others.
            let io = rings + 8192;
            let create = |opcode: u8, at: PhysAddr, flags: u32| {
                let mut command = [0; 64];
                command[0] = opcode;
                command[24..32].copy_from_slice(&at.0.to_le_bytes());
                command[40..44].copy_from_slice(&(63u32 << 16 | 1).to_le_bytes());
                command[44..48].copy_from_slice(&flags.to_le_bytes());
                command
            };
            cpu.store(io + 4096, &[0; 4096]);
            command(&cpu, &registers, (0, rings), 0, &create(5, io + 4096, 1)).await;
            command(&cpu, &registers, (0, rings), 1, &create(1, io, 1 << 16 | 1)).await;
            let mut answered = 0;
            for n in 0..DMA {
                // Beyond its memory; nothing is mapped there but the drive's own registers, which it does not meet.
                let at = ((next() % (1 << 40)) & !0xfff) + (64 << 20);
                let mut words = [0; 64];
                words[24..32].copy_from_slice(&at.to_le_bytes());
                // The drive writes there what it is, or reads from there what is to be written.
                let is_answered = match n % 2 {
                    0 => {
                        (words[0], words[40]) = (6, 1);
                        command(&cpu, &registers, (0, rings), n / 2 + 2, &words).await
                    }
                    _ => {
                        (words[0], words[4], words[48]) = (1, 1, 7);
                        command(&cpu, &registers, (1, io), n / 2, &words).await
                    }
                };
                answered += u64::from(is_answered);
            }
            for n in 0..ACCESSES {
                let at = PhysAddr((next() % (1 << 44)) & !7);
                if ground.is_memory(at, 8) {
                    continue;
                }
                match n % 2 {
                    0 => ground.store_to_device(cpu.id(), cpu.now(), Store::Uncached(at.0, &[0xff; 8])),
                    _ => {
                        let read = ground.read_device(cpu.id(), at, 8).expect("the hypervisor answers");
                        assert_eq!(cpu.stall_on(read).await.unwrap(), [0xff; 8]);
                    }
                }
            }
            cpu.sync().await;
            answered
        })
    });
    assert_eq!(answered, DMA);
    assert!(vm.dma_faults() >= DMA, "{}", vm.dma_faults());
    let exits = vm.exits().since(&before);
    assert!(exits.of(Exit::Unmapped) > ACCESSES * 99 / 100, "{exits:?}");
    let right = host.run(&host.kernel, 0, move |cpu| {
        Box::pin(async move { (0..8192).all(|word: u64| cpu.load_u64(kept + word * 8) == word * 3) })
    });
    assert!(right, "the host's memory is its own");
}
