//! Interrupts on their way into a guest.

use std::rc::{Rc, Weak};

use platform::cpu::Cpu;

use crate::function::GuestMessage;
use crate::vm::Machine;

/// A guest's interrupt controller, as devices see it that send messages to it.
#[derive(Clone)]
pub struct GuestInterrupts(Weak<Machine>);

impl GuestInterrupts {
    pub(crate) fn new(machine: &Rc<Machine>) -> Self {
        Self(Rc::downgrade(machine))
    }

    /// Sends a message from a core of the host: the guest's core that it names is interrupted.
    pub fn send(&self, cpu: &Cpu, message: GuestMessage) {
        if let Some(machine) = self.0.upgrade() {
            machine.send(cpu, message);
        }
    }
}

/// The guest's core that a message names (as the processor's interrupt controllers take it: Intel SDM, volume 3, 10.11.1).
pub const fn core_of(message: GuestMessage) -> usize {
    (message.address >> 12 & 0xff) as usize
}

/// Its vector.
pub const fn vector_of(message: GuestMessage) -> u8 {
    message.data as u8
}
