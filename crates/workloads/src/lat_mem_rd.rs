//! lmbench's `lat_mem_rd`: latency of dependent loads.

use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::memory::{PhysAddr, Policy};

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::Random;
use crate::scattered::{PIECE, Scattered};

/// Loads between two reads of the clock.
const TURN: usize = 64;

/// Measures the latency of dependent loads.
#[derive(clap::Parser, Clone, Copy, PartialEq, Eq, Debug)]
#[command(name = "lat_mem_rd")]
pub struct LatMemRd {
    /// Random order, so that neither prefetchers nor open rows help.
    #[arg(short = 't')]
    thrash: bool,
    /// Size of the working set, in MiB.
    #[arg(value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Stride in bytes.
    #[arg(default_value_t = 64, value_parser = clap::value_parser!(u64).range(8..=4096))]
    stride: u64,
}

impl LatMemRd {
    /// The addresses of the chain; each location holds the next address.
    fn chain(&self, memory: &Scattered, seed: u64) -> Vec<PhysAddr> {
        let places = (self.size << 20) / self.stride;
        let mut order: Vec<PhysAddr> = (0..places).map(|n| memory.at(n * self.stride)).collect();
        if self.thrash {
            Random::new(seed, 0).shuffle(&mut order);
        }
        order
    }

    /// Follows the chain once from its first address.
    async fn walk(&self, cpu: &Cpu, first: PhysAddr, places: usize) -> PhysAddr {
        let mut at = first;
        for n in 1..=places {
            at = PhysAddr(cpu.load_u64(at));
            if n % TURN == 0 {
                cpu.sync().await;
            }
        }
        at
    }
}

impl Program for LatMemRd {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        Refused::unless(
            self.stride.is_power_of_two(),
            "lat_mem_rd: a stride divides a page",
            "a power of two",
        )?;
        premises.holds("lat_mem_rd", "its memory", u128::from(self.size) << 20)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, seed, span, .. } = environment;
            let bytes = (self.size << 20).next_multiple_of(PIECE);
            let memory = Scattered::take(&*kernel, &cpu, bytes, Policy::Task);
            let memory = memory.map_err(|error| Failure::about("malloc", error))?;
            let order = self.chain(&memory, seed);
            for (n, &at) in order.iter().enumerate() {
                cpu.store_u64(at, order[(n + 1) % order.len()].0);
                if n % TURN == 0 {
                    cpu.sync().await;
                }
            }
            // The first round finds lines that the stores left in the caches.
            let half = order.len() / 2;
            let middle = self.walk(&cpu, order[0], half).await;
            cpu.sync().await;
            span.begin();
            let began = cpu.now();
            let end = self.walk(&cpu, middle, order.len() - half).await;
            let took = cpu.now().since(began);
            span.end();
            memory.free(&*kernel, &cpu);
            if end != order[0] {
                return Err(Failure("the chain does not lead back to its beginning".into()));
            }
            let mut report = Report::default();
            report.add("latency", "ns", took.as_ns_f64() / (order.len() - half) as f64);
            Ok(report)
        })
    }
}
