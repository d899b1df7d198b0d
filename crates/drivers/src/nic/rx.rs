//! An RX queue.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::{Cpu, Node};
use platform::irq::NapiHandle;
use platform::memory::PhysAddr;
use platform::mmio::Mmio;
use platform::net::{Checksum, Fragment, NetCore, Packet};
use wire::nic::RxDescriptor;
use wire::nic::completion::{END, FAILED, HELD, INLINE, Kind, NETWORK_WRONG, TRANSPORT_RIGHT};
use wire::nic::descriptor::LEN;
use wire::nic::registers::HELD_BYTES;

use super::counters::Counters;
use super::params::{Loads, NicCosts};
use super::pool::Pool;
use super::ring::Broken;
use super::ring::Ring;

/// Packets handled between syncs with the simulation clock.
const TURN: usize = 4;
/// Bytes of a packet to prefetch: its headers.
const HEADERS: u64 = 64;

/// Location of a queue's frames that stay in the device.
pub(super) struct Fetch {
    pub window: Mmio,
    /// Start of the queue's part of the window.
    pub begin: u64,
    /// Number of frames that it holds: a power of two.
    pub places: u64,
    pub loads: Loads,
}

/// A running RX queue.
pub(super) struct RxQueue {
    pub ring: Ring,
    pool: Rc<Pool>,
    costs: NicCosts,
    refill: u16,
    fetch: Option<Fetch>,
    /// By place in the ring: the buffer that the device holds there, if it holds one.
    buffers: RefCell<Vec<PhysAddr>>,
    /// Counts of buffers posted and returned. Each buffer has one completion.
    tail: Cell<u16>,
    done: Cell<u16>,
    /// A frame that spans several buffers, until its last one arrives.
    partial: RefCell<Option<Packet>>,
}

impl RxQueue {
    pub fn new(ring: Ring, pool: Rc<Pool>, costs: NicCosts, refill: u16, fetch: Option<Fetch>) -> Self {
        let buffers = vec![PhysAddr::default(); usize::from(ring.entries())];
        // Posting a buffer frees the slot of a fetched frame, so there may be no more buffers than slots.
        let most = fetch.as_ref().map_or(ring.entries(), |fetch| ring.entries().min(fetch.places as u16));
        Self {
            refill: refill.clamp(1, most),
            fetch,
            ring,
            pool,
            costs,
            buffers: RefCell::new(buffers),
            tail: Cell::new(0),
            done: Cell::new(0),
            partial: RefCell::new(None),
        }
    }

    /// Buffers that the device holds.
    pub fn given(&self) -> u16 {
        self.tail.get().wrapping_sub(self.done.get())
    }

    /// Posts as many buffers as there is room for, in whole batches. Returns `false` if memory has run out.
    pub fn fill(&self, cpu: &Cpu, node: Node, counters: &Counters) -> bool {
        let missing = self.ring.entries() - self.given();
        let mut bytes = Vec::new();
        let mut enough = true;
        let begin = self.tail.get();
        for _ in 0..missing / self.refill * self.refill {
            let Ok(buffer) = self.pool.take(cpu, node) else {
                counters.rx_no_memory.add(1);
                enough = false;
                break;
            };
            cpu.work(self.costs.refill);
            let descriptor = RxDescriptor { address: buffer.bus.get(), length: self.pool.size() };
            let index = self.ring.index(self.tail.get());
            self.buffers.borrow_mut()[index] = buffer.at;
            bytes.extend_from_slice(&descriptor.emit());
            self.tail.set(self.tail.get().wrapping_add(1));
        }
        if self.tail.get() != begin {
            // First up to the end of the ring, then the rest from its start.
            let first = (usize::from(self.ring.entries()) - self.ring.index(begin)) * LEN;
            let (head, rest) = bytes.split_at(first.min(bytes.len()));
            cpu.store(self.ring.descriptor(begin), head);
            if !rest.is_empty() {
                cpu.store(self.ring.descriptor(0), rest);
            }
            self.ring.ring(cpu, self.tail.get());
        }
        enough
    }

