//! Turns a function of its host against it, as a broken or hostile firmware would.

use std::rc::Rc;

use platform::cpu::{Async, Cpu};

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Gives a function a firmware that ignores the driver: it reads, writes and interrupts at random addresses, a quarter of
/// them as if they were translated already. Reports where each request ended. The function goes on doing what its driver
/// wants. No original: it is for confinement
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "rogue-dma")]
pub struct RogueDma {
    /// The function as events name it, such as `b:ssd` or `b:nic:vf0`: one that this host or guest has, its own or borrowed.
    function: String,
    /// Number of requests.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    tries: u32,
    /// Seed of their addresses; by default, the scenario's.
    #[arg(long)]
    seed: Option<u64>,
}

impl Program for RogueDma {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let help = match &premises.functions[..] {
            [] => "it has none with a `name`".to_owned(),
            there => format!("it has {}", there.join(", ")),
        };
        let message = format!("rogue-dma: there is no function `{}` here", self.function);
        Refused::unless(premises.functions.contains(&self.function), message, help)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            cpu.sync().await;
            let seed = self.seed.unwrap_or(environment.seed);
            let firmware = environment.firmware;
            let firmware = firmware.ok_or_else(|| Failure("no firmware can be replaced here".to_owned()))?;
            firmware.turn_rogue(&self.function, self.tries, seed).await
        })
    }
}
