//! Small pieces of coherent memory: descriptors, status words, lists.

use std::collections::BTreeMap;

use platform::dma::Coherent;
use platform::memory::PAGE;
use units::Iova;

/// The smallest piece is a cache line, so that no two share one.
const SMALLEST: u64 = 64;

/// Pieces of one function, by size.
#[derive(Default)]
pub(crate) struct Pool {
    free: BTreeMap<u64, Vec<Coherent>>,
}

impl Pool {
    /// The size class that holds `length` bytes; `None` if it takes whole pages.
    pub fn class(length: u64) -> Option<u64> {
        let class = length.max(SMALLEST).next_power_of_two();
        (class < PAGE).then_some(class)
    }

    /// A free piece of a class.
    pub fn take(&mut self, class: u64) -> Option<Coherent> {
        self.free.get_mut(&class)?.pop()
    }

    /// Gives a piece back.
    pub fn give(&mut self, class: u64, piece: Coherent) {
        self.free.entry(class).or_default().push(piece);
    }

    /// Cuts a page into pieces of a class.
    pub fn cut(&mut self, class: u64, page: Coherent) {
        let pieces = (0..PAGE / class).rev().map(|n| Coherent {
            cpu: page.cpu + n * class,
            bus: Iova::new(page.bus.get() + n * class),
            length: class,
        });
        self.free.entry(class).or_default().extend(pieces);
    }
}
