//! core-to-core-latency: how long a line takes from one core to another, for all pairs.
//!
//! Two threads change a word in turn, by a locked compare and exchange that each repeats until it succeeds: every attempt takes
//! the line.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, PhysAddr, Policy};

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Options that are not carried out.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("--csv", "each pair is a reading"),
    Unmodelled::refused(
        "-b, --bench NUMBERS",
        "the compare and exchange of the original's first test is here",
    ),
    Unmodelled::refused("-c, --cores CORES", "`cpus` of the program, or `taskset -c` before it"),
];

/// Measures the latency of a line between all pairs of the program's cores, one way, like core-to-core-latency.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "core-to-core-latency")]
pub struct CoreToCore {
    /// Round trips of a sample (1000 in the original).
    #[arg(default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Samples of a pair (300 in the original).
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
}

/// A word that two threads change in turn.
struct Word {
    line: PhysAddr,
    /// What is there: an exchange compares once it has the line.
    value: Cell<u64>,
}

impl Word {
    /// Changes it at its even or odd values, until it has a last one.
    async fn turns(&self, cpu: &Cpu, parity: u64, last: u64) {
        while self.value.get() < last {
            // The line is taken whether values compare or not.
            cpu.exchange_u64(self.line, self.value.get());
            cpu.locked().await;
            if self.value.get() % 2 == parity {
                self.value.set(self.value.get() + 1);
            }
        }
    }
}

impl CoreToCore {
    /// Nanoseconds that the line takes one way.
    async fn pair(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        line: PhysAddr,
        [first, second]: [CpuId; 2],
    ) -> f64 {
        let last = 2 * u64::from(self.iterations) * u64::from(self.samples);
        let word = Rc::new(Word { line, value: Cell::new(0) });
        let start = |core: CpuId, parity: u64| {
            let word = Rc::clone(&word);
            let params = TaskParams::named("core-to-core-latency").on(core).of(cpu);
            kernel.run(params, async move |cpu: Cpu| {
                word.turns(&cpu, parity, last).await;
                cpu.now()
            })
        };
        let answering = start(second, 1);
        cpu.sync().await;
        let began = cpu.now();
        let asking = start(first, 0);
        let ended = asking.wait().await.max(answering.wait().await);
        ended.since(began).as_ns_f64() / last as f64
    }

    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let Environment { kernel, cpus, .. } = environment;
        let failed = |error| Failure::about("core-to-core-latency", error);
        let pages = kernel.alloc_pages(cpu, Pages::order_for(64), Policy::Task).map_err(failed)?;
        let mut report = Report::default();
        let mut all = Vec::new();
        for (n, &second) in cpus.iter().enumerate() {
            for &first in &cpus[..n] {
                let latency = self.pair(cpu, kernel, pages.start, [first, second]).await;
                report.add(format!("core {} to {}", first.0, second.0), "ns", latency);
                all.push((kernel.node_of(first) == kernel.node_of(second), latency));
            }
        }
        for (name, near) in [("mean of cores of a node", true), ("mean between nodes", false)] {
            let own: Vec<f64> =
                all.iter().filter(|(is_near, _)| *is_near == near).map(|pair| pair.1).collect();
            if !own.is_empty() {
                report.add(name, "ns", own.iter().sum::<f64>() / own.len() as f64);
            }
        }
        kernel.free_pages(cpu, pages);
        Ok(report)
    }
}

impl Program for CoreToCore {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let message = "core-to-core-latency: one core is no pair";
        Refused::unless(premises.cpus.len() > 1, message, "two cores or more in the program's `cpus`")
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}
