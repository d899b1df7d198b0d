//! Drives NVMe drives from user space: own queues and doorbells, polled completions.
//!
//! Programs use a controller without a kernel driver, and create I/O queues without interrupts. `nvm-latency` is one of them.

use std::rc::Rc;

use hdrhistogram::Histogram;
use platform::cpu::{Async, Cpu, Part};
use platform::dma::{Coherent, Direction, DmaOps};
use platform::kernel::Kernel;
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::PciDevice;
use units::{Duration, Iova, Time};
use wire::nvme::io::Blocks;
use wire::nvme::registers as regs;
use wire::nvme::{
    AdminCommand, AdminQueues, Capabilities, Command, CompletionEntry, CompletionRing, Configuration,
    ControllerStatus, DataPointer, IoCommand, SubmissionRing,
};

use crate::latency::percentiles;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::Random;

/// Entries of the admin queue, and of others unless more are asked for.
const ENTRIES: u16 = 64;
/// Page size of the controller.
const PAGE: u64 = 4096;
/// Block size, and maximum bytes per command.
pub(crate) const BLOCK: u64 = 512;
pub(crate) const MOST: u64 = 128 << 10;
/// Cycles to build a command (assumed: tens of stores), and per iteration of the polling loop (assumed).
const BUILD: u64 = 150;
const SPIN: u64 = 30;
/// Polling interval and timeout while the controller starts.
const LOOK: Duration = Duration::from_us(100);
const PATIENCE: Duration = Duration::from_ms(500);

/// Reads blocks of an NVMe drive from user space, one read after the other, and polls for completions. The drive must
/// be reserved for programs by `user_space = true` in the host's `nvme_driver`.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "nvm-latency")]
pub struct NvmLatency {
    /// Index among the controllers reserved for programs.
    #[arg(long, default_value_t = 0)]
    controller: u32,
    /// Blocks of 512 bytes per read. Reads above 128 KiB take several concurrent commands.
    #[arg(long, default_value_t = 8)]
    blocks: u64,
    /// `random` or `sequential`.
    #[arg(long, default_value = "random", value_parser = ["random", "sequential"])]
    pattern: String,
    /// Number of reads.
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// Size of the range to read, in blocks.
    #[arg(long, default_value_t = 1 << 24)]
    span: u64,
}

/// A queue pair.
pub(crate) struct Queue {
    submission: Coherent,
    completion: Coherent,
    pub rings: (SubmissionRing, CompletionRing),
    doorbells: [u64; 2],
}

impl Queue {
    fn new(cpu: &Cpu, dma: &dyn DmaOps, id: u16, entries: u16, stride: u8) -> Result<Self, platform::Error> {
        let bytes = |each: usize| (u64::from(entries) * each as u64).next_multiple_of(PAGE);
        let submission = dma.alloc_coherent(cpu, bytes(wire::nvme::command::LEN), None)?;
        let completion = dma.alloc_coherent(cpu, bytes(wire::nvme::completion::LEN), None)?;
        let rings = (SubmissionRing::new(entries), CompletionRing::new(entries));
        let doorbells = [regs::submission_doorbell(id, stride), regs::completion_doorbell(id, stride)];
        Ok(Self { submission, completion, rings, doorbells })
    }

    /// Writes a command into the ring, which took so many cycles to build.
    pub fn push(&mut self, cpu: &Cpu, command: Command, cycles: u64) {
        cpu.work(cycles);
        let place = self.rings.0.push().unwrap_or_default();
        cpu.store(self.submission.cpu + u64::from(place) * wire::nvme::command::LEN as u64, &command.emit());
    }

    /// Tells the controller of the commands in the ring.
    pub fn submit(&self, cpu: &Cpu, registers: &Mmio) {
        registers.write_u32(cpu, self.doorbells[0], self.rings.0.tail().into());
    }

    /// The next completion, if it is there.
    ///
    /// # Errors
    /// If the command failed.
    pub fn completed(&mut self, cpu: &Cpu) -> Result<Option<CompletionEntry>, Failure> {
        let mut bytes = [0; wire::nvme::completion::LEN];
        let at = u64::from(self.rings.1.head()) * bytes.len() as u64;
        cpu.load(self.completion.cpu + at, &mut bytes);
        let Some(entry) = self.rings.1.take(&bytes) else { return Ok(None) };
        if !entry.status.is_success() {
            return Err(Failure(format!("a command of the drive failed: {:?}", entry.status)));
        }
        self.rings.0.completed(entry.submission_head);
        Ok(Some(entry))
    }

    /// Gives the places of completions back.
    pub fn release(&self, cpu: &Cpu, registers: &Mmio) {
        registers.write_u32(cpu, self.doorbells[1], self.rings.1.head().into());
    }

