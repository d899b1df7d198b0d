//! spdk_nvme_perf: keeps drives busy from user space, with a queue for each core that drives one.
//!
//! As in the original, drives and cores are matched in turn, and a core polls its drives one after the other. Commands that follow
//! completions of one round are submitted together.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::TaskParams;
use platform::mmio::Mmio;
use units::{Duration, Time};
use wire::nvme::io::Blocks;
use wire::nvme::{DataPointer, IoCommand};

use crate::cuda::{Context, gpu};
use crate::nvm::{BLOCK, Controller, MOST, Queue, controllers};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::Random;
use crate::unmodelled::Unmodelled;

/// Blocks that are read and written: 8 GiB.
const SPAN: u64 = 1 << 24;
/// Cycles of a round over a drive's queue (assumed: tens of instructions), and of each completion and the command that follows it
/// (fitted by hand: 10.7 million reads a second by one thread at 4 GHz, for sixteen drives; xNVMe's experiments, Dell R760).
const ROUND: u64 = 40;
const COMPLETE: u64 = 100;
const BUILD: u64 = 255;
/// Time from the first commands until counting begins.
const SETTLING: Duration = Duration::from_us(100);

/// Options that are not carried out.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-r, --transport ADDRESS", "drives are those reserved for programs"),
    Unmodelled::harmless(
        "-a, --warmup-time SECONDS",
        "counting begins when all queues have been full for a while",
    ),
    Unmodelled::harmless("-s, --hugemem-size MEGABYTES", "buffers have the memory that they need"),
    Unmodelled::harmless("-g, --mem-single-seg", "buffers have the memory that they need"),
    Unmodelled::harmless("-L, --enable-sw-latency-tracking", "the mean latency is always told"),
    Unmodelled::refused("-c, --core-mask MASK", "`cpus` of the program, or `taskset` before it"),
    Unmodelled::refused("-P, --num-qpairs COUNT", "a core has one queue for each of its drives"),
];

/// Reads or writes all drives that are reserved for programs (`user_space = true` in the host's `nvme_driver`), with polled queues
/// of the program's own cores, like SPDK's perf.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "spdk_nvme_perf")]
pub struct SpdkPerf {
    /// Commands in flight of each queue.
    #[arg(short = 'q', long = "io-depth", value_parser = clap::value_parser!(u16).range(1..=1023))]
    depth: u16,
    /// Bytes of a command.
    #[arg(short = 'o', long = "io-size", value_parser = options::size)]
    bytes: u64,
    /// `read`, `randread`, `write`, `randwrite`, or `rw` and `randrw`, whose share of reads `-M` tells.
    #[arg(short = 'w', long = "io-pattern", value_parser = ["read", "randread", "write", "randwrite", "rw", "randrw"])]
    pattern: String,
    /// Percentage of reads of `rw` and `randrw`.
    #[arg(short = 'M', long = "rwmixread", value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: Option<u8>,
    /// Data in the memory of this GPU, which the drives write and read themselves (not in the original; as xNVMe's upcie-cuda).
    #[arg(long)]
    gpu: Option<u32>,
    /// Simulated time in seconds.
    #[arg(short = 't', long = "time", default_value_t = 2e-4, value_parser = options::length)]
    time: f64,
}

/// When commands are counted: known once all cores have filled their queues.
type CountedTime = Rc<Cell<Option<(Time, Time)>>>;

/// A queue of a drive, as one core uses it.
struct DriveQueue {
    registers: Mmio,
    io: Queue,
    /// Bytes and place of each command's buffer.
    buffers: Vec<DataPointer>,
    /// When each command was submitted.
    began: Vec<Time>,
    random: Random,
    next: u64,
}

/// What a core has counted.
#[derive(Clone, Copy, Default)]
struct PerfTally {
    commands: u64,
    latency: Duration,
}

