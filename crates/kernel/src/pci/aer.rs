//! Advanced error reporting: who reports an error is asked which, and `recovery` sees to it.

use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::config::aer;
use wire::pcie::{Bdf, FunctionAddress};

use super::{Function, Pci};

/// Root error command: interrupt on correctable, non-fatal and fatal errors.
const REPORT_ALL: u32 = 0b111;
/// Root error status: a correctable error, another error; and that more came before the first was looked at, whose source
/// is not kept (base spec 7.8.4.10).
const CORRECTABLE: u32 = 1 << 0;
const MORE_CORRECTABLE: u32 = 1 << 1;
const UNCORRECTABLE: u32 = 1 << 2;
const MORE_UNCORRECTABLE: u32 = 1 << 3;
/// Root error status: its bits that are cleared by writing ones.
const ALL: u32 = 0x7f;

/// Counts of reported errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCounters {
    /// Corrected by hardware.
    pub correctable: u64,
    /// A request was lost.
    pub non_fatal: u64,
    /// The link or the function cannot be relied on.
    pub fatal: u64,
    /// Functions that went on afterwards.
    pub recovered: u64,
    /// Functions that were given up.
    pub failed: u64,
}

impl Pci {
    /// Lets a root port interrupt on errors.
    pub(super) async fn start_errors(&self, cpu: &Cpu, port: &Function) {
        let Some(at) = port.aer() else { return };
        port.backend.config_write(cpu, at + aer::ROOT_STATUS, ALL, 0xf).await;
        port.backend.config_write(cpu, at + aer::ROOT_COMMAND, REPORT_ALL, 0xf).await;
    }

    /// A port interrupted: looks whether for an error.
    pub(super) async fn error_event(self: &Rc<Self>, cpu: &Cpu, port: &Rc<Function>) {
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
            self.recover(cpu, reports).await;
        }
    }

    /// Who may have reported: whose address is kept, or if more have, anybody in the hierarchy.
    fn sources(&self, port: &Function, kept: Bdf, more: bool) -> Vec<FunctionAddress> {
        if !more {
            return vec![port.beside(kept)];
        }
        self.hierarchy(port).iter().filter(|f| f.aer().is_some()).map(|f| f.at()).collect()
    }

    pub(super) fn count_error(&self, change: impl FnOnce(&mut ErrorCounters)) {
        let mut counters = self.errors.get();
        change(&mut counters);
        self.errors.set(counters);
    }

    /// A source of corrected errors, or one of those that may be.
    async fn corrected(&self, cpu: &Cpu, source: FunctionAddress, perhaps: bool) {
        let Some((function, at)) = self.reporter(source) else {
            self.count_error(|c| c.correctable += 1);
            return;
        };
        let bits = function.backend.config_read(cpu, at + aer::CORRECTABLE_STATUS).await;
        if perhaps && (bits == 0 || bits == u32::MAX) {
            return;
        }
        function.backend.config_write(cpu, at + aer::CORRECTABLE_STATUS, bits, 0xf).await;
        function.count_error(|c| c.correctable += 1);
        self.count_error(|c| c.correctable += 1);
        self.log.write(format!("pci {function}: corrected error {bits:#x}"));
    }

    /// The function that reports and its error registers.
    fn reporter(&self, source: FunctionAddress) -> Option<(Rc<Function>, u16)> {
        let function = self.function(source)?;
        let at = function.aer()?;
        Some((function, at))
    }

    /// A source of other errors, or one of those that may be: what it reports, and whether that is fatal.
    async fn uncorrected(
        &self,
        cpu: &Cpu,
        source: FunctionAddress,
        perhaps: bool,
    ) -> Option<(Rc<Function>, bool)> {
        let Some((function, at)) = self.reporter(source) else {
            self.log.write(format!("pci {}: an error from who is not there", source.bdf));
            return None;
        };
        let bits = function.backend.config_read(cpu, at + aer::UNCORRECTABLE_STATUS).await;
        if perhaps && bits == 0 {
            return None;
        }
        let severity = function.backend.config_read(cpu, at + aer::UNCORRECTABLE_SEVERITY).await;
        // One that does not even answer is past help by anything but a reset.
        let fatal = bits == u32::MAX || bits & severity != 0;
        let count = |c: &mut ErrorCounters| if fatal { c.fatal += 1 } else { c.non_fatal += 1 };
        function.count_error(count);
        self.count_error(count);
        function.backend.config_write(cpu, at + aer::UNCORRECTABLE_STATUS, bits, 0xf).await;
        let kind = if fatal { "fatal" } else { "non-fatal" };
        self.log.write(format!("pci {function}: {kind} error {bits:#x}"));
        Some((function, fatal))
    }
}
