//! Copies that run at once, between GPUs and between a GPU and host memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::gpu::GpuMemory;
use platform::kernel::Kernel;
use units::Duration;
use wire::gpu::Place;

use super::stream::CudaStream;
use super::{Context, HostMemory, gpu};
use crate::program::{Failure, MeasuredSpan};

/// Copies in a row of each flow beside one that is measured, so that they outlast it.
const BESIDE: usize = 2;

/// How many times as long as the short copy the long one is.
const TIMES: u64 = 3;
/// The same if more flows than a pair run at once: which of them waits for which changes by chance, and has to even out.
const MANY_TIMES: u64 = 9;

/// Where a copy begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyEnd {
    /// Pinned memory of the host.
    Host,
    /// The memory of a GPU, by its number.
    Gpu(usize),
}

impl fmt::Display for CopyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Gpu(number) => number.fmt(f),
        }
    }
}

/// Which GPU's engine copies between two GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopiedBy {
    /// The source, which writes.
    Source,
    /// The destination, which reads.
    Destination,
}

/// A copy by an engine of a GPU.
#[derive(Clone, Copy)]
pub(super) struct CopyFlow {
    /// Number of the GPU.
    by: usize,
    to: Place,
    from: Place,
    /// Whether data come into its memory.
    is_read: bool,
}

struct PeerGpu {
    context: Rc<Context>,
    memory: GpuMemory,
}

/// All GPUs of a host, with memory to copy.
pub(super) struct CopyRig {
    gpus: Vec<PeerGpu>,
    host: HostMemory,
    /// Where a GPU sees another one's memory, or the host's, as far as it was mapped.
    seen: RefCell<BTreeMap<(usize, Option<usize>), Place>>,
    bytes: u64,
    span: MeasuredSpan,
}

impl CopyRig {
    /// Opens all GPUs, with memory for copies whose shorter one has so many bytes. It measures in `span`.
    pub fn open(cpu: &Cpu, kernel: &dyn Kernel, bytes: u64, span: &MeasuredSpan) -> Result<Self, Failure> {
        // What no memory has is refused where it is taken.
        let all = bytes.saturating_mul(MANY_TIMES);
        let mut gpus = Vec::new();
        while let Ok(file) = gpu(kernel, gpus.len() as u32) {
            let context = Context::open(cpu, &*file)?;
            let memory = context.malloc(cpu, all)?;
            gpus.push(PeerGpu { context, memory });
        }
        let host = HostMemory::take(kernel, cpu, all)?;
        Ok(Self { gpus, host, seen: RefCell::default(), bytes, span: span.clone() })
    }

    pub fn close(self, cpu: &Cpu, kernel: &dyn Kernel) {
        for gpu in &self.gpus {
            gpu.context.close(cpu);
        }
        self.host.give(kernel, cpu);
    }

