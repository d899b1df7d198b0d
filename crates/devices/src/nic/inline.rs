//! Inline doorbells: descriptors with their data, written to a page of the device through write-combining buffers, as
//! with the BlueFlame of NVIDIA's NICs (mlx5: `mlx5_bf_copy`) or by direct stores.
//!
//! The ring in memory holds the same. Where the device cannot use what it was given, because others come first, an
//! inline doorbell is a plain one.

use platform::device::DeviceBus;
use wire::kpio::LINE;
use wire::nic::TxDescriptor;
use wire::nic::descriptor::{INLINE, LEN, of_inline_address};
use wire::nic::registers::{INLINE_BYTES, INLINE_PAGE, counter};

use super::Nic;

const BYTES: usize = INLINE_BYTES as usize;
const LINES: usize = BYTES / LINE;

/// What has arrived of an inline doorbell.
#[derive(Clone, Copy)]
struct Buffer {
    bytes: [u8; BYTES],
    /// A bit for each byte, by line.
    written: [u64; LINES],
}

/// A queue's page.
pub struct InlinePage {
    buffers: [Buffer; 2],
}

impl Default for InlinePage {
    fn default() -> Self {
        Self { buffers: [Buffer { bytes: [0; BYTES], written: [0; LINES] }; 2] }
    }
}

impl Buffer {
    /// Entries of the doorbell, and the count of the first, when all have arrived.
    fn whole(&self) -> Option<(u16, u16)> {
        if self.written[0] & 0xffff != 0xffff {
            return None;
        }
        let descriptor = TxDescriptor::parse(self.bytes.first_chunk()?);
        let (count, entries) = of_inline_address(descriptor.address);
        let end = usize::from(entries) * LEN;
        // What makes no sense is forgotten with what is written next.
        let is_sane = descriptor.has(INLINE) && entries > 0 && end <= BYTES;
        let here = |line: usize| {
            let bytes = end.saturating_sub(line * LINE).min(LINE);
            bytes == 0 || self.written[line].trailing_ones() as usize >= bytes
        };
        (is_sane && (0..LINES).all(here)).then_some((count, entries))
    }
}

impl Nic {
    /// A write to the pages of inline doorbells.
    pub(super) fn inline_write(&mut self, bus: &mut dyn DeviceBus, function: u8, at: u64, data: &[u8]) {
        let (queue, at) = ((at / INLINE_PAGE) as usize, at % INLINE_PAGE);
        let (which, at) = ((at / INLINE_BYTES) as usize, (at % INLINE_BYTES) as usize);
        let Some(state) = self.functions[usize::from(function)].tx.get_mut(queue) else { return };
        if at + data.len() > BYTES || !state.ring.running {
            return;
        }
        let buffer = &mut state.page.buffers[which];
        buffer.bytes[at..at + data.len()].copy_from_slice(data);
        for place in at..at + data.len() {
            buffer.written[place / LINE] |= 1 << (place % LINE);
        }
        let Some((count, entries)) = buffer.whole() else { return };
        let mut bytes = buffer.bytes;
        buffer.written = [0; LINES];
        // The ring's descriptor has no address.
        bytes[..8].fill(0);
        let queue = queue as u8;
        let tail = count.wrapping_add(entries);
        let state = &mut self.functions[usize::from(function)].tx[usize::from(queue)];
        let is_possible = state.ring.set_tail(tail);
        state.ring.note_filled(bus.now());
        if is_possible && state.ring.take_inline(count, &bytes[..usize::from(entries) * LEN]) {
            self.handle.add(function, counter::INLINE_PACKETS, 1);
            self.list(function, queue);
            self.pump(bus);
        } else {
            self.doorbell(bus, function, queue, tail);
        }
    }
}
