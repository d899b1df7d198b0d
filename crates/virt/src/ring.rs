//! The hypervisor's side of a virtio split ring in guest memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::memory::PhysAddr;
use wire::virtio::{Descriptor, NO_INTERRUPT, NO_NOTIFY, Ring};

use crate::memory::GuestMemory;

/// A contiguous piece of a guest's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Host address.
    pub at: PhysAddr,
    /// Guest address.
    pub guest: PhysAddr,
    /// Bytes.
    pub length: u32,
}

/// A chain of buffers: bytes for the device to read, followed by bytes for it to write. Both are zero if the chain is
/// malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Index of its first descriptor, by which it is returned.
    pub first: u16,
    /// Bytes to read.
    pub readable: u32,
    /// Bytes to write.
    pub writable: u32,
}

/// A ring set up by a guest.
pub struct DeviceRing {
    ring: Ring,
    /// Counts of chains taken, and of chains seen as available.
    taken: Cell<u16>,
    offered: Cell<u16>,
    /// Counts of chains returned, and of those visible to the guest.
    used: Cell<u16>,
    published: Cell<u16>,
    /// Pieces of the current chain. Kept to avoid allocation.
    pieces: RefCell<Vec<Piece>>,
    /// The guest made more chains available than the ring holds: stop taking any (virtio: the device needs a reset).
    broken: Cell<bool>,
    /// Counter of malformed entries, shared within the device.
    malformed: Rc<Cell<u64>>,
}

impl DeviceRing {
    /// Attaches to a new ring; `None` if it is not in guest memory. Malformed entries are counted in `malformed`.
    pub fn new(memory: &GuestMemory, ring: Ring, malformed: Rc<Cell<u64>>) -> Option<Self> {
        let fits = ring.entries.is_power_of_two()
            && ring.start.is_multiple_of(4096)
            // Memory ends far below the maximum address, so these sums cannot overflow.
            && memory.place(PhysAddr(ring.start)).is_some()
            && (ring.start..ring.start + ring.len())
                .step_by(4096)
                .all(|page| memory.place(PhysAddr(page)).is_some());
        fits.then(|| Self {
            ring,
            taken: Cell::new(0),
            offered: Cell::new(0),
            used: Cell::new(0),
            published: Cell::new(0),
            pieces: RefCell::default(),
            broken: Cell::new(false),
            malformed,
        })
    }

    /// Host address of a byte of the ring. Guest pages are contiguous.
    fn at(memory: &GuestMemory, address: u64) -> PhysAddr {
        memory.place(PhysAddr(address)).map_or(PhysAddr(0), |(at, _)| at)
    }

    fn word(memory: &GuestMemory, cpu: &Cpu, address: u64) -> u16 {
        let mut bytes = [0; 2];
        cpu.load(Self::at(memory, address), &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// Whether the guest has made chains available.
    pub fn has_more(&self, memory: &GuestMemory, cpu: &Cpu) -> bool {
        if self.offered.get() == self.taken.get() && !self.broken.get() {
            let offered = Self::word(memory, cpu, self.ring.available() + 2);
            if offered.wrapping_sub(self.taken.get()) > self.ring.entries {
                self.broken.set(true);
                self.malformed.set(self.malformed.get() + 1);
            } else {
                self.offered.set(offered);
            }
        }
        self.offered.get() != self.taken.get()
    }

    /// Takes the next chain. Its pieces are valid until the next call.
    pub fn take(&self, memory: &GuestMemory, cpu: &Cpu) -> Option<Chain> {
        if !self.has_more(memory, cpu) {
            return None;
        }
        let first = Self::word(memory, cpu, self.ring.available_entry(self.taken.get()));
        self.taken.set(self.taken.get().wrapping_add(1));
        let chain = self.follow(memory, cpu, first);
        if chain.is_none() {
            self.pieces.borrow_mut().clear();
        }
        Some(chain.unwrap_or(Chain { first, readable: 0, writable: 0 }))
    }

    /// Makes the last `chains` chains available again.
    pub fn take_back(&self, chains: u16) {
        self.taken.set(self.taken.get().wrapping_sub(chains));
    }

    /// Collects the pieces of a chain. `None` if it leaves the ring or guest memory, loops, has more than 4 GiB, or
    /// has bytes to read behind bytes to write.
    fn follow(&self, memory: &GuestMemory, cpu: &Cpu, first: u16) -> Option<Chain> {
        let mut pieces = self.pieces.borrow_mut();
        pieces.clear();
        let mut chain = Chain { first, readable: 0, writable: 0 };
        let mut number = first;
        for _ in 0..self.ring.entries {
            if number >= self.ring.entries {
                return None;
            }
            let mut bytes = [0; Descriptor::LEN];
            cpu.load(Self::at(memory, self.ring.descriptor(number)), &mut bytes);
            let Descriptor { address, length, flags, next } = Descriptor::parse(&bytes);
            chain.readable.checked_add(chain.writable)?.checked_add(length)?;
            match flags & !Descriptor::NEXT {
                0 if chain.writable == 0 => chain.readable += length,
                Descriptor::WRITE => chain.writable += length,
                _ => return None,
            }
            let (mut guest, mut left) = (PhysAddr(address), length);
            while left > 0 {
                let (at, room) = memory.place(guest)?;
                let length = left.min(u32::try_from(room).unwrap_or(u32::MAX));
                pieces.push(Piece { at, guest, length });
                (guest, left) = (guest + u64::from(length), left - length);
            }
            if flags & Descriptor::NEXT == 0 {
                return Some(chain);
            }
            number = next;
        }
        None
    }

    /// Calls `with` for each piece of the current chain from byte `skipped` on, up to `length` bytes, with the offset
    /// behind `skipped`.
    pub fn each(&self, skipped: u32, length: u32, mut with: impl FnMut(u32, Piece)) {
        let (mut skip, mut done) = (skipped, 0);
        for piece in &*self.pieces.borrow() {
            let here = skip.min(piece.length);
            skip -= here;
            let part = (piece.length - here).min(length - done);
            if part > 0 {
                let (at, guest) = (piece.at + u64::from(here), piece.guest + u64::from(here));
                with(done, Piece { at, guest, length: part });
                done += part;
            }
        }
    }

    /// Returns a chain with `length` bytes written.
    pub fn give(&self, memory: &GuestMemory, cpu: &Cpu, first: u16, length: u32) {
        let mut entry = [0; Ring::USED as usize];
        entry[..2].copy_from_slice(&first.to_le_bytes());
        entry[4..].copy_from_slice(&length.to_le_bytes());
        cpu.store(Self::at(memory, self.ring.used_entry(self.used.get())), &entry);
        self.used.set(self.used.get().wrapping_add(1));
    }

    /// Makes returned chains visible to the guest. Returns whether it wants an interrupt.
    pub fn publish(&self, memory: &GuestMemory, cpu: &Cpu) -> bool {
        if self.published.replace(self.used.get()) == self.used.get() {
            return false;
        }
        cpu.store(Self::at(memory, self.ring.used() + 2), &self.used.get().to_le_bytes());
        Self::word(memory, cpu, self.ring.available()) & NO_INTERRUPT == 0
    }

    /// Turns notifications by the guest on or off.
    pub fn set_notify(&self, memory: &GuestMemory, cpu: &Cpu, on: bool) {
        let flags = if on { 0 } else { NO_NOTIFY };
        cpu.store(Self::at(memory, self.ring.used()), &flags.to_le_bytes());
    }
}
