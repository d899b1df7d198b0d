//! Decoding of register fields.

/// Splits an offset in an array of register blocks into the block's index and the offset within the block.
pub fn block(at: u64, base: u64, stride: u64, number: usize) -> Option<(usize, u64)> {
    let offset = at.checked_sub(base)?;
    let index = (offset / stride) as usize;
    (index < number).then_some((index, offset % stride))
}

/// The first four bytes as a little-endian number.
pub fn le(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
