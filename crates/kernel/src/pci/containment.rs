//! Downstream port containment (as Linux's `dpc.c`): a port has taken its link down after an error, and is told to let it train
//! again once drivers know.

use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::Bdf;
use wire::pcie::config::aer;
use wire::pcie::config::dpc::{self, Reason};

use super::base::PciBase;
use super::function::{ErrorCounters, ErrorTally, Function};
use super::recovery::{BusRecovery, Recovery};
use super::topology::Topology;

/// Handles ports that contain what is below them.
pub(super) struct Containment {
    pub base: PciBase,
    pub topology: Rc<Topology>,
    pub recovery: Rc<Recovery>,
    pub tally: Rc<ErrorTally>,
}

impl Containment {
    /// Recovers what is below a port, if the port contains it. Returns whether it did; the link has then been down without a
    /// removal.
    pub async fn event(&self, cpu: &Cpu, port: &Rc<Function>) -> bool {
        let Some(at) = port.containment() else { return false };
        let register = port.backend.config_read(cpu, at + dpc::STATUS).await;
        let (status, source) = (register as u16, Bdf::from_bits((register >> 16) as u16));
        let is_gone = register == u32::MAX;
        if is_gone || status & dpc::STATUS_TRIGGERED == 0 {
            return false;
        }
        self.tally.count(|c| c.contained += 1);
        let why = self.describe(cpu, port, Reason::from_status(status), source).await;
        self.base.log.warn(format!("pci {port}: contains what is below: {why}"));
        self.recovery.recover_below(cpu, port, BusRecovery::Release(at)).await;
        self.forget(cpu, port, source).await;
        true
    }

    /// Counts the error by its kind and describes it.
    async fn describe(&self, cpu: &Cpu, port: &Function, reason: Reason, source: Bdf) -> String {
        let is_fatal = match reason {
            Reason::Software | Reason::Other => return "software triggered it".to_owned(),
            Reason::Fatal => true,
            Reason::NonFatal => false,
            Reason::Detected => match port.aer() {
                Some(at) => {
                    let bits = port.backend.config_read(cpu, at + aer::UNCORRECTABLE_STATUS).await;
                    let severity = port.backend.config_read(cpu, at + aer::UNCORRECTABLE_SEVERITY).await;
                    port.backend.config_write(cpu, at + aer::UNCORRECTABLE_STATUS, bits, 0xf).await;
                    bits & severity != 0
                }
                None => true,
            },
        };
        let count = |c: &mut ErrorCounters| if is_fatal { c.fatal += 1 } else { c.non_fatal += 1 };
        self.tally.count(count);
        let kind = if is_fatal { "fatal" } else { "non-fatal" };
        if reason == Reason::Detected {
            port.errors.count(count);
            return format!("{kind} error that it detected");
        }
        if let Some(function) = self.topology.function(port.beside(source)) {
            function.errors.count(count);
        }
        format!("{kind} error that {source} reported")
    }

    /// Clears the logged errors of the function that sent the message, which survive the reset that it got with its link.
    async fn forget(&self, cpu: &Cpu, port: &Function, source: Bdf) {
        let Some(function) = self.topology.function(port.beside(source)) else { return };
        let Some(at) = function.aer() else { return };
        let bits = function.backend.config_read(cpu, at + aer::UNCORRECTABLE_STATUS).await;
        if bits != 0 && bits != u32::MAX {
            function.backend.config_write(cpu, at + aer::UNCORRECTABLE_STATUS, bits, 0xf).await;
            self.base.log.write(format!("pci {function}: error {bits:#x}"));
        }
    }

    /// Lets the port above a function contain it by itself (the software trigger). Returns whether it can.
    pub async fn trigger(&self, cpu: &Cpu, port: &Function) -> bool {
        let Some(at) = port.containment() else { return false };
        let control = port.backend.read_u16(cpu, at + dpc::CONTROL).await;
        if control & dpc::CONTROL_TRIGGER == 0 {
            return false;
        }
        port.backend.write_u16(cpu, at + dpc::CONTROL, control | dpc::CONTROL_SOFTWARE).await;
        true
    }
}
