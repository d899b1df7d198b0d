//! The kernel as a hypervisor's module sees it: interrupts of the guests that cores run.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::irq::Irq;
use platform::memory::PhysAddr;

use super::inner::Inner;
use crate::irq::GuestMode;

/// Interrupts for guests, by [`Kernel::guest_interrupts`](super::Kernel::guest_interrupts).
pub struct GuestInterrupts<'a>(pub(super) &'a Inner);

impl GuestInterrupts<'_> {
    /// A core has entered or left a guest.
    pub fn set_guest(&self, core: CpuId, guest: Option<Rc<dyn GuestMode>>) {
        self.0.apics.set_guest(core, guest);
    }

    /// Adds a handler for interrupts posted to a vCPU that is not running.
    pub fn on_posted_wakeup(&self, handler: Rc<dyn Fn(&Cpu)>) {
        self.0.irqs.on_posted_wakeup(handler);
    }

    /// Sends a vector to another core.
    pub fn send_vector(&self, cpu: &Cpu, to: CpuId, vector: u8) {
        self.0.apics.send(cpu, to, vector);
    }

    /// Posts a device's interrupt to a guest's core: the IOMMU records the vector in the core's descriptor. With
    /// `None`, the interrupt goes to the host again (Linux: `irq_set_vcpu_affinity`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such interrupt, [`Error::NotSupported`] unless an IOMMU with interrupt
    /// posting remaps it.
    pub fn post_irq(&self, cpu: &Cpu, irq: Irq, to: Option<(PhysAddr, u8)>) -> Result<(), Error> {
        let inner = self.0;
        let line = inner.irqs.line(irq).ok_or(Error::Invalid)?;
        let (function, _) = inner.pci.interrupts.owner_of(irq).ok_or(Error::Invalid)?;
        inner.dma.remapping.post_line(cpu, &line, function.message_source(), to)
    }
}
