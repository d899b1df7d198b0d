//! Bandwidth and latency between all GPUs of a host, one pair at a time and all at once (CUDA samples,
//! `p2pBandwidthLatencyTest`).

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;

use super::flows::{CopiedBy, CopyEnd, CopyFlow, CopyRig, PairTable};
use super::pingpong::{CounterPlace, exchange};
use super::{Context, HostMemory, gpu};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Copies between all pairs of GPUs: one way, both ways at once, every pair at once, and between each GPU and host memory; and
/// the time that a flag takes from one GPU's kernel to another's.
///
/// Rates are those of long copies: what a copy of three times the bytes takes longer, or of nine times if more than two run
/// at once.
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
    /// Only the sum of these copies at once: `0-1,0-2` from GPU 0 to 1 and 2, `host-0` from host memory. Several sets follow each
    /// other.
    #[arg(long, value_name = "COPIES", conflicts_with = "all")]
    flows: Vec<FlowSet>,
}

impl PeerTest {
    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let rig = CopyRig::open(cpu, kernel, self.bytes, &environment.span)?;
        let measured = match self.flows.is_empty() {
            true => self.all_of(cpu, kernel, &rig).await,
            false => self.chosen(cpu, &rig).await,
        };
        rig.close(cpu, kernel);
        measured
    }

    fn by(&self) -> CopiedBy {
        if self.reads { CopiedBy::Destination } else { CopiedBy::Source }
    }

    /// Each set of flows, all of them at once.
    async fn chosen(&self, cpu: &Cpu, rig: &CopyRig) -> Result<Report, Failure> {
        let mut report = Report::default();
        for set in &self.flows {
            let flow = |&ends: &(CopyEnd, CopyEnd)| rig.flow(cpu, ends, self.by());
            let flows = set.0.iter().map(flow).collect::<Result<Vec<_>, _>>()?;
            let rates = rig.rates(cpu, &flows).await?;
            report.add(format!("flows {set}"), "GB/s", rates.together);
            if flows.len() > 1 {
                report.add(format!("slowest of flows {set}"), "GB/s", rates.slowest);
                report.add(format!("fastest of flows {set}"), "GB/s", rates.fastest);
            }
        }
        Ok(report)
    }

    async fn all_of(&self, cpu: &Cpu, kernel: &dyn Kernel, rig: &CopyRig) -> Result<Report, Failure> {
        let mut report = Report::default();
        let gpus = rig.gpus();
        let mut one_way =
            PairTable::new("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", gpus, gpus);
        let mut both_ways = PairTable::new("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", gpus, gpus);
        let mut latency = PairTable::new("P2P=Enabled one-way time of a flag (us)", gpus, gpus);
        let flow =
            |(from, to): (usize, usize)| rig.flow(cpu, (CopyEnd::Gpu(from), CopyEnd::Gpu(to)), self.by());
        let all = rig.pairs().map(flow).collect::<Result<Vec<CopyFlow>, _>>()?;
        for ((from, to), &there) in rig.pairs().zip(&all) {
            let rate = rig.rate(cpu, &[there]).await?;
            report.add(format!("gpu{from} to gpu{to}"), "GB/s", rate);
            one_way.set(from, to, rate);
            if from < to {
                let rate = rig.rate(cpu, &[there, flow((to, from))?]).await?;
                report.add(format!("gpu{from} and gpu{to}, both ways"), "GB/s", rate);
                both_ways.set(from, to, rate);
                both_ways.set(to, from, rate);
                let time = self.flag(cpu, kernel, [from, to]).await?;
                report.add(format!("gpu{from} to gpu{to}, a flag"), "us", time);
                latency.set(from, to, time);
                latency.set(to, from, time);
            }
        }
        if self.all && all.len() > 2 {
            report.add(format!("all {} flows", all.len()), "GB/s", rig.rate(cpu, &all).await?);
        }
        for is_read in [true, false] {
            let ends = |gpu| {
                let gpu = CopyEnd::Gpu(gpu);
                if is_read { (CopyEnd::Host, gpu) } else { (gpu, CopyEnd::Host) }
            };
            let name = |gpu: &str| if is_read { format!("host to {gpu}") } else { format!("{gpu} to host") };
            let flow = |gpu| rig.flow(cpu, ends(gpu), self.by());
            let flows = (0..gpus).map(flow).collect::<Result<Vec<_>, _>>()?;
            for (gpu, &flow) in flows.iter().enumerate() {
                report.add(name(&format!("gpu{gpu}")), "GB/s", rig.rate(cpu, &[flow]).await?);
            }
            if self.all && gpus > 1 {
                report.add(name(&format!("all {gpus} GPUs")), "GB/s", rig.rate(cpu, &flows).await?);
            }
        }
        report.text = Some([one_way, both_ways, latency].map(|matrix| matrix.text("D\\D", "-", 7)).concat());
        Ok(report)
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

/// Copies at once: `0-1,0-2` between GPUs, `host-0` and `0-host` between a GPU and host memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FlowSet(Vec<(CopyEnd, CopyEnd)>);

impl FromStr for FlowSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = |end: &str| match end {
            "host" => Some(CopyEnd::Host),
            gpu => gpu.parse().ok().map(CopyEnd::Gpu),
        };
        let pair = |pair: &str| {
            let (from, to) = pair.split_once('-')?;
            Some((end(from)?, end(to)?)).filter(|(from, to)| from != to)
        };
        let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
        pairs.map(Self).ok_or_else(|| "copies between two ends are meant, such as `0-1,0-host`".to_owned())
    }
}

impl fmt::Display for FlowSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        f.write_str(&pairs.join(","))
    }
}

impl Program for PeerTest {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let ends = self.flows.iter().flat_map(|set| &set.0).flat_map(|&(from, to)| [from, to]);
        let last = ends.filter_map(|end| if let CopyEnd::Gpu(gpu) = end { Some(gpu) } else { None }).max();
        let last = last.map_or(1, |last| u32::try_from(last).unwrap_or(u32::MAX));
        premises.gpu("p2pBandwidthLatencyTest", last)?;
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
