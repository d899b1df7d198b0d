//! Error recovery: asks the drivers and resets functions as needed (as Linux's `pcie_do_recovery`).
//!
//! A non-fatal error only concerns the function's driver, which may ask for a function reset. A fatal error concerns
//! the link: everything below the port is frozen to block accesses, reset through its bus, configured again and
//! returned to the drivers. Unlike in Linux, a driver that gives up only takes its own function down.

use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::{ChannelState, Recovery as Verdict};
use units::Duration;
use wire::pcie::FunctionAddress;
use wire::pcie::config::{header, pcie_cap, slot};

use super::base::PciBase;
use super::drivers::Drivers;
use super::function::{ErrorTally, Function, SLOT_INTERRUPTS};
use super::interrupts::Interrupts;
use super::iov::VirtualFunctions;
use super::settings::Settings;
use super::topology::Topology;

/// How long a secondary bus is held in reset (Linux's `pci_reset_secondary_bus`: 2 ms; base spec 7.5.1.3.13: 1 ms).
const HELD: Duration = Duration::from_ms(2);
/// From a conventional reset until functions must answer (base spec 6.6.1).
pub(super) const SETTLES: Duration = Duration::from_ms(100);

/// How what is below a port is reset, and its link comes up again.
#[derive(Clone, Copy)]
pub(super) enum BusRecovery {
    /// By a reset of the bus.
    Reset,
    /// The port has contained it, which this ends; the offset of the capability.
    Release(u16),
}

/// Resets functions and recovers them from errors.
pub(super) struct Recovery {
    pub base: PciBase,
    pub topology: Rc<Topology>,
    pub settings: Rc<Settings>,
    pub interrupts: Rc<Interrupts>,
    pub iov: Rc<VirtualFunctions>,
    pub drivers: Rc<Drivers>,
    pub tally: Rc<ErrorTally>,
}

impl Recovery {
    /// Recovers from reported errors: functions, and whether each error is fatal.
    pub async fn recover(&self, cpu: &Cpu, reports: Vec<(Rc<Function>, bool)>) {
        let mut ports: Vec<FunctionAddress> = Vec::new();
        for (function, _) in reports.iter().filter(|(_, fatal)| *fatal) {
            let port = if function.is_bridge() { Some(function.bdf) } else { function.parent };
            match port.and_then(|port| self.topology.function(function.beside(port))) {
                Some(port) if ports.contains(&port.at()) => {}
                Some(port) => {
                    ports.push(port.at());
                    self.recover_below(cpu, &port, BusRecovery::Reset).await;
                }
                // A function integrated in the root complex has no link to reset.
                None => self.recover_one(cpu, function, ChannelState::Frozen).await,
            }
        }
        for (function, _) in reports.iter().filter(|(_, fatal)| !fatal) {
            if function.is_bridge() {
                // Lost requests through a bridge are handled by their requesters.
                self.tally.count(|c| c.recovered += 1);
            } else if !function.parent.is_some_and(|parent| ports.contains(&function.beside(parent))) {
                self.recover_one(cpu, function, ChannelState::Normal).await;
            }
        }
    }

    /// Asks a function's driver, and resets the function if the driver or the error calls for it.
    async fn recover_one(&self, cpu: &Cpu, function: &Rc<Function>, state: ChannelState) {
        let Some(binding) = self.drivers.binding_of(function) else {
            self.tally.count(|c| c.failed += 1);
            return;
        };
        let mut verdict = binding.error_detected(cpu, state);
        let frozen = state == ChannelState::Frozen;
        if verdict == Verdict::NeedReset || frozen && verdict == Verdict::CanRecover {
            verdict = match self.reset(cpu, function).await {
                Ok(()) => binding.slot_reset(cpu).await,
                Err(_) => Verdict::Disconnect,
            };
        }
        self.end_recovery(cpu, function, verdict).await;
    }

    /// Resumes the function, or unbinds it.
    async fn end_recovery(&self, cpu: &Cpu, function: &Rc<Function>, verdict: Verdict) {
        if verdict == Verdict::CanRecover {
            if let Some(binding) = self.drivers.binding_of(function) {
                binding.resume(cpu);
            }
            self.tally.count(|c| c.recovered += 1);
        } else {
            self.drivers.unbind(cpu, function).await;
            self.tally.count(|c| c.failed += 1);
        }
    }

    /// Resets everything below a port, and returns it to the drivers.
    pub async fn recover_below(&self, cpu: &Cpu, port: &Rc<Function>, way: BusRecovery) {
        let below = self.topology.behind(port);
        below.iter().for_each(|function| function.reach.freeze(true));
        let mut asked = Vec::new();
        for function in &below {
            if let Some(binding) = self.drivers.binding_of(function) {
                let verdict = binding.error_detected(cpu, ChannelState::Frozen);
                asked.push((function, binding, verdict));
            }
        }
        let is_back = match way {
            BusRecovery::Reset => self.reset_bus(cpu, port).await,
            BusRecovery::Release(containment) => self.release(cpu, port, containment).await,
        };
        below.iter().for_each(|function| function.reach.freeze(false));
        // Virtual functions are restored with their physical one.
        for function in below.iter().filter(|function| is_back && function.physical.is_none()) {
            self.restore(cpu, function).await;
        }
        for (function, binding, verdict) in asked {
            let verdict = match verdict {
                Verdict::Disconnect => Verdict::Disconnect,
                _ if is_back && function.physical.is_some() => continue,
                _ if is_back => binding.slot_reset(cpu).await,
                _ => Verdict::Disconnect,
            };
            self.end_recovery(cpu, function, verdict).await;
        }
    }

