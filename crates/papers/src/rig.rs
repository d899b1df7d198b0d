//! Boots computers for an experiment, runs programs and tasks on them, and reads counters.

use std::rc::Rc;

use machine::{ComputerScenario, ComputerSetup, Doc, HostSetup, ProgramSetup};
use nearfar::computer::{self, Computer, Computers};
use nearfar::engine::steady::{self, Estimate, GROUPS, SteadyMean};
use nearfar::hardware::memory::{CacheUser, Cause};
use nearfar::kernel::Kernel;
use nearfar::workloads::{Environment, Failure, Report, ReportSoFar};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::pci::PciDriver;
use platform::sync::Completion;
use units::Duration;

use super::Options;
use super::basis::Basis;
use super::runs::Known;

/// Relative half-width of the 95 % interval below which a rate counts as steady.
const STEADY: f64 = 0.01;
/// Batches of a program's operations.
const BATCHES: usize = 5 * GROUPS;

/// Loads a scenario written for one experiment of a paper.
pub fn setup(options: &Options, paper: &str, text: &str) -> Result<ComputerSetup, String> {
    let text = format!("name = \"{paper}\"\nsummary = \"an experiment\"\nseed = {}\n{text}", options.seed);
    let doc = Doc::<ComputerScenario>::from_text(&options.library, paper, &text);
    ComputerSetup::load(&options.library, &doc).map_err(|error| error.to_string())
}

/// Booted hosts.
pub struct Rig {
    pub computers: Computers,
    setup: ComputerSetup,
    basis: Basis,
}

/// What was in use is known when it is no longer used.
impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.basis.add(&self.computers, &self.setup);
        }
    }
}

/// A running program.
pub struct Running {
    line: String,
    kernel: Rc<Kernel>,
    done: Completion<Result<Report, Failure>>,
}

impl Running {
    /// Fails if the program has ended, since then what was measured next to it is invalid.
    pub fn still_runs(&self) -> Result<(), String> {
        match self.done.try_take() {
            None => Ok(()),
            Some(Ok(_)) => Err(format!("`{}` ended early", self.line)),
            Some(Err(failure)) => Err(self.why(&failure)),
        }
    }

    /// Why it failed, including the end of its kernel's log.
    fn why(&self, failure: &Failure) -> String {
        let log = self.kernel.log();
        let last = log.last().map_or_else(String::new, |(_, line)| format!(" (log: {line})"));
        format!("`{}`: {failure}{last}", self.line)
    }
}

/// Starts a program on cores of a kernel; it runs on the first.
pub fn start(kernel: Rc<Kernel>, cpus: &[u16], policy: Policy, line: &str) -> Result<Running, String> {
    let program = nearfar::workloads::parse(line).map_err(|refused| refused.message)?;
    let cpus: Vec<CpuId> = cpus.iter().copied().map(CpuId).collect();
    let so_far = ReportSoFar::default();
    let environment = Environment {
        kernel: kernel.face(),
        cpus: cpus.clone(),
        seed: 1,
        firmware: None,
        so_far,
        span: Default::default(),
    };
    let params = TaskParams { cpus, policy, ..TaskParams::named(line) };
    let done = kernel.run(params, move |cpu| program.run(cpu, environment));
    Ok(Running { line: line.to_owned(), kernel, done })
}

/// A value of a report.
pub fn of(report: &Report, quantity: &str) -> Result<f64, String> {
    report.get(quantity).ok_or_else(|| format!("the program does not tell its {quantity}"))
}

/// Traffic of a host's memory and of the links between its sockets, in bytes.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// DMA writes: payload and descriptors.
    pub written: u64,
    /// DRAM reads and writes.
    pub memory: u64,
    /// LLC misses of cores, in lines.
    pub misses: u64,
    /// All traffic between sockets, both directions.
    pub link: u64,
    /// Of `link`, what devices read and wrote.
    pub link_dma: u64,
    /// Of `link`, for DMA, doorbells, registers and interrupts.
    pub link_io: u64,
    /// Of `link`, for data of cores: loads, stores, prefetches and write-backs.
    pub link_core: u64,
    /// `link` by direction: towards higher and towards lower sockets.
    pub ways: [u64; 2],
}

/// Batches until a rate was steady.
pub struct Batches<C> {
    /// Counters before the first batch and after each.
    pub counts: Vec<C>,
    /// Amount per batch, per nanosecond.
    pub rate: SteadyMean,
}

/// The steady part of a run.
pub struct SteadyBatches<C> {
    /// Counters before its first batch and after each.
    counts: Vec<C>,
    batch: Duration,
}

impl<C> Batches<C> {
    /// The batches after warm-up; if the run ended before that, its second half.
    pub fn steady(mut self, batch: Duration) -> SteadyBatches<C> {
        let warm_up = self.rate.estimate().map_or(0.5, |estimate| estimate.warm_up);
        let first = (warm_up * self.rate.len() as f64).round() as usize;
        SteadyBatches { counts: self.counts.split_off(first), batch }
    }
}

impl<C> SteadyBatches<C> {
    /// Counts before the first batch of this length, and after each.
    pub fn all(counts: Vec<C>, batch: Duration) -> Self {
        Self { counts, batch }
    }

    /// Counters at its start and end.
    pub fn ends(&self) -> (&C, &C) {
        (&self.counts[0], &self.counts[self.counts.len() - 1])
    }

    /// Its length in nanoseconds.
    pub fn ns(&self) -> f64 {
        self.batch.as_ns_f64() * (self.counts.len() - 1) as f64
    }

