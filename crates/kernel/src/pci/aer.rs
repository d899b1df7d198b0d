//! Advanced error reporting (AER): reads who reported an error, and starts recovery.

use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::config::aer;
use wire::pcie::{Bdf, FunctionAddress};

use super::base::PciBase;
use super::function::{ErrorCounters, ErrorTally, Function};
use super::recovery::Recovery;
use super::topology::Topology;

/// Root error command: interrupt on correctable, non-fatal and fatal errors.
const REPORT_ALL: u32 = 0b111;
/// Root error status: a correctable error, an uncorrectable one, and further ones whose source was not recorded
/// because the first was still pending (base spec 7.8.4.10).
const CORRECTABLE: u32 = 1 << 0;
const MORE_CORRECTABLE: u32 = 1 << 1;
const UNCORRECTABLE: u32 = 1 << 2;
const MORE_UNCORRECTABLE: u32 = 1 << 3;
/// Root error status: all bits that are cleared by writing ones.
const ALL: u32 = 0x7f;

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
        port.backend.config_write(cpu, at + aer::ROOT_STATUS, ALL, 0xf).await;
        port.backend.config_write(cpu, at + aer::ROOT_COMMAND, REPORT_ALL, 0xf).await;
    }

    /// Handles a port's interrupt, if it is about an error.
    pub async fn event(&self, cpu: &Cpu, port: &Rc<Function>) {
        let Some(at) = port.aer() else { return };
        let status = port.backend.config_read(cpu, at + aer::ROOT_STATUS).await;
        if status & (CORRECTABLE | UNCORRECTABLE) == 0 {
            return;
        }
        let source = port.backend.config_read(cpu, at + aer::ROOT_SOURCE).await;
        port.backend.config_write(cpu, at + aer::ROOT_STATUS, status & ALL, 0xf).await;
        if status & CORRECTABLE != 0 {
            let more = status & MORE_CORRECTABLE != 0;
            for source in self.sources(port, Bdf::from_bits(source as u16), more) {
                self.corrected(cpu, source, more).await;
            }
        }
        if status & UNCORRECTABLE != 0 {
            let more = status & MORE_UNCORRECTABLE != 0;
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
        self.base.log.warn(format!("pci {function}: {kind} error {bits:#x}"));
        Some((function, fatal))
    }
}