    /// Restores BARs and settings after a reset.
    pub async fn restore(&self, cpu: &Cpu, function: &Function) {
        if function.physical.is_some() {
            // The physical function controls everything else.
            function.backend.write_u16(cpu, header::COMMAND, header::COMMAND_BUS_MASTER).await;
            self.interrupts.restore(cpu, function).await;
            return;
        }
        function.write_sizes(cpu).await;
        for (number, bar) in function.bars.numbered() {
            function.set_bar(cpu, number, bar.address).await;
        }
        if function.is_bridge() {
            let buses =
                [function.bdf.bus(), function.forwards.secondary(), function.forwards.subordinate(), 0];
            function.backend.config_write(cpu, header::BUS_NUMBERS, u32::from_le_bytes(buses), 7).await;
            for (number, window) in function.forwards.windows().into_iter().enumerate() {
                let (start, length) = window.unwrap_or_default();
                function.set_window(cpu, number, start, length).await;
            }
            self.settings.isolate(cpu, function).await;
            self.settings.contain(cpu, function).await;
        }
        self.settings.set_sizes(cpu, function, function.max_payload.get()).await;
        self.settings.enable_latency(cpu, function).await;
        let on = header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE | header::COMMAND_BUS_MASTER;
        function.backend.write_u16(cpu, header::COMMAND, on).await;
        self.interrupts.restore(cpu, function).await;
        for virtual_function in self.iov.restore(cpu, function).await {
            Box::pin(self.restore(cpu, &virtual_function)).await;
            if let Some(binding) = self.drivers.binding_of(&virtual_function) {
                binding.resume(cpu);
            }
        }
    }

    /// Resets a function, by itself if it can, or else by its bus.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if it was removed, and as of [`reset_by_bus`](Self::reset_by_bus).
    pub async fn reset(&self, cpu: &Cpu, function: &Function) -> Result<(), Error> {
        let pcie = function.pcie().ok_or(Error::NotSupported)?;
        let way = &function.backend;
        let capabilities = way.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
        if capabilities & pcie_cap::CAPABLE_OF_FLR == 0 {
            let function = self.topology.function(function.at()).ok_or(Error::NoDevice)?;
            return self.reset_by_bus(cpu, &function).await;
        }
        let control = way.read_u16(cpu, pcie + pcie_cap::DEVICE_CONTROL).await | pcie_cap::CONTROL_FLR;
        way.write_u16(cpu, pcie + pcie_cap::DEVICE_CONTROL, control).await;
        // The function must answer within 100 ms (base spec 6.6.2).
        cpu.sleep(SETTLES).await;
        self.restore(cpu, function).await;
        Ok(())
    }

    /// Resets a function by its bus, if it is alone there (Linux: `pci_parent_bus_reset`).
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it shares the bus or has no port above; [`Error::Io`] if the link does not come up
    /// again.
    async fn reset_by_bus(&self, cpu: &Cpu, function: &Rc<Function>) -> Result<(), Error> {
        let port = self
            .topology
            .all()
            .into_iter()
            .find(|port| function.is_below(port))
            .ok_or(Error::NotSupported)?;
        if self.topology.behind(&port).len() > 1 {
            return Err(Error::NotSupported);
        }
        function.reach.freeze(true);
        let is_back = self.reset_bus(cpu, &port).await;
        function.reach.freeze(false);
        if !is_back {
            return Err(Error::Io);
        }
        self.restore(cpu, function).await;
        Ok(())
    }

    /// Lets the link below a port that contained it train (Linux: `dpc_reset_link`). Returns whether it came up.
    async fn release(&self, cpu: &Cpu, port: &Function, containment: u16) -> bool {
        self.settings.end_containment(cpu, port, containment).await;
        if let Some(pcie) = port.slot() {
            // The link was down and is up again without a removal (Linux: `pci_dpc_recovered`).
            port.backend.write_u16(cpu, pcie + slot::STATUS, slot::STATUS_LINK_CHANGED).await;
        }
        port.link_is_active(cpu).await
    }

    /// Resets the bus below a port. Returns whether the link came up again.
    async fn reset_bus(&self, cpu: &Cpu, port: &Function) -> bool {
        self.base.log.write(format!("pci {}: reset of the bus below", port));
        // The link goes down and up, which must not look like a removal (as pciehp's `reset_slot`).
        let slot = port.slot();
        let mut control = 0;
        if let Some(pcie) = slot {
            control = port.backend.read_u16(cpu, pcie + slot::CONTROL).await;
            port.backend.write_u16(cpu, pcie + slot::CONTROL, control & !SLOT_INTERRUPTS).await;
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
        port.link_is_active(cpu).await
    }
}