    /// Computes a value over the whole part from the counters before and after and the time in nanoseconds, with the
    /// half-width of its 95 % interval from groups of batches.
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

/// A time that consists of steps, with the half-width of its 95 % interval from the variation between steps.
pub fn of_steps(time: f64, steps: &[f64]) -> Known {
    let size = steps.len() / GROUPS;
    if size == 0 {
        return (time, f64::NAN);
    }
    let groups: Vec<f64> =
        steps.rchunks_exact(size).take(GROUPS).map(|group| group.iter().sum::<f64>()).collect();
    (time, time * steady::half_width(&groups) * GROUPS as f64 / groups.iter().sum::<f64>())
}

/// Ratio of two times that consist of the same steps, with the half-width of its 95 % interval from the variation of
/// the steps' ratios.
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

/// Latency of a program's sequential operations, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub mean: Known,
    pub p90: Known,
    pub p99: Known,
}

/// The mean of equal operations in order, from means of [`BATCHES`] batches; `None` during warm-up.
///
/// The end of the warm-up is where the rest scatters least, and a few of many thousand single operations, the last
/// ones, can be equal by chance. Batches prevent this (K. P. White, M. J. Cobb and S. C. Spratt, "A comparison of five
/// steady-state truncation heuristics for simulation", Winter Simulation Conference 2000).
fn steady_mean(samples: &[f64]) -> Option<Estimate> {
    let mut mean = SteadyMean::new();
    let batches = samples.chunks_exact((samples.len() / BATCHES).max(1));
    batches.for_each(|batch| mean.push(batch.iter().sum::<f64>() / batch.len() as f64));
    mean.estimate()
}

impl Latency {
    /// From latencies in order; `None` during warm-up.
    fn of(samples: &[f64]) -> Option<Self> {
        let estimate = steady_mean(samples)?;
        let steady = &samples[(estimate.warm_up * samples.len() as f64) as usize..];
        let [p90, p99] = [0.9, 0.99].map(|share| steady::quantile(steady, share));
        Some(Self { mean: (estimate.mean, estimate.half_width), p90, p99 })
    }

    fn is_steady(&self) -> bool {
        [self.mean, self.p90, self.p99].iter().all(|(value, half)| *half <= STEADY * value)
    }
}

impl Rig {
    /// Boots the scenario `text`.
    pub fn boot(options: &Options, paper: &str, text: &str) -> Result<Self, String> {
        Self::boot_with(options, paper, text, computer::drivers, |_| ())
    }

    /// As [`boot`](Self::boot), with additional drivers, and with `prepare` called before power-on.
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
        Ok(Self { computers, setup, basis: options.basis.clone() })
    }

    /// The programs of its scenario, which do not start by themselves.
    pub fn programs(&self) -> &[ProgramSetup] {
        &self.setup.programs
    }

    /// A host by its index.
    pub fn host(&self, number: usize) -> &Computer {
        &self.computers.hosts()[number]
    }

    /// Starts a program on cores of a host; it runs on the first.
    pub fn start(&self, host: usize, cpus: &[u16], line: &str) -> Result<Running, String> {
        start(Rc::clone(&self.host(host).kernel), cpus, Policy::Local, line)
    }

    /// Runs a program to its end on the first core of the first host, or of its virtual machine if it has one.
    pub fn run(&self, line: &str) -> Result<Report, String> {
        let host = self.host(0);
        let kernel = host.vms().first().map_or_else(|| Rc::clone(&host.kernel), |vm| vm.kernel());
        self.report(&start(kernel, &[0], Policy::Local, line)?)
    }

    /// Waits until a program ends and returns its report.
    pub fn report(&self, running: &Running) -> Result<Report, String> {
        self.wait(&running.done)?.map_err(|failure| running.why(&failure))
    }

    /// Waits for a task's result.
    pub fn wait<T: 'static>(&self, task: &Completion<T>) -> Result<T, String> {
        let task = task.clone();
        let given = self.computers.simulation().block_on(async move { task.wait().await });
        given.map_err(|error| error.to_string())
    }

    /// Runs a program on a core of a host repeatedly, doubling its duration from `first` up to `most`, until its
    /// latencies are steady. `line` builds the command line for a duration in seconds.
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

    /// Runs batches until a program ends. Returns its report, and the counters before the first batch and after each.
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

    /// As [`wait`](Self::wait), for several tasks.
    pub fn wait_all<T: 'static>(&self, tasks: &[Completion<T>]) -> Result<Vec<T>, String> {
        tasks.iter().map(|task| self.wait(task)).collect()
    }

    /// Simulates for a time.
    pub fn pass(&self, time: Duration) {
        let simulation = self.computers.simulation();
        simulation.run_until(simulation.now() + time);
    }

    /// Traffic of a host so far.
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
                let data = [Cause::Core, Cause::Prefetch, Cause::WriteBack];
                traffic.link_core += data.map(of).iter().sum::<u64>();
                traffic.ways[usize::from(link.to < link.from)] += link.bytes.total().get();
            }
            traffic
        })
    }

    /// Bandwidth of a host's links between its sockets in one direction, bytes per nanosecond; 0 with one socket.
    pub fn link_bandwidth(&self, host: usize) -> f64 {
        let id = self.host(host).host;
        self.computers.simulation().with(|fabric, _| {
            let links = &fabric.host(id).memory.params().interconnect.links;
            links.iter().map(|link| link.bandwidth.bytes_per_s() as f64 / 1e9).sum()
        })
    }

    /// Runs batches until `amount` of the counters grows at a steady rate, up to `most` batches.
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
