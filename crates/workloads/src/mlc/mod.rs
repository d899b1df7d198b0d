//! Intel's Memory Latency Checker (`mlc`): latency and bandwidth of the memories of all nodes, alone and under load, and
//! of lines in other cores' caches.
//!
//! Without a test, all run, as in the original. Prefetchers are off where latency is measured, unless `-e` is given, and
//! bandwidths count what memory moves: the read before a store, and the line that is written back for it.

mod latency;
mod traffic;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::Policy;
use units::Duration;

use self::traffic::{LoadingCore, MemoryLoad, MemoryTraffic, TrafficMix};
use crate::options::duration;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::scattered::{PIECE, Scattered};
use crate::unmodelled::Unmodelled;

const LINE: u64 = 64;
/// Delays between a core's accesses, in cycles, without `-d` (the original has nineteen).
const DELAYS: [u64; 10] = [0, 50, 100, 150, 200, 300, 500, 1000, 2500, 20_000];

/// Measures latency and bandwidth of memory between nodes, and of other cores' caches, like Intel's Memory Latency
/// Checker. Without a test, all run.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "mlc")]
#[expect(clippy::struct_excessive_bools, reason = "these are the original's options")]
pub struct Mlc {
    /// Latency from a core to the memory of its own node, or of node `-j`.
    #[arg(long = "idle_latency", group = "tests")]
    idle_latency: bool,
    /// Idle latency between all nodes.
    #[arg(long = "latency_matrix", group = "tests")]
    latency_matrix: bool,
    /// Bandwidth between all nodes, of all cores of a node.
    #[arg(long = "bandwidth_matrix", group = "tests")]
    bandwidth_matrix: bool,
    /// Bandwidth of all cores from the memory of their own nodes, for several ratios of reads to writes.
    #[arg(long = "peak_injection_bandwidth", visible_alias = "max_bandwidth", group = "tests")]
    peak_injection_bandwidth: bool,
    /// Latency of one core while all others load the memory of their own nodes, for several delays between their
    /// accesses.
    #[arg(long = "loaded_latency", group = "tests")]
    loaded_latency: bool,
    /// Latency of lines in the caches of another core, of the same node and of others.
    #[arg(long = "c2c_latency", group = "tests")]
    c2c_latency: bool,
    /// Random order, not line after line, where latency is measured.
    #[arg(short = 'r')]
    random: bool,
    /// Random order, not line after line, of cores that load the memory.
    #[arg(short = 'U')]
    random_load: bool,
    /// Leave prefetchers on where latency is measured.
    #[arg(short = 'e')]
    prefetchers: bool,
    /// The core whose latency is measured; by default, the program's first one.
    #[arg(short = 'c')]
    core: Option<u16>,
    /// The node of the memory, for `--idle_latency`.
    #[arg(short = 'j')]
    node: Option<u8>,
    /// Size of the buffer where latency is measured, in KiB.
    #[arg(short = 'b', default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(64..=4 << 20))]
    buffer: u64,
    /// One delay between accesses, in cycles, instead of several, for `--loaded_latency`.
    #[arg(short = 'd', value_parser = clap::value_parser!(u64).range(..=100_000))]
    delay: Option<u64>,
    /// Only reads, as matrices and loads have them anyway.
    #[arg(short = 'R', conflicts_with = "mix")]
    reads: bool,
    /// Reads to writes: 2, 3 and 5 for 2:1, 3:1 and 1:1; 6 for streaming stores alone; 7, 8 and 10 for 2:1, 1:1 and 2:1
    /// with streaming stores.
    #[arg(short = 'W')]
    mix: Option<TrafficMix>,
    /// Simulated time of each bandwidth, in seconds (2 in the original).
    #[arg(short = 't', default_value_t = 3e-5, value_parser = crate::options::length)]
    time: f64,
    /// Pairs of nodes of its cores and nodes with memory, known once the host has booted.
    #[arg(skip)]
    pairs: Cell<u32>,
}

