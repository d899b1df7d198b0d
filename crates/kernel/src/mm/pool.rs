//! Pool of small coherent allocations: descriptors, status words, lists.

use std::collections::BTreeMap;

use platform::dma::Coherent;
use platform::memory::PAGE;
use units::Iova;

/// Smallest size: a cache line, so that no two pieces share one.
const SMALLEST: u64 = 64;

/// Free pieces of one function, by size.
#[derive(Default)]
pub(crate) struct Pool {
    free: BTreeMap<u64, Vec<Coherent>>,
}

impl Pool {
    /// Size class for `length` bytes; `None` if whole pages are needed.
    pub fn class(length: u64) -> Option<u64> {
        let class = length.max(SMALLEST).next_power_of_two();
        (class < PAGE).then_some(class)
    }

    /// Takes a free piece.
    pub fn take(&mut self, class: u64) -> Option<Coherent> {
        self.free.get_mut(&class)?.pop()
    }

    /// Returns a piece.
    pub fn give(&mut self, class: u64, piece: Coherent) {
        self.free.entry(class).or_default().push(piece);
    }

    /// Splits a page into pieces.
    pub fn cut(&mut self, class: u64, page: Coherent) {
        let pieces = (0..PAGE / class).rev().map(|n| Coherent {
            cpu: page.cpu + n * class,
            bus: Iova::new(page.bus.get() + n * class),
            length: class,
        });
        self.free.entry(class).or_default().extend(pieces);
    }
}
