//! Computers that an experiment boots for itself: programs and tasks on them, time that passes, and what was counted meanwhile.

use std::rc::Rc;

use engine::steady::{self, GROUPS, SteadyMean};
use hardware::memory::{CacheUser, Cause};
use kernel::Kernel;
use machine::{ComputerScenario, ComputerSetup, Doc, HostSetup};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::pci::PciDriver;
use platform::sync::Completion;
use units::Duration;
use workloads::{Environment, Failure, Report};

use super::Options;
use super::runs::Known;
use crate::computer::{self, Computer, Computers};

/// Half the 95 % interval of a rate at which it is steady, as a share of it.
const STEADY: f64 = 0.01;

/// A scenario that is written for one experiment of a paper.
pub fn setup(options: &Options, paper: &str, text: &str) -> Result<ComputerSetup, String> {
    let text = format!("name = \"{paper}\"\nsummary = \"an experiment\"\nseed = {}\n{text}", options.seed);
    let doc = Doc::<ComputerScenario>::from_text(&options.library, paper, &text);
    ComputerSetup::load(&options.library, &doc).map_err(|error| error.to_string())
}

/// Hosts that have booted.
pub struct Rig {
    pub computers: Computers,
}

/// A program under way.
pub struct Running {
    line: String,
    kernel: Rc<Kernel>,
    done: Completion<Result<Report, Failure>>,
}

impl Running {
    /// Refuses what was measured beside a program that has ended meanwhile.
    pub fn still_runs(&self) -> Result<(), String> {
        match self.done.try_take() {
            None => Ok(()),
            Some(Ok(_)) => Err(format!("`{}` ended early", self.line)),
            Some(Err(failure)) => Err(self.why(&failure)),
        }
    }

    /// Why it failed, with the end of its kernel's log, which often says more.
    fn why(&self, failure: &Failure) -> String {
        let log = self.kernel.log();
        let last = log.last().map_or_else(String::new, |(_, line)| format!(" (log: {line})"));
        format!("`{}`: {failure}{last}", self.line)
    }
}

/// Starts a program on cores of a kernel, the first of which is its own.
pub fn start(kernel: Rc<Kernel>, cpus: &[u16], policy: Policy, line: &str) -> Result<Running, String> {
    let program = workloads::parse(line).map_err(|refused| refused.message)?;
    let cpus: Vec<CpuId> = cpus.iter().copied().map(CpuId).collect();
    let environment = Environment { kernel: kernel.face(), cpus: cpus.clone(), seed: 1 };
    let params = TaskParams { cpus, policy, ..TaskParams::named(line) };
    let done = kernel.run(params, move |cpu| program.run(cpu, environment));
    Ok(Running { line: line.to_owned(), kernel, done })
}

/// A quantity of a report.
pub fn of(report: &Report, quantity: &str) -> Result<f64, String> {
    report.get(quantity).ok_or_else(|| format!("the program does not tell its {quantity}"))
}

/// What the memory of a host and the links between its sockets have carried, in bytes.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// What devices wrote, payload and what tells of it.
    pub written: u64,
    /// DRAM, read and written.
    pub memory: u64,
    /// Lines that the cores' accesses did not find in the LLC.
    pub misses: u64,
    /// Between sockets for any cause, both ways.
    pub link: u64,
    /// Of that for DMA.
    pub link_dma: u64,
    /// Of it for DMA, doorbells, registers and interrupts.
    pub link_io: u64,
}

/// Batches that have passed until a rate was steady.
pub struct Batches<C> {
    /// What had been counted before the first and after each.
    pub counts: Vec<C>,
    /// What was counted in each, per nanosecond.
    pub rate: SteadyMean,
}

/// A part of a run in which a rate is steady.
pub struct SteadyBatches<C> {
    /// What had been counted before each of its batches and after the last.
    counts: Vec<C>,
    batch: Duration,
}

impl<C> Batches<C> {
    /// What comes after the warm-up; of a run that ended before that, the second half.
    pub fn steady(mut self, batch: Duration) -> SteadyBatches<C> {
        let warm_up = self.rate.estimate().map_or(0.5, |estimate| estimate.warm_up);
        let first = (warm_up * self.rate.len() as f64).round() as usize;
        SteadyBatches { counts: self.counts.split_off(first), batch }
    }
}

impl<C> SteadyBatches<C> {
    /// All of what was counted between batches.
    pub fn all(counts: Vec<C>, batch: Duration) -> Self {
        Self { counts, batch }
    }