impl DriveQueue {
    fn push(&mut self, cpu: &Cpu, options: &SpdkPerf, id: u16) {
        let blocks = options.bytes / BLOCK;
        let places = SPAN / blocks;
        let place = match options.pattern.starts_with("rand") {
            true => self.random.below(places),
            false => self.next % places,
        };
        self.next += 1;
        let range = Blocks::new(place * blocks, blocks as u32);
        let reads = match options.pattern.ends_with("rw") {
            true => self.random.below(100) < options.reads.unwrap_or(100).into(),
            false => options.pattern.ends_with("read"),
        };
        let command = match reads {
            true => IoCommand::Read(range),
            false => IoCommand::Write(range),
        };
        self.began[usize::from(id)] = cpu.now();
        self.io.push(cpu, command.command(id, 1).with_data(self.buffers[usize::from(id)]), BUILD);
    }

    /// Submits as many commands as are to be in flight.
    fn fill(&mut self, cpu: &Cpu, options: &SpdkPerf) {
        (0..options.depth).for_each(|id| self.push(cpu, options, id));
        self.io.submit(cpu, &self.registers);
    }

    /// Takes completions, of which those within the window count, and submits the next commands unless it `ends`.
    fn round(
        &mut self,
        cpu: &Cpu,
        options: &SpdkPerf,
        window: Option<(Time, Time)>,
        ends: bool,
    ) -> Result<(u64, PerfTally), Failure> {
        cpu.work(ROUND);
        let (mut taken, mut counted) = (0, PerfTally::default());
        while let Some(entry) = self.io.completed(cpu)? {
            cpu.work(COMPLETE);
            taken += 1;
            let now = cpu.now();
            if window.is_some_and(|(begin, end)| (begin..end).contains(&now)) {
                counted.commands += 1;
                counted.latency += now.since(self.began[usize::from(entry.id)]);
            }
            if !ends {
                self.push(cpu, options, entry.id);
            }
        }
        if taken > 0 {
            self.io.release(cpu, &self.registers);
            if !ends {
                self.io.submit(cpu, &self.registers);
            }
        }
        Ok((taken, counted))
    }
}

/// What a core does: fills its queues, and polls them until the window ends and nothing is in flight.
async fn work(
    cpu: &Cpu,
    options: &SpdkPerf,
    mut queues: Vec<DriveQueue>,
    (window, waiting): (CountedTime, Rc<Cell<usize>>),
) -> Result<PerfTally, Failure> {
    for queue in &mut queues {
        queue.fill(cpu, options);
        cpu.sync().await;
    }
    waiting.set(waiting.get() - 1);
    if waiting.get() == 0 {
        let begin = cpu.now() + SETTLING;
        window.set(Some((begin, begin + options::duration(options.time))));
    }
    let (mut open, mut all) = (u64::from(options.depth) * queues.len() as u64, PerfTally::default());
    while open > 0 {
        for queue in &mut queues {
            let ends = window.get().is_some_and(|(_, end)| cpu.now() >= end);
            let (taken, counted) = queue.round(cpu, options, window.get(), ends)?;
            open -= if ends { taken } else { 0 };
            all.commands += counted.commands;
            all.latency += counted.latency;
            if taken == 0 {
                cpu.rebook(Part::User, Part::Poll);
            }
            cpu.sync().await;
        }
    }
    Ok(all)
}

