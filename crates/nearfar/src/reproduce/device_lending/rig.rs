//! Hosts of the paper, and programs on them.

use std::rc::Rc;

use machine::{ComputerScenario, ComputerSetup, Doc};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::sync::Completion;
use workloads::{Environment, Report};

use super::super::Options;
use crate::computer::Computers;

/// Hosts that have booted.
pub struct Rig {
    pub computers: Computers,
}

impl Rig {
    /// Boots what `text` describes.
    pub fn boot(options: &Options, text: &str) -> Result<Self, String> {
        let text = format!("name = \"device-lending\"\nsummary = \"a run\"\nseed = {}\n{text}", options.seed);
        let doc = Doc::<ComputerScenario>::from_text(&options.library, "device-lending", &text);
        let setup = ComputerSetup::load(&options.library, &doc).map_err(|error| error.to_string())?;
        let computers = Computers::new(&setup).map_err(|error| error.to_string())?;
        computers.boot().map_err(|error| error.to_string())?;
        Ok(Self { computers })
    }

    /// Runs a program on the first core of a host, or of its virtual machine if it has one, to its end.
    pub fn run(&self, host: usize, line: &str) -> Result<Report, String> {
        let program = workloads::parse(line).map_err(|refused| refused.to_string())?;
        let host = &self.computers.hosts()[host];
        let kernel = host.kernel_of((!host.vms().is_empty()).then_some(0));
        let cpus = vec![CpuId(0)];
        let environment = Environment { kernel: kernel.face(), cpus: cpus.clone(), seed: 1 };
        let done = Completion::new();
        let told = done.clone();
        let params = TaskParams { cpus, ..TaskParams::named(line) };
        kernel.spawn(params, move |cpu| {
            Box::pin(async move { told.complete(Rc::clone(&program).run(cpu, environment).await) })
        });
        let ended = self.computers.simulation().block_on(async move { done.wait().await });
        let report = ended.map_err(|error| error.to_string())?;
        // What a kernel has to say of it stands at the end of its log.
        let last = || kernel.log().last().map_or_else(String::new, |(_, line)| format!(" (log: {line})"));
        report.map_err(|failure| format!("`{line}`: {failure}{}", last()))
    }
}

/// A value of a report.
pub fn of(report: &Report, quantity: &str) -> Result<f64, String> {
    report.get(quantity).ok_or_else(|| format!("the program does not tell its {quantity}"))
}
