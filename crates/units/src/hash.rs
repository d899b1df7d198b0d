//! Hashing of integers.

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A multiplicative hash (Knuth, The Art of Computer Programming 3, 6.4): numbers in a row spread evenly over the upper bits.
#[inline]
pub const fn spread(number: u64) -> u64 {
    number.wrapping_mul(GOLDEN)
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn numbers_in_a_row_spread_evenly() {
        for first in [0, 1 << 12, 1 << 40] {
            let mut hits = [0u8; 256];
            (first..first + 256).for_each(|n| hits[(spread(n) >> 56) as usize] += 1);
            assert!(hits.iter().all(|&hits| hits <= 2), "{first}");
        }
    }
}
