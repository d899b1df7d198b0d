//! Interrupts on their way into a guest.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use hardware::iommu::PostedDescriptor;
use kernel::Ground;
use platform::cpu::Cpu;
use platform::memory::PhysAddr;

use crate::function::GuestMessage;
use crate::vm::Machine;

/// How processor and IOMMU help with guests' interrupts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum InterruptSupport {
    /// Not at all: a guest is left for each, and for its end.
    #[default]
    Software,
    /// The processor takes what is noted for a guest, and its ends, without leaving it (Xeon E5 v2 and later).
    Virtual,
    /// The IOMMU notes devices' interrupts as well (Xeon E5 v4 and later).
    Posted,
}

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

/// What a core of a guest has been interrupted with and has not taken, in the host's memory.
pub struct Postbox {
    at: PhysAddr,
    ground: Rc<dyn Ground>,
    /// Vectors that the hypervisor has noted, a bit for each: the others are the IOMMU's.
    forwarded: Cell<[u64; 4]>,
}

impl Postbox {
    /// An empty one, where there are 64 bytes of memory for it.
    pub fn new(at: PhysAddr, ground: &Rc<dyn Ground>) -> Self {
        ground.poke(at, &PostedDescriptor::default().encode());
        Self { at, ground: Rc::clone(ground), forwarded: Cell::new([0; 4]) }
    }

    /// Where it is.
    pub fn at(&self) -> PhysAddr {
        self.at
    }

    fn read(&self) -> PostedDescriptor {
        let mut bytes = [0; PostedDescriptor::BYTES];
        self.ground.peek(self.at, &mut bytes);
        PostedDescriptor::decode(&bytes)
    }

    /// Whether something is noted.
    pub fn is_pending(&self) -> bool {
        self.read().requests != [0; 4]
    }

    /// Changes it, by a core that loads and stores its line.
    pub fn change<R>(&self, cpu: &Cpu, change: impl FnOnce(&mut PostedDescriptor) -> R) -> R {
        cpu.load_u64(self.at);
        let mut descriptor = self.read();
        let result = change(&mut descriptor);
        cpu.store(self.at, &descriptor.encode());
        result
    }

    /// Notes a vector for the hypervisor; gives the core and the vector that notify.
    pub fn post(&self, cpu: &Cpu, vector: u8) -> Option<(u32, u8)> {
        let mut forwarded = self.forwarded.get();
        let (word, bit) = (usize::from(vector / 64), 1 << (vector % 64));
        self.change(cpu, |descriptor| {
            if descriptor.requests[word] & bit == 0 {
                forwarded[word] |= bit;
                self.forwarded.set(forwarded);
            }
            let notification = descriptor.post(vector, false)?;
            Some((notification.destination, notification.vector))
        })
    }

    /// Takes what is noted, as the processor does on its own: each vector, and whether the hypervisor had noted it.
    pub fn take(&self) -> Vec<(u8, bool)> {
        let mut descriptor = self.read();
        if descriptor.requests == [0; 4] && !descriptor.outstanding {
            return Vec::new();
        }
        let forwarded = self.forwarded.take();
        let is_forwarded = |v: u8| forwarded[usize::from(v / 64)] >> (v % 64) & 1 != 0;
        let taken = descriptor.take().map(|vector| (vector, is_forwarded(vector))).collect();
        self.ground.poke(self.at, &descriptor.encode());
        taken
    }
}
