//! The driver's side of a virtio split ring.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{Pages, PhysAddr, Policy};
use wire::virtio::{Descriptor, NO_INTERRUPT, NO_NOTIFY, Ring};

/// A ring, with a token of the driver for each chain of buffers.
pub(crate) struct DriverRing<T> {
    pages: Pages,
    ring: Ring,
    free: RefCell<Vec<u16>>,
    /// By descriptor: the next one of its chain, and the token if it is the first.
    tokens: RefCell<Vec<(Option<u16>, Option<T>)>>,
    /// Counts of chains offered, and of chains made visible to the device.
    offered: Cell<u16>,
    published: Cell<u16>,
    /// Counts of chains taken back, and of chains seen as used.
    taken: Cell<u16>,
    used: Cell<u16>,
}

impl<T> DriverRing<T> {
    /// Allocates an empty ring.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>, entries: u16) -> Result<Self, Error> {
        let length = Ring { start: 0, entries }.len();
        let pages = kernel.alloc_pages(cpu, Pages::order_for(length), Policy::Local)?;
        let ring = Ring { start: pages.start.0, entries };
        for at in [ring.available(), ring.used()] {
            cpu.store_u32(PhysAddr(at), 0);
        }
        Ok(Self {
            pages,
            ring,
            free: RefCell::new((0..entries).rev().collect()),
            tokens: RefCell::new((0..entries).map(|_| (None, None)).collect()),
            offered: Cell::new(0),
            published: Cell::new(0),
            taken: Cell::new(0),
            used: Cell::new(0),
        })
    }

    /// Location of the ring, for the device.
    pub fn place(&self) -> Ring {
        self.ring
    }

    /// Number of free descriptors.
    pub fn room(&self) -> usize {
        self.free.borrow().len()
    }

    /// Writes a chain of buffers, each with length and flags. The device sees it after [`publish`](Self::publish).
    /// The caller has checked [`room`](Self::room).
    pub fn offer(&self, cpu: &Cpu, pieces: impl ExactSizeIterator<Item = (PhysAddr, u32, u16)>, token: T) {
        let mut free = self.free.borrow_mut();
        let count = pieces.len();
        let chain: Vec<u16> = (0..count).filter_map(|_| free.pop()).collect();
        let mut tokens = self.tokens.borrow_mut();
        for (n, (at, length, flags)) in pieces.enumerate() {
            let next = chain.get(n + 1).copied();
            let flags = flags | if next.is_some() { Descriptor::NEXT } else { 0 };
            let descriptor = Descriptor { address: at.0, length, flags, next: next.unwrap_or(0) };
            cpu.store(PhysAddr(self.ring.descriptor(chain[n])), &descriptor.emit());
            tokens[usize::from(chain[n])].0 = next;
        }
        tokens[usize::from(chain[0])].1 = Some(token);
        let entry = self.ring.available_entry(self.offered.get());
        cpu.store(PhysAddr(entry), &chain[0].to_le_bytes());
        self.offered.set(self.offered.get().wrapping_add(1));
    }

    /// Makes offered chains visible to the device. Returns whether to notify it.
    pub fn publish(&self, cpu: &Cpu) -> bool {
        if self.published.replace(self.offered.get()) == self.offered.get() {
            return false;
        }
        cpu.store(PhysAddr(self.ring.available() + 2), &self.offered.get().to_le_bytes());
        let mut flags = [0; 2];
        cpu.load(PhysAddr(self.ring.used()), &mut flags);
        u16::from_le_bytes(flags) & NO_NOTIFY == 0
    }

    /// Whether the device has used a chain that was not taken back yet.
    pub fn has_used(&self, cpu: &Cpu) -> bool {
        if self.used.get() == self.taken.get() {
            let mut count = [0; 2];
            cpu.load(PhysAddr(self.ring.used() + 2), &mut count);
            self.used.set(u16::from_le_bytes(count));
        }
        self.used.get() != self.taken.get()
    }

    /// Takes back the next used chain: its token, and the bytes that the device wrote.
    pub fn take(&self, cpu: &Cpu) -> Option<(T, u32)> {
        if !self.has_used(cpu) {
            return None;
        }
        let mut entry = [0; Ring::USED as usize];
        cpu.load(PhysAddr(self.ring.used_entry(self.taken.get())), &mut entry);
        self.taken.set(self.taken.get().wrapping_add(1));
        let [a, b, _, _, e, f, g, h] = entry;
        let first = u16::from_le_bytes([a, b]);
        let token = self.release(first)?;
        Some((token, u32::from_le_bytes([e, f, g, h])))
    }

    /// Frees the descriptors of a chain.
    fn release(&self, first: u16) -> Option<T> {
        let (mut tokens, mut free) = (self.tokens.borrow_mut(), self.free.borrow_mut());
        // Do not trust the hypervisor: it may name chains that it was never given.
        let token = tokens.get_mut(usize::from(first))?.1.take()?;
        let mut next = Some(first);
        while let Some(number) = next {
            free.push(number);
            next = tokens[usize::from(number)].0.take();
        }
        Some(token)
    }

    /// Enables or disables the device's interrupts.
    pub fn set_interrupts(&self, cpu: &Cpu, on: bool) {
        let flags = if on { 0 } else { NO_INTERRUPT };
        cpu.store(PhysAddr(self.ring.available()), &flags.to_le_bytes());
    }

    /// Frees the memory and returns the remaining tokens. The device must have stopped.
    pub fn free(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Vec<T> {
        kernel.free_pages(cpu, self.pages);
        self.tokens.borrow_mut().iter_mut().filter_map(|(_, token)| token.take()).collect()
    }
}
