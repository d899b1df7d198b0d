//! An I/O thread: a host task that copies packets between an uplink queue pair and the virtual NICs that it serves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use platform::cpu::Cpu;
use platform::irq::Pollers;
use platform::kernel::{Kernel, TaskId};
use platform::memory::{PAGE, Pages, Policy};
use platform::net::{Fragment, Packet, PacketOwner};

use super::vnic::Vnic;

/// Most pages for packets of an I/O thread: as many as a TX ring has descriptors.
const MOST: usize = 512;
/// Pages of the largest packet.
const LARGEST: usize = 17;

/// An I/O thread.
pub struct Context {
    /// Its number, and that of its queue pair.
    pub number: usize,
    pub(super) task: Cell<Option<TaskId>>,
    /// Queues to poll.
    pub(super) pollers: Rc<Pollers>,
    /// Virtual NICs with packets to send.
    pub(super) kicked: RefCell<VecDeque<Rc<Vnic>>>,
    /// Virtual NICs that got packets and were not notified yet.
    pub(super) given: RefCell<Vec<Rc<Vnic>>>,
    /// Packets received on its queue.
    pub(super) received: Cell<u64>,
    /// A packet that found the TX queue full, while that is still so.
    pub(super) stuck: RefCell<Option<Packet>>,
    pub(super) full: Cell<bool>,
    pub(super) buffers: Rc<Buffers>,
}

impl Context {
    pub(super) fn new(kernel: &Rc<dyn Kernel>, number: usize) -> Self {
        Self {
            number,
            task: Cell::new(None),
            pollers: Rc::default(),
            kicked: RefCell::default(),
            given: RefCell::default(),
            received: Cell::new(0),
            stuck: RefCell::new(None),
            full: Cell::new(false),
            buffers: Buffers::new(Rc::clone(kernel)),
        }
    }

    /// Packets received on its queue.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    pub(super) fn has_work(&self) -> bool {
        let may_send = || self.stuck.borrow().is_some() || !self.kicked.borrow().is_empty();
        !self.pollers.is_empty() || !self.full.get() && may_send()
    }

    /// The TX queue may have room again.
    pub(super) fn unstick(&self) {
        self.full.set(false);
        self.pollers.arrived.wake_one();
    }

    /// A guest has packets to send.
    pub(super) fn put(&self, vnic: Rc<Vnic>) {
        self.kicked.borrow_mut().push_back(vnic);
        self.pollers.arrived.wake_one();
    }

    /// A virtual NIC got a packet.
    pub(super) fn note_given(&self, vnic: &Rc<Vnic>) {
        let mut given = self.given.borrow_mut();
        if !given.iter().any(|other| Rc::ptr_eq(other, vnic)) {
            given.push(Rc::clone(vnic));
        }
    }
}

/// Pages for packets sent by guests, on the thread's node.
pub struct Buffers {
    me: Weak<Self>,
    kernel: Rc<dyn Kernel>,
    free: RefCell<Vec<Pages>>,
    out: Cell<usize>,
    lists: RefCell<Vec<Vec<Fragment>>>,
}

impl Buffers {
    fn new(kernel: Rc<dyn Kernel>) -> Rc<Self> {
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
}

impl PacketOwner for Buffers {
    fn released(&self, cpu: &Cpu, packet: &mut Packet) {
        self.take_back(cpu, core::mem::take(&mut packet.fragments));
    }
}

impl Buffers {
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
