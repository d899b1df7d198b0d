//! Error recovery: asks the drivers and resets functions as needed (as Linux's `pcie_do_recovery`).
//!
//! A non-fatal error only concerns the function's driver, which may ask for a function reset. A fatal error concerns
//! the link: everything below the port is frozen to block accesses, reset through its bus, configured again and
//! returned to the drivers. Unlike in Linux, a driver that gives up only takes its own function down.

use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::{ChannelState, PciOps, Recovery};
use units::Duration;
use wire::pcie::FunctionAddress;
use wire::pcie::config::{header, slot};

use super::hotplug;
use super::{Function, Pci};

/// How long a secondary bus is held in reset (Linux's `pci_reset_secondary_bus`: 2 ms; base spec 7.5.1.3.13: 1 ms).
const HELD: Duration = Duration::from_ms(2);
/// From a conventional reset until functions must answer (base spec 6.6.1).
const SETTLES: Duration = Duration::from_ms(100);

impl Pci {
    /// Recovers from reported errors: functions, and whether each error is fatal.
    pub(super) async fn recover(self: &Rc<Self>, cpu: &Cpu, reports: Vec<(Rc<Function>, bool)>) {
        let mut ports: Vec<FunctionAddress> = Vec::new();
        for (function, _) in reports.iter().filter(|(_, fatal)| *fatal) {
            let port = if function.is_bridge() { Some(function.bdf) } else { function.parent };
            match port.and_then(|port| self.function(function.beside(port))) {
                Some(port) if ports.contains(&port.at()) => {}
                Some(port) => {
                    ports.push(port.at());
                    self.recover_below(cpu, &port).await;
                }
                // A function integrated in the root complex has no link to reset.
                None => self.recover_one(cpu, function, ChannelState::Frozen).await,
            }
        }
        for (function, _) in reports.iter().filter(|(_, fatal)| !fatal) {
            if function.is_bridge() {
                // Lost requests through a bridge are handled by their requesters.
                self.count_error(|c| c.recovered += 1);
            } else if !function.parent.is_some_and(|parent| ports.contains(&function.beside(parent))) {
                self.recover_one(cpu, function, ChannelState::Normal).await;
            }
        }
    }

    /// Asks a function's driver, and resets the function if the driver or the error calls for it.
    async fn recover_one(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>, state: ChannelState) {
        let Some(binding) = function.binding() else {
            self.count_error(|c| c.failed += 1);
            return;
        };
        let mut verdict = binding.error_detected(cpu, state);
        let frozen = state == ChannelState::Frozen;
        if verdict == Recovery::NeedReset || frozen && verdict == Recovery::CanRecover {
            verdict = match function.reset(cpu).await {
                Ok(()) => binding.slot_reset(cpu).await,
                Err(_) => Recovery::Disconnect,
            };
        }
        self.end_recovery(cpu, function, verdict).await;
    }

    /// Resumes the function, or unbinds it.
    async fn end_recovery(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>, verdict: Recovery) {
        if verdict == Recovery::CanRecover {
            if let Some(binding) = function.binding() {
                binding.resume(cpu);
            }
            self.count_error(|c| c.recovered += 1);
        } else {
            self.unbind(cpu, function).await;
            self.count_error(|c| c.failed += 1);
        }
    }

    /// Resets everything below a port.
    async fn recover_below(self: &Rc<Self>, cpu: &Cpu, port: &Rc<Function>) {
        let below = self.below(port);
        below.iter().for_each(|function| function.frozen.set(true));
        let mut asked = Vec::new();
        for function in &below {
            if let Some(binding) = function.binding() {
                let verdict = binding.error_detected(cpu, ChannelState::Frozen);
                asked.push((function, binding, verdict));
            }
        }
        let is_back = self.reset_bus(cpu, port).await;
        below.iter().for_each(|function| function.frozen.set(false));
        // Virtual functions are restored with their physical one.
        for function in below.iter().filter(|function| is_back && function.physical.is_none()) {
            self.restore(cpu, function).await;
        }
        for (function, binding, verdict) in asked {
            let verdict = match verdict {
                Recovery::Disconnect => Recovery::Disconnect,
                _ if is_back && function.physical.is_some() => continue,
                _ if is_back => binding.slot_reset(cpu).await,
                _ => Recovery::Disconnect,
            };
            self.end_recovery(cpu, function, verdict).await;
        }
    }

    /// Functions below a port, bridges before what is behind them.
    fn below(&self, port: &Function) -> Vec<Rc<Function>> {
        self.all().into_iter().filter(|f| f.is_behind(port)).collect()
    }

    /// Resets a function by its bus, if it is alone there (Linux: `pci_parent_bus_reset`).
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it shares the bus or has no port above; [`Error::Io`] if the link does not come up
    /// again.
    pub(super) async fn reset_by_bus(
        self: &Rc<Self>,
        cpu: &Cpu,
        function: &Rc<Function>,
    ) -> Result<(), Error> {
        let port = self.all().into_iter().find(|port| function.is_below(port)).ok_or(Error::NotSupported)?;
        if self.below(&port).len() > 1 {
            return Err(Error::NotSupported);
        }
        function.frozen.set(true);
        let is_back = self.reset_bus(cpu, &port).await;
        function.frozen.set(false);
        if !is_back {
            return Err(Error::Io);
        }
        self.restore(cpu, function).await;
        Ok(())
    }

    /// Resets the bus below a port. Returns whether the link came up again.
    async fn reset_bus(self: &Rc<Self>, cpu: &Cpu, port: &Function) -> bool {
        self.log.write(format!("pci {}: reset of the bus below", port));
        // The link goes down and up, which must not look like a removal (as pciehp's `reset_slot`).
        let slot = port.pcie.filter(|_| port.slot);
        let mut control = 0;
        if let Some(pcie) = slot {
            control = port.backend.read_u16(cpu, pcie + slot::CONTROL).await;
            port.backend.write_u16(cpu, pcie + slot::CONTROL, control & !hotplug::CONTROL).await;
        }
        let before = port.backend.read_u16(cpu, header::BRIDGE_CONTROL).await;
        let reset = before | header::BRIDGE_SECONDARY_RESET;
        port.backend.write_u16(cpu, header::BRIDGE_CONTROL, reset).await;
        cpu.sleep(HELD).await;
        port.backend.write_u16(cpu, header::BRIDGE_CONTROL, before).await;
        cpu.sleep(SETTLES).await;
        if let Some(pcie) = slot {
            // Clear only the link event: a real removal meanwhile is still reported.
            port.backend.write_u16(cpu, pcie + slot::STATUS, slot::STATUS_LINK_CHANGED).await;
            port.backend.write_u16(cpu, pcie + slot::CONTROL, control).await;
        }
        self.link_is_active(cpu, port).await
    }
}
