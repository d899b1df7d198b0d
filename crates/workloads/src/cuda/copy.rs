//! Copies from one GPU to another, each timed by its own events (Device Lending, section 7.2, first program).

use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use wire::gpu::{Launch, Place, Program as Kernel};

use super::stream::{CudaStream, Events, Stage};
use super::{Context, HostMemory, gpu};
use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Copies submitted before the program waits for them.
const BATCH: u64 = 16;

/// Copies from one GPU's memory to another's, one at a time. Each copy has an event before and after it, and an empty
/// kernel before the second event, so that copies do not overlap.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "gpu-copy")]
pub struct GpuCopy {
    /// The source GPU.
    #[arg(long, default_value_t = 0)]
    from: u32,
    /// The destination GPU.
    #[arg(long, default_value_t = 1)]
    to: u32,
    /// Bytes per copy.
    #[arg(long, value_parser = options::size, default_value = "1m")]
    bytes: u64,
    /// Number of copies.
    #[arg(long, default_value_t = 16)]
    count: u64,
    /// `peer`: the source GPU writes to the destination's memory; `read`: the destination reads the source's; `ram`:
    /// the source writes to host memory, from which the destination reads.
    #[arg(long, default_value = "peer", value_parser = ["peer", "read", "ram"])]
    through: String,
    /// Checks that all bytes arrived.
    #[arg(long)]
    verify: bool,
}

impl GpuCopy {
    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let from = Context::open(cpu, &*gpu(kernel, self.from)?)?;
        let to = Context::open(cpu, &*gpu(kernel, self.to)?)?;
        let (source, target) = (from.malloc(cpu, self.bytes)?, to.malloc(cpu, self.bytes)?);
        let contexts = [Rc::clone(&from), Rc::clone(&to)];
        let mut stage = match self.through.as_str() {
            "ram" => Some(Stage::new(kernel, cpu, [&from, &to])?),
            _ => None,
        };
        let peer = match self.through.as_str() {
            "peer" => from.map_peer(cpu, &target)?,
            "read" => to.map_peer(cpu, &source)?,
            _ => Place::default(),
        };
        let mut stream = CudaStream::default();
        let host = match self.verify {
            true => Some(self.fill(kernel, cpu, &mut stream, &from, source.place).await?),
            false => None,
        };
        let (mut took, mut left) = (Vec::new(), self.count);
        while left > 0 {
            let batch = left.min(BATCH);
            left -= batch;
            let mut events = Events::new(kernel, cpu, &contexts, 2 * batch)?;
            let mut pairs = Vec::new();
            environment.span.begin();
            for _ in 0..batch {
                let start = stream.record(cpu, &from, &mut events).await?;
                match &mut stage {
                    None if self.through == "read" => {
                        stream.copy_in(cpu, &to, (target.place, peer), self.bytes).await?;
                    }
                    None => stream.copy_out(cpu, &from, (peer, source.place), self.bytes).await?,
                    Some(stage) => {
                        let ends = [(&from, &source), (&to, &target)];
                        stage.copy(cpu, &mut stream, ends, self.bytes).await?;
                    }
                }
                stream.launch(cpu, &from, EMPTY).await?;
                pairs.push((start, stream.record(cpu, &from, &mut events).await?));
            }
            stream.synchronise(cpu).await?;
            environment.span.end();
            took.extend(pairs.iter().map(|(start, stop)| stop.since(cpu, start)));
            events.give(kernel, cpu);
        }
        let mut report = Report::default();
        // The mean of the bandwidths, not of the times.
        let rates = took.iter().map(|&ns| self.bytes as f64 / ns as f64);
        report.add("bandwidth", "GB/s", rates.sum::<f64>() / took.len() as f64);
        report.add("time", "us", took.iter().sum::<u64>() as f64 / took.len() as f64 / 1e3);
        if let Some(host) = host {
            self.compare(cpu, &mut stream, (&to, target.place), &host).await?;
            host.give(kernel, cpu);
        }
        if let Some(stage) = stage {
            stage.give(kernel, cpu, [&from, &to]);
        }
        from.close(cpu);
        to.close(cpu);
        Ok(report)
    }

    fn pattern(&self) -> Vec<u8> {
        (0..self.bytes).map(|n| (n.wrapping_mul(0x9e37) >> 7) as u8).collect()
    }

    /// Fills the source GPU's memory.
    async fn fill(
        &self,
        kernel: &dyn platform::kernel::Kernel,
        cpu: &Cpu,
        stream: &mut CudaStream,
        context: &Rc<Context>,
        to: Place,
    ) -> Result<HostMemory, Failure> {
        let host = HostMemory::take(kernel, cpu, self.bytes)?;
        cpu.store_long(host.start(), &self.pattern()).await;
        let from = context.map(cpu, &host)?;
        stream.copy_in(cpu, context, (to, from), self.bytes).await?;
        stream.synchronise(cpu).await?;
        context.unmap(cpu, from);
        cpu.store_long(host.start(), &vec![0; self.bytes as usize]).await;
        Ok(host)
    }

    /// Checks the destination GPU's memory.
    async fn compare(
        &self,
        cpu: &Cpu,
        stream: &mut CudaStream,
        (context, from): (&Rc<Context>, Place),
        host: &HostMemory,
    ) -> Result<(), Failure> {
        let to = context.map(cpu, host)?;
        stream.copy_out(cpu, context, (to, from), self.bytes).await?;
        stream.synchronise(cpu).await?;
        let mut back = vec![0; self.bytes as usize];
        cpu.load_long(host.start(), &mut back).await;
        context.unmap(cpu, to);
        match back == self.pattern() {
            true => Ok(()),
            false => Err(Failure("gpu-copy: what has come is not what was sent".into())),
        }
    }
}

/// An empty kernel.
const EMPTY: Launch = {
    let none = Place { window: 0, offset: 0 };
    Launch { program: Kernel::Busy, polled: none, written: none, result: none, count: 0 }
};

impl Program for GpuCopy {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.gpu("gpu-copy", self.from)?;
        premises.gpu("gpu-copy", self.to)?;
        Refused::unless(
            self.from != self.to,
            "gpu-copy: both ends are one GPU",
            "`--from` and `--to` of two",
        )?;
        let message =
            format!("gpu-copy: {} copies of {} bytes are nothing to measure", self.count, self.bytes);
        Refused::unless(self.count > 0 && self.bytes > 0, message, "at least one of each")
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
