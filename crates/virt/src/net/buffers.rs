//! Memory for packets on their way from guests to the uplink.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, Policy};
use platform::net::{Fragment, Packet, PacketOwner};

/// Most pages for packets of an I/O thread: as many as a TX ring has descriptors.
const MOST: usize = 512;
/// Pages of the largest packet.
const LARGEST: usize = 17;

/// Pages for packets sent by guests, on the thread's node.
pub struct Buffers {
    me: Weak<Self>,
    kernel: Rc<dyn Kernel>,
    free: RefCell<Vec<Pages>>,
    out: Cell<usize>,
    lists: RefCell<Vec<Vec<Fragment>>>,
}

impl Buffers {
    pub(super) fn new(kernel: Rc<dyn Kernel>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel,
            free: RefCell::default(),
            out: Cell::new(0),
            lists: RefCell::default(),
        })
    }

    /// Whether there is room for the largest packet.
    pub fn has_room(&self) -> bool {
        self.out.get() + LARGEST <= MOST
    }

    /// Allocates a packet of `length` bytes with undefined content; `None` if memory has run out.
    pub fn packet(&self, cpu: &Cpu, length: u32) -> Option<Packet> {
        let mut fragments = self.lists.borrow_mut().pop().unwrap_or_default();
        let mut left = u64::from(length);
        while left > 0 {
            let kept = self.free.borrow_mut().pop();
            let fresh = || self.kernel.alloc_pages(cpu, 0, Policy::Local).ok();
            let Some(pages) = kept.or_else(fresh) else {
                self.take_back(cpu, fragments);
                return None;
            };
            self.out.set(self.out.get() + 1);
            let here = left.min(PAGE);
            fragments.push(Fragment { pages: Some(pages), at: pages.start, length: here as u32 });
            left -= here;
        }
        let owner = self.me.upgrade().map(|own| own as Rc<dyn PacketOwner>);
        Some(Packet { fragments, owner, ..Packet::default() })
    }

    fn take_back(&self, cpu: &Cpu, mut list: Vec<Fragment>) {
        for fragment in list.drain(..) {
            self.out.set(self.out.get() - 1);
            let Some(pages) = fragment.pages else { continue };
            // Free pages of the previous node if the thread has moved.
            if self.kernel.node_of_address(pages.start) == Some(cpu.node()) {
                self.free.borrow_mut().push(pages);
            } else {
                self.kernel.free_pages(cpu, pages);
            }
        }
        self.lists.borrow_mut().push(list);
    }
}

impl PacketOwner for Buffers {
    fn released(&self, cpu: &Cpu, packet: &mut Packet) {
        self.take_back(cpu, core::mem::take(&mut packet.fragments));
    }
}
