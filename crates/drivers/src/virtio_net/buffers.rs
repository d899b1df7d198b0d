//! RX buffers: half pages, which are reused when their packets have been consumed.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::net::{Fragment, Packet, PacketOwner};
use wire::virtio::NetHeader;

/// Bytes of a buffer, for a frame and the virtio header before it.
pub(super) const BUFFER: u64 = 2048;

/// Buffers of an RX ring.
pub(super) struct Buffers {
    me: Weak<Self>,
    kernel: Rc<dyn Kernel>,
    pages: RefCell<Vec<Pages>>,
    /// Free buffers, the most recently used last.
    free: RefCell<Vec<PhysAddr>>,
    out: Cell<usize>,
    closed: Cell<bool>,
    /// Empty fragment lists for reuse.
    lists: RefCell<Vec<Vec<Fragment>>>,
}

impl Buffers {
    pub fn new(kernel: Rc<dyn Kernel>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel,
            pages: RefCell::default(),
            free: RefCell::default(),
            out: Cell::new(0),
            closed: Cell::new(false),
            lists: RefCell::default(),
        })
    }

    /// Takes a buffer; `None` if memory has run out.
    pub fn take(&self, cpu: &Cpu) -> Option<PhysAddr> {
        if self.free.borrow().is_empty() {
            let pages = self.kernel.alloc_pages(cpu, 0, Policy::Local).ok()?;
            self.pages.borrow_mut().push(pages);
            self.free.borrow_mut().extend((0..PAGE / BUFFER).map(|n| pages.start + n * BUFFER));
        }
        self.out.set(self.out.get() + 1);
        self.free.borrow_mut().pop()
    }

    /// Returns a buffer.
    pub fn give(&self, buffer: PhysAddr) {
        self.out.set(self.out.get() - 1);
        self.free.borrow_mut().push(buffer);
    }

    /// Makes a packet of the `length` bytes in a buffer.
    pub fn packet(&self, buffer: PhysAddr, length: u32) -> Packet {
        let mut fragments = self.lists.borrow_mut().pop().unwrap_or_default();
        fragments.push(Fragment { pages: None, at: buffer + NetHeader::LEN as u64, length });
        let owner = self.me.upgrade().map(|own| own as Rc<dyn PacketOwner>);
        Packet { fragments, owner, ..Packet::default() }
    }

    /// The ring is closed: frees each page once all its buffers are back.
    pub fn close(&self, cpu: &Cpu) {
        self.closed.set(true);
        if self.out.get() == 0 {
            self.pages.take().into_iter().for_each(|pages| self.kernel.free_pages(cpu, pages));
        }
    }
}

impl PacketOwner for Buffers {
    fn released(&self, cpu: &Cpu, packet: &mut Packet) {
        let mut list = core::mem::take(&mut packet.fragments);
        for fragment in list.drain(..) {
            self.give(fragment.at.align_down(BUFFER));
        }
        self.lists.borrow_mut().push(list);
        if self.closed.get() {
            self.close(cpu);
        }
    }
}
