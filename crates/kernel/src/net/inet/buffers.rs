//! Memory of packets that this host makes, and views of those that it receives.

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

use inet::tcp::Payload;
use platform::Error;
use platform::cpu::Cpu;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::net::{Fragment, Packet, PacketOwner, TxFlow};

use super::means::Means;
use crate::mm::Memory;

/// Bytes for the headers of a packet (Linux: the linear part of an skb, 512 bytes with its shared info).
pub const HEAD: u64 = 512;

/// What a frame occupies that fills its buffer by little (Linux's drivers: half a page each).
const RECEIVE_BUFFER: u32 = 2048;
/// What the kernel's structure for a packet takes (Linux: `sizeof(struct sk_buff)`, rounded up by its allocator).
const PACKET_STRUCTURE: u32 = 256;

/// Small pieces for headers and socket structures, by node, the warmest on top.
pub struct Heads {
    means: Rc<Means>,
    free: Vec<RefCell<Vec<PhysAddr>>>,
    pages: RefCell<Vec<Pages>>,
}

impl Heads {
    pub fn new(means: Rc<Means>) -> Rc<Self> {
        let nodes = means.memory().usage().len();
        Rc::new(Self {
            means,
            free: (0..nodes).map(|_| RefCell::default()).collect(),
            pages: RefCell::default(),
        })
    }

    fn list_of(&self, at: PhysAddr) -> &RefCell<Vec<PhysAddr>> {
        let node = self.means.memory().node_of(at).unwrap_or_default();
        &self.free[usize::from(node.0)]
    }

    /// A piece on the core's node, or on another if that has no memory.
    pub fn take(&self, cpu: &Cpu) -> Result<PhysAddr, Error> {
        let free = &self.free[usize::from(cpu.node().0)];
        if let Some(at) = free.borrow_mut().pop() {
            cpu.work(self.means.costs().page);
            return Ok(at);
        }
        let pages = self.means.memory().take(cpu, 0, Policy::Local)?;
        self.pages.borrow_mut().push(pages);
        let mut free = self.list_of(pages.start).borrow_mut();
        free.extend((1..PAGE / HEAD).map(|n| pages.start + n * HEAD));
        Ok(pages.start)
    }

    /// Gives a piece back to those of its node, whoever sent what it held.
    pub fn give(&self, cpu: &Cpu, at: PhysAddr) {
        cpu.work(self.means.costs().page);
        self.list_of(at).borrow_mut().push(at);
    }
}

/// Pages that hold what is sent, by several packets and a socket's buffer at once.
pub struct PageHold {
    memory: Rc<Memory>,
    pub pages: Pages,
}

/// Keeps what a packet sends where it is.
#[derive(Clone)]
pub enum Hold {
    /// Pages of the socket.
    Pages(Rc<PageHold>),
    /// Pages of the page cache.
    Cached(#[expect(dead_code, reason = "what keeps the pages is kept, not looked at")] Rc<dyn Any>),
}

impl Hold {
    /// Takes pages from where the memory of the task comes from: so many, or one.
    pub fn pages(memory: &Rc<Memory>, cpu: &Cpu, order: u8) -> Result<Rc<PageHold>, Error> {
        let pages = memory.take(cpu, order, Policy::Task).or_else(|_| memory.take(cpu, 0, Policy::Task))?;
        Ok(Rc::new(PageHold { memory: Rc::clone(memory), pages }))
    }

    /// Lets it go; the last one gives the pages back.
    pub fn let_go(self, cpu: &Cpu) {
        if let Self::Pages(hold) = self
            && let Some(hold) = Rc::into_inner(hold)
        {
            hold.memory.give(cpu, hold.pages);
        }
    }
}

/// Whoever sends and counts what is still under way below.
pub trait Sender {
    /// One of its packets has gone.
    fn packet_gone(&self, cpu: &Cpu);
}

/// What a packet counts with its sender beside its bytes (Linux: a `struct sk_buff` and the least buffer with its shared
/// info, `SKB_TRUESIZE` of a header).
const SENT_PACKET: u64 = 768;

/// Bytes of memory that a flow's packets keep which have not gone (Linux: `sk_wmem_alloc`).
pub fn waits_below(flow: &TxFlow) -> u64 {
    flow.bytes.get() + u64::from(flow.outstanding.get()) * SENT_PACKET
}

/// A packet that this host made.
pub struct Made {
    pub heads: Rc<Heads>,
    pub head: PhysAddr,
    pub holds: RefCell<Vec<Hold>>,
    /// Told when the packet has gone.
    pub socket: Option<Weak<dyn Sender>>,
}

impl PacketOwner for Made {
    fn released(&self, cpu: &Cpu, _: &mut Packet) {
        self.heads.give(cpu, self.head);
        self.holds.borrow_mut().drain(..).for_each(|hold| hold.let_go(cpu));
        if let Some(socket) = self.socket.as_ref().and_then(Weak::upgrade) {
            socket.packet_gone(cpu);
        }
    }
}

/// A part of a received packet, or of several that were joined.
#[derive(Default)]
pub struct Piece {
    pub packet: Option<Packet>,
    skip: u32,
    length: u32,
}

impl Piece {
    /// `length` bytes of a packet from `skip` on.
    pub fn of(packet: Packet, skip: u32, length: u32) -> Self {
        Self { packet: Some(packet), skip, length }
    }

    /// Where its bytes lie, in order.
    pub fn runs(&self) -> impl Iterator<Item = Fragment> + '_ {
        let fragments = self.packet.as_ref().map_or(&[][..], |packet| &packet.fragments);
        let (mut skip, mut left) = (self.skip, self.length);
        fragments.iter().filter_map(move |fragment| {
            let from = skip.min(fragment.length);
            skip -= from;
            let length = (fragment.length - from).min(left);
            left -= length;
            let at = fragment.at + u64::from(from);
            (length > 0).then_some(Fragment { pages: None, at, length })
        })
    }

    /// Gives the packet's buffers back.
    pub fn release(self, cpu: &Cpu) {
        if let Some(packet) = self.packet {
            packet.release(cpu);
        }
    }
}

impl Payload for Piece {
    fn empty() -> Self {
        Self::default()
    }
    fn len(&self) -> u32 {
        self.length
    }
    fn drop_front(&mut self, bytes: u32) {
        let bytes = bytes.min(self.length);
        self.skip += bytes;
        self.length -= bytes;
    }
    fn truncate(&mut self, bytes: u32) {
        self.length = self.length.min(bytes);
    }
    fn true_size(&self) -> u32 {
        let fragments = self.packet.as_ref().map_or(&[][..], |packet| &packet.fragments);
        let keeps = |fragment: &Fragment| match fragment.pages {
            Some(pages) => pages.len() as u32,
            None => fragment.length.max(1).next_multiple_of(RECEIVE_BUFFER),
        };
        fragments.iter().map(keeps).sum::<u32>() + PACKET_STRUCTURE
    }
}

/// The first `length` bytes of user memory from `skip` on.
pub fn copy_out(cpu: &Cpu, piece: &Piece, to: PhysAddr, most: u32) -> u32 {
    let mut done = 0;
    for run in piece.runs() {
        let length = run.length.min(most - done);
        if length == 0 {
            break;
        }
        cpu.copy(to + u64::from(done), run.at, length.into());
        done += length;
    }
    done
}
