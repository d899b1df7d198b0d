//! Bandwidth and latency between all GPUs of a host, one pair at a time and all at once (CUDA samples,
//! `p2pBandwidthLatencyTest`).

use std::fmt::Write as _;
use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::gpu::GpuMemory;
use platform::kernel::Kernel;
use units::Duration;
use wire::gpu::Place;

use super::pingpong::{CounterPlace, exchange};
use super::stream::CudaStream;
use super::{Context, HostMemory, gpu};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Copies between all pairs of GPUs: one way, both ways at once, every pair at once, and between each GPU and host memory; and
/// the time that a flag takes from one GPU's kernel to another's.
///
/// Rates are those of long copies: what a copy of three times the bytes takes longer.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "p2pBandwidthLatencyTest")]
pub struct PeerTest {
    /// The destination reads, instead of the source writing.
    #[arg(long = "p2p_read")]
    reads: bool,
    /// Bytes of the shorter copy.
    #[arg(long, value_parser = options::size, default_value = "1m")]
    bytes: u64,
    /// Round trips of a flag.
    #[arg(long, default_value_t = 20)]
    count: u32,
    /// All pairs at once, too, and all GPUs with host memory at once.
    #[arg(long)]
    all: bool,
}

/// A GPU with its memory.
struct PeerGpu {
    context: Rc<Context>,
    memory: GpuMemory,
}

/// A copy from a place of one GPU's view to another, by that GPU.
#[derive(Clone, Copy)]
struct PeerFlow {
    /// Index of the GPU whose engine copies.
    by: usize,
    to: Place,
    from: Place,
    /// Whether data come into its memory.
    is_read: bool,
}

