//! A small driver for tests: one function, queues with completions in rings or in place.

use wire::nic::descriptor::{END, LEN, REPORT};
use wire::nic::registers::{self as regs, control, queue};
use wire::nic::{Completion, RxDescriptor, TxDescriptor};

use crate::common::back_end::BackEnd;

/// Bytes of memory that each queue uses: ring, completions, then buffers.
const QUEUE_BYTES: u64 = 1 << 20;
const COMPLETIONS_AT: u64 = 0x8000;
const BUFFERS_AT: u64 = 0x1_0000;

/// Driver-side state of a queue.
pub struct Queue {
    pub device: usize,
    pub function: u8,
    pub number: u8,
    pub is_tx: bool,
    pub log2: u8,
    pub mode: u32,
    /// Bytes of each buffer.
    pub buffer: u64,
    base: u64,
    pub tail: u16,
    /// Completions seen.
    pub seen: u16,
    /// TX: completed descriptors.
    pub done: u16,
}

impl Queue {
    /// Sets up a queue and starts it.
    pub fn start(
        host: &mut dyn BackEnd,
        (device, function, number, is_tx): (usize, u8, u8, bool),
        log2: u8,
        mode: u32,
    ) -> Self {
        let slot = u64::from(function) * 4 + u64::from(number) * 2 + u64::from(is_tx);
        let base = 0x1000 + slot * QUEUE_BYTES;
        let queue = Self {
            device,
            function,
            number,
            is_tx,
            log2,
            mode,
            buffer: 2048,
            base,
            tail: 0,
            seen: 0,
            done: 0,
        };
        queue.set(host, queue::CONTROL, 0);
        host.memory_write(device, base, &vec![0; BUFFERS_AT as usize]);
        for (register, value) in [(queue::RING, base), (queue::COMPLETIONS, base + COMPLETIONS_AT)] {
            host.register_write(device, function, queue.register(register), &value.to_le_bytes());
        }
        queue.set(host, queue::SIZE, log2.into());
        queue.set(host, queue::VECTOR, number.into());
        queue.set(host, queue::CONTROL, mode | queue::ENABLE);
        queue
    }

    pub fn register(&self, register: u64) -> u64 {
        let base = if self.is_tx { regs::TX_QUEUES } else { regs::RX_QUEUES };
        base + u64::from(self.number) * regs::QUEUE_STRIDE + register
    }

    pub fn set(&self, host: &mut dyn BackEnd, register: u64, value: u32) {
        host.register_write(self.device, self.function, self.register(register), &value.to_le_bytes());
    }

    fn index(&self, count: u16) -> u64 {
        u64::from(count) & ((1 << self.log2) - 1)
    }

    pub fn buffer_at(&self, count: u16) -> u64 {
        self.base + BUFFERS_AT + self.index(count) * self.buffer
    }

    pub fn put_descriptor(&mut self, host: &mut dyn BackEnd, bytes: [u8; LEN]) {
        let at = self.base + self.index(self.tail) * LEN as u64;
        host.memory_write(self.device, at, &bytes);
        self.tail = self.tail.wrapping_add(1);
    }

    pub fn ring_doorbell(&self, host: &mut dyn BackEnd) {
        self.set(host, queue::TAIL, self.tail.into());
    }

    /// Posts `number` free buffers.
    pub fn give(&mut self, host: &mut dyn BackEnd, number: u16) {
        for _ in 0..number {
            let descriptor = RxDescriptor { address: self.buffer_at(self.tail), length: self.buffer as u16 };
            self.put_descriptor(host, descriptor.emit());
        }
        self.ring_doorbell(host);
    }

    /// Queues a frame in fragments of at most `piece` bytes; `head` has the options of its first descriptor.
    pub fn send(&mut self, host: &mut dyn BackEnd, frame: &[u8], piece: usize, head: TxDescriptor) {
        let pieces = frame.len().div_ceil(piece);
        let first = self.tail;
        for (n, bytes) in frame.chunks(piece).enumerate() {
            let address = self.base + BUFFERS_AT + (self.index(first) * self.buffer + (n * piece) as u64);
            host.memory_write(self.device, address, bytes);
            let last = if n + 1 == pieces { END | REPORT } else { 0 };
            let descriptor =
                TxDescriptor { address, length: bytes.len() as u16, flags: head.flags | last, ..head };
            self.put_descriptor(host, descriptor.emit());
        }
    }

    pub fn room(&self) -> u16 {
        (1 << self.log2) - self.tail.wrapping_sub(if self.is_tx { self.done } else { self.seen })
    }

    /// The next completion, if any.
    pub fn poll(&mut self, host: &mut dyn BackEnd) -> Option<Completion> {
        let is_ring = self.mode & queue::COMPLETION_MODE == queue::TO_RING;
        if !is_ring && self.seen == self.tail {
            return None;
        }
        let base = if is_ring { self.base + COMPLETIONS_AT } else { self.base };
        let at = base + self.index(self.seen) * LEN as u64;
        let mut bytes = [0; LEN];
        host.memory_read(self.device, at, &mut bytes);
        let (completion, owner) = Completion::parse(&bytes);
        let expected = !is_ring || Completion::owner_in_ring(self.seen, self.log2);
        if owner != expected {
            return None;
        }
        if !is_ring {
            // The driver's next descriptor will clear the owner bit; until then, this entry must not be counted again.
            host.memory_write(self.device, at + LEN as u64 - 1, &[0]);
        }
        self.seen = self.seen.wrapping_add(1);
        if self.is_tx {
            self.done = completion.count;
        }
        Some(completion)
    }

    /// The next received frame, reassembled from its buffers, with its last completion.
    pub fn receive(&mut self, host: &mut dyn BackEnd) -> Option<(Vec<u8>, Completion)> {
        let mut frame = Vec::new();
        loop {
            let completion = self.poll(host)?;
            let at = self.buffer_at(completion.count);
            let before = frame.len();
            frame.resize(before + usize::from(completion.length), 0);
            host.memory_read(self.device, at, &mut frame[before..]);
            if completion.has(wire::nic::completion::END) {
                return Some((frame, completion));
            }
        }
    }

    pub fn arm(&self, host: &mut dyn BackEnd) {
        let seen = if self.is_tx { self.done } else { self.seen };
        self.set(host, queue::ARM_AT, u32::from(seen) | queue::ARM);
    }
}

/// Enables a function.
pub fn enable(host: &mut dyn BackEnd, device: usize, function: u8, features: u32) {
    host.register_write(device, function, regs::ENABLED, &features.to_le_bytes());
    host.register_write(device, function, regs::CONTROL, &control::ENABLE.to_le_bytes());
}