/// Options that are not carried out.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-X", "a core has one thread"),
    Unmodelled::harmless("-Z", "loads are as wide as they need to be"),
    Unmodelled::harmless("-Y", "loads are as wide as they need to be"),
    Unmodelled::harmless("-x COUNT", "the number of loads does not change"),
    Unmodelled::harmless("-v", "everything is reported"),
    Unmodelled::refused("-k CORES", "`cpus` of the program, or `taskset -c` before it"),
    Unmodelled::refused("-m MASK", "`cpus` of the program, or `taskset` before it"),
    Unmodelled::refused("-o FILE", "several programs, each with its `cpus` and -W"),
    Unmodelled::refused("-l STRIDE", "lat_mem_rd has strides"),
];

/// Memory of one node.
struct NodeBuffer {
    memory: Scattered,
    bytes: u64,
}

/// The buffers of all tests, given back at the end: the home of a line that another node's core has read would have to
/// ask that node.
struct Buffers {
    kernel: Rc<dyn Kernel>,
    taken: RefCell<Vec<Rc<NodeBuffer>>>,
}

impl Buffers {
    /// Takes huge pages of a node, for which the original asks, too.
    fn take(&self, cpu: &Cpu, node: Node, bytes: u64) -> Result<Rc<NodeBuffer>, Failure> {
        let whole = bytes.next_multiple_of(PIECE);
        let memory = Scattered::take(&*self.kernel, cpu, whole, Policy::Bind(node));
        let memory =
            memory.map_err(|error| Failure::about(format!("mlc: memory of node {}", node.0), error))?;
        let buffer = Rc::new(NodeBuffer { memory, bytes });
        self.taken.borrow_mut().push(Rc::clone(&buffer));
        Ok(buffer)
    }

    fn free_all(&self, cpu: &Cpu) {
        self.taken.take().iter().for_each(|buffer| buffer.memory.free(&*self.kernel, cpu));
    }
}

fn mb_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_ns_f64() * 1e3
}

/// What the tests have in common.
struct Checker<'a> {
    options: &'a Mlc,
    kernel: &'a Rc<dyn Kernel>,
    memory: Buffers,
    /// The program's cores by node; nodes without one are left out.
    nodes: Vec<(Node, Vec<CpuId>)>,
    seed: u64,
}

