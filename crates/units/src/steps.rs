//! Multiples of sizes that are known when a machine is put together and are nearly always powers of two.
//!
//! The processor's division takes as long as a dozen other instructions, and a TLP meets many such sizes.

/// What is left of `value` beyond a multiple of `size`.
#[inline]
pub fn beyond(value: u64, size: u64) -> u64 {
    if size.is_power_of_two() { value & (size - 1) } else { value % size }
}

/// The largest multiple of `size` that is not above `value`.
#[inline]
pub fn down(value: u64, size: u64) -> u64 {
    value - beyond(value, size)
}

/// The smallest multiple of `size` that is not below `value`.
#[inline]
pub fn up(value: u64, size: u64) -> u64 {
    down(value + (size - 1), size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_sizes_divide_alike(value in 0u64..1 << 40, size in prop_oneof![1u64..600, (0u32..20).prop_map(|n| 1 << n)]) {
            prop_assert_eq!(beyond(value, size), value % size);
            prop_assert_eq!(down(value, size), value / size * size);
            prop_assert_eq!(up(value, size), value.next_multiple_of(size));
        }
    }
}