impl PeerTest {
    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let mut gpus = Vec::new();
        while let Ok(file) = gpu(kernel, gpus.len() as u32) {
            let context = Context::open(cpu, &*file)?;
            let memory = context.malloc(cpu, 3 * self.bytes)?;
            gpus.push(PeerGpu { context, memory });
        }
        let host = HostMemory::take(kernel, cpu, 3 * self.bytes)?;
        let measured = self.all_of(cpu, kernel, &gpus, &host).await;
        for gpu in &gpus {
            gpu.context.close(cpu);
        }
        host.give(kernel, cpu);
        measured
    }

    async fn all_of(
        &self,
        cpu: &Cpu,
        kernel: &dyn Kernel,
        gpus: &[PeerGpu],
        host: &HostMemory,
    ) -> Result<Report, Failure> {
        let mut report = Report::default();
        let mut flows = vec![vec![None; gpus.len()]; gpus.len()];
        for (from, source) in gpus.iter().enumerate() {
            for (to, target) in gpus.iter().enumerate().filter(|&(to, _)| to != from) {
                flows[from][to] = Some(match self.reads {
                    true => {
                        let there = target.context.map_peer(cpu, &source.memory)?;
                        PeerFlow { by: to, to: target.memory.place, from: there, is_read: true }
                    }
                    false => {
                        let there = source.context.map_peer(cpu, &target.memory)?;
                        PeerFlow { by: from, to: there, from: source.memory.place, is_read: false }
                    }
                });
            }
        }
        let mut one_way =
            PeerTable::new("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", gpus.len());
        let mut both_ways = PeerTable::new("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", gpus.len());
        let mut latency = PeerTable::new("P2P=Enabled one-way time of a flag (us)", gpus.len());
        let known =
            flows.iter().enumerate().flat_map(|(from, row)| row.iter().enumerate().map(move |to| (from, to)));
        for (from, (to, there)) in known {
            let (Some(there), Some(back)) = (*there, flows[to][from]) else { continue };
            let rate = self.rate(cpu, gpus, &[there]).await?;
            report.add(format!("gpu{from} to gpu{to}"), "GB/s", rate);
            one_way.set(from, to, rate);
            if from < to {
                let rate = self.rate(cpu, gpus, &[there, back]).await?;
                report.add(format!("gpu{from} and gpu{to}, both ways"), "GB/s", rate);
                both_ways.set(from, to, rate);
                both_ways.set(to, from, rate);
                let time = self.flag(cpu, kernel, [from, to]).await?;
                report.add(format!("gpu{from} to gpu{to}, a flag"), "us", time);
                latency.set(from, to, time);
                latency.set(to, from, time);
            }
        }
        let all: Vec<PeerFlow> = flows.iter().flatten().copied().flatten().collect();
        if self.all && all.len() > 2 {
            let rate = self.rate(cpu, gpus, &all).await?;
            report.add(format!("all {} flows", all.len()), "GB/s", rate);
        }
        for is_read in [true, false] {
            let mut flows = Vec::new();
            for (by, gpu) in gpus.iter().enumerate() {
                let (own, there) = (gpu.memory.place, gpu.context.map(cpu, host)?);
                let (to, from) = if is_read { (own, there) } else { (there, own) };
                flows.push(PeerFlow { by, to, from, is_read });
            }
            let name = |gpu: &str| if is_read { format!("host to {gpu}") } else { format!("{gpu} to host") };
            for flow in &flows {
                let rate = self.rate(cpu, gpus, &[*flow]).await?;
                report.add(name(&format!("gpu{}", flow.by)), "GB/s", rate);
            }
            if self.all && flows.len() > 1 {
                let rate = self.rate(cpu, gpus, &flows).await?;
                report.add(name(&format!("all {} GPUs", flows.len())), "GB/s", rate);
            }
        }
        report.text = Some([one_way, both_ways, latency].map(|matrix| matrix.text()).concat());
        Ok(report)
    }

    /// Rate of long copies, all of `flows` at once, in GB/s.
    async fn rate(&self, cpu: &Cpu, gpus: &[PeerGpu], flows: &[PeerFlow]) -> Result<f64, Failure> {
        // The first copy on an engine has to wait for its channel.
        self.copies(cpu, gpus, flows, 4096.min(self.bytes)).await?;
        let short = self.copies(cpu, gpus, flows, self.bytes).await?;
        let long = self.copies(cpu, gpus, flows, 3 * self.bytes).await?;
        let bytes = flows.len() as u64 * 2 * self.bytes;
        Ok(bytes as f64 / long.saturating_sub(short).as_ns_f64().max(f64::MIN_POSITIVE))
    }

    /// How long copies of `bytes` take that are started one after the other, until the last one is done.
    async fn copies(
        &self,
        cpu: &Cpu,
        gpus: &[PeerGpu],
        flows: &[PeerFlow],
        bytes: u64,
    ) -> Result<Duration, Failure> {
        let mut streams = Vec::new();
        let began = cpu.now();
        for flow in flows {
            let mut stream = CudaStream::default();
            let context = &gpus[flow.by].context;
            match flow.is_read {
                true => stream.copy_in(cpu, context, (flow.to, flow.from), bytes).await?,
                false => stream.copy_out(cpu, context, (flow.to, flow.from), bytes).await?,
            }
            streams.push(stream);
        }
        CudaStream::synchronise_all(cpu, &streams).await?;
        Ok(cpu.now().since(began))
    }

    /// How long a flag takes from a kernel on one GPU to a kernel on another one, in microseconds.
    async fn flag(&self, cpu: &Cpu, kernel: &dyn Kernel, pair: [usize; 2]) -> Result<f64, Failure> {
        let [first, second] = pair.map(|number| gpu(kernel, number as u32));
        let (first, second) = (Context::open(cpu, &*first?)?, Context::open(cpu, &*second?)?);
        let host = HostMemory::take(kernel, cpu, CounterPlace::HOST_BYTES)?;
        let took = exchange(cpu, [&first, &second], &host, CounterPlace::OfPeers, self.count).await;
        first.close(cpu);
        second.close(cpu);
        host.give(kernel, cpu);
        Ok(took? as f64 / f64::from(self.count) / 2e3)
    }
}

/// A table as the original prints it.
struct PeerTable {
    title: &'static str,
    cells: Vec<Vec<Option<f64>>>,
}

impl PeerTable {
    fn new(title: &'static str, gpus: usize) -> Self {
        Self { title, cells: vec![vec![None; gpus]; gpus] }
    }

    fn set(&mut self, from: usize, to: usize, value: f64) {
        self.cells[from][to] = Some(value);
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n   D\\D", self.title);
        for to in 0..self.cells.len() {
            let _ = write!(text, "{to:>7}");
        }
        for (from, row) in self.cells.iter().enumerate() {
            let _ = write!(text, "\n{from:>6}");
            for cell in row {
                let _ = match cell {
                    Some(value) => write!(text, "{value:>7.2}"),
                    None => write!(text, "{:>7}", "-"),
                };
            }
        }
        text + "\n"
    }
}

impl Program for PeerTest {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.gpu("p2pBandwidthLatencyTest", 1)?;
        Refused::unless(
            self.count > 0 && self.bytes > 0,
            "p2pBandwidthLatencyTest: no bytes or no round trips are nothing to measure",
            "at least one of each",
        )
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
