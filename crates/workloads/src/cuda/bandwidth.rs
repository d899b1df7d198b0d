//! `bandwidthTest` of the CUDA samples: ten consecutive copies between pinned host memory and a GPU, timed together
//! by events.

use std::rc::Rc;

use platform::cpu::{Async, Cpu};

use super::stream::{CudaStream, Events};
use super::{Context, HostMemory, gpu};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Copies timed together (`MEMCOPY_ITERATIONS`).
const COPIES: u64 = 10;

/// Measures the bandwidth between pinned host memory and a GPU with ten copies in flight, like the CUDA sample.
/// `--verify` is an additional option.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "bandwidthTest")]
pub struct BandwidthTest {
    /// The GPU.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Kind of host memory; only `pinned` is supported.
    #[arg(long, default_value = "pinned", value_parser = ["pinned"])]
    memory: String,
    /// `quick` for a single size of 32 MiB, `range` for all sizes from `--start` to `--end`.
    #[arg(long, default_value = "quick", value_parser = ["quick", "range"])]
    mode: String,
    /// First size (bytes).
    #[arg(long, value_parser = options::size, default_value = "1k")]
    start: u64,
    /// Last size (bytes).
    #[arg(long, value_parser = options::size, default_value = "1k")]
    end: u64,
    /// Step between sizes (bytes); by default, sizes double.
    #[arg(long, value_parser = options::size)]
    increment: Option<u64>,
    /// Only from host to GPU.
    #[arg(long)]
    htod: bool,
    /// Only from GPU to host.
    #[arg(long)]
    dtoh: bool,
    /// Checks that the data that come back equal the data sent.
    #[arg(long)]
    verify: bool,
}

impl BandwidthTest {
    /// The sizes; at least one.
    fn sizes(&self) -> Vec<u64> {
        if self.mode == "quick" {
            return vec![32 << 20];
        }
        let next = |&size: &u64| match self.increment {
            Some(step) => size.checked_add(step),
            None => size.checked_mul(2),
        };
        std::iter::successors(Some(self.start), next).take_while(|&size| size <= self.end).collect()
    }

    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let context = Context::open(cpu, &*gpu(kernel, self.device)?)?;
        let sizes = self.sizes();
        let most = sizes.iter().copied().max().unwrap_or(1);
        let host = HostMemory::take(kernel, cpu, most)?;
        let place = context.map(cpu, &host)?;
        let device = context.malloc(cpu, most)?;
        let sent: Vec<u8> = (0..most).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
        if self.verify {
            cpu.store_long(host.start(), &sent).await;
        }
        let mut report = Report::default();
        let both = self.htod == self.dtoh;
        for (wanted, name, out) in
            [(both || self.htod, "host to device", false), (both || self.dtoh, "device to host", true)]
        {
            let mut stream = CudaStream::default();
            for &bytes in sizes.iter().filter(|_| wanted) {
                // An earlier test of the same direction left its work on the same channel.
                warm_up(cpu, &mut stream, &context, (device.place, place, out)).await?;
                if out && self.verify {
                    cpu.store_long(host.start(), &vec![0; bytes as usize]).await;
                }
                let mut events = Events::new(kernel, cpu, &[Rc::clone(&context)], 2)?;
                let start = stream.record(cpu, &context, &mut events).await?;
                for _ in 0..COPIES {
                    match out {
                        false => stream.copy_in(cpu, &context, (device.place, place), bytes).await?,
                        true => stream.copy_out(cpu, &context, (place, device.place), bytes).await?,
                    }
                }
                let stop = stream.record(cpu, &context, &mut events).await?;
                stream.synchronise(cpu).await?;
                let ns = stop.since(cpu, &start);
                events.give(kernel, cpu);
                report.add(format!("{name} {bytes} B"), "GB/s", (COPIES * bytes) as f64 / ns as f64);
                if out && self.verify {
                    let mut back = vec![0; bytes as usize];
                    cpu.load_long(host.start(), &mut back).await;
                    if back[..] != sent[..bytes as usize] {
                        return Err(Failure(format!("bandwidthTest: {bytes} bytes came back changed")));
                    }
                }
            }
        }
        context.close(cpu);
        host.give(kernel, cpu);
        Ok(report)
    }
}

/// A copy, so that the stream's events are recorded on the channel of its copies.
async fn warm_up(
    cpu: &Cpu,
    stream: &mut CudaStream,
    context: &Rc<Context>,
    (device, host, out): (wire::gpu::Place, wire::gpu::Place, bool),
) -> Result<(), Failure> {
    match out {
        false => stream.copy_in(cpu, context, (device, host), 8).await?,
        true => stream.copy_out(cpu, context, (host, device), 8).await?,
    }
    stream.synchronise(cpu).await
}

impl Program for BandwidthTest {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.gpu("bandwidthTest", self.device)?;
        let message = format!("bandwidthTest: there is no size from {} to {}", self.start, self.end);
        let step =
            "`--start` of at least 1, `--end` no less, `--increment` not 0, no more than a thousand of them";
        let few =
            self.increment.is_none_or(|step| step > 0 && self.end.saturating_sub(self.start) / step < 1000);
        let is_possible = self.start > 0 && self.end >= self.start && few;
        Refused::unless(self.mode == "quick" || is_possible, message, step)?;
        premises.holds("bandwidthTest", "buffers", self.sizes().into_iter().max().unwrap_or(0).into())
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