    /// Rings the doorbell and polls until `count` commands have completed.
    async fn finish(&mut self, cpu: &Cpu, registers: &Mmio, mut count: u64) -> Result<(), Failure> {
        self.submit(cpu, registers);
        let deadline = cpu.now() + PATIENCE;
        while count > 0 {
            cpu.work(SPIN);
            match self.completed(cpu)? {
                Some(_) => count -= 1,
                None if cpu.now() > deadline => {
                    return Err(Failure("the drive does not answer".into()));
                }
                None => cpu.rebook(Part::User, Part::Poll),
            }
            cpu.sync().await;
        }
        self.release(cpu, registers);
        Ok(())
    }
}

/// A controller started by the program.
pub(crate) struct Controller {
    pub registers: Mmio,
    dma: Rc<dyn DmaOps>,
    stride: u8,
    admin: Queue,
    memory: Vec<Coherent>,
    /// Mappings of other devices' memory, with their lengths.
    peers: Vec<(Iova, u64)>,
}

/// The controllers that are reserved for programs.
pub(crate) fn controllers(kernel: &dyn Kernel) -> impl Iterator<Item = Rc<PciDevice>> + use<'_> {
    let files = (0..).map_while(|n| kernel.open_file(&format!("vfio{n}")));
    // Other cards may be for programs, too.
    files
        .filter_map(|file| file.downcast::<PciDevice>().ok())
        .filter(|device| device.identity().class == wire::nvme::CLASS)
}

impl Controller {
    /// Starts a controller, with an I/O queue of so many entries.
    pub async fn open(cpu: &Cpu, device: &PciDevice, entries: u16) -> Result<(Self, Queue), Failure> {
        let failed = |error| Failure::about("the drive", error);
        let registers = device.ioremap_bar(0, MemoryType::Uncached).map_err(failed)?;
        let dma = device.dma();
        let stride = Capabilities::from_bits(registers.read_u64(cpu, regs::CAP).await).doorbell_stride;
        let ready = |wanted: bool| move |bits| ControllerStatus::from_bits(bits).ready == wanted;
        registers.write_u32(cpu, regs::CC, 0);
        registers.poll_u32(cpu, regs::CSTS, LOOK, PATIENCE, ready(false)).await.map_err(failed)?;
        let admin = Queue::new(cpu, &*dma, 0, ENTRIES, stride).map_err(failed)?;
        let io = Queue::new(cpu, &*dma, 1, entries, stride).map_err(failed)?;
        let last = ENTRIES - 1;
        registers.write_u32(cpu, regs::AQA, AdminQueues { submission: last, completion: last }.to_bits());
        registers.write_u64(cpu, regs::ASQ, admin.submission.bus.get());
        registers.write_u64(cpu, regs::ACQ, admin.completion.bus.get());
        registers.write_u32(cpu, regs::CC, Configuration::enabled().to_bits());
        registers.poll_u32(cpu, regs::CSTS, LOOK, PATIENCE, ready(true)).await.map_err(failed)?;
        let memory = vec![admin.submission, admin.completion];
        let mut controller = Self { registers, dma, stride, admin, memory, peers: Vec::new() };
        controller.create(cpu, 1, entries, &io).await?;
        Ok((controller, io))
    }

    /// Another I/O queue of so many entries, with a number of its own.
    pub async fn add_queue(&mut self, cpu: &Cpu, id: u16, entries: u16) -> Result<Queue, Failure> {
        let queue = Queue::new(cpu, &*self.dma, id, entries, self.stride);
        let queue = queue.map_err(|error| Failure::about("the drive", error))?;
        self.create(cpu, id, entries, &queue).await?;
        Ok(queue)
    }

    async fn create(&mut self, cpu: &Cpu, id: u16, entries: u16, queue: &Queue) -> Result<(), Failure> {
        let size = entries - 1;
        let completion = AdminCommand::CreateCompletionQueue {
            queue: id,
            size,
            contiguous: true,
            interrupts: false,
            vector: 0,
        };
        let submission = AdminCommand::CreateSubmissionQueue {
            queue: id,
            size,
            contiguous: true,
            priority: 0,
            completion_queue: id,
        };
        for (command, memory) in [(completion, queue.completion), (submission, queue.submission)] {
            let pointer = DataPointer::Prp { first: memory.bus.get(), second: 0 };
            self.admin.push(cpu, command.command(1, 0).with_data(pointer), BUILD);
            self.admin.finish(cpu, &self.registers, 1).await?;
        }
        self.memory.extend([queue.submission, queue.completion]);
        Ok(())
    }

    /// Allocates a buffer of `bytes` and its PRP lists. Returns the bytes and the data pointer of each command.
    pub fn buffers(&mut self, cpu: &Cpu, bytes: u64) -> Result<Vec<(u64, DataPointer)>, platform::Error> {
        let data = self.dma.alloc_coherent(cpu, bytes.next_multiple_of(PAGE), None)?;
        self.memory.push(data);
        self.pointers(cpu, data.bus.get(), bytes)
    }

