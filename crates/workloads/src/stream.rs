//! STREAM: sustained memory bandwidth of the cores (McCalpin, 1995).
//!
//! Four loops over arrays of doubles: `c = a`, `b = s·c`, `c = a + b`, `a = b + s·c`. The original has its sizes
//! compiled in; here they are options. One thread runs on each of the program's cores. A rate is the bytes that the
//! loop accesses, without the fetch before a store, divided by the shortest time; the first iteration does not count.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Sweep};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{PhysAddr, Policy};
use platform::sync::Completion;
use units::Duration;

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::scattered::{PIECE, Scattered};

/// STREAM's scalar.
const SCALAR: f64 = 3.0;
/// Bytes that a thread processes between two reads of the clock.
const BLOCK: u64 = 2048;
/// Elements per instruction (AVX: 32 bytes).
const LANES: u64 = 4;
/// Cycles per line, at one vector each.
const LINE: u64 = 8 / LANES;

/// Measures sustained memory bandwidth (STREAM's copy, scale, add and triad).
#[derive(clap::Parser, Clone, Copy, PartialEq, Eq, Debug)]
#[command(name = "stream")]
pub struct Stream {
    /// Elements per array (STREAM_ARRAY_SIZE).
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    array_size: u64,
    /// Number of times each loop runs (NTIMES).
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..))]
    ntimes: u32,
    /// Use non-temporal stores, as compilers for HPC do.
    #[arg(long)]
    nontemporal: bool,
    /// Instead of the four loops, only read or only write an array, to load one direction.
    #[arg(long, value_enum)]
    only: Option<Only>,
}

/// A read-only or write-only loop.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Only {
    /// Sums up an array.
    Read,
    /// Sets an array.
    Write,
}

#[derive(Clone, Copy, Debug)]
enum Loop {
    Copy,
    Scale,
    Add,
    Triad,
}

impl Loop {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Copy, "copy"), (Self::Scale, "scale"), (Self::Add, "add"), (Self::Triad, "triad")];

    /// Indices of the arrays read and of the array written: 0 to 2 for a to c.
    const fn arrays(self) -> (&'static [usize], usize) {
        match self {
            Self::Copy => (&[0], 2),
            Self::Scale => (&[2], 1),
            Self::Add => (&[0, 1], 2),
            Self::Triad => (&[1, 2], 0),
        }
    }

    fn compute(self, first: f64, second: f64) -> f64 {
        match self {
            Self::Copy => first,
            Self::Scale => SCALAR * first,
            Self::Add => first + second,
            Self::Triad => first + SCALAR * second,
        }
    }
}

/// Alignment of arrays in bytes, as compilers align large ones.
const ALIGNED: u64 = 64;

/// Consecutive arrays, as the linker places STREAM's, in scattered pages. Their page boundaries are at different
/// elements, so not all arrays cross a page at once.
struct Arrays {
    memory: Scattered,
    /// Bytes per array.
    bytes: u64,
}

impl Arrays {
    fn allocate(kernel: &dyn Kernel, cpu: &Cpu, count: u64, bytes: u64) -> Result<Self, Error> {
        let all = count * bytes.next_multiple_of(ALIGNED);
        Ok(Self { memory: Scattered::take(kernel, cpu, all, Policy::Task)?, bytes })
    }

    /// Length of the next step from offset `at` within `part`: up to the next piece boundary of any of these arrays.
    fn step(&self, arrays: &[usize], at: u64, part: &core::ops::Range<u64>) -> u64 {
        let whole = |&array: &usize| PIECE - self.offset(array, at) % PIECE;
        arrays.iter().map(whole).fold(BLOCK.min(part.end - at), u64::min)
    }

    /// Reads or writes the first array's `part` once.
    async fn run_one(&self, cpu: &Cpu, only: Only, part: core::ops::Range<u64>, streaming: bool) {
        let mut at = part.start;
        while at < part.end {
            let length = self.step(&[0], at, &part);
            let place = [self.place(0, at)];
            let (to, from) = match only {
                Only::Read => (None, &place[..]),
                Only::Write => (Some(place[0]), &[][..]),
            };
            cpu.sweep(Sweep { to, from, length, streaming }, LINE, |_| {});
            at += length;
            cpu.sync().await;
        }
    }

    /// Distance of an array's byte `at` from the start of the first array.
    fn offset(&self, array: usize, at: u64) -> u64 {
        array as u64 * self.bytes.next_multiple_of(ALIGNED) + at
    }

    /// Address of an array's byte `at`.
    fn place(&self, array: usize, at: u64) -> PhysAddr {
        self.memory.at(self.offset(array, at))
    }

    /// Initializes all arrays to STREAM's values.
    async fn fill(&self, cpu: &Cpu, part: core::ops::Range<u64>) {
        for (array, value) in [1.0f64, 2.0, 0.0].into_iter().enumerate() {
            let block: Vec<u8> = value.to_le_bytes().repeat(BLOCK as usize / 8);
            let mut at = part.start;
            while at < part.end {
                let length = self.step(&[array], at, &part);
                cpu.store(self.place(array, at), &block[..length as usize]);
                at += length;
                cpu.sync().await;
            }
        }
    }