    /// What had been counted before it, and at its end.
    pub fn ends(&self) -> (&C, &C) {
        (&self.counts[0], &self.counts[self.counts.len() - 1])
    }

    /// Its length, in nanoseconds.
    pub fn ns(&self) -> f64 {
        self.batch.as_ns_f64() * (self.counts.len() - 1) as f64
    }

    /// A quantity by what was counted before and after a time and that time in nanoseconds, over all of it, and half its 95 %
    /// interval by groups of batches.
    pub fn of(&self, quantity: impl Fn(&C, &C, f64) -> f64) -> Known {
        let over = |counts: &[C]| {
            let batches = counts.len() - 1;
            quantity(&counts[0], &counts[batches], self.batch.as_ns_f64() * batches as f64)
        };
        let batches = self.counts.len() - 1;
        let size = batches / GROUPS;
        if size == 0 {
            return (over(&self.counts), f64::NAN);
        }
        let first = batches - size * GROUPS;
        let group = |n| over(&self.counts[first + n * size..=first + (n + 1) * size]);
        (over(&self.counts), steady::half_width(&(0..GROUPS).map(group).collect::<Vec<_>>()))
    }
}

/// A time that is made of steps, and half its 95 % interval by how unlike these are.
pub fn of_steps(time: f64, steps: &[f64]) -> Known {
    let size = steps.len() / GROUPS;
    if size == 0 {
        return (time, f64::NAN);
    }
    let groups: Vec<f64> =
        steps.rchunks_exact(size).take(GROUPS).map(|group| group.iter().sum::<f64>()).collect();
    (time, time * steady::half_width(&groups) * GROUPS as f64 / groups.iter().sum::<f64>())
}

/// How a time that is made of steps relates to another that is made of the same ones, and half its 95 % interval by how unlike the
/// ratios of steps are.
pub fn of_pairs(ratio: f64, (over, under): (&[f64], &[f64])) -> Known {
    let size = over.len().min(under.len()) / GROUPS;
    if size == 0 {
        return (ratio, f64::NAN);
    }
    let sum = |group: &[f64]| group.iter().sum::<f64>();
    let ratios: Vec<f64> = over
        .rchunks_exact(size)
        .zip(under.rchunks_exact(size))
        .take(GROUPS)
        .map(|(over, under)| sum(over) / sum(under))
        .collect();
    (ratio, steady::half_width(&ratios))
}

/// What is known of the operations of a program that takes one after the other, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub mean: Known,
    pub p90: Known,
    pub p99: Known,
}

impl Latency {
    /// By latencies in their order; nothing while they are still warming up.
    fn of(samples: &[f64]) -> Option<Self> {
        let mut mean = SteadyMean::new();
        samples.iter().for_each(|&us| mean.push(us));
        let estimate = mean.estimate()?;
        let steady = &samples[(estimate.warm_up * samples.len() as f64) as usize..];
        let [p90, p99] = [0.9, 0.99].map(|share| steady::quantile(steady, share));
        Some(Self { mean: (estimate.mean, estimate.half_width), p90, p99 })
    }

    fn is_steady(&self) -> bool {
        [self.mean, self.p90, self.p99].iter().all(|(value, half)| *half <= STEADY * value)
    }
}

impl Rig {
    /// Boots what `text` describes.
    pub fn boot(options: &Options, paper: &str, text: &str) -> Result<Self, String> {
        Self::boot_with(options, paper, text, computer::drivers, |_| ())
    }

    /// As [`boot`](Self::boot), with drivers of the experiment's own, and with `prepare` before power comes.
    pub fn boot_with(
        options: &Options,
        paper: &str,
        text: &str,
        drivers: impl Fn(&HostSetup) -> Vec<Rc<dyn PciDriver>>,
        prepare: impl FnOnce(&Computers),
    ) -> Result<Self, String> {
        let setup = setup(options, paper, text)?;
        let computers = Computers::with_drivers(&setup, drivers).map_err(|error| error.to_string())?;
        prepare(&computers);
        computers.boot().map_err(|error| error.to_string())?;
        Ok(Self { computers })
    }

    /// A host, by its number.
    pub fn host(&self, number: usize) -> &Computer {
        &self.computers.hosts()[number]
    }

