//! Sequence numbers: 32 bits on the wire, 64 bits internally, so that they never wrap and compare like numbers.
//!
//! Zero is the SYN, one is the first byte of data.

/// The 64-bit position of a number on the wire, near `reference`, in a stream that starts at `initial`.
///
/// `None` if it is before the start of the stream.
pub(super) fn widen(wire: u32, initial: u32, reference: u64) -> Option<u64> {
    let near = initial.wrapping_add(reference as u32);
    let distance = wire.wrapping_sub(near) as i32;
    reference.checked_add_signed(i64::from(distance))
}

/// The number on the wire for a position.
pub(super) const fn narrow(position: u64, initial: u32) -> u32 {
    initial.wrapping_add(position as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_and_back(initial in any::<u32>(), reference in 0u64..1 << 40, away in -0x7fff_ffffi64..0x7fff_ffff) {
            if let Some(position) = reference.checked_add_signed(away) {
                prop_assert_eq!(widen(narrow(position, initial), initial, reference), Some(position));
            } else {
                prop_assert_eq!(widen(initial.wrapping_sub(1), initial, 0), None);
            }
        }
    }
}
