//! Buddy allocator for the pages of one node.

use std::collections::BTreeSet;

use platform::memory::PAGE;

/// Order of the largest block: 1 GiB.
const MAX_ORDER: u8 = 18;

/// A buddy allocator. Prefers low addresses, which makes results reproducible.
#[derive(Default)]
pub(super) struct Buddy {
    free: [BTreeSet<u64>; MAX_ORDER as usize + 1],
    /// Number of free pages.
    pages: u64,
}

impl Buddy {
    /// Adds the pages from `first` to before `end`.
    pub fn add(&mut self, first: u64, end: u64) {
        let mut page = first;
        while page < end {
            let aligned = (page.trailing_zeros() as u8).min(MAX_ORDER);
            let fits = (end - page).ilog2() as u8;
            let order = aligned.min(fits);
            self.give(page * PAGE, order);
            page += 1 << order;
        }
    }

    pub fn free_pages(&self) -> u64 {
        self.pages
    }

    /// Allocates a block.
    pub fn take(&mut self, order: u8) -> Option<u64> {
        self.take_below(order, u64::MAX)
    }

    /// Allocates a block below an address.
    pub fn take_below(&mut self, order: u8, end: u64) -> Option<u64> {
        let fits = |page: &u64| page + (1 << order) <= end / PAGE;
        let from = (order..=MAX_ORDER).find(|&o| self.free[usize::from(o)].first().is_some_and(fits))?;
        let page = self.free[usize::from(from)].pop_first()?;
        for smaller in (order..from).rev() {
            self.free[usize::from(smaller)].insert(page + (1 << smaller));
        }
        self.pages -= 1 << order;
        Some(page * PAGE)
    }

    /// Frees a block and merges it with its free neighbours.
    pub fn give(&mut self, address: u64, order: u8) {
        let (mut page, mut size) = (address / PAGE, order);
        self.pages += 1 << order;
        while size < MAX_ORDER && self.free[usize::from(size)].remove(&(page ^ 1 << size)) {
            page &= !(1 << size);
            size += 1;
        }
        let fresh = self.free[usize::from(size)].insert(page);
        debug_assert!(fresh, "pages given back twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_come_back(
            steps in prop::collection::vec((0u8..6, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut buddy = Buddy::default();
            buddy.add(3, 3 + 1000);
            let mut held: Vec<(u64, u8)> = Vec::new();
            for (order, take, which) in steps {
                if take {
                    if let Some(block) = buddy.take(order) {
                        prop_assert_eq!(block % (PAGE << order), 0);
                        let end = block + (PAGE << order);
                        prop_assert!(held.iter().all(|&(b, o)| end <= b || b + (PAGE << o) <= block));
                        held.push((block, order));
                    }
                } else if !held.is_empty() {
                    let (block, order) = held.swap_remove(which.index(held.len()));
                    buddy.give(block, order);
                }
                let used: u64 = held.iter().map(|&(_, o)| 1u64 << o).sum();
                prop_assert_eq!(buddy.free_pages() + used, 1000);
            }
            for (block, order) in held {
                buddy.give(block, order);
            }
            let mut whole = Buddy::default();
            whole.add(3, 3 + 1000);
            prop_assert_eq!(buddy.free, whole.free);
        }
    }
}
