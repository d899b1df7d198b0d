//! Sums over the buffers of all GPUs, in a ring (nccl-tests, `all_reduce_perf`).
//!
//! Each buffer has a piece for each GPU. A GPU sends a piece to the next one, which adds it to its own and sends the sum on, until
//! all sums have been everywhere: twice as many steps as there are others. Pieces go in slices, each with a flag behind it, so
//! that a step begins before the last one has ended.

use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use wire::gpu::{GpuCommand, Place, SEMAPHORE_BYTES};

use super::stream::CudaStream;
use super::{Context, HostMemory, gpu};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Bytes of a slice: NCCL's buffer of 4 MiB between two GPUs has eight steps (`NCCL_BUFFSIZE`, `NCCL_STEPS`).
const SLICE: u64 = 512 << 10;
/// Commands for a slice, and the slices that are handed over together.
const COMMANDS: usize = 3;
const TOGETHER: usize = 2;
/// Cycles of a call (assumed: as the launch of a kernel, 3 us).
const CALL: u64 = 5_000;

/// Options that are not carried out.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-c, --check COUNT", "sums are not made, only moved"),
    Unmodelled::harmless("-d, --datatype TYPE", "bytes are moved, whatever they are"),
    Unmodelled::harmless("-o, --op OPERATION", "sums are not made, only moved"),
    Unmodelled::harmless("-z, --blocking COUNT", "calls of a size follow each other"),
    Unmodelled::refused("-t, --nthreads COUNT", "one thread has all GPUs"),
    Unmodelled::refused("-i, --stepbytes BYTES", "`-f` is the factor between sizes"),
];

/// Sums over the buffers of several GPUs, in a ring in the order of their numbers. The additions themselves take no time: kernels
/// make them while data come in.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "all_reduce_perf")]
pub struct AllReduce {
    /// Smallest size of the buffers.
    #[arg(short = 'b', long = "minbytes", value_parser = options::size, default_value = "8m")]
    least: u64,
    /// Largest size; the smallest one if not given.
    #[arg(short = 'e', long = "maxbytes", value_parser = options::size)]
    most: Option<u64>,
    /// Factor between two sizes.
    #[arg(short = 'f', long = "stepfactor", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// Number of GPUs, the first ones; all if not given (one in the original).
    #[arg(short = 'g', long = "ngpus", value_parser = clap::value_parser!(u32).range(2..))]
    gpus: Option<u32>,
    /// Measured calls of each size (20 in the original).
    #[arg(short = 'n', long = "iters", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// Calls before these.
    #[arg(short = 'w', long = "warmup_iters", default_value_t = 1)]
    warm_up: u32,
}

/// A GPU in the ring.
struct RingGpu {
    context: Rc<Context>,
    own: Place,
    /// The next GPU's memory.
    next: Place,
}

/// All GPUs in their order, with buffers and flags behind them.
struct GpuRing {
    gpus: Vec<RingGpu>,
    flags: u64,
    /// The last value of the flags.
    done: u64,
}

impl GpuRing {
    async fn open(cpu: &Cpu, kernel: &dyn Kernel, count: u32, bytes: u64) -> Result<Self, Failure> {
        // What no memory has is refused where it is taken.
        let flags = bytes.min(u64::MAX / 2).next_multiple_of(SEMAPHORE_BYTES);
        let mut opened = Vec::new();
        for number in 0..count {
            let context = Context::open(cpu, &*gpu(kernel, number)?)?;
            let memory = context.malloc(cpu, flags + SEMAPHORE_BYTES)?;
            opened.push((context, memory));
        }
        let zeros = HostMemory::take(kernel, cpu, SEMAPHORE_BYTES)?;
        cpu.store(zeros.start(), &[0; SEMAPHORE_BYTES as usize]);
        let mut gpus = Vec::new();
        for (number, (context, memory)) in opened.iter().enumerate() {
            // GPU memory may hold old data.
            let from = context.map(cpu, &zeros)?;
            let mut stream = CudaStream::default();
            stream.copy_in(cpu, context, (memory.place.after(flags), from), SEMAPHORE_BYTES).await?;
            stream.synchronise(cpu).await?;
            context.unmap(cpu, from);
            let (_, next) = &opened[(number + 1) % opened.len()];
            let next = context.map_peer(cpu, next)?;
            gpus.push(RingGpu { context: Rc::clone(context), own: memory.place, next });
        }
        zeros.give(kernel, cpu);
        Ok(Self { gpus, flags, done: 0 })
    }

    fn close(self, cpu: &Cpu) {
        self.gpus.iter().for_each(|gpu| gpu.context.close(cpu));
    }