    /// Number of GPUs.
    pub fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// All pairs of GPUs.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let gpus = self.gpus();
        (0..gpus).flat_map(move |a| (0..gpus).filter(move |&b| a != b).map(move |b| (a, b)))
    }

    /// The context of a GPU.
    pub fn context(&self, gpu: usize) -> &Rc<Context> {
        &self.gpus[gpu].context
    }

    /// Where a GPU sees an end of a copy.
    ///
    /// # Errors
    /// If there is no path to it.
    pub fn seen_by(&self, cpu: &Cpu, by: usize, end: CopyEnd) -> Result<Place, Failure> {
        let of = match end {
            CopyEnd::Gpu(of) if of == by => return Ok(self.gpus[by].memory.place),
            CopyEnd::Gpu(of) => Some(of),
            CopyEnd::Host => None,
        };
        if let Some(place) = self.seen.borrow().get(&(by, of)) {
            return Ok(*place);
        }
        let place = match of {
            Some(of) => self.context(by).map_peer(cpu, &self.gpus[of].memory)?,
            None => self.context(by).map(cpu, &self.host)?,
        };
        self.seen.borrow_mut().insert((by, of), place);
        Ok(place)
    }

    /// A flow between two ends, of which at least one is a GPU.
    ///
    /// # Errors
    /// If there is no path between them.
    pub fn flow(&self, cpu: &Cpu, (from, to): (CopyEnd, CopyEnd), by: CopiedBy) -> Result<CopyFlow, Failure> {
        let (by, is_read) = match (from, to) {
            (CopyEnd::Gpu(from), CopyEnd::Gpu(_)) if by == CopiedBy::Source => (from, false),
            (_, CopyEnd::Gpu(to)) => (to, true),
            (CopyEnd::Gpu(from), CopyEnd::Host) => (from, false),
            (CopyEnd::Host, CopyEnd::Host) => return Err(Failure("no GPU copies within host memory".into())),
        };
        let [from, to] = [from, to].map(|end| self.seen_by(cpu, by, end));
        Ok(CopyFlow { by, to: to?, from: from?, is_read })
    }

    /// Rate of long copies, all of `flows` at once, in GB/s.
    pub async fn rate(&self, cpu: &Cpu, flows: &[CopyFlow]) -> Result<f64, Failure> {
        Ok(self.rates(cpu, flows).await?.together)
    }

    /// The same, with the rates of the flows that end last and first.
    pub async fn rates(&self, cpu: &Cpu, flows: &[CopyFlow]) -> Result<FlowRates, Failure> {
        let times = if flows.len() > 2 { MANY_TIMES } else { TIMES };
        let [short, long] = self.two(times, async |bytes| self.copies(cpu, flows, bytes).await).await?;
        let bytes = (times - 1) * self.bytes;
        let last = |times: &[Duration]| times.iter().copied().max().unwrap_or_default();
        let each: Vec<f64> =
            short.iter().zip(&long).map(|(&short, &long)| gb_per_s(bytes, short, long)).collect();
        Ok(FlowRates {
            together: flows.len() as f64 * gb_per_s(bytes, last(&short), last(&long)),
            slowest: each.iter().copied().fold(f64::INFINITY, f64::min),
            fastest: each.iter().copied().fold(0.0, f64::max),
        })
    }

    /// As [`rate`](Self::rate), of one flow while others copy, too.
    pub async fn rate_beside(
        &self,
        cpu: &Cpu,
        measured: CopyFlow,
        others: &[CopyFlow],
    ) -> Result<f64, Failure> {
        let time = async |bytes| {
            let mut beside = Vec::new();
            for flow in others {
                let mut stream = CudaStream::default();
                for _ in 0..BESIDE {
                    self.add(cpu, &mut stream, (flow, 0), bytes).await?;
                }
                beside.push(stream);
            }
            let took = self.copies(cpu, &[measured], bytes).await;
            CudaStream::synchronise_all(cpu, &beside).await?;
            Ok(took?[0])
        };
        let [short, long] = self.two(TIMES, time).await?;
        Ok(gb_per_s((TIMES - 1) * self.bytes, short, long))
    }

    /// What a short copy takes, and one that is so many times as long. `time` copies so many bytes.
    async fn two<T>(
        &self,
        times: u64,
        time: impl AsyncFn(u64) -> Result<T, Failure>,
    ) -> Result<[T; 2], Failure> {
        // The first copy on an engine has to wait for its channel.
        time(4096.min(self.bytes)).await?;
        let short = time(self.bytes).await?;
        self.span.begin();
        let long = time(times * self.bytes).await;
        self.span.end();
        Ok([short, long?])
    }

    /// Adds a copy to the stream that is `number` of those of its GPU.
    async fn add(
        &self,
        cpu: &Cpu,
        stream: &mut CudaStream,
        (flow, number): (&CopyFlow, usize),
        bytes: u64,
    ) -> Result<(), Failure> {
        let (context, ends) = (self.context(flow.by), (flow.to, flow.from));
        match flow.is_read {
            true => stream.copy_in(cpu, context, ends, bytes).await,
            false => stream.copy_out_by(cpu, context, context.copies_out_by(number), ends, bytes).await,
        }
    }

    /// How long copies of `bytes` take that are started one after the other, each until it is done.
    async fn copies(&self, cpu: &Cpu, flows: &[CopyFlow], bytes: u64) -> Result<Vec<Duration>, Failure> {
        let mut streams = Vec::new();
        let began = cpu.now();
        let mut numbers = vec![0; self.gpus()];
        for flow in flows {
            let mut stream = CudaStream::default();
            self.add(cpu, &mut stream, (flow, numbers[flow.by]), bytes).await?;
            numbers[flow.by] += usize::from(!flow.is_read);
            streams.push(stream);
        }
        let ends = CudaStream::ends_of(cpu, &streams).await?;
        Ok(ends.into_iter().map(|end| end.since(began)).collect())
    }
}

/// Rates of copies that run at once, in GB/s.
pub(super) struct FlowRates {
    /// The sum, until the last one ends.
    pub together: f64,
    /// The flow that moves least until its end.
    pub slowest: f64,
    /// The one that moves most.
    pub fastest: f64,
}

/// What a copy of so many more bytes takes longer, as GB/s.
fn gb_per_s(bytes: u64, short: Duration, long: Duration) -> f64 {
    bytes as f64 / long.saturating_sub(short).as_ns_f64().max(f64::MIN_POSITIVE)
}

/// A table of pairs as the originals print it.
pub(super) struct PairTable {
    title: String,
    cells: Vec<Vec<Option<f64>>>,
}

impl PairTable {
    pub fn new(title: impl Into<String>, rows: usize, columns: usize) -> Self {
        Self { title: title.into(), cells: vec![vec![None; columns]; rows] }
    }

    pub fn set(&mut self, from: usize, to: usize, value: f64) {
        self.cells[from][to] = Some(value);
    }

    /// Its rows.
    pub fn rows(&self) -> impl Iterator<Item = &[Option<f64>]> {
        self.cells.iter().map(Vec::as_slice)
    }

    /// All cells with a value: row, column and value.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let row = |(row, cells): (usize, &Vec<Option<f64>>)| {
            let known =
                cells.iter().enumerate().filter_map(move |(column, cell)| Some((row, column, (*cell)?)));
            known.collect::<Vec<_>>()
        };
        self.cells.iter().enumerate().flat_map(row)
    }

    /// The sum of all cells.
    pub fn sum(&self) -> f64 {
        self.cells.iter().flatten().flatten().sum()
    }

    /// With a word in the corner, and this for a cell without a value. A column has at least so many characters.
    pub fn text(&self, corner: &str, none: &str, width: usize) -> String {
        let mut text = format!("{}\n{corner:>6}", self.title);
        for to in 0..self.cells.first().map_or(0, Vec::len) {
            text += &format!("{to:>width$}");
        }
        for (from, row) in self.cells.iter().enumerate() {
            text += &format!("\n{from:>6}");
            for cell in row {
                text += &cell.map_or_else(|| format!("{none:>width$}"), |value| format!("{value:>width$.2}"));
            }
        }
        text + "\n"
    }
}
