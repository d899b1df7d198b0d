//! Interrupts that arrive while a core runs a guest.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::irq::Irq;
use platform::memory::PhysAddr;

use crate::kernel::Inner;

/// Vector that tells a core in a guest about a posted interrupt (Linux: `POSTED_INTR_VECTOR`,
/// arch/x86/include/asm/irq_vectors.h).
pub const POSTED_VECTOR: u8 = 0xf2;
/// Vector that tells the host about a posted interrupt for a vCPU that is not running (Linux:
/// `POSTED_INTR_WAKEUP_VECTOR`).
pub const POSTED_WAKEUP_VECTOR: u8 = 0xf1;

/// Called when an interrupt is posted for a vCPU that is not running.
pub(super) type Wakeup = Rc<dyn Fn(&Cpu)>;

/// The guest that a core runs.
pub trait GuestMode {
    /// An interrupt arrives. Returns true if the guest takes it; otherwise the host's handler runs.
    fn interrupt(&self, vector: u8) -> bool;
}

/// The guest that each core runs, if any.
pub(super) struct Guests(RefCell<Vec<Option<Rc<dyn GuestMode>>>>);

impl Guests {
    pub fn new(cores: usize) -> Self {
        Self(RefCell::new((0..cores).map(|_| None).collect()))
    }

    /// Whether the guest on a core takes an interrupt.
    pub fn takes(&self, core: usize, vector: u8) -> bool {
        let guest = self.0.borrow().get(core).cloned().flatten();
        guest.is_some_and(|guest| guest.interrupt(vector))
    }

    /// A core has entered or left a guest.
    pub fn set(&self, core: CpuId, guest: Option<Rc<dyn GuestMode>>) {
        if let Some(place) = self.0.borrow_mut().get_mut(usize::from(core.0)) {
            *place = guest;
        }
    }

    pub fn clear(&self) {
        self.0.borrow_mut().fill_with(|| None);
    }
}

/// Interrupts for guests, by [`Kernel::guest_interrupts`](crate::Kernel::guest_interrupts).
pub struct GuestInterrupts<'a>(pub(crate) &'a Inner);

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
        let (function, _) = inner.pci.owner_of_irq(irq).ok_or(Error::Invalid)?;
        inner.dma.remapping.post_line(cpu, &line, function.message_source(), to)
    }
}
