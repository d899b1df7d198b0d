//! Interrupts that arrive while a core runs a guest.

use std::cell::RefCell;
use std::rc::Rc;

use platform::cpu::{Cpu, CpuId};

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
