//! Message transport: each service has memory that others write through their windows, and a doorbell.
//!
//! The memory has a slot per node, for one request and one reply. Its address is in the adapter's scratchpads, which
//! the other nodes read. They also hold the boot time, since a reboot invalidates all leases.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use drivers::ntb::{Mapping, NtbAdapter};
use platform::Error;
use platform::cpu::Cpu;
use platform::dma::Coherent;
use platform::mmio::{MemoryType, Mmio};
use platform::sync::{Completion, Semaphore, until};
use units::Duration;
use wire::ntb as regs;

use crate::message::{self, Reply, Request, WORDS, Words};

/// Most nodes.
pub(crate) const NODES: u8 = 64;
/// Bytes of a node's slot: a request and a reply.
const PLACE: u64 = 2 * message::BYTES;
/// Bytes of all slots.
const LENGTH: u64 = PLACE * NODES as u64;
/// Marks the third scratchpad word: a service is running.
const THERE: u32 = 0x4c45_0000;
/// Doorbell bit that announces mail.
const RING: u32 = 1;

/// Another node's service.
struct RemoteNode {
    registers: Mmio,
    register_segment: Mapping,
    memory: Mmio,
    memory_segment: Mapping,
    /// One request at a time.
    turn: Semaphore,
    /// The sequence number and the requester that wait for a reply.
    waiting: RefCell<Option<(u32, Answer)>>,
}

/// Resolves when a reply arrives, or when it is known that none will.
type Answer = Completion<Result<Reply, Error>>;

/// A received request.
pub(crate) struct Asked {
    pub node: u8,
    pub sequence: u32,
    pub request: Option<Request>,
}

/// A service's mailbox.
pub(crate) struct Mail {
    adapter: Rc<NtbAdapter>,
    memory: Coherent,
    /// Sequence number of the last request. Starts at the service's start time in microseconds, so it differs after
    /// each boot. Unique, since a taken number is not taken again.
    last: Cell<u32>,
    peers: RefCell<BTreeMap<u8, Rc<RemoteNode>>>,
    /// Sequence number of the last request taken from each node.
    taken: RefCell<BTreeMap<u8, u32>>,
    /// Number of disconnected nodes so far.
    disconnected: Cell<u64>,
    /// Timeout for a reply.
    patience: Duration,
    /// Requests and replies written.
    pub written: Cell<u64>,
}

impl Mail {
    /// Creates the mailbox and publishes its address.
    pub fn new(cpu: &Cpu, adapter: Rc<NtbAdapter>, patience: Duration) -> Result<Self, Error> {
        let memory = adapter.dma().alloc_coherent(cpu, LENGTH, None)?;
        let began = (cpu.now().as_ps() / 1_000_000) as u32;
        adapter.set_scratchpad(cpu, 0, memory.bus.get() as u32);
        adapter.set_scratchpad(cpu, 1, (memory.bus.get() >> 32) as u32);
        adapter.set_scratchpad(cpu, 3, began);
        adapter.set_scratchpad(cpu, 2, THERE);
        Ok(Self {
            adapter,
            memory,
            last: Cell::new(began),
            peers: RefCell::default(),
            taken: RefCell::default(),
            disconnected: Cell::new(0),
            patience,
            written: Cell::new(0),
        })
    }

