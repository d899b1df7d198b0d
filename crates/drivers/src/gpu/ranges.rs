//! Allocator for GPU memory: first fit by address.

use std::collections::BTreeMap;

/// Allocation unit (bytes).
const UNIT: u64 = 64 << 10;

/// Free ranges, start to end. Adjacent ranges are always merged.
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn new(bytes: u64) -> Self {
        Self([(0, bytes / UNIT * UNIT)].into())
    }

    /// Allocates a range.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT)?;
        let (&start, &end) = self.0.iter().find(|&(start, end)| end - start >= bytes)?;
        self.0.remove(&start);
        if start + bytes < end {
            self.0.insert(start + bytes, end);
        }
        Some(start)
    }

    /// Frees a range.
    pub fn give(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes.max(1).next_multiple_of(UNIT));
        if let Some((&before, &touches)) = self.0.range(..start).next_back()
            && touches == start
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Allocated ranges never overlap, and after all are freed, the memory is one free range again.
        #[test]
        fn ranges_are_apart_and_come_back(steps in prop::collection::vec((1u64..8 * UNIT, any::<bool>()), 1..60)) {
            let mut ranges = Ranges::new(64 * UNIT);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (bytes, gives) in steps {
                if gives && !taken.is_empty() {
                    let (start, bytes) = taken.swap_remove(bytes as usize % taken.len());
                    ranges.give(start, bytes);
                } else if let Some(start) = ranges.take(bytes) {
                    let end = start + bytes.next_multiple_of(UNIT);
                    prop_assert!(end <= 64 * UNIT);
                    prop_assert!(taken.iter().all(|&(other, long)| end <= other || other + long.next_multiple_of(UNIT) <= start));
                    taken.push((start, bytes));
                }
            }
            for (start, bytes) in taken {
                ranges.give(start, bytes);
            }
            prop_assert_eq!(ranges.0, BTreeMap::from([(0, 64 * UNIT)]));
        }
    }
}
