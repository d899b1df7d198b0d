//! Advanced error reporting: who reports an error is asked which, its driver is told, and it is reset if need be.

use std::rc::Rc;

use platform::cpu::Cpu;
use platform::pci::{ChannelState, PciOps, Recovery};
use wire::pcie::Bdf;
use wire::pcie::config::aer;

use super::Function;
use crate::kernel::Inner;

/// Root error command: interrupt on correctable, non-fatal and fatal errors.
const REPORT_ALL: u32 = 0b111;
/// Root error status: a correctable error, another error.
const CORRECTABLE: u32 = 1 << 0;
const UNCORRECTABLE: u32 = 1 << 2;
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

impl Inner {
    /// Lets a root port interrupt on errors.
    pub(super) async fn start_errors(&self, cpu: &Cpu, port: &Function) {
        let Some(at) = port.aer() else { return };
        self.config_write(cpu, port.bdf, at + aer::ROOT_STATUS, ALL, 0xf).await;
        self.config_write(cpu, port.bdf, at + aer::ROOT_COMMAND, REPORT_ALL, 0xf).await;
    }

    /// A port interrupted: looks whether for an error.
    pub(super) async fn error_event(self: &Rc<Self>, cpu: &Cpu, port: &Rc<Function>) {
        let Some(at) = port.aer() else { return };
        let status = self.config_read(cpu, port.bdf, at + aer::ROOT_STATUS).await;
        if status & (CORRECTABLE | UNCORRECTABLE) == 0 {
            return;
        }
        let source = self.config_read(cpu, port.bdf, at + aer::ROOT_SOURCE).await;
        self.config_write(cpu, port.bdf, at + aer::ROOT_STATUS, status & ALL, 0xf).await;
        if status & CORRECTABLE != 0 {
            self.corrected(cpu, Bdf::from_bits(source as u16)).await;
        }
        if status & UNCORRECTABLE != 0 {
            self.uncorrected(cpu, Bdf::from_bits((source >> 16) as u16)).await;
        }
    }

    fn count_error(&self, change: impl FnOnce(&mut ErrorCounters)) {
        let mut counters = self.pci.errors.get();
        change(&mut counters);
        self.pci.errors.set(counters);
    }

    async fn corrected(&self, cpu: &Cpu, source: Bdf) {
        self.count_error(|c| c.correctable += 1);
        let Some((function, at)) = self.reporter(source) else { return };
        let bits = self.config_read(cpu, function.bdf, at + aer::CORRECTABLE_STATUS).await;
        self.config_write(cpu, function.bdf, at + aer::CORRECTABLE_STATUS, bits, 0xf).await;
        self.log(format!("pci {source}: corrected error {bits:#x}"));
    }

    /// The function that reports and its error registers.
    fn reporter(&self, source: Bdf) -> Option<(Rc<Function>, u16)> {
        let function = self.pci.function(source)?;
        let at = function.aer()?;
        Some((function, at))
    }

    async fn uncorrected(self: &Rc<Self>, cpu: &Cpu, source: Bdf) {
        let Some((function, at)) = self.reporter(source) else {
            self.log(format!("pci {source}: an error from who is not there"));
            return;
        };
        let bits = self.config_read(cpu, source, at + aer::UNCORRECTABLE_STATUS).await;
        let severity = self.config_read(cpu, source, at + aer::UNCORRECTABLE_SEVERITY).await;
        // One that does not even answer is past help by anything but a reset.
        let fatal = bits == u32::MAX || bits & severity != 0;
        self.count_error(|c| if fatal { c.fatal += 1 } else { c.non_fatal += 1 });
        self.config_write(cpu, source, at + aer::UNCORRECTABLE_STATUS, bits, 0xf).await;
        let kind = if fatal { "fatal" } else { "non-fatal" };
        self.log(format!("pci {source}: {kind} error {bits:#x}"));
        // What a bridge lost is missed by whoever waits for it; only its link concerns all that is below.
        let concerned = match (function.is_bridge(), fatal) {
            (false, _) => vec![function],
            (true, false) => Vec::new(),
            (true, true) => self.below(function.bdf),
        };
        let mut all = true;
        for function in concerned {
            let recovered = self.recover(cpu, &function, fatal).await;
            all &= recovered;
            if !recovered {
                self.unbind(cpu, &function).await;
            }
        }
        self.count_error(|c| if all { c.recovered += 1 } else { c.failed += 1 });
    }

    /// The functions with a driver below a root port.
    fn below(&self, port: Bdf) -> Vec<Rc<Function>> {
        self.pci.all().into_iter().filter(|f| f.root == port && f.binding().is_some()).collect()
    }

    /// Asks the driver, resets if it or the error wants that; whether the function goes on.
    async fn recover(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>, fatal: bool) -> bool {
        let Some(binding) = function.binding() else { return false };
        let state = if fatal { ChannelState::Frozen } else { ChannelState::Normal };
        let mut verdict = binding.error_detected(cpu, state);
        if verdict == Recovery::NeedReset || fatal && verdict == Recovery::CanRecover {
            verdict = match function.reset(cpu).await {
                Ok(()) => binding.slot_reset(cpu).await,
                Err(_) => Recovery::Disconnect,
            };
        }
        let goes_on = verdict == Recovery::CanRecover;
        if goes_on {
            binding.resume(cpu);
        }
        goes_on
    }
}
