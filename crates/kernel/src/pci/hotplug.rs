//! Functions that come and go: native hot-plug, surprise removal, borrowed functions.

use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::Cpu;
use platform::irq::IrqReturn;
use platform::pci::ChannelState;
use units::Duration;
use wire::pcie::FunctionAddress;
use wire::pcie::config::{header, pcie_cap, slot};

use super::aer::Errors;
use super::backend::{Backend, OWN_SEGMENT};
use super::base::PciBase;
use super::containment::Containment;
use super::drivers::Drivers;
use super::enumerate::Enumerator;
use super::function::{Function, SLOT_EVENTS, SLOT_INTERRUPTS};
use super::interrupts::Interrupts;
use super::space::AddressSpace;
use super::topology::Topology;

/// Watches ports, and adds and removes functions.
pub(super) struct Ports {
    pub me: Weak<Self>,
    pub base: PciBase,
    pub topology: Rc<Topology>,
    pub interrupts: Rc<Interrupts>,
    pub errors: Errors,
    pub containment: Containment,
    pub enumerator: Enumerator,
    pub space: Rc<AddressSpace>,
    pub drivers: Rc<Drivers>,
}

impl Ports {
    /// Enables interrupts of all ports for hot-plug and errors.
    pub async fn start(&self, cpu: &Cpu) {
        for bridge in self.topology.all() {
            self.start_port(cpu, &bridge).await;
        }
    }

