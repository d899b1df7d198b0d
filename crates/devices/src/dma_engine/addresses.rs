//! Which part of the window each transaction touches.

/// The offsets that a test touches, one after the other.
///
/// As pcie-bench picks them: the window is divided into units, the transfer
/// with its offset rounded up to whole cache lines; a transaction takes a
/// random unit or the next one, and one that would cross a 4 KiB boundary is
/// skipped.
#[derive(Clone, Debug)]
pub struct Addresses {
    unit: u64,
    units: u64,
    host_offset: u64,
    transfer: u64,
    random: Option<u64>,
    /// Numbers drawn or counted so far, those skipped included.
    drawn: u64,
}

impl Addresses {
    /// The addresses of a test. `random` is the seed of a random pattern.
    ///
    /// A window smaller than one unit is taken for one unit.
    pub fn new(window: u64, transfer: u64, host_offset: u64, random: Option<u64>) -> Self {
        let unit = (transfer + host_offset).next_multiple_of(64).max(64);
        Self { unit, units: (window / unit).max(1), host_offset, transfer, random, drawn: 0 }
    }

    /// Offset of the next transaction in the window.
    pub fn next_offset(&mut self) -> u64 {
        loop {
            let number = match self.random {
                Some(seed) => mix(seed.wrapping_add(self.drawn)),
                None => self.drawn,
            };
            self.drawn += 1;
            let unit =
                if self.units.is_power_of_two() { number & (self.units - 1) } else { number % self.units };
            let offset = unit * self.unit + self.host_offset;
            // Nothing larger than a page can avoid the boundary; the engine splits such a transfer.
            if offset % 4096 + self.transfer <= 4096 || self.transfer > 4096 {
                return offset;
            }
        }
    }
}

/// A good hash of a counter (SplitMix64's finaliser, Steele et al. 2014): a random number without state.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_addresses_walk_the_window() {
        let mut addresses = Addresses::new(256, 63, 1, None);
        let offsets: Vec<_> = (0..5).map(|_| addresses.next_offset()).collect();
        assert_eq!(offsets, [1, 65, 129, 193, 1]);
    }

    #[test]
    fn no_transfer_crosses_a_page() {
        for random in [None, Some(7)] {
            let mut addresses = Addresses::new(1 << 16, 407, 41, random);
            for _ in 0..10_000 {
                let offset = addresses.next_offset();
                assert!(offset % 4096 + 407 <= 4096 && offset + 407 <= 1 << 16);
            }
        }
    }
}
