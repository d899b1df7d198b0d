//! Inline doorbells: descriptors with their data, written to a page of the device through write-combining buffers, as
//! with the BlueFlame of NVIDIA's NICs (mlx5: `mlx5_bf_copy`) or by direct stores.
//!
//! The ring in memory holds the same. Where the device cannot use what it was given, because others come first, an
//! inline doorbell is a plain one.

use wire::kpio::LINE;
use wire::nic::TxDescriptor;
use wire::nic::descriptor::{INLINE, LEN, of_inline_address};
use wire::nic::registers::INLINE_BYTES;

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

impl InlinePage {
    /// Takes a write. Gives the entries of the doorbell that it completes, as the ring has them, and the count of the first.
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
        // The ring's descriptor has no address.
        buffer.bytes[..8].fill(0);
        Some((count, &buffer.bytes[..usize::from(entries) * LEN]))
    }
}