    async fn run(&self, cpu: &Cpu, which: Loop, part: core::ops::Range<u64>, streaming: bool) {
        let (read, written) = which.arrays();
        let mut at = part.start;
        while at < part.end {
            let length = self.step(&[read[0], read[read.len() - 1], written], at, &part);
            let from = [0, 1].map(|n| self.place(read[n.min(read.len() - 1)], at));
            let to = Some(self.place(written, at));
            cpu.sweep(Sweep { to, from: &from[..read.len()], length, streaming }, LINE, |bytes| {
                let (stored, more) = bytes.as_chunks_mut::<8>().0.split_at_mut(length as usize / 8);
                for (n, out) in stored.iter_mut().enumerate() {
                    let first = f64::from_le_bytes(*out);
                    let second = more.get(n).map_or(0.0, |second| f64::from_le_bytes(*second));
                    *out = which.compute(first, second).to_le_bytes();
                }
            });
            at += length;
            cpu.sync().await;
        }
    }

    /// Whether the last element of each array has the expected value after `times` rounds.
    fn is_right(&self, cpu: &Cpu, times: u32) -> bool {
        let (mut a, mut b, mut c) = (1.0, 2.0, 0.0);
        for _ in 0..times {
            c = a;
            b = SCALAR * c;
            c = a + b;
            a = b + SCALAR * c;
        }
        [a, b, c].into_iter().enumerate().all(|(array, expected): (usize, f64)| {
            let found = f64::from_bits(cpu.load_u64(self.place(array, self.bytes - 8)));
            ((found - expected) / expected).abs() < 1e-12
        })
    }
}

/// Runs `work` as a thread on each core, on its share of `bytes`, and waits for all. Returns the time taken.
async fn on_all<F>(cpu: &Cpu, kernel: &Rc<dyn Kernel>, cpus: &[CpuId], bytes: u64, work: F) -> Duration
where
    F: Fn(Cpu, core::ops::Range<u64>) -> Async<'static, ()> + Clone + 'static,
{
    let began = cpu.now();
    let count = cpus.len() as u64;
    let edge = |n: u64| if n == count { bytes } else { bytes / count * n / BLOCK * BLOCK };
    let threads: Vec<Completion<()>> = (0u64..)
        .zip(cpus)
        .map(|(n, &on)| {
            let (part, work) = (edge(n)..edge(n + 1), work.clone());
            let thread = TaskParams::named(format!("stream/{n}")).on(on).of(cpu);
            kernel.run(thread, async move |cpu| work(cpu, part).await)
        })
        .collect();
    for thread in threads {
        thread.wait().await;
    }
    cpu.sync().await;
    cpu.now().since(began)
}

impl Stream {
    /// Runs the read-only or write-only loop.
    async fn run_only(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        cpus: &[CpuId],
        only: Only,
    ) -> Result<Report, Failure> {
        let (bytes, nontemporal) = (self.array_size * 8, self.nontemporal);
        let arrays = Arrays::allocate(&**kernel, cpu, 1, bytes).map(Rc::new);
        let arrays = arrays.map_err(|error| Failure::about("malloc", error))?;
        let mut best = Duration::from_ps(u64::MAX);
        for round in 0..self.ntimes {
            let shared = Rc::clone(&arrays);
            let took = on_all(cpu, kernel, cpus, bytes, move |cpu, part| {
                let arrays = Rc::clone(&shared);
                Box::pin(async move { arrays.run_one(&cpu, only, part, nontemporal).await })
            })
            .await;
            if round > 0 {
                best = best.min(took);
            }
        }
        arrays.memory.free(&**kernel, cpu);
        let mut report = Report::default();
        let name = if only == Only::Read { "read" } else { "write" };
        report.add(name, "MB/s", bytes as f64 / best.as_ns_f64() * 1e3);
        Ok(report)
    }
}

impl Program for Stream {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.holds("stream", "three arrays of --array-size", 24 * u128::from(self.array_size))
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, cpus, .. } = environment;
            let bytes = self.array_size * 8;
            if let Some(only) = self.only {
                return self.run_only(&cpu, &kernel, &cpus, only).await;
            }
            let arrays = Arrays::allocate(&*kernel, &cpu, 3, bytes).map(Rc::new);
            let arrays = arrays.map_err(|error| Failure::about("malloc", error))?;
            let shared = Rc::clone(&arrays);
            on_all(&cpu, &kernel, &cpus, bytes, move |cpu, part| {
                let arrays = Rc::clone(&shared);
                Box::pin(async move { arrays.fill(&cpu, part).await })
            })
            .await;
            let mut best = [Duration::from_ps(u64::MAX); 4];
            for round in 0..self.ntimes {
                for (n, (which, _)) in Loop::ALL.into_iter().enumerate() {
                    let (shared, nontemporal) = (Rc::clone(&arrays), self.nontemporal);
                    let took = on_all(&cpu, &kernel, &cpus, bytes, move |cpu, part| {
                        let arrays = Rc::clone(&shared);
                        Box::pin(async move { arrays.run(&cpu, which, part, nontemporal).await })
                    })
                    .await;
                    if round > 0 {
                        best[n] = best[n].min(took);
                    }
                }
            }
            let right = arrays.is_right(&cpu, self.ntimes);
            arrays.memory.free(&*kernel, &cpu);
            if !right {
                return Err(Failure("the arrays do not hold what the loops make of them".into()));
            }
            let mut report = Report::default();
            for ((which, name), best) in Loop::ALL.into_iter().zip(best) {
                let moved = bytes * (which.arrays().0.len() as u64 + 1);
                report.add(name, "MB/s", moved as f64 / best.as_ns_f64() * 1e3);
            }
            Ok(report)
        })
    }
}
