//! Native hot-plug and surprise removal.

use std::rc::Rc;

use platform::cpu::Cpu;
use platform::irq::IrqReturn;
use platform::pci::ChannelState;
use wire::pcie::Bdf;
use wire::pcie::config::slot;

use super::enumerate::VIRTUAL;
use super::resources::window_of;
use super::{Function, Pci};

/// Slot control: interrupt on presence and link changes (base spec 7.5.3.10: bits 3, 5, 12).
pub(super) const CONTROL: u16 = 1 << 3 | 1 << 5 | 1 << 12;
/// Slot status: event bits, cleared by writing ones (7.5.3.11).
const EVENTS: u16 = 0x011f;

impl Pci {
    /// Enables interrupts of all ports for hot-plug and errors.
    pub async fn start_ports(self: &Rc<Self>, cpu: &Cpu) {
        for bridge in self.all() {
            self.start_port(cpu, &bridge).await;
        }
    }

    /// As [`start_ports`](Self::start_ports), for a port that supports either.
    async fn start_port(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        if !(bridge.slot || bridge.is_bridge() && bridge.aer().is_some()) {
            return;
        }
        let irqs = self.alloc_irqs(cpu, bridge, 1, 1, &Default::default()).await;
        let Some(irq) = irqs.ok().and_then(|irqs| irqs.first().copied()) else {
            self.log.write(format!("pci {}: no interrupt for its events", bridge));
            return;
        };
        let (pci, port) = (Rc::downgrade(self), Rc::downgrade(bridge));
        let thread = Rc::new(move |cpu: Cpu| -> platform::cpu::Async<'static, ()> {
            let (pci, port) = (pci.upgrade(), port.upgrade());
            Box::pin(async move {
                if let Some((pci, port)) = pci.zip(port) {
                    pci.error_event(&cpu, &port).await;
                    pci.slot_event(&cpu, &port).await;
                }
            })
        });
        let requested = self.irqs.request(irq, "pcieport", Rc::new(|_| IrqReturn::WakeThread), Some(thread));
        if requested.is_err() {
            return;
        }
        self.start_errors(cpu, bridge).await;
        if let Some(pcie) = bridge.pcie.filter(|_| bridge.slot) {
            self.forget_slot_events(cpu, bridge).await;
            let before = bridge.backend.read_u16(cpu, pcie + slot::CONTROL).await;
            bridge.backend.write_u16(cpu, pcie + slot::CONTROL, before | CONTROL).await;
        }
    }

    /// Clears a slot's pending events before its current state is read.
    pub(super) async fn forget_slot_events(&self, cpu: &Cpu, bridge: &Function) {
        if let Some(pcie) = bridge.pcie.filter(|_| bridge.slot) {
            bridge.backend.write_u16(cpu, pcie + slot::STATUS, EVENTS).await;
        }
    }

    /// Handles an event of a slot.
    async fn slot_event(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        let Some(pcie) = bridge.pcie.filter(|_| bridge.slot) else { return };
        let status = bridge.backend.read_u16(cpu, pcie + slot::STATUS).await;
        bridge.backend.write_u16(cpu, pcie + slot::STATUS, status & EVENTS).await;
        if status & (slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED) == 0 {
            return;
        }
        // Remove the old functions in any case. Even if the device is still there, it was removed or its link was
        // down, so it has lost its state (Linux's pciehp also takes the slot down first).
        if self.all().iter().any(|f| f.is_below(bridge)) {
            self.removed_below(cpu, bridge).await;
        }
        let status = bridge.backend.read_u16(cpu, pcie + slot::STATUS).await;
        if status & slot::STATUS_PRESENT == 0 || !self.link_is_active(cpu, bridge).await {
            return;
        }
        self.log.write(format!("pci {}: slot occupied", bridge));
        for function in self.rescan(cpu, bridge).await {
            self.start_port(cpu, &function).await;
            self.bind(cpu, &function).await;
        }
    }

    /// Handles the removal of everything below a bridge.
    pub async fn removed_below(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        self.log.write(format!("pci {bridge}: slot empty"));
        let mut gone: Vec<_> = self.all().into_iter().filter(|f| f.is_behind(bridge)).collect();
        // Virtual functions before their physical one.
        gone.sort_by_key(|function| (function.physical.is_none(), function.bdf));
        self.lose(cpu, &gone).await;
        for function in gone.iter().filter(|f| f.is_below(bridge) && f.physical.is_none()) {
            bridge.free_space(function);
        }
    }

    /// Handles functions that were removed without notice.
    pub async fn lose(self: &Rc<Self>, cpu: &Cpu, gone: &[Rc<Function>]) {
        // Mark all first, so that no driver waits for another function that is gone, too.
        gone.iter().for_each(|function| function.present.set(false));
        let others: Vec<_> = self.all().into_iter().filter(|f| f.present.get()).collect();
        for function in gone {
            for other in &others {
                let dma = other.dma.borrow().clone();
                if let Some(dma) = dma {
                    dma.revoke(cpu, function.at());
                }
            }
            if let Some(binding) = function.binding() {
                binding.error_detected(cpu, ChannelState::Gone);
            }
            self.unbind(cpu, function).await;
            // Interrupts of a port, which has no driver.
            self.free_irqs(cpu, function).await;
            self.remove(function);
        }
    }
}

impl Function {
    /// Allocates address space behind a slot. A BAR of the same size as the last one there gets the same place, if it
    /// is still free.
    pub(super) fn take_space(
        &self,
        window: usize,
        place: (Bdf, u8),
        length: u64,
        alignment: u64,
    ) -> Option<u64> {
        let free = &mut self.spare.borrow_mut()[window];
        let kept = self.kept.borrow().get(&place).copied();
        match kept.filter(|&(at, size)| size == length && free.take_at(at, size)) {
            Some((at, _)) => Some(at),
            None => free.take(length, alignment),
        }
    }

    /// Frees the address space of a function directly below this slot, and of everything below it.
    fn free_space(&self, function: &Self) {
        let mut spare = self.spare.borrow_mut();
        let own = (0u8..).zip(*function.bars.borrow()).filter_map(|(n, bar)| Some((n, bar?, bar?.size)));
        let virtual_bars = function.virtual_bars().into_iter().map(|(n, bar, all)| (VIRTUAL + n, bar, all));
        for (n, bar, length) in own.chain(virtual_bars) {
            let Some(window) = window_of(bar.kind) else { continue };
            // A function that got no space has an address of its own choice.
            let had_space = self.windows.borrow()[window]
                .is_some_and(|(start, length)| (start..start + length).contains(&bar.address));
            if had_space {
                self.kept.borrow_mut().insert((function.bdf, n), (bar.address, length));
                spare[window].give(bar.address, length);
            }
        }
        for (window, spare) in function.windows.borrow().iter().zip(spare.iter_mut()) {
            if let Some((start, length)) = *window {
                spare.give(start, length);
            }
        }
    }
}
