//! Inline doorbells: descriptors with their data, written to a device page through write-combining buffers, like
//! BlueFlame in NVIDIA's NICs (mlx5: `mlx5_bf_copy`), or by direct stores.
//!
//! The ring in memory has the same content. If the device cannot use the inline data, because earlier descriptors come
//! first, an inline doorbell acts as a plain one.

use wire::LINE;
use wire::nic::TxDescriptor;
use wire::nic::descriptor::{INLINE, LEN, of_inline_address};
use wire::nic::registers::INLINE_BYTES;

const BYTES: usize = INLINE_BYTES as usize;
const LINES: usize = BYTES / LINE;

/// The part of an inline doorbell that has arrived.
#[derive(Clone, Copy)]
struct Buffer {
    bytes: [u8; BYTES],
    /// Bitmap of written bytes, per line.
    written: [u64; LINES],
}

/// Inline doorbell page of a queue.
pub struct InlinePage {
    buffers: [Buffer; 2],
}

impl Default for InlinePage {
    fn default() -> Self {
        Self { buffers: [Buffer { bytes: [0; BYTES], written: [0; LINES] }; 2] }
    }
}

impl Buffer {
    /// Number of entries of the doorbell, and index of the first, once all have arrived.
    fn whole(&self) -> Option<(u16, u16)> {
        if self.written[0] & 0xffff != 0xffff {
            return None;
        }
        let descriptor = TxDescriptor::parse(self.bytes.first_chunk()?);
        let (count, entries) = of_inline_address(descriptor.address);
        let end = usize::from(entries) * LEN;
        // An invalid doorbell is dropped when the next one is written.
        let is_sane = descriptor.has(INLINE) && entries > 0 && end <= BYTES;
        let here = |line: usize| {
            let bytes = end.saturating_sub(line * LINE).min(LINE);
            bytes == 0 || self.written[line].trailing_ones() as usize >= bytes
        };
        (is_sane && (0..LINES).all(here)).then_some((count, entries))
    }
}

impl InlinePage {
    /// Takes a write. Returns the entries of the doorbell that it completes, in ring format, and the index of the
    /// first.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Option<(u16, &[u8])> {
        let (which, at) = ((at / INLINE_BYTES) as usize, (at % INLINE_BYTES) as usize);
        if at + data.len() > BYTES {
            return None;
        }
        let buffer = &mut self.buffers[which];
        buffer.bytes[at..at + data.len()].copy_from_slice(data);
        for place in at..at + data.len() {
            buffer.written[place / LINE] |= 1 << (place % LINE);
        }
        let (count, entries) = buffer.whole()?;
        buffer.written = [0; LINES];
        // The descriptor in the ring has no address.
        buffer.bytes[..8].fill(0);
        Some((count, &buffer.bytes[..usize::from(entries) * LEN]))
    }
}