    /// Starts a program on cores of a host, the first of which is its own.
    pub fn start(&self, host: usize, cpus: &[u16], line: &str) -> Result<Running, String> {
        start(Rc::clone(&self.host(host).kernel), cpus, Policy::Local, line)
    }

    /// Runs a program on the first core of the first host, or of its virtual machine if it has one, to its end.
    pub fn run(&self, line: &str) -> Result<Report, String> {
        let host = self.host(0);
        let kernel = host.kernel_of((!host.vms().is_empty()).then_some(0));
        self.report(&start(kernel, &[0], Policy::Local, line)?)
    }

    /// Waits for a program's end; gives its report.
    pub fn report(&self, running: &Running) -> Result<Report, String> {
        self.wait(&running.done)?.map_err(|failure| running.why(&failure))
    }

    /// Waits for what a task gives.
    pub fn wait<T: 'static>(&self, task: &Completion<T>) -> Result<T, String> {
        let task = task.clone();
        let given = self.computers.simulation().block_on(async move { task.wait().await });
        given.map_err(|error| error.to_string())
    }

    /// Runs a program on a core of a host again and again, each time for twice as long, until the latencies that it measures are
    /// steady: for `first` to begin with, for `most` at most. `line` makes its command line with the seconds that it lasts.
    pub fn latency(
        &self,
        (host, core): (usize, u16),
        line: impl Fn(f64) -> String,
        first: Duration,
        most: Duration,
    ) -> Result<Latency, String> {
        let mut time = first;
        loop {
            let report = self.report(&self.start(host, &[core], &line(time.as_s_f64()))?)?;
            let latency = Latency::of(&report.samples);
            match latency {
                Some(latency) if latency.is_steady() || time >= most => return Ok(latency),
                None if time >= most => return Err(format!("{} never is steady", line(time.as_s_f64()))),
                _ => time = time * 2,
            }
        }
    }

    /// Lets batch after batch pass until a program ends: its report, and what had been counted before the first and after each.
    pub fn until_end<C>(
        &self,
        running: &Running,
        batch: Duration,
        count: impl Fn() -> C,
    ) -> Result<(Report, Vec<C>), String> {
        let mut counts = vec![count()];
        loop {
            self.pass(batch);
            match running.done.try_take() {
                None => counts.push(count()),
                Some(outcome) => return Ok((outcome.map_err(|failure| running.why(&failure))?, counts)),
            }
        }
    }

    /// As [`wait`](Self::wait), for several.
    pub fn wait_all<T: 'static>(&self, tasks: &[Completion<T>]) -> Result<Vec<T>, String> {
        tasks.iter().map(|task| self.wait(task)).collect()
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        let simulation = self.computers.simulation();
        simulation.run_until(simulation.now() + time);
    }

    /// What a host's memory and links have carried so far.
    pub fn traffic(&self, host: usize) -> Traffic {
        let id = self.host(host).host;
        self.computers.simulation().with(|fabric, _| {
            let host = fabric.host(id);
            let counters = host.memory.counters();
            let mut traffic = Traffic { written: host.counters().device_write_bytes, ..Traffic::default() };
            for node in &counters.nodes {
                traffic.memory += (node.dram_read.total() + node.dram_written.total()).get();
                traffic.misses += node.llc_by(CacheUser::Core).misses;
            }
            for link in &counters.links {
                let of = |cause| link.bytes.of(cause).get();
                let by_core = [Cause::MmioDoorbell, Cause::MmioRegister, Cause::MmioWriteCombining];
                traffic.link += link.bytes.total().get();
                traffic.link_dma += of(Cause::Dma);
                traffic.link_io +=
                    of(Cause::Dma) + of(Cause::Interrupt) + by_core.map(of).iter().sum::<u64>();
            }
            traffic
        })
    }

    /// Lets batch after batch pass until `amount` of what is counted grows at a steady rate, `most` batches at most.
    pub fn until_steady<C>(
        &self,
        batch: Duration,
        most: usize,
        count: impl Fn() -> C,
        amount: impl Fn(&C) -> u64,
    ) -> Batches<C> {
        let (mut counts, mut rate) = (vec![count()], SteadyMean::new());
        let mut before = amount(&counts[0]);
        while rate.len() < most && !rate.is_steady(STEADY) {
            self.pass(batch);
            let now = count();
            rate.push((amount(&now) - before) as f64 / batch.as_ns_f64());
            before = amount(&now);
            counts.push(now);
        }
        Batches { counts, rate }
    }
}