    /// Connects to another node's mailbox.
    async fn connect(&self, cpu: &Cpu, node: u8) -> Result<Rc<RemoteNode>, Error> {
        if let Some(peer) = self.peers.borrow().get(&node) {
            return Ok(Rc::clone(peer));
        }
        if self.adapter.reachable(cpu).await >> node & 1 == 0 {
            return Err(Error::Unreachable);
        }
        let disconnected = self.disconnected.get();
        let (registers, register_segment) = self.adapter.map_registers(cpu, node)?;
        let words = [0, 1, 2].map(|n| regs::SCRATCHPADS + 4 * n);
        let there = registers.read_u32(cpu, words[2]).await;
        let low = registers.read_u32(cpu, words[0]).await;
        let high = registers.read_u32(cpu, words[1]).await;
        let at = u64::from(high) << 32 | u64::from(low);
        let mapped = match there {
            // The path went down while the scratchpads were read, so the values may be invalid.
            _ if self.disconnected.get() != disconnected || high == u32::MAX => Err(Error::Unreachable),
            THERE => self.adapter.map(cpu, node, at, LENGTH),
            _ => Err(Error::Refused),
        };
        let connected =
            mapped.and_then(|segment| Ok((segment, self.adapter.remap(segment, MemoryType::Uncached)?)));
        let (memory_segment, memory) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                self.adapter.unmap(cpu, register_segment);
                return Err(error);
            }
        };
        let peer = RemoteNode {
            registers,
            register_segment,
            memory,
            memory_segment,
            turn: Semaphore::new(1),
            waiting: RefCell::new(None),
        };
        // Another task may have connected meanwhile.
        let other = self.peers.borrow().get(&node).cloned();
        match other {
            Some(other) => {
                self.forget(cpu, &peer);
                Ok(other)
            }
            None => {
                let peer = Rc::new(peer);
                self.peers.borrow_mut().insert(node, Rc::clone(&peer));
                Ok(peer)
            }
        }
    }

    fn forget(&self, cpu: &Cpu, peer: &RemoteNode) {
        self.adapter.unmap(cpu, peer.memory_segment);
        self.adapter.unmap(cpu, peer.register_segment);
        if let Some((_, waiting)) = peer.waiting.borrow_mut().take() {
            waiting.complete(Err(Error::Unreachable));
        }
    }

    /// Ends the connection to a node and fails pending requests.
    pub fn disconnect(&self, cpu: &Cpu, node: u8) {
        self.disconnected.set(self.disconnected.get() + 1);
        let peer = self.peers.borrow_mut().remove(&node);
        if let Some(peer) = peer {
            self.forget(cpu, &peer);
        }
    }

    /// Frees the mailbox after all nodes were disconnected.
    pub fn close(&self, cpu: &Cpu) {
        self.adapter.dma().free_coherent(cpu, self.memory);
    }

    /// Sends a request to another node and waits for the reply.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if no cable is up, [`Error::Refused`] if no service is running there,
    /// [`Error::TimedOut`].
    pub async fn ask(&self, cpu: &Cpu, node: u8, request: Request) -> Result<Reply, Error> {
        let peer = self.connect(cpu, node).await?;
        peer.turn.acquire().await;
        // While this task waited for its turn, the connection may have been closed, and its windows reused.
        let is_there = self.peers.borrow().get(&node).is_some_and(|now| Rc::ptr_eq(now, &peer));
        if !is_there {
            peer.turn.release();
            return Err(Error::Unreachable);
        }
        let sequence = self.last.get().wrapping_add(1);
        self.last.set(sequence);
        let reply = Completion::new();
        *peer.waiting.borrow_mut() = Some((sequence, reply.clone()));
        self.write(cpu, &peer, self.request_place(self.adapter.node()), request.words(sequence));
        let answer = until(cpu, cpu.now() + self.patience, reply.wait()).await;
        peer.waiting.borrow_mut().take();
        peer.turn.release();
        answer.unwrap_or(Err(Error::TimedOut))
    }

    const fn request_place(&self, node: u8) -> u64 {
        node as u64 % NODES as u64 * PLACE
    }

    const fn reply_place(&self, node: u8) -> u64 {
        self.request_place(node) + message::BYTES
    }

    /// Writes a message into another node's memory and rings its doorbell.
    fn write(&self, cpu: &Cpu, peer: &RemoteNode, place: u64, words: Words) {
        for (n, &word) in (0..).zip(&words).skip(1) {
            peer.memory.write_u64(cpu, place + 8 * n, word);
        }
        // Posted writes stay in order, so a reader that sees the first word sees all.
        peer.memory.write_u64(cpu, place, words[0]);
        peer.registers.write_u32(cpu, regs::DOORBELL, RING);
        self.written.set(self.written.get() + 1);
    }

    /// Rings doorbell bits of another node, if connected.
    pub fn ring(&self, cpu: &Cpu, node: u8, bits: u32) {
        let peer = self.peers.borrow().get(&node).cloned();
        if let Some(peer) = peer {
            peer.registers.write_u32(cpu, regs::DOORBELL, bits);
        }
    }

    /// Sends a reply.
    pub async fn answer(&self, cpu: &Cpu, node: u8, sequence: u32, reply: Reply) {
        if let Ok(peer) = self.connect(cpu, node).await {
            self.write(cpu, &peer, self.reply_place(self.adapter.node()), reply.words(sequence));
        }
    }

    fn load(&self, cpu: &Cpu, place: u64) -> Words {
        let mut bytes = [0; message::BYTES as usize];
        cpu.load(self.memory.cpu + place, &mut bytes);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        words
    }

    /// Completes pending requests whose replies have arrived, and returns new requests.
    pub fn collect(&self, cpu: &Cpu) -> Vec<Asked> {
        let peers: Vec<(u8, Rc<RemoteNode>)> =
            self.peers.borrow().iter().map(|(&node, peer)| (node, Rc::clone(peer))).collect();
        for (node, peer) in peers {
            let Some(waits_for) = peer.waiting.borrow().as_ref().map(|(number, _)| *number) else { continue };
            let head = cpu.load_u64(self.memory.cpu + self.reply_place(node));
            if message::sequence(head) == Some(waits_for) {
                let reply = Reply::parse(&self.load(cpu, self.reply_place(node)));
                if let Some((_, waiting)) = peer.waiting.borrow_mut().take() {
                    waiting.complete(Ok(reply));
                }
            }
        }
        let mut asked = Vec::new();
        for node in (0..NODES).filter(|&node| node != self.adapter.node() % NODES) {
            let head = cpu.load_u64(self.memory.cpu + self.request_place(node));
            let Some(sequence) = message::sequence(head) else { continue };
            if self.taken.borrow_mut().insert(node, sequence) != Some(sequence) {
                let words = self.load(cpu, self.request_place(node));
                asked.push(Asked { node, sequence, request: Request::parse(&words) });
            }
        }
        asked
    }
}
