//! IOVA allocator of a domain, in pages.
//!
//! Sizes are rounded up to powers of two and naturally aligned. Small ranges are cached per core, so that a range
//! freed on a core is reused there without a search.

use std::collections::BTreeMap;

use platform::Error;
use platform::cpu::CpuId;

/// Cached sizes: 1, 2, 4, 8, 16 and 32 pages (Linux: `IOVA_RANGE_CACHE_MAX_SIZE`).
const CLASSES: usize = 6;
/// Longest list of a core (Linux: twice `IOVA_MAG_SIZE`, for the loaded and the previous magazine).
const LIST: usize = 2 * 127;
/// Number of pages below 4 GiB.
const LOW_END: u64 = 1 << 20;
/// Pages of the interrupt range, which cannot be mapped.
const INTERRUPTS: std::ops::Range<u64> = 0xfee00..0xfef00;

/// Free IOVA space of a domain.
pub(super) struct IovaSpace {
    /// Free ranges: start and length.
    free: BTreeMap<u64, u64>,
    /// End of the space (exclusive).
    end: u64,
    lists: Vec<[Vec<u64>; CLASSES]>,
    low_first: bool,
}

impl IovaSpace {
    /// A space of `bits` address bits.
    pub fn new(bits: u8, cores: usize, low_first: bool) -> Self {
        let end = 1u64 << (bits.clamp(13, 57) - 12);
        let mut free = BTreeMap::new();
        // Page 0 is reserved, so that no mapping has address 0.
        let pieces = [(1, INTERRUPTS.start), (INTERRUPTS.end, end)];
        for (start, stop) in pieces {
            let stop = stop.min(end);
            if start < stop {
                free.insert(start, stop - start);
            }
        }
        Self { free, end, lists: (0..cores).map(|_| Default::default()).collect(), low_first }
    }

    /// As [`new`](Self::new), but with page 0.
    pub fn whole(bits: u8, cores: usize, low_first: bool) -> Self {
        let mut space = Self::new(bits, cores, low_first);
        space.merge(0, 1);
        space
    }

    /// Allocates a given range.
    ///
    /// # Errors
    /// [`Error::Invalid`] if part of it is outside the space, [`Error::Busy`] if part of it is in use.
    pub fn take_at(&mut self, page: u64, pages: u64) -> Result<(), Error> {
        let stop = page.checked_add(pages).filter(|&stop| stop <= self.end).ok_or(Error::Invalid)?;
        if page < INTERRUPTS.end && INTERRUPTS.start < stop {
            return Err(Error::Invalid);
        }
        // Ranges in the cores' lists are free, too.
        self.empty_lists();
        let (&start, &length) = self.free.range(..=page).next_back().ok_or(Error::Busy)?;
        if start + length < stop {
            return Err(Error::Busy);
        }
        self.free.remove(&start);
        if start < page {
            self.free.insert(start, page - start);
        }
        if stop < start + length {
            self.free.insert(stop, start + length - stop);
        }
        Ok(())
    }

    /// Frees a range from [`take_at`](Self::take_at).
    pub fn give_at(&mut self, page: u64, pages: u64) {
        self.merge(page, pages);
    }

    fn class(pages: u64) -> Option<usize> {
        let class = pages.next_power_of_two().trailing_zeros() as usize;
        (class < CLASSES).then_some(class)
    }

    /// Allocates `pages` pages below page `end`. The flag says whether they came from the core's list.
    pub fn take(&mut self, cpu: CpuId, pages: u64, end: u64) -> Option<(u64, bool)> {
        let size = pages.next_power_of_two();
        if let Some(class) = Self::class(pages) {
            let list = &mut self.lists[usize::from(cpu.0)][class];
            if list.last().is_some_and(|&page| page + size <= end)
                && let Some(page) = list.pop()
            {
                return Some((page, true));
            }
        }
        let low = self.low_first.then(|| self.search(size, end.min(LOW_END))).flatten();
        let found = low.or_else(|| self.search(size, end)).or_else(|| {
            // Ranges in the cores' lists are free, too.
            self.empty_lists();
            self.search(size, end)
        })?;
        Some((found, false))
    }

