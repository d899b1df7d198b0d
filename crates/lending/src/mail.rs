//! How services talk: each has memory that the others write into through their windows, and a doorbell.
//!
//! The memory has a place for each node, for one request of it and one reply to it. Where it is stands in the adapter's words
//! (scratchpads), which the others read; so does when its host booted, since afterwards nothing that was agreed holds any more.

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

/// Nodes that there can be.
pub(crate) const NODES: u8 = 64;
/// Bytes of the place of one: a request and a reply.
const PLACE: u64 = 2 * message::BYTES;
/// Bytes of all.
const LENGTH: u64 = PLACE * NODES as u64;
/// In the third word: somebody is there.
const THERE: u32 = 0x4c45_0000;
/// Doorbell bit that says that there is mail.
const RING: u32 = 1;

/// Another node's service.
struct RemoteNode {
    registers: Mmio,
    register_segment: Mapping,
    memory: Mmio,
    memory_segment: Mapping,
    /// One asks at a time.
    turn: Semaphore,
    /// Who waits for the reply to that number.
    waiting: RefCell<Option<(u32, Answer)>>,
}

/// Resolves when a reply has come, or it is known that none will.
type Answer = Completion<Result<Reply, Error>>;

/// A request that has come.
pub(crate) struct Asked {
    pub node: u8,
    pub sequence: u32,
    pub request: Option<Request>,
}

/// A service's mail.
pub(crate) struct Mail {
    adapter: Rc<NtbAdapter>,
    memory: Coherent,
    /// The number of the last request. The first is when it began, in microseconds: different after each boot. None comes twice,
    /// since what has been taken once is not taken again.
    last: Cell<u32>,
    peers: RefCell<BTreeMap<u8, Rc<RemoteNode>>>,
    /// The number of the last request that was taken from each node.
    taken: RefCell<BTreeMap<u8, u32>>,
    /// How often nodes were disconnected.
    disconnected: Cell<u64>,
    /// How long a reply may take.
    patience: Duration,
    /// Messages written, requests and replies.
    pub written: Cell<u64>,
}

impl Mail {
    /// Makes it known to others.
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

    /// Finds another node's mail.
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
            // The way went while the words were read: they may be none of the other's.
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
        // Another task may have been quicker.
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

    /// Nothing that was agreed with a node holds any more.
    pub fn disconnect(&self, cpu: &Cpu, node: u8) {
        self.disconnected.set(self.disconnected.get() + 1);
        let peer = self.peers.borrow_mut().remove(&node);
        if let Some(peer) = peer {
            self.forget(cpu, &peer);
        }
    }

    /// Asks another node.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if no cable is up, [`Error::Refused`] if nobody is there, [`Error::TimedOut`].
    pub async fn ask(&self, cpu: &Cpu, node: u8, request: Request) -> Result<Reply, Error> {
        let peer = self.connect(cpu, node).await?;
        peer.turn.acquire().await;
        // While this one waited, the way there may have gone: its windows lead elsewhere now, or nowhere.
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

    /// Writes a message into another node's memory and rings.
    fn write(&self, cpu: &Cpu, peer: &RemoteNode, place: u64, words: Words) {
        for (n, &word) in (0..).zip(&words).skip(1) {
            peer.memory.write_u64(cpu, place + 8 * n, word);
        }
        // Posted writes stay in order: whoever sees the first word sees the others.
        peer.memory.write_u64(cpu, place, words[0]);
        peer.registers.write_u32(cpu, regs::DOORBELL, RING);
        self.written.set(self.written.get() + 1);
    }

    /// Rings bits of another node's doorbell, if it has been talked to.
    pub fn ring(&self, cpu: &Cpu, node: u8, bits: u32) {
        let peer = self.peers.borrow().get(&node).cloned();
        if let Some(peer) = peer {
            peer.registers.write_u32(cpu, regs::DOORBELL, bits);
        }
    }

    /// Answers a request.
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

    /// Hands replies to those who wait for them and gives the requests that have come.
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