    /// Another device's memory, at this address for cores, as the controller reaches it.
    pub fn map_peer(&mut self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<u64, platform::Error> {
        let bus = self.dma.map_resource(cpu, at, bytes, Direction::Bidirectional)?;
        self.peers.push((bus, bytes));
        Ok(bus.get())
    }

    /// Allocates the PRP lists of a buffer of `bytes` that is at `bus` already, for the controller. Returns as [`Self::buffers`].
    pub fn pointers(
        &mut self,
        cpu: &Cpu,
        bus: u64,
        bytes: u64,
    ) -> Result<Vec<(u64, DataPointer)>, platform::Error> {
        let mut all = Vec::new();
        for at in (0..bytes).step_by(MOST as usize) {
            let length = MOST.min(bytes - at);
            let first = bus + at;
            let pages = length.div_ceil(PAGE);
            let second = match pages {
                1 => 0,
                2 => first + PAGE,
                _ => {
                    let list = self.dma.alloc_coherent(cpu, PAGE, None)?;
                    self.memory.push(list);
                    for page in 1..pages {
                        cpu.store_u64(list.cpu + 8 * (page - 1), first + page * PAGE);
                    }
                    list.bus.get()
                }
            };
            all.push((length, DataPointer::Prp { first, second }));
        }
        Ok(all)
    }

    /// Stops it and frees everything.
    pub async fn close(self, cpu: &Cpu) {
        self.registers.write_u32(cpu, regs::CC, 0);
        let down = |bits| !ControllerStatus::from_bits(bits).ready;
        // A controller that does not stop keeps its memory, since it might still write there.
        if self.registers.poll_u32(cpu, regs::CSTS, LOOK, PATIENCE, down).await.is_ok() {
            self.memory.iter().for_each(|memory| self.dma.free_coherent(cpu, *memory));
            for (at, bytes) in self.peers {
                self.dma.unmap_resource(cpu, at, bytes, Direction::Bidirectional);
            }
        }
    }
}

impl NvmLatency {
    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let device = controllers(&*environment.kernel).nth(self.controller as usize);
        let none = || Failure(format!("nvm-latency: no controller {} is for programs", self.controller));
        let (mut controller, mut io) = Controller::open(cpu, &*device.ok_or_else(none)?, ENTRIES).await?;
        let bytes = self.blocks * BLOCK;
        let buffers =
            controller.buffers(cpu, bytes).map_err(|error| Failure::about("nvm-latency: buffers", error))?;
        let mut random = Random::new(environment.seed, 0);
        // Up to a second, in nanoseconds.
        let times = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 4);
        let mut times = times.map_err(|error| Failure(error.to_string()))?;
        let places = (self.span / self.blocks).max(1);
        environment.span.begin();
        for n in 0..self.count {
            let place = if self.pattern == "random" { random.below(places) } else { n % places };
            let began: Time = cpu.now();
            let mut block = place * self.blocks;
            for (id, (length, pointer)) in (0..).zip(&buffers) {
                let blocks = length / BLOCK;
                let read = IoCommand::Read(Blocks::new(block, blocks as u32));
                io.push(cpu, read.command(id, 1).with_data(*pointer), BUILD);
                block += blocks;
            }
            io.finish(cpu, &controller.registers, buffers.len() as u64).await?;
            times.saturating_record(cpu.now().since(began).as_ps() / 1_000);
        }
        environment.span.end();
        controller.close(cpu).await;
        let median = times.value_at_quantile(0.5) as f64;
        let mut report = Report::default();
        report.add("latency median", "us", median / 1e3);
        report.add("latency mean", "us", times.mean() / 1e3);
        let value = |percent: f64| times.value_at_quantile(percent / 100.0) as f64 / 1e3;
        percentiles(&mut report, ("latency", "us"), times.len(), &[("p99".into(), 99.0)], value);
        report.add("bandwidth median", "GB/s", bytes as f64 / median);
        Ok(report)
    }
}

impl Program for NvmLatency {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let message = format!("nvm-latency: there is no controller {} for programs", self.controller);
        let help = "a `drive` and `user_space = true` of the host's `nvme_driver`";
        Refused::unless(self.controller < premises.user_drives, message, help)?;
        let most = u64::from(ENTRIES - 1) * MOST / BLOCK;
        let message = format!("nvm-latency: reads of {} blocks are not possible", self.blocks);
        Refused::unless((1..=most).contains(&self.blocks), message, format!("1 to {most}"))?;
        let message = format!("nvm-latency: {} reads within {} blocks", self.count, self.span);
        Refused::unless(
            self.count > 0 && self.span >= self.blocks,
            message,
            "at least one, within as many blocks as it reads",
        )
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
