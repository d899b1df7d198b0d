//! Doorbells that carry the descriptor and a short packet, as mlx5's BlueFlame.

use std::cell::{Cell, RefCell};

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use platform::net::Packet;
use wire::LINE;
use wire::nic::TxDescriptor;
use wire::nic::descriptor::{INLINE, LEN, inline_address, inline_entries};
use wire::nic::registers::INLINE_BYTES;

use super::params::InlineParams;
use super::ring::Ring;

/// A queue's doorbell page in the device.
pub(super) struct Inline {
    pages: Mmio,
    at: u64,
    params: InlineParams,
    /// The half of the page to use next.
    half: Cell<u64>,
    block: RefCell<Vec<u8>>,
}

impl Inline {
    pub fn new(pages: Mmio, at: u64, params: InlineParams) -> Self {
        Self { pages, at, params, half: Cell::new(0), block: RefCell::default() }
    }

    /// Ring entries that a packet takes when sent inline; `None` if it cannot be.
    pub fn entries(&self, packet: &Packet) -> Option<u16> {
        let length = packet.length();
        let most = (INLINE_BYTES as u32 - LEN as u32).min(self.params.up_to);
        let fits = packet.segment == 0 && length > 0 && length <= most;
        fits.then(|| 1 + inline_entries(length as u16))
    }

    /// Writes descriptor and packet to the ring, starting at entry `count`.
    pub fn fill(&self, cpu: &Cpu, ring: &Ring, count: u16, packet: &Packet, descriptor: TxDescriptor) {
        let length = packet.length() as usize;
        let descriptor =
            TxDescriptor { length: length as u16, flags: descriptor.flags | INLINE, ..descriptor };
        let mut block = self.block.borrow_mut();
        block.clear();
        block.extend_from_slice(&descriptor.emit());
        block.resize((LEN + length).next_multiple_of(LEN), 0);
        packet.load(cpu, &mut block[LEN..LEN + length]);
        for (n, entry) in (0u16..).zip(block.chunks_exact(LEN)) {
            cpu.store(ring.descriptor(count.wrapping_add(n)), entry);
        }
    }

    /// Rings the doorbell with the last packet filled, which starts at `count`.
    pub fn ring(&self, cpu: &Cpu, count: u16) {
        let mut block = self.block.borrow_mut();
        let entries = (block.len() / LEN) as u16;
        block[..8].copy_from_slice(&inline_address(count, entries).to_le_bytes());
        let at = self.at + self.half.get() * INLINE_BYTES;
        self.half.set(1 - self.half.get());
        // The ring must be visible before the doorbell. Neither kind of store orders itself behind it.
        cpu.sfence();
        if self.params.direct {
            let whole = block.len().next_multiple_of(LINE);
            block.resize(whole, 0);
            for (n, line) in block.chunks_exact(LINE).enumerate() {
                if let Some(line) = line.first_chunk() {
                    self.pages.write_direct(cpu, at + (n * LINE) as u64, line);
                }
            }
        } else {
            self.pages.stream(cpu, at, &block);
            cpu.sfence();
        }
    }
}
