//! Memory of packets made by this host, and views of received ones.

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

/// Memory charged for a frame that fills little of its buffer (Linux's drivers: half a page).
const RECEIVE_BUFFER: u32 = 2048;
/// Memory charged for the packet structure (Linux: `sizeof(struct sk_buff)`, rounded up by its allocator).
const PACKET_STRUCTURE: u32 = 256;

/// Pool of small pieces for headers and socket structures: a stack per node.
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

    /// Takes a piece on the core's node, or on another if that node has no memory.
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

    /// Returns a piece to its node's stack.
    pub fn give(&self, cpu: &Cpu, at: PhysAddr) {
        cpu.work(self.means.costs().page);
        self.list_of(at).borrow_mut().push(at);
    }
}

/// Pages with data to send, shared by packets and a socket's buffer.
pub struct PageHold {
    memory: Rc<Memory>,
    pub pages: Pages,
}

/// Keeps the data of a packet in memory.
#[derive(Clone)]
pub enum Hold {
    /// Pages of the socket.
    Pages(Rc<PageHold>),
    /// Pages of the page cache.
    Cached(#[expect(dead_code, reason = "what keeps the pages is kept, not looked at")] Rc<dyn Any>),
}

impl Hold {
    /// Allocates `2^order` pages under the task's memory policy, or a single page if that fails.
    pub fn pages(memory: &Rc<Memory>, cpu: &Cpu, order: u8) -> Result<Rc<PageHold>, Error> {
        let pages = memory.take(cpu, order, Policy::Task).or_else(|_| memory.take(cpu, 0, Policy::Task))?;
        Ok(Rc::new(PageHold { memory: Rc::clone(memory), pages }))
    }

    /// Drops the reference; the last one frees the pages.
    pub fn let_go(self, cpu: &Cpu) {
        if let Self::Pages(hold) = self
            && let Some(hold) = Rc::into_inner(hold)
        {
            hold.memory.give(cpu, hold.pages);
        }
    }
}

/// A sender that counts its packets in flight.
pub trait Sender {
    /// One of its packets was released.
    fn packet_gone(&self, cpu: &Cpu);
}

/// Memory charged to the sender for a packet beside its data (Linux: `struct sk_buff` plus the smallest buffer with
/// its shared info, `SKB_TRUESIZE` of a header).
const SENT_PACKET: u64 = 768;

/// Memory of a flow's packets in flight (Linux: `sk_wmem_alloc`).
pub fn waits_below(flow: &TxFlow) -> u64 {
    flow.bytes.get() + u64::from(flow.outstanding.get()) * SENT_PACKET
}

/// A packet made by this host.
pub struct Made {
    pub heads: Rc<Heads>,
    pub head: PhysAddr,
    pub holds: RefCell<Vec<Hold>>,
    /// Told when the packet is released.
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

/// A part of a received packet, which may consist of several joined ones.
#[derive(Default)]
pub struct Piece {
    pub packet: Option<Packet>,
    skip: u32,
    length: u32,
}

impl Piece {
    /// `length` bytes of a packet, starting at `skip`.
    pub fn of(packet: Packet, skip: u32, length: u32) -> Self {
        Self { packet: Some(packet), skip, length }
    }

    /// Memory of its bytes, in order.
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

    /// Returns the packet's buffers.
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

/// Copies at most `most` bytes to user memory. Returns how many were copied.
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
