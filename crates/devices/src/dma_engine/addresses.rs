//! Address pattern of a test: the part of the window that each transaction accesses.

use engine::rng::splitmix64;

/// Sequence of offsets that a test accesses.
///
/// As in pcie-bench, the window is divided into units of the transfer plus its offset, rounded up to whole cache lines.
/// A transaction takes a random unit or the next one; units that would cross a 4 KiB boundary are skipped. If even the
/// first unit crosses one, none is skipped, and the engine splits the transfers.
#[derive(Clone, Debug)]
pub struct Addresses {
    unit: u64,
    units: u64,
    host_offset: u64,
    random: Option<u64>,
    /// Last offset in a page of 4 KiB at which a transfer may start.
    last_in_page: u64,
    /// Number of units drawn, including skipped ones.
    drawn: u64,
}

impl Addresses {
    /// The addresses of a test. `random` is the seed of a random pattern.
    ///
    /// A window smaller than one unit counts as one unit.
    pub fn new(window: u64, transfer: u64, host_offset: u64, random: Option<u64>) -> Self {
        let unit = (transfer + host_offset).next_multiple_of(64).max(64);
        // The first unit starts at a page boundary: if it does not cross one, the search for such a unit always ends.
        let last_in_page = if host_offset + transfer > PAGE { PAGE } else { PAGE - transfer };
        Self { unit, units: (window / unit).max(1), host_offset, random, last_in_page, drawn: 0 }
    }

    /// Offset of the next transaction in the window.
    #[inline]
    pub fn next_offset(&mut self) -> u64 {
        let offset = self.draw();
        if offset % PAGE <= self.last_in_page { offset } else { self.next_that_fits() }
    }

    /// The next offset from which a transfer crosses no boundary.
    #[inline(never)]
    fn next_that_fits(&mut self) -> u64 {
        loop {
            let offset = self.draw();
            if offset % PAGE <= self.last_in_page {
                return offset;
            }
        }
    }

    /// Offset of the next unit.
    #[inline(always)]
    fn draw(&mut self) -> u64 {
        let number = match self.random {
            Some(seed) => splitmix64(0, seed.wrapping_add(self.drawn)),
            None => self.drawn,
        };
        self.drawn += 1;
        let unit = if self.units.is_power_of_two() { number & (self.units - 1) } else { number % self.units };
        unit * self.unit + self.host_offset
    }
}

/// Requests do not cross such blocks of addresses.
const PAGE: u64 = 4096;

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

    proptest::proptest! {
        /// For any register values, the next address is found, and is inside the window if a unit fits into it.
        #[test]
        fn every_test_goes_on(
            window in 1_u64..=64 << 20,
            transfer in 1_u64..=8192,
            host_offset in 0_u64..=8192,
            random in proptest::option::of(proptest::num::u64::ANY),
        ) {
            let mut addresses = Addresses::new(window, transfer, host_offset, random);
            for _ in 0..16 {
                let offset = addresses.next_offset();
                let fits = (transfer + host_offset).next_multiple_of(64) <= window;
                assert!(!fits || offset + transfer <= window);
            }
        }
    }
}
