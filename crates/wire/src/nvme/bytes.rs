//! Little-endian fields of byte strings.

/// A field of `N` bytes at `at`; zeros beyond the end.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N])
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

pub(super) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(field(bytes, at))
}

/// Copies a field to `at`; nothing beyond the end.
pub(super) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Text as identify data has it: ASCII, padded with spaces (section 1.5).
pub(super) fn put_text(bytes: &mut [u8], at: usize, len: usize, text: &str) {
    let mut field = vec![b' '; len];
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = if (0x20..0x7f).contains(&byte) { byte } else { b'?' };
    }
    put(bytes, at, &field);
}

/// Padded text without its padding.
pub(super) fn text_at(bytes: &[u8], at: usize, len: usize) -> String {
    let field = bytes.get(at..at + len).unwrap_or(&[]);
    let text: String =
        field.iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '?' }).collect();
    text.trim_end().to_owned()
}