    /// The highest free range below `end`.
    fn search(&mut self, size: u64, end: u64) -> Option<u64> {
        let (&start, &length, place) = self.free.range(..end).rev().find_map(|(start, length)| {
            let stop = (start + length).min(end);
            let place = stop.checked_sub(size)? & !(size - 1);
            (place >= *start).then_some((start, length, place))
        })?;
        self.free.remove(&start);
        if place > start {
            self.free.insert(start, place - start);
        }
        let behind = start + length - (place + size);
        if behind > 0 {
            self.free.insert(place + size, behind);
        }
        Some(place)
    }

    /// Frees pages. Returns whether they went to the core's list.
    pub fn give(&mut self, cpu: CpuId, page: u64, pages: u64) -> bool {
        if let Some(class) = Self::class(pages) {
            let list = &mut self.lists[usize::from(cpu.0)][class];
            if list.len() < LIST {
                list.push(page);
                return true;
            }
        }
        self.merge(page, pages.next_power_of_two());
        false
    }

    fn merge(&mut self, page: u64, size: u64) {
        let (mut start, mut length) = (page, size);
        if let Some((&before, &its)) = self.free.range(..page).next_back()
            && before + its == page
        {
            self.free.remove(&before);
            start = before;
            length += its;
        }
        if let Some(its) = self.free.remove(&(page + size)) {
            length += its;
        }
        self.free.insert(start, length);
    }

    fn empty_lists(&mut self) {
        let mut all = Vec::new();
        for lists in &mut self.lists {
            for (class, list) in lists.iter_mut().enumerate() {
                all.extend(list.drain(..).map(|page| (page, 1 << class)));
            }
        }
        for (page, size) in all {
            self.merge(page, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_nor_meet_interrupts(
            steps in prop::collection::vec((1u64..70, 0u16..3, any::<bool>(), any::<prop::sample::Index>()), 1..300),
            bits in prop::sample::select(vec![32u8, 36, 48]),
            low_first in any::<bool>(),
        ) {
            let mut space = IovaSpace::new(bits, 3, low_first);
            let end = 1u64 << (bits - 12);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (pages, cpu, take, which) in steps {
                if take || held.is_empty() {
                    let Some((page, _)) = space.take(CpuId(cpu), pages, end) else { continue };
                    prop_assert!(page > 0 && page + pages <= end);
                    prop_assert!(page + pages <= INTERRUPTS.start || page >= INTERRUPTS.end);
                    prop_assert!(held.iter().all(|&(p, n)| p + n <= page || page + pages <= p));
                    held.push((page, pages));
                } else {
                    let (page, pages) = held.swap_remove(which.index(held.len()));
                    space.give(CpuId(cpu), page, pages);
                }
            }
            for (page, pages) in held {
                space.give(CpuId(0), page, pages);
            }
            space.empty_lists();
            prop_assert_eq!(space.free, IovaSpace::new(bits, 3, low_first).free);
        }
    }

    #[test]
    fn a_chosen_range_is_taken_once_and_never_by_chance() {
        let mut space = IovaSpace::whole(48, 2, true);
        let whole = space.free.clone();
        assert_eq!(space.take_at(0, 0x1000), Ok(()));
        assert_eq!(space.take_at(0xfff, 1), Err(Error::Busy));
        assert_eq!(space.take_at(0xfff, 2), Err(Error::Busy));
        assert_eq!(space.take_at(INTERRUPTS.start - 1, 2), Err(Error::Invalid));
        assert_eq!(space.take_at(1 << 36, 1), Err(Error::Invalid));
        // What is not chosen comes from what is left.
        while let Some((page, _)) = space.take(CpuId(0), 1 << 10, 0x4000) {
            assert!(page >= 0x1000);
        }
        for page in (0x1000..0x4000).step_by(1 << 10) {
            space.give(CpuId(0), page, 1 << 10);
        }
        // A page in a core's list is free.
        let (page, _) = space.take(CpuId(1), 1, 1 << 36).unwrap();
        space.give(CpuId(1), page, 1);
        assert_eq!(space.take_at(page, 1), Ok(()));
        space.give_at(page, 1);
        space.give_at(0, 0x1000);
        assert_eq!(space.free, whole);
    }

    #[test]
    fn what_a_core_gave_back_it_gets_again() {
        let mut space = IovaSpace::new(48, 2, true);
        let (page, listed) = space.take(CpuId(0), 1, 1 << 36).unwrap();
        assert!(!listed && page < LOW_END);
        space.give(CpuId(1), page, 1);
        assert_ne!(space.take(CpuId(0), 1, 1 << 36), Some((page, true)));
        assert_eq!(space.take(CpuId(1), 1, 1 << 36), Some((page, true)));
    }
}
