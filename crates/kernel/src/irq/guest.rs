//! Interrupts that arrive at a core while it is in a guest.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::irq::Irq;
use platform::memory::PhysAddr;

use crate::kernel::Kernel;

/// By which a core that is in a guest learns that something is posted for it (Linux: `POSTED_INTR_VECTOR`,
/// arch/x86/include/asm/irq_vectors.h).
pub const POSTED_VECTOR: u8 = 0xf2;
/// By which a host learns that something is posted for a guest's core that has given its own away (Linux:
/// `POSTED_INTR_WAKEUP_VECTOR`).
pub const POSTED_WAKEUP_VECTOR: u8 = 0xf1;

/// Told when something is posted for a guest's core that has given its own away.
pub(super) type Wakeup = Rc<dyn Fn(&Cpu)>;

/// A guest that a core is in.
pub trait GuestMode {
    /// An interrupt arrives. Whether the guest takes it itself; it is left for the host's handler otherwise.
    fn interrupt(&self, vector: u8) -> bool;
}

/// By core: the guest that it is in.
pub(super) struct Guests(RefCell<Vec<Option<Rc<dyn GuestMode>>>>);

impl Guests {
    pub fn new(cores: usize) -> Self {
        Self(RefCell::new((0..cores).map(|_| None).collect()))
    }

    /// Whether the guest that a core is in takes an interrupt.
    pub fn takes(&self, core: usize, vector: u8) -> bool {
        let guest = self.0.borrow().get(core).cloned().flatten();
        guest.is_some_and(|guest| guest.interrupt(vector))
    }

    /// A core has entered a guest, or left it.
    pub fn set(&self, core: CpuId, guest: Option<Rc<dyn GuestMode>>) {
        if let Some(place) = self.0.borrow_mut().get_mut(usize::from(core.0)) {
            *place = guest;
        }
    }

    pub fn clear(&self) {
        self.0.borrow_mut().fill_with(|| None);
    }
}

impl Kernel {
    /// A core has entered a guest, or left it.
    pub fn set_guest(&self, core: CpuId, guest: Option<Rc<dyn GuestMode>>) {
        self.inner().apics.set_guest(core, guest);
    }

    /// Calls `handler`, too, when something is posted for a guest's core that has given its own away.
    pub fn on_posted_wakeup(&self, handler: Rc<dyn Fn(&Cpu)>) {
        self.inner().irqs.on_posted_wakeup(handler);
    }

    /// Interrupts another core with a vector.
    pub fn send_vector(&self, cpu: &Cpu, to: CpuId, vector: u8) {
        self.inner().apics.send(cpu, to, vector);
    }

    /// Lets a device's interrupt be noted for a guest's core from now on, in its descriptor under its vector, or arrive at the host
    /// again without one (Linux: `irq_set_vcpu_affinity`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such interrupt, [`Error::NotSupported`] if it is not remapped by an IOMMU that can do so.
    pub fn post_irq(&self, cpu: &Cpu, irq: Irq, to: Option<(PhysAddr, u8)>) -> Result<(), Error> {
        let inner = self.inner();
        let line = inner.irqs.line(irq).ok_or(Error::Invalid)?;
        let (function, _) = inner.pci.owner_of_irq(irq).ok_or(Error::Invalid)?;
        inner.dma.post_line(cpu, &line, function.message_source(), to)
    }
}
