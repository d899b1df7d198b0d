//! Fields of registers.

/// A place in a block of registers that repeats: which one, and where in it.
pub fn block(at: u64, base: u64, stride: u64, number: usize) -> Option<(usize, u64)> {
    let offset = at.checked_sub(base)?;
    let index = (offset / stride) as usize;
    (index < number).then_some((index, offset % stride))
}

/// The first four bytes as a number.
pub fn le(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
