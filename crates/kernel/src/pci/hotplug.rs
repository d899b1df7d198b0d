//! Native hot-plug and surprise removal.

use std::rc::Rc;

use platform::cpu::Cpu;
use platform::irq::IrqReturn;
use platform::pci::ChannelState;
use wire::pcie::config::slot;

use super::Function;
use super::enumerate::VIRTUAL;
use super::resources::window_of;
use crate::kernel::Inner;

/// Slot control: interrupt on presence and link changes (base spec 7.5.3.10: bits 3, 5, 12).
const CONTROL: u16 = 1 << 3 | 1 << 5 | 1 << 12;

impl Inner {
    /// Lets every port interrupt when something is put in or taken out, or an error is reported.
    pub async fn start_ports(self: &Rc<Self>, cpu: &Cpu) {
        for bridge in self.pci.all() {
            if bridge.slot || bridge.is_bridge() && bridge.aer().is_some() {
                self.start_port(cpu, &bridge).await;
            }
        }
    }

    async fn start_port(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        let irqs = self.alloc_irqs(cpu, bridge, 1, 1, &Default::default()).await;
        let Some(irq) = irqs.ok().and_then(|irqs| irqs.first().copied()) else {
            self.log(format!("pci {}: no interrupt for its events", bridge.bdf));
            return;
        };
        let (kernel, port) = (Rc::downgrade(self), Rc::downgrade(bridge));
        let thread = Rc::new(move |cpu: Cpu| -> platform::cpu::Async<'static, ()> {
            let (kernel, port) = (kernel.upgrade(), port.upgrade());
            Box::pin(async move {
                if let Some((kernel, port)) = kernel.zip(port) {
                    kernel.error_event(&cpu, &port).await;
                    kernel.slot_event(&cpu, &port).await;
                }
            })
        });
        let requested = self.request_irq(irq, "pcieport", Rc::new(|_| IrqReturn::WakeThread), Some(thread));
        if requested.is_err() {
            return;
        }
        self.start_errors(cpu, bridge).await;
        if let Some(pcie) = bridge.pcie.filter(|_| bridge.slot) {
            // What happened before nobody need hear of.
            self.config_write_u16(cpu, bridge.bdf, pcie + slot::STATUS, 0x011f).await;
            let before = self.config_read_u16(cpu, bridge.bdf, pcie + slot::CONTROL).await;
            self.config_write_u16(cpu, bridge.bdf, pcie + slot::CONTROL, before | CONTROL).await;
        }
    }

    /// Something happened to a slot.
    async fn slot_event(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        let Some(pcie) = bridge.pcie.filter(|_| bridge.slot) else { return };
        let status = self.config_read_u16(cpu, bridge.bdf, pcie + slot::STATUS).await;
        self.config_write_u16(cpu, bridge.bdf, pcie + slot::STATUS, status & 0x011f).await;
        if status & (slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED) == 0 {
            return;
        }
        let there = status & slot::STATUS_PRESENT != 0 && self.link_is_active(cpu, bridge).await;
        let known = self.pci.all().into_iter().any(|f| f.parent == Some(bridge.bdf));
        match (there, known) {
            (false, true) => self.removed_below(cpu, bridge).await,
            (true, false) => {
                self.log(format!("pci {}: slot occupied", bridge.bdf));
                for function in self.rescan(cpu, bridge).await {
                    self.bind(cpu, &function).await;
                }
            }
            _ => {}
        }
    }

    /// Everything below a bridge is gone.
    pub async fn removed_below(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        self.log(format!("pci {}: slot empty", bridge.bdf));
        let mut gone: Vec<_> = self
            .pci
            .all()
            .into_iter()
            .filter(|f| f.bdf != bridge.bdf && f.bdf.bus() >= bridge.secondary.get())
            .filter(|f| f.bdf.bus() <= bridge.subordinate.get())
            .collect();
        // Virtual functions before their physical one.
        gone.sort_by_key(|function| (function.physical.is_none(), function.bdf));
        // All are marked before any driver is asked, so that none waits for another that is gone too.
        gone.iter().for_each(|function| function.present.set(false));
        for function in &gone {
            if let Some(binding) = function.binding() {
                binding.error_detected(cpu, ChannelState::Gone);
            }
            self.unbind(cpu, function).await;
            let bars = *function.bars.borrow();
            for (n, bar) in (0u8..).zip(bars) {
                if let Some(bar) = bar.filter(|bar| window_of(bar.kind).is_some()) {
                    bridge.kept.borrow_mut().insert((function.bdf, n), (bar.address, bar.size));
                }
            }
            for (n, bar, all) in function.virtual_bars() {
                bridge.kept.borrow_mut().insert((function.bdf, VIRTUAL + n), (bar.address, all));
            }
            self.pci.functions.borrow_mut().remove(&function.bdf);
        }
    }
}
