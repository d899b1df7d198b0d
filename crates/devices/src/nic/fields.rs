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

/// A 64-bit register after a write to its lower half.
pub fn with_low(old: u64, value: u32) -> u64 {
    old & !0xffff_ffff | u64::from(value)
}

/// A 64-bit register after a write to its upper half.
pub fn with_high(old: u64, value: u32) -> u64 {
    old & 0xffff_ffff | u64::from(value) << 32
}