impl SpdkPerf {
    async fn measure(self: Rc<Self>, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let failed = |error| Failure::about("spdk_nvme_perf: buffers", error);
        let cores = &environment.cpus;
        let entries = (self.depth + 1).next_power_of_two();
        let mut drives = Vec::new();
        for device in controllers(&*environment.kernel) {
            drives.push(Controller::open(cpu, &device, entries).await?);
        }
        let mut queues: Vec<(CpuId, Vec<DriveQueue>)> =
            cores.iter().map(|&core| (core, Vec::new())).collect();
        let (mut controllers, first): (Vec<Controller>, Vec<Queue>) = drives.into_iter().unzip();
        let mut first: Vec<Option<Queue>> = first.into_iter().map(Some).collect();
        let pairs = controllers.len().max(cores.len());
        let page = self.bytes.next_multiple_of(4096);
        let of_queue = page * u64::from(self.depth);
        let gpu = match self.gpu {
            None => None,
            Some(number) => {
                let context = Context::open(cpu, &*gpu(&*environment.kernel, number)?)?;
                let memory = context.malloc(cpu, of_queue * pairs as u64)?;
                let far = || Failure("spdk_nvme_perf: drives do not reach GPU memory so far up".into());
                let shown = memory.shown.ok_or_else(far)?;
                let mut seen = Vec::new();
                for controller in &mut controllers {
                    let at = controller.map_peer(cpu, shown, memory.bytes);
                    seen.push(at.map_err(|error| Failure::about("spdk_nvme_perf: the GPU's memory", error))?);
                }
                Some((context, seen))
            }
        };
        for pair in 0..pairs {
            let drive = pair % controllers.len();
            let io = match first[drive].take() {
                Some(io) => io,
                None => {
                    let id = (pair / controllers.len() + 1) as u16;
                    controllers[drive].add_queue(cpu, id, entries).await?
                }
            };
            let controller = &mut controllers[drive];
            let mut buffers = Vec::new();
            for number in 0..u64::from(self.depth) {
                let one = match &gpu {
                    None => controller.buffers(cpu, self.bytes),
                    Some((_, seen)) => {
                        let at = seen[drive] + pair as u64 * of_queue + number * page;
                        controller.pointers(cpu, at, self.bytes)
                    }
                };
                let one = one.map_err(failed)?;
                buffers.extend(one.into_iter().map(|(_, pointer)| pointer));
            }
            let began = vec![Time::ZERO; buffers.len()];
            let random = Random::new(environment.seed, pair as u64);
            let registers = controller.registers.clone();
            queues[pair % cores.len()].1.push(DriveQueue { registers, io, buffers, began, random, next: 0 });
        }
        queues.retain(|(_, own)| !own.is_empty());
        let shared = (CountedTime::default(), Rc::new(Cell::new(queues.len())));
        let mut workers = Vec::new();
        environment.span.begin();
        for (core, own) in queues {
            let (options, shared) = (Rc::clone(&self), shared.clone());
            let params = TaskParams::named(format!("spdk_nvme_perf/{}", core.0)).on(core).of(cpu);
            let run = async move |cpu: Cpu| work(&cpu, &options, own, shared).await;
            workers.push(environment.kernel.run(params, run));
        }
        let mut all = PerfTally::default();
        for worker in workers {
            let PerfTally { commands, latency } = worker.wait().await?;
            all.commands += commands;
            all.latency += latency;
        }
        environment.span.end();
        for controller in controllers {
            controller.close(cpu).await;
        }
        if let Some((context, _)) = gpu {
            context.close(cpu);
        }
        let rate = all.commands as f64 / self.time;
        let mut report = Report::default();
        report.add("iops", "1/s", rate);
        report.add("throughput", "GB/s", rate * self.bytes as f64 / 1e9);
        report.add("latency mean", "us", all.latency.as_ns_f64() / 1e3 / all.commands.max(1) as f64);
        Ok(report)
    }
}

impl Program for SpdkPerf {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let message = "spdk_nvme_perf: there is no drive for programs";
        let help = "a `drive` and `user_space = true` of the host's `nvme_driver`";
        Refused::unless(premises.user_drives > 0, message, help)?;
        if let Some(number) = self.gpu {
            premises.gpu("spdk_nvme_perf", number)?;
        }
        let is_mixed = self.pattern.ends_with("rw");
        let message = format!("spdk_nvme_perf: `-w {}` does not say how much it reads", self.pattern);
        Refused::unless(!is_mixed || self.reads.is_some(), message, "-M 0 to 100, the percentage of reads")?;
        let message = format!("spdk_nvme_perf: `-w {}` has no mixture for -M", self.pattern);
        Refused::unless(is_mixed || self.reads.is_none(), message, "-w rw or -w randrw")?;
        let message = format!("spdk_nvme_perf: commands of {} bytes are not possible", self.bytes);
        let is_possible = self.bytes % BLOCK == 0 && (BLOCK..=MOST).contains(&self.bytes);
        Refused::unless(is_possible, message, format!("blocks of {BLOCK} bytes, up to {MOST}"))?;
        let queues = u128::from(premises.user_drives).max(premises.cores as u128);
        // A buffer has whole pages, and perhaps a list of them.
        let each = u128::from(self.bytes.next_multiple_of(4096) + 4096);
        premises.holds("spdk_nvme_perf", "its buffers", queues * u128::from(self.depth) * each)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