    /// As [`start`](Self::start), for a port that supports either.
    async fn start_port(&self, cpu: &Cpu, bridge: &Rc<Function>) {
        if !(bridge.slot().is_some() || bridge.is_bridge() && bridge.aer().is_some()) {
            return;
        }
        let irqs = self.interrupts.alloc(cpu, bridge, 1, 1, &Default::default()).await;
        let Some(irq) = irqs.ok().and_then(|irqs| irqs.first().copied()) else {
            self.base.log.warn(format!("pci {}: no interrupt for its events", bridge));
            return;
        };
        let (ports, port) = (Weak::clone(&self.me), Rc::downgrade(bridge));
        let thread = Rc::new(move |cpu: Cpu| -> platform::cpu::Async<'static, ()> {
            let (ports, port) = (ports.upgrade(), port.upgrade());
            Box::pin(async move {
                if let Some((ports, port)) = ports.zip(port) {
                    ports.containment.event(&cpu, &port).await;
                    ports.errors.event(&cpu, &port).await;
                    ports.slot_event(&cpu, &port).await;
                }
            })
        });
        let requested =
            self.base.irqs.request(irq, "pcieport", Rc::new(|_| IrqReturn::WakeThread), Some(thread));
        if requested.is_err() {
            return;
        }
        self.errors.start(cpu, bridge).await;
        self.enumerator.settings.contain(cpu, bridge).await;
        if let Some(pcie) = bridge.slot() {
            bridge.forget_slot_events(cpu).await;
            let before = bridge.backend.read_u16(cpu, pcie + slot::CONTROL).await;
            bridge.backend.write_u16(cpu, pcie + slot::CONTROL, before | SLOT_INTERRUPTS).await;
        }
    }

    /// Handles an event of a slot.
    async fn slot_event(&self, cpu: &Cpu, bridge: &Rc<Function>) {
        let Some(pcie) = bridge.slot() else { return };
        let mut status = 0;
        // The slot interrupts again only after no event was pending (base spec 6.7.3.4).
        loop {
            let seen = bridge.backend.read_u16(cpu, pcie + slot::STATUS).await;
            if seen == u16::MAX || seen & SLOT_EVENTS == 0 {
                break;
            }
            bridge.backend.write_u16(cpu, pcie + slot::STATUS, seen & SLOT_EVENTS).await;
            status |= seen;
        }
        if status & slot::STATUS_LINK_CHANGED != 0 && self.containment.event(cpu, bridge).await {
            status &= !slot::STATUS_LINK_CHANGED;
        }
        if status & (slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED) == 0 {
            return;
        }
        // Remove the old functions in any case. Even if the device is still there, it was removed or its link was
        // down, so it has lost its state (Linux's pciehp also takes the slot down first).
        if self.topology.all().iter().any(|f| f.is_below(bridge)) {
            self.removed_below(cpu, bridge).await;
        }
        let status = bridge.backend.read_u16(cpu, pcie + slot::STATUS).await;
        if status & slot::STATUS_PRESENT == 0 || !bridge.link_is_active(cpu).await {
            return;
        }
        self.base.log.write(format!("pci {}: slot occupied", bridge));
        // A function needs time after its link has come up (base spec 6.6.1: 100 ms).
        cpu.sleep(Duration::from_ms(100)).await;
        bridge.forget_slot_events(cpu).await;
        for function in self.enumerator.rescan(cpu, bridge).await {
            self.start_port(cpu, &function).await;
            self.drivers.bind(cpu, &function).await;
        }
    }

    /// Handles the removal of everything below a bridge.
    async fn removed_below(&self, cpu: &Cpu, bridge: &Rc<Function>) {
        self.base.log.write(format!("pci {bridge}: slot empty"));
        let mut gone = self.topology.behind(bridge);
        // Virtual functions before their physical one.
        gone.sort_by_key(|function| (function.physical.is_none(), function.bdf));
        self.lose(cpu, &gone).await;
        for function in gone.iter().filter(|f| f.is_below(bridge) && f.physical.is_none()) {
            self.space.free(bridge, function);
        }
    }

    /// Handles functions that were removed without notice.
    async fn lose(&self, cpu: &Cpu, gone: &[Rc<Function>]) {
        // Mark all first, so that no driver waits for another function that is gone, too.
        gone.iter().for_each(|function| function.reach.end());
        let others: Vec<_> = self.topology.all().into_iter().filter(|f| f.reach.is_present()).collect();
        for function in gone {
            for other in &others {
                let dma = other.dma.borrow().clone();
                if let Some(dma) = dma {
                    dma.revoke(cpu, function.at());
                }
            }
            if let Some(binding) = self.drivers.binding_of(function) {
                binding.error_detected(cpu, ChannelState::Gone);
            }
            self.drivers.unbind(cpu, function).await;
            // Interrupts of a port, which has no driver.
            self.interrupts.free(cpu, function).await;
            self.topology.remove(function);
            self.space.forget(function);
        }
    }

    /// Adds a function that is not on the host's own fabric.
    pub async fn add_function(
        &self,
        cpu: &Cpu,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
    ) -> Result<(), Error> {
        if at.segment == OWN_SEGMENT {
            return Err(Error::Invalid);
        }
        if self.topology.function(at).is_some() {
            return Err(Error::Busy);
        }
        let function = self.enumerator.discover(cpu, at, way, None).await.ok_or(Error::NoDevice)?;
        if let Some(pcie) = function.pcie() {
            // The lender has set these sizes; remember them for after a reset.
            let control = function.backend.read_u16(cpu, pcie + pcie_cap::DEVICE_CONTROL).await;
            function.max_payload.set(pcie_cap::size_bytes(control >> 5));
        }
        let command = function.backend.read_u16(cpu, header::COMMAND).await;
        let on = command | header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE;
        function.backend.write_u16(cpu, header::COMMAND, on).await;
        self.drivers.bind(cpu, &function).await;
        Ok(())
    }

    /// Removes an added function. With `gone`, it was removed without notice and is not accessed.
    pub async fn remove_function(&self, cpu: &Cpu, at: FunctionAddress, gone: bool) -> Result<(), Error> {
        let function =
            self.topology.function(at).filter(|function| !function.is_own()).ok_or(Error::NoDevice)?;
        if !gone {
            self.drivers.unbind(cpu, &function).await;
        }
        self.lose(cpu, &[function]).await;
        Ok(())
    }
}