    /// Passes received packets to the stack, at most `budget`.
    ///
    /// # Errors
    /// If a completion is malformed.
    pub async fn poll(
        &self,
        cpu: &Cpu,
        number: u16,
        budget: usize,
        (core, napi): (&dyn NetCore, &NapiHandle),
        counters: &Counters,
    ) -> Result<usize, Broken> {
        let (mut packets, mut ahead) = (0, 0);
        while packets < budget {
            if ahead == TURN {
                cpu.sync().await;
                ahead = 0;
            }
            let mut next = self.next(cpu, counters).await?;
            if next.is_none() && ahead > 0 {
                // More packets may have arrived while this core was ahead of the clock.
                cpu.sync().await;
                ahead = 0;
                next = self.next(cpu, counters).await?;
            }
            let Some((packet, is_whole)) = next else { break };
            ahead += 1;
            if !is_whole {
                counters.rx_failed.add(1);
                packet.release(cpu);
                continue;
            }
            packets += 1;
            cpu.work(self.costs.received);
            core.receive(cpu, napi, number, packet);
            if self.ring.entries() - self.given() >= self.refill {
                self.fill(cpu, cpu.node(), counters);
            }
        }
        Ok(packets)
    }

    /// The next packet, once all its buffers have arrived, and whether its checksums are good.
    async fn next(&self, cpu: &Cpu, counters: &Counters) -> Result<Option<(Packet, bool)>, Broken> {
        while self.given() > 0 {
            let count = self.done.get();
            let Some(completion) = self.ring.completion(cpu, count) else { return Ok(None) };
            let makes_sense = completion.kind == Kind::Received
                && completion.count == count
                && completion.length <= self.pool.size();
            if !makes_sense {
                return Err(Broken);
            }
            let buffer = self.buffers.borrow()[self.ring.index(count)];
            if completion.has(INLINE) {
                if completion.length > self.ring.inline_room() {
                    return Err(Broken);
                }
                let from = self.ring.inline_frame(count, completion.length);
                cpu.copy(buffer, from, completion.length.into());
            }
            if completion.has(HELD) {
                self.fetch(cpu, count, completion.length, buffer).await?;
                counters.rx_fetched.add(1);
            }
            self.done.set(count.wrapping_add(1));
            let mut partial = self.partial.borrow_mut();
            if partial.is_none() {
                cpu.prefetch(buffer, u64::from(completion.length).min(HEADERS));
            }
            let packet = partial.get_or_insert_with(|| Packet {
                fragments: self.pool.list(),
                owner: Some(Rc::clone(&self.pool) as _),
                hash: completion.hash,
                ..Packet::default()
            });
            let length = u32::from(completion.length);
            packet.fragments.push(Fragment { pages: None, at: buffer, length });
            if completion.has(TRANSPORT_RIGHT) && !completion.has(NETWORK_WRONG) {
                packet.checksum = Checksum::Good;
            }
            if completion.has(END) {
                let is_whole = !completion.has(FAILED);
                return Ok(partial.take().map(|packet| (packet, is_whole)));
            }
        }
        Ok(None)
    }

    /// Copies a frame from the device's window into its buffer.
    async fn fetch(&self, cpu: &Cpu, count: u16, length: u16, to: PhysAddr) -> Result<(), Broken> {
        let Some(fetch) = &self.fetch else { return Err(Broken) };
        let at = fetch.begin + u64::from(count) % fetch.places * HELD_BYTES;
        let mut bytes = vec![0; length.into()];
        match fetch.loads {
            Loads::Streaming => fetch.window.read_stream(cpu, at, &mut bytes).await,
            Loads::Uncached => fetch.window.read(cpu, at, &mut bytes).await,
        }
        cpu.store(to, &bytes);
        Ok(())
    }

    /// Whether the device has done work whose completion is missing.
    pub async fn misses_completion(&self, cpu: &Cpu) -> bool {
        let done = self.done.get();
        self.given() > 0 && self.ring.head(cpu).await != done && self.ring.completion(cpu, done).is_none()
    }

    /// Requests an interrupt for the next packet.
    pub fn arm(&self, cpu: &Cpu) {
        self.ring.arm(cpu, self.done.get());
    }

    /// Takes all buffers back. The device must have stopped.
    pub fn abandon(&self, cpu: &Cpu) {
        if let Some(packet) = self.partial.borrow_mut().take() {
            packet.release(cpu);
        }
        while self.given() > 0 {
            let done = self.done.get();
            self.pool.give(cpu, self.buffers.borrow()[self.ring.index(done)]);
            self.done.set(done.wrapping_add(1));
        }
        self.pool.close(cpu);
    }
}