impl Checker<'_> {
    /// The nodes with memory.
    fn memories(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.kernel.nodes()).map(Node)
    }

    /// Runs `work` on a core.
    async fn on<T: 'static>(&self, core: CpuId, cpu: &Cpu, work: impl AsyncFnOnce(Cpu) -> T + 'static) -> T {
        self.kernel.run(TaskParams::named("mlc/measure").on(core).of(cpu), work).wait().await
    }

    /// The core whose latency is measured.
    fn measuring(&self) -> CpuId {
        self.options.core.map_or(self.nodes[0].1[0], CpuId)
    }

    /// Idle latency of a core from a node's memory, in nanoseconds.
    async fn idle(&self, cpu: &Cpu, core: CpuId, node: Node) -> Result<f64, Failure> {
        let buffer = self.memory.take(cpu, node, self.options.buffer << 10)?;
        let order = latency::order(&buffer, self.options.random, self.seed);
        let prefetchers = self.options.prefetchers;
        let measure = async move |cpu: Cpu| latency::chase(&cpu, &order, prefetchers).await;
        Ok(self.on(core, cpu, measure).await)
    }

    async fn latency_matrix(&self, cpu: &Cpu, report: &mut Report) -> Result<(), Failure> {
        for (from, cores) in &self.nodes {
            for to in self.memories() {
                let latency = self.idle(cpu, cores[0], to).await?;
                report.add(format!("idle latency {} {}", from.0, to.0), "ns", latency);
            }
        }
        Ok(())
    }

    /// Starts a load on all cores of some nodes but one; `place` tells of whose memory.
    async fn load(
        &self,
        cpu: &Cpu,
        load: MemoryLoad,
        nodes: &[(Node, Vec<CpuId>)],
        but: Option<CpuId>,
        place: impl Fn(Node) -> Node,
    ) -> Result<MemoryTraffic, Failure> {
        let mut all = Vec::new();
        for (node, cores) in nodes {
            let share = if load.mix.writes() { self.kernel.caches(*node) / cores.len() as u64 } else { 0 };
            let own = cores.iter().filter(|&&core| Some(core) != but);
            let memory = place(*node);
            // Of more nodes than two, a home that knows of a reader does not know which it is.
            let is_far = memory != *node && self.kernel.nodes() == 2;
            all.extend(own.map(|&core| LoadingCore { core, memory, share, is_far }));
        }
        MemoryTraffic::start(&self.memory, cpu, load, &all).await
    }

    /// Megabytes per second that all cores of some nodes move.
    async fn bandwidth(
        &self,
        cpu: &Cpu,
        mix: TrafficMix,
        nodes: &[(Node, Vec<CpuId>)],
        place: impl Fn(Node) -> Node,
    ) -> Result<f64, Failure> {
        let load = MemoryLoad {
            mix,
            delay: 0,
            random: self.options.order(self.seed),
            time: duration(self.options.time),
        };
        let moved = self.load(cpu, load, nodes, None, place).await?.bytes().await;
        Ok(mb_per_s(moved, load.time))
    }

    async fn bandwidth_matrix(&self, cpu: &Cpu, report: &mut Report) -> Result<(), Failure> {
        let mix = self.options.mix().unwrap_or(TrafficMix::READS);
        for one in &self.nodes {
            for to in self.memories() {
                let rate = self.bandwidth(cpu, mix, std::slice::from_ref(one), |_| to).await?;
                report.add(format!("{mix} bandwidth {} {}", one.0.0, to.0), "MB/s", rate);
            }
        }
        Ok(())
    }

    async fn peak(&self, cpu: &Cpu, report: &mut Report) -> Result<(), Failure> {
        for mix in self.options.mix().map_or(TrafficMix::PEAK.to_vec(), |mix| vec![mix]) {
            let rate = self.bandwidth(cpu, mix, &self.nodes, |node| node).await?;
            report.add(format!("peak {mix}"), "MB/s", rate);
        }
        Ok(())
    }

    async fn loaded(&self, cpu: &Cpu, report: &mut Report) -> Result<(), Failure> {
        let (mix, measuring) = (self.options.mix().unwrap_or(TrafficMix::READS), self.measuring());
        let own = self.kernel.node_of(measuring);
        for delay in self.options.delay.map_or(DELAYS.to_vec(), |delay| vec![delay]) {
            let load = MemoryLoad {
                mix,
                delay,
                random: self.options.order(self.seed),
                time: duration(self.options.time),
            };
            let buffer = self.memory.take(cpu, own, self.options.buffer << 10)?;
            let order = latency::order(&buffer, self.options.random, self.seed ^ delay);
            let traffic = self.load(cpu, load, &self.nodes, Some(measuring), |node| node).await?;
            let (window, prefetchers) = (traffic.window(), self.options.prefetchers);
            let measure =
                async move |cpu: Cpu| latency::chase_during(&cpu, &order, prefetchers, &window).await;
            let (latency, loads) = self.on(measuring, cpu, measure).await;
            let bytes = traffic.bytes().await + loads * LINE;
            report.add(format!("delay {delay}: loaded latency"), "ns", latency);
            report.add(format!("delay {delay}: bandwidth"), "MB/s", mb_per_s(bytes, load.time));
        }
        Ok(())
    }

    /// Latency of lines that another core has read or written, in nanoseconds.
    async fn line_elsewhere(
        &self,
        cpu: &Cpu,
        (writer, reader): (CpuId, CpuId),
        home: Node,
        modified: bool,
    ) -> Result<f64, Failure> {
        let buffer = self.memory.take(cpu, home, PIECE)?;
        let order = Rc::new(latency::some(&buffer, self.seed));
        let (first, prefetchers) = (Rc::clone(&order), self.options.prefetchers);
        self.on(writer, cpu, async move |cpu| latency::own(&cpu, &first, modified).await).await;
        let measure = async move |cpu: Cpu| latency::chase(&cpu, &order, prefetchers).await;
        Ok(self.on(reader, cpu, measure).await)
    }

    async fn cache_to_cache(&self, cpu: &Cpu, report: &mut Report) -> Result<(), Failure> {
        let (node, cores) = &self.nodes[0];
        if let [first, second, ..] = cores[..] {
            for (name, modified) in [("hit", false), ("hitm", true)] {
                let latency = self.line_elsewhere(cpu, (first, second), *node, modified).await?;
                report.add(format!("L2 to L2 {name}"), "ns", latency);
            }
        }
        for (from, writers) in &self.nodes {
            for (to, readers) in self.nodes.iter().filter(|(to, _)| to != from) {
                for (home, at) in [("writer", from), ("reader", to)] {
                    let latency = self.line_elsewhere(cpu, (writers[0], readers[0]), *at, true).await?;
                    let name = format!("L2 to L2 hitm, writer {} reader {}, home of {home}", from.0, to.0);
                    report.add(name, "ns", latency);
                }
            }
        }
        Ok(())
    }
}

