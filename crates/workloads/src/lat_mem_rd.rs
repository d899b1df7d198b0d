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
/// Bytes of the smallest working set, as in the original.
const SMALLEST: u64 = 512;

/// A size for people.
fn binary(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Measures the latency of dependent loads.
#[derive(clap::Parser, Clone, Copy, PartialEq, Eq, Debug)]
#[command(name = "lat_mem_rd")]
pub struct LatMemRd {
    /// Random order, so that neither prefetchers nor open rows help.
    #[arg(short = 't')]
    thrash: bool,
    /// Size of the largest working set, in MiB. Smaller ones, down to 512 bytes, are measured after it and printed before it.
    #[arg(value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Stride in bytes.
    #[arg(default_value_t = 64, value_parser = clap::value_parser!(u64).range(8..=4096))]
    stride: u64,
}

impl LatMemRd {
    /// The addresses of a chain within `bytes`; each location is to hold the next address.
    fn chain(&self, memory: &Scattered, bytes: u64, seed: u64) -> Vec<PhysAddr> {
        let places = bytes / self.stride;
        let mut order: Vec<PhysAddr> = (0..places).map(|n| memory.at(n * self.stride)).collect();
        if self.thrash {
            Random::new(seed, 0).shuffle(&mut order);
        }
        order
    }

    /// Sizes below the largest, downwards: each half of the one before.
    fn smaller(&self) -> impl Iterator<Item = u64> + use<> {
        let (least, most) = (SMALLEST.max(4 * self.stride), self.size << 20);
        std::iter::successors(Some(most / 2), |size| Some(size / 2)).take_while(move |size| *size >= least)
    }

    /// Nanoseconds of a load of a chain, whose first round goes to the middle before `begin`.
    async fn measure(&self, cpu: &Cpu, order: &[PhysAddr], begin: impl FnOnce()) -> Result<f64, Failure> {
        for (n, &at) in order.iter().enumerate() {
            cpu.store_u64(at, order[(n + 1) % order.len()].0);
            if n % TURN == 0 {
                cpu.sync().await;
            }
        }
        // The first round finds lines that the stores left in the caches.
        let half = order.len() / 2;
        let middle = self.walk(cpu, order[0], half).await;
        cpu.sync().await;
        begin();
        let began = cpu.now();
        let end = self.walk(cpu, middle, order.len() - half).await;
        let took = cpu.now().since(began);
        if end != order[0] {
            return Err(Failure("the chain does not lead back to its beginning".into()));
        }
        Ok(took.as_ns_f64() / (order.len() - half) as f64)
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
            let most = self.size << 20;
            let order = self.chain(&memory, most, seed);
            let latency = self.measure(&cpu, &order, || span.begin()).await;
            span.end();
            let mut rows = vec![(most, latency?)];
            for size in self.smaller() {
                let order = self.chain(&memory, size, seed);
                rows.push((size, self.measure(&cpu, &order, || ()).await?));
            }
            memory.free(&*kernel, &cpu);
            let mut report = Report::default();
            report.add("latency", "ns", rows[0].1);
            for (size, latency) in rows.iter().skip(1) {
                report.add(format!("latency of {}", binary(*size)), "ns", *latency);
            }
            // As the original prints them.
            let lines = rows
                .iter()
                .rev()
                .map(|(size, latency)| format!("{:.5} {latency:.3}\n", *size as f64 / 1_048_576.0));
            report.text = Some(format!("\"stride={}\n{}", self.stride, lines.collect::<String>()));
            Ok(report)
        })
    }
}
