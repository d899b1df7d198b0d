//! Interrupt delivery into a guest.

use std::cell::Cell;
use std::rc::Rc;

use kernel::Ground;
use platform::cpu::Cpu;
use platform::memory::PhysAddr;
use wire::vtd::PostedDescriptor;

use crate::function::GuestMessage;

/// Hardware support for guests' interrupts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum InterruptSupport {
    /// None: an exit for each interrupt and for its end.
    #[default]
    Software,
    /// The processor delivers interrupts and handles their ends without exits (APICv: Xeon E5 v2 and later).
    Virtual,
    /// The IOMMU also posts devices' interrupts (Xeon E5 v4 and later).
    Posted,
}

/// The vCPU addressed by a message (Intel SDM, volume 3, 10.11.1).
pub const fn core_of(message: GuestMessage) -> usize {
    (message.address >> 12 & 0xff) as usize
}

pub const fn vector_of(message: GuestMessage) -> u8 {
    message.data as u8
}

/// Posted-interrupt descriptor of a vCPU in host memory: pending interrupts.
pub struct Postbox {
    at: PhysAddr,
    ground: Rc<dyn Ground>,
    /// Vectors posted by the hypervisor, a bit each; the others were posted by the IOMMU.
    forwarded: Cell<[u64; 4]>,
}

impl Postbox {
    /// An empty descriptor in 64 bytes of memory.
    pub fn new(at: PhysAddr, ground: &Rc<dyn Ground>) -> Self {
        ground.poke(at, &PostedDescriptor::default().encode());
        Self { at, ground: Rc::clone(ground), forwarded: Cell::new([0; 4]) }
    }

    /// Its address.
    pub fn at(&self) -> PhysAddr {
        self.at
    }

    fn read(&self) -> PostedDescriptor {
        let mut bytes = [0; PostedDescriptor::BYTES];
        self.ground.peek(self.at, &mut bytes);
        PostedDescriptor::decode(&bytes)
    }

    /// Whether any interrupt is pending.
    pub fn is_pending(&self) -> bool {
        self.read().requests != [0; 4]
    }

    /// Changes the descriptor on a core, which loads and stores its line.
    pub fn change<R>(&self, cpu: &Cpu, change: impl FnOnce(&mut PostedDescriptor) -> R) -> R {
        cpu.load_u64(self.at);
        let mut descriptor = self.read();
        let result = change(&mut descriptor);
        cpu.store(self.at, &descriptor.encode());
        result
    }

    /// Posts a vector. Returns the core and the notification vector to send, if any.
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

    /// Takes all pending vectors, as the processor does. Each comes with whether the hypervisor posted it.
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