    /// What a GPU does for buffers of `bytes`.
    fn commands(&self, number: usize, bytes: u64) -> Vec<[Option<GpuCommand>; COMMANDS]> {
        let (count, gpu) = (self.gpus.len(), &self.gpus[number]);
        let piece = bytes.div_ceil(count as u64);
        let slices = piece.div_ceil(SLICE);
        let mut all = Vec::new();
        for step in 0..2 * (count - 1) {
            let first = piece * ((number + 2 * count - step) % count) as u64;
            for slice in 0..slices {
                let begin = (first + slice * SLICE).min(bytes);
                let end = (begin + SLICE).min(first + piece).min(bytes);
                let value = self.done + step as u64 * slices + slice + 1;
                // What it sends on has come from the GPU before it in the step before.
                let wait = (step > 0)
                    .then(|| GpuCommand::Acquire { at: gpu.own.after(self.flags), value: value - slices });
                let (from, to) = (gpu.own.after(begin), gpu.next.after(begin));
                let copy = (end > begin).then(|| GpuCommand::Copy { from, to, bytes: end - begin });
                let flag = GpuCommand::Release { at: gpu.next.after(self.flags), value };
                all.push([wait, copy, Some(flag)]);
            }
        }
        all
    }

    /// Sums once, and returns when all GPUs are done.
    async fn reduce(&mut self, cpu: &Cpu, bytes: u64) -> Result<(), Failure> {
        cpu.cycles(CALL).await;
        let lists: Vec<_> = (0..self.gpus.len()).map(|number| self.commands(number, bytes)).collect();
        let mut last = vec![0; lists.len()];
        // In turn: a GPU's ring may be full until the others have been told, too.
        for at in (0..lists[0].len()).step_by(TOGETHER) {
            for ((gpu, list), last) in self.gpus.iter().zip(&lists).zip(&mut last) {
                let some: Vec<GpuCommand> =
                    list[at..(at + TOGETHER).min(list.len())].iter().flatten().flatten().copied().collect();
                *last = gpu.context.submit(cpu, gpu.context.copies_out(), &some).await?;
            }
        }
        for (gpu, value) in self.gpus.iter().zip(last) {
            gpu.context.wait(cpu, gpu.context.copies_out(), value).await?;
        }
        self.done += lists[0].len() as u64;
        Ok(())
    }
}

impl AllReduce {
    fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let (most, factor) = (self.most.unwrap_or(self.least), self.factor);
        std::iter::successors(Some(self.least), move |bytes| bytes.checked_mul(factor))
            .take_while(move |&bytes| bytes <= most)
    }

    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let there = (0..).take_while(|&number| gpu(kernel, number).is_ok()).count() as u32;
        let count = self.gpus.unwrap_or(there);
        let mut ring = GpuRing::open(cpu, kernel, count, self.most.unwrap_or(self.least)).await?;
        let measured = self.each_size(cpu, &mut ring).await;
        ring.close(cpu);
        measured
    }

    async fn each_size(&self, cpu: &Cpu, ring: &mut GpuRing) -> Result<Report, Failure> {
        let mut report = Report::default();
        let others = ring.gpus.len() as f64 - 1.0;
        let mut text =
            format!("{:>12}{:>12}{:>12}{:>12}\n", "size (B)", "time (us)", "algbw (GB/s)", "busbw (GB/s)");
        for bytes in self.sizes() {
            for _ in 0..self.warm_up {
                ring.reduce(cpu, bytes).await?;
            }
            let began = cpu.now();
            for _ in 0..self.calls {
                ring.reduce(cpu, bytes).await?;
            }
            let time = cpu.now().since(began).as_ns_f64() / f64::from(self.calls);
            let rate = bytes as f64 / time;
            // What each link carries for it, whatever the number of GPUs (nccl-tests, PERFORMANCE.md).
            let bus = rate * 2.0 * others / (others + 1.0);
            report.add(format!("{bytes} B: time"), "us", time / 1e3);
            report.add(format!("{bytes} B: algorithm bandwidth"), "GB/s", rate);
            report.add(format!("{bytes} B: bus bandwidth"), "GB/s", bus);
            text += &format!("{bytes:>12}{:>12.1}{rate:>12.2}{bus:>12.2}\n", time / 1e3);
        }
        report.text = Some(text);
        Ok(report)
    }
}

impl Program for AllReduce {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.gpu("all_reduce_perf", self.gpus.unwrap_or(2).saturating_sub(1))?;
        let message = format!("all_reduce_perf: there is no size from {} to {:?}", self.least, self.most);
        let is_some = self.least > 0 && self.most.is_none_or(|most| most >= self.least);
        Refused::unless(is_some, message, "`-b` of a byte or more, and `-e` not below it")
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
