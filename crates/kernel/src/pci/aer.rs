//! Advanced error reporting (AER): reads who reported an error, and starts recovery.

use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::config::aer::{self, root_command, root_status};
use wire::pcie::{Bdf, FunctionAddress};

use super::base::PciBase;
use super::function::{ErrorCounters, ErrorTally, Function};
use super::recovery::Recovery;
use super::topology::Topology;

/// Handles reported errors.
pub(super) struct Errors {
    pub base: PciBase,
    pub topology: Rc<Topology>,
    pub recovery: Rc<Recovery>,
    pub tally: Rc<ErrorTally>,
}

impl Errors {
    /// Enables error interrupts of a root port.
    pub async fn start(&self, cpu: &Cpu, port: &Function) {
        let Some(at) = port.aer() else { return };
        port.backend.config_write(cpu, at + aer::ROOT_STATUS, root_status::ALL, 0xf).await;
        port.backend.config_write(cpu, at + aer::ROOT_COMMAND, root_command::ALL, 0xf).await;
    }

    /// Handles a port's interrupt, if it is about errors. The port interrupts again only after none was pending, so
    /// this looks again for those that came meanwhile.
    pub async fn event(&self, cpu: &Cpu, port: &Rc<Function>) {
        let Some(at) = port.aer() else { return };
        loop {
            let status = port.backend.config_read(cpu, at + aer::ROOT_STATUS).await;
            let is_gone = status == u32::MAX;
            if is_gone || status & (root_status::CORRECTABLE | root_status::UNCORRECTABLE) == 0 {
                return;
            }
            let source = port.backend.config_read(cpu, at + aer::ROOT_SOURCE).await;
            port.backend.config_write(cpu, at + aer::ROOT_STATUS, status & root_status::ALL, 0xf).await;
            self.reported(cpu, port, status, source).await;
        }
    }

    /// Handles the errors that a port's status tells.
    async fn reported(&self, cpu: &Cpu, port: &Rc<Function>, status: u32, source: u32) {
        if status & root_status::CORRECTABLE != 0 {
            let more = status & root_status::MORE_CORRECTABLE != 0;
            for source in self.sources(port, Bdf::from_bits(source as u16), more) {
                self.corrected(cpu, source, more).await;
            }
        }
        if status & root_status::UNCORRECTABLE != 0 {
            let more = status & root_status::MORE_UNCORRECTABLE != 0;
            let mut reports = Vec::new();
            for source in self.sources(port, Bdf::from_bits((source >> 16) as u16), more) {
                reports.extend(self.uncorrected(cpu, source, more).await);
            }
            self.recovery.recover(cpu, reports).await;
        }
    }

    /// Functions that may have reported: the recorded one, or if there were `more`, any in the hierarchy.
    fn sources(&self, port: &Function, kept: Bdf, more: bool) -> Vec<FunctionAddress> {
        if !more {
            return vec![port.beside(kept)];
        }
        self.topology.hierarchy(port).iter().filter(|f| f.aer().is_some()).map(|f| f.at()).collect()
    }

    /// Handles a corrected error of a function that reported one, or only may have (`perhaps`).
    async fn corrected(&self, cpu: &Cpu, source: FunctionAddress, perhaps: bool) {
        let Some((function, at)) = self.reporter(source) else {
            self.tally.count(|c| c.correctable += 1);
            return;
        };
        let bits = function.backend.config_read(cpu, at + aer::CORRECTABLE_STATUS).await;
        if perhaps && (bits == 0 || bits == u32::MAX) {
            return;
        }
        function.backend.config_write(cpu, at + aer::CORRECTABLE_STATUS, bits, 0xf).await;
        function.errors.count(|c| c.correctable += 1);
        self.tally.count(|c| c.correctable += 1);
        self.base.log.write(format!("pci {function}: corrected error {bits:#x}"));
    }

    /// The reporting function and the offset of its error registers.
    fn reporter(&self, source: FunctionAddress) -> Option<(Rc<Function>, u16)> {
        let function = self.topology.function(source)?;
        let at = function.aer()?;
        Some((function, at))
    }

    /// Reads an uncorrected error of a function that reported one, or only may have (`perhaps`). Returns the
    /// function, and whether the error is fatal.
    async fn uncorrected(
        &self,
        cpu: &Cpu,
        source: FunctionAddress,
        perhaps: bool,
    ) -> Option<(Rc<Function>, bool)> {
        let Some((function, at)) = self.reporter(source) else {
            self.base.log.write(format!("pci {}: error from an unknown function", source.bdf));
            return None;
        };
        let bits = function.backend.config_read(cpu, at + aer::UNCORRECTABLE_STATUS).await;
        if perhaps && bits == 0 {
            return None;
        }
        let severity = function.backend.config_read(cpu, at + aer::UNCORRECTABLE_SEVERITY).await;
        // A function that does not answer needs a reset.
        let fatal = bits == u32::MAX || bits & severity != 0;
        let count = |c: &mut ErrorCounters| if fatal { c.fatal += 1 } else { c.non_fatal += 1 };
        function.errors.count(count);
        self.tally.count(count);
        function.backend.config_write(cpu, at + aer::UNCORRECTABLE_STATUS, bits, 0xf).await;
        let kind = if fatal { "fatal" } else { "non-fatal" };
        let words = match bits {
            u32::MAX => "it does not answer".to_owned(),
            bits => aer::uncorrectable::words(bits),
        };
        self.base.log.warn(format!("pci {function}: {kind} error, status {bits:#x}: {words}"));
        Some((function, fatal))
    }
}