impl Mlc {
    /// The seed of a random order of the cores that load the memory.
    fn order(&self, seed: u64) -> Option<u64> {
        self.random_load.then_some(seed)
    }
}

impl Checker<'_> {
    async fn run(&self, cpu: &Cpu) -> Result<Report, Failure> {
        let options = self.options;
        let tests = [
            options.idle_latency,
            options.latency_matrix,
            options.bandwidth_matrix,
            options.peak_injection_bandwidth,
            options.loaded_latency,
            options.c2c_latency,
        ];
        let all = !tests.contains(&true);
        let mut report = Report::default();
        if options.idle_latency {
            let core = self.measuring();
            let node = options.node.map_or(self.kernel.node_of(core), Node);
            report.add("idle latency", "ns", self.idle(cpu, core, node).await?);
        }
        if all || options.latency_matrix {
            self.latency_matrix(cpu, &mut report).await?;
        }
        if all || options.bandwidth_matrix {
            self.bandwidth_matrix(cpu, &mut report).await?;
        }
        if all || options.loaded_latency {
            self.loaded(cpu, &mut report).await?;
        }
        if all || options.c2c_latency {
            self.cache_to_cache(cpu, &mut report).await?;
        }
        // Last, as it leaves the caches full of what has been written.
        if all || options.peak_injection_bandwidth {
            self.peak(cpu, &mut report).await?;
        }
        Ok(report)
    }
}

impl Mlc {
    /// The one mix that was asked for.
    fn mix(&self) -> Option<TrafficMix> {
        if self.reads { Some(TrafficMix::READS) } else { self.mix }
    }

    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let Environment { kernel, cpus, seed, .. } = environment;
        let mut nodes: Vec<(Node, Vec<CpuId>)> = Vec::new();
        for &core in cpus {
            let node = kernel.node_of(core);
            match nodes.iter_mut().find(|(own, _)| *own == node) {
                Some((_, cores)) => cores.push(core),
                None => nodes.push((node, vec![core])),
            }
        }
        nodes.sort_by_key(|(node, _)| *node);
        let memory = Buffers { kernel: Rc::clone(kernel), taken: RefCell::default() };
        let bench = Checker { options: self, kernel, memory, nodes, seed: *seed };
        let report = bench.run(cpu).await;
        bench.memory.free_all(cpu);
        report
    }
}

impl Program for Mlc {
    fn lasts(&self) -> Option<Duration> {
        let tests = [self.idle_latency, self.latency_matrix, self.c2c_latency];
        let counts = [
            (self.bandwidth_matrix, self.pairs.get() as usize),
            (self.peak_injection_bandwidth, self.mix().map_or(TrafficMix::PEAK.len(), |_| 1)),
            (self.loaded_latency, self.delay.map_or(DELAYS.len(), |_| 1)),
        ];
        let all = !tests.contains(&true) && !counts.iter().any(|(is_meant, _)| *is_meant);
        let count: usize =
            counts.iter().filter(|(is_meant, _)| *is_meant || all).map(|(_, count)| count).sum();
        // Latencies take as long as loads take.
        (count > 0).then(|| duration(self.time) * count as u64)
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        if let Some(core) = self.core.filter(|&core| premises.cpus.iter().all(|&(own, _)| own != core)) {
            let help = "a core of the program's; `cpus` sets them";
            return Err(Refused::new(format!("mlc: core {core} is none of the program's"), help));
        }
        if let Some(node) = self.node.filter(|&node| node >= premises.nodes) {
            let help = format!("nodes 0 to {}", premises.nodes.saturating_sub(1));
            return Err(Refused::new(format!("mlc: there is no node {node}"), help));
        }
        let mut nodes: Vec<u8> = premises.cpus.iter().map(|(_, node)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        self.pairs.set(nodes.len() as u32 * u32::from(premises.nodes));
        let all = u128::from(traffic::largest(self.random_load)) * premises.cores as u128
            + (u128::from(self.buffer) << 10);
        premises.holds("mlc", "its buffers", all)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
