//! Two GPUs exchanging a counter without the host (Device Lending, section 7.2, second program).

use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use wire::gpu::{Launch, Program as Kernel};

use super::stream::CudaStream;
use super::{Context, HostMemory, gpu};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Bytes between the two counters, so that they have separate cache lines.
const APART: u64 = 64;

/// A kernel on one GPU writes a counter for another GPU, which writes it back when it sees it; each polls its own
/// counter.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "gpu-pingpong")]
pub struct GpuPingPong {
    /// The GPU that starts.
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// The GPU that answers.
    #[arg(long, default_value_t = 1)]
    second: u32,
    /// Round trips.
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// Where the counters are: `peer`, each in the memory of the GPU that polls it; `ram`, in host memory.
    #[arg(long, default_value = "peer", value_parser = ["peer", "ram"])]
    memory: String,
}

impl GpuPingPong {
    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let first = Context::open(cpu, &*gpu(kernel, self.first)?)?;
        let second = Context::open(cpu, &*gpu(kernel, self.second)?)?;
        let host = HostMemory::take(kernel, cpu, CounterPlace::HOST_BYTES)?;
        let counters = if self.memory == "ram" { CounterPlace::InHostMemory } else { CounterPlace::OfPeers };
        let measured = exchange(cpu, [&first, &second], &host, counters, self.count).await;
        // If one GPU has failed, this ends the other one's kernel, which polls forever.
        first.close(cpu);
        second.close(cpu);
        host.give(kernel, cpu);
        let mut report = Report::default();
        report.add("round trip", "us", measured? as f64 / f64::from(self.count) / 1e3);
        Ok(report)
    }
}

/// Where the two counters are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CounterPlace {
    /// Each in the memory of the GPU that polls it.
    OfPeers,
    /// In host memory.
    InHostMemory,
}

impl CounterPlace {
    /// Host memory that an exchange takes.
    pub(super) const HOST_BYTES: u64 = 4 * APART;
}

/// Nanoseconds that `count` round trips take on the first GPU's clock. `host` has [`CounterPlace::HOST_BYTES`].
///
/// # Errors
/// If there is no path between the GPUs, or one of them fails.
pub(super) async fn exchange(
    cpu: &Cpu,
    [first, second]: [&Rc<Context>; 2],
    host: &HostMemory,
    counters: CounterPlace,
    count: u32,
) -> Result<u64, Failure> {
    cpu.store(host.start(), &[0; CounterPlace::HOST_BYTES as usize]);
    let hosts = [first.map(cpu, host)?, second.map(cpu, host)?];
    // For each GPU: the counter that it polls, and the one that it writes.
    let [ping, pong] = match counters {
        CounterPlace::InHostMemory => [(hosts[0], hosts[0].after(APART)), (hosts[1].after(APART), hosts[1])],
        CounterPlace::OfPeers => {
            let (a, b) = (first.malloc(cpu, APART)?, second.malloc(cpu, APART)?);
            // GPU memory may hold old data.
            let zeros = hosts.map(|host| host.after(2 * APART));
            for (context, memory, zeros) in [(first, a, zeros[0]), (second, b, zeros[1])] {
                let mut stream = CudaStream::default();
                stream.copy_in(cpu, context, (memory.place, zeros), APART).await?;
                stream.synchronise(cpu).await?;
            }
            let peers = (first.map_peer(cpu, &b)?, second.map_peer(cpu, &a)?);
            [(a.place, peers.0), (b.place, peers.1)]
        }
    };
    let mut streams = [CudaStream::default(), CudaStream::default()];
    // The answering GPU must be waiting before the other starts.
    for (n, context, program, (polled, written)) in
        [(1, second, Kernel::Pong, pong), (0, first, Kernel::Ping, ping)]
    {
        let result = hosts[n].after((2 + n as u64) * APART);
        let launch = Launch { program, polled, written, result, count };
        streams[n].launch(cpu, context, launch).await?;
    }
    CudaStream::synchronise_all(cpu, &streams).await?;
    Ok(cpu.load_u64(host.start() + 2 * APART))
}

impl Program for GpuPingPong {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.gpu("gpu-pingpong", self.first)?;
        premises.gpu("gpu-pingpong", self.second)?;
        let two = "`--first` and `--second` of two";
        Refused::unless(self.first != self.second, "gpu-pingpong: both ends are one GPU", two)?;
        Refused::unless(
            self.count > 0,
            "gpu-pingpong: no round trip is nothing to measure",
            "`--count 1` or more",
        )
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
