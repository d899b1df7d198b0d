//! Address space for BARs and bridge windows.

use std::collections::BTreeMap;

use wire::pcie::config::BarKind;

use crate::ground::Inventory;

/// Alignment of bridge windows (PCI-to-PCI bridge specification 3.2.5.8).
pub(super) const WINDOW: u64 = 1 << 20;

/// Free address space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Aperture {
    /// Free ranges, start to end. Adjacent ranges are always merged.
    free: BTreeMap<u64, u64>,
}

impl Aperture {
    pub fn new(start: u64, end: u64) -> Self {
        Self { free: (start < end).then_some((start, end)).into_iter().collect() }
    }

    /// Allocates `length` bytes with `alignment`, at the start of the smallest range that fits.
    pub fn take(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let fits = |(&start, &end): (&u64, &u64)| {
            let at = start.checked_next_multiple_of(alignment.max(1))?;
            (at.checked_add(length)? <= end).then_some((end - start, at))
        };
        let (_, at) = self.free.iter().filter_map(fits).min()?;
        self.take_at(at, length).then_some(at)
    }

    /// Allocates the given range, if it is free.
    pub fn take_at(&mut self, at: u64, length: u64) -> bool {
        let Some((&start, &end)) = self.free.range(..=at).next_back() else { return false };
        let Some(rest) = at.checked_add(length).filter(|&rest| rest <= end) else { return false };
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if rest < end {
            self.free.insert(rest, end);
        }
        true
    }

    /// Frees a range.
    ///
    /// # Panics
    /// In debug builds, if part of it is already free.
    pub fn give(&mut self, start: u64, length: u64) {
        let (mut start, mut end) = (start, start + length);
        debug_assert!(self.free.range(..end).next_back().is_none_or(|(_, &before)| before <= start));
        if let Some((&before, &touches)) = self.free.range(..start).next_back()
            && touches == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        if start < end {
            self.free.insert(start, end);
        }
    }
}

/// Address space below 4 GiB, from the end of memory to the interrupt controllers, and above all memory.
/// Above, `high_space` bytes at most.
pub(super) fn apertures(inventory: &Inventory, high_space: Option<u64>) -> [Aperture; 2] {
    let ends = || inventory.memory.iter().flatten().map(|&(base, bytes)| base.0 + bytes);
    let low = ends().filter(|&end| end <= 4 << 30).max().unwrap_or(0).max(2 << 30);
    let high = ends().max().unwrap_or(0).max(1 << 40);
    let high = high.next_multiple_of(1 << 40);
    let end = high_space.map_or(1 << 45, |space| (high + space).min(1 << 45));
    [Aperture::new(low.next_multiple_of(256 << 20), 0xfe00_0000), Aperture::new(high, end)]
}

/// The bridge window for a BAR: 0 below 4 GiB, 1 prefetchable above.
pub(super) fn window_of(kind: BarKind) -> Option<usize> {
    match kind {
        BarKind::Io => None,
        BarKind::Memory64 { prefetchable: true } => Some(1),
        BarKind::Memory32 { .. } | BarKind::Memory64 { prefetchable: false } => Some(0),
    }
}

/// Lays out pieces of address space, largest first, so that natural alignment leaves no gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout<T> {
    pieces: Vec<(u64, u64, T)>,
}

impl<T: Copy + Ord> Layout<T> {
    pub fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    pub fn add(&mut self, length: u64, alignment: u64, what: T) {
        self.pieces.push((length, alignment, what));
    }

    /// Offset of each piece, total length and alignment.
    pub fn place(mut self) -> (Vec<(u64, T)>, u64, u64) {
        self.pieces.sort_by_key(|&(length, alignment, what)| (core::cmp::Reverse((alignment, length)), what));
        let alignment = self.pieces.first().map_or(1, |p| p.1);
        let mut at = 0u64;
        let placed = self.pieces.iter().map(|&(length, alignment, what)| {
            let start = at.next_multiple_of(alignment);
            at = start + length;
            (start, what)
        });
        let placed = placed.collect();
        (placed, at, alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pieces are aligned and do not overlap, and when all are freed, the space is one free range again.
        #[test]
        fn what_is_given_back_can_be_taken_again(steps in prop::collection::vec((0u32..12, 0usize..6), 1..80)) {
            let whole = Aperture::new(0x1000, 0x41000);
            let mut aperture = whole.clone();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (order, which) in steps {
                if order > 9 && !taken.is_empty() {
                    let (at, length) = taken.swap_remove(which % taken.len());
                    aperture.give(at, length);
                } else if let Some(at) = aperture.take(0x100 << order, 0x100 << order) {
                    let length = 0x100 << order;
                    prop_assert_eq!(at % length, 0);
                    prop_assert!(taken.iter().all(|&(other, long)| at + length <= other || other + long <= at));
                    taken.push((at, length));
                }
            }
            for (at, length) in taken {
                prop_assert!(!aperture.take_at(at, length));
                aperture.give(at, length);
            }
            prop_assert_eq!(aperture, whole);
        }
    }
}
