//! Units deallocated by the host, as disjoint ranges.

use std::collections::BTreeMap;

/// A set of numbers, stored as ranges.
#[derive(Clone, Debug, Default)]
pub(super) struct Unmapped {
    /// Range start to end.
    ranges: BTreeMap<u64, u64>,
}

impl Unmapped {
    /// Adds `start..end`, and calls `new` for each part that was not in the set.
    pub fn add(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        // Merges ranges that overlap or touch.
        let (mut whole, mut at) = ((start, end), start);
        let before = self.ranges.range(..=start).next_back().filter(|&(_, &e)| e >= start).map(|(&s, _)| s);
        let touching: Vec<u64> =
            before.into_iter().chain(self.ranges.range(start + 1..=end).map(|(&s, _)| s)).collect();
        for s in touching {
            let Some(e) = self.ranges.remove(&s) else { continue };
            if at < s.min(end) {
                new(at, s.min(end));
            }
            at = at.max(e);
            whole = (whole.0.min(s), whole.1.max(e));
        }
        if at < end {
            new(at, end);
        }
        self.ranges.insert(whole.0, whole.1);
    }

    /// Removes a number. Returns whether it was in the set.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some((&start, &end)) = self.ranges.range(..=number).next_back().filter(|&(_, &e)| number < e)
        else {
            return false;
        };
        self.ranges.remove(&start);
        for (start, end) in [(start, number), (number + 1, end)] {
            if start < end {
                self.ranges.insert(start, end);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..60)) {
            let (mut ranges, mut set) = (Unmapped::default(), [false; 80]);
            for (adds, at, length) in steps {
                if adds {
                    let mut told = [false; 80];
                    ranges.add(at, at + length, |s, e| told[s as usize..e as usize].fill(true));
                    for n in 0..80 {
                        let inside = (at..at + length).contains(&(n as u64));
                        prop_assert_eq!(told[n], inside && !set[n], "{}", n);
                        set[n] |= inside;
                    }
                } else {
                    prop_assert_eq!(ranges.remove(at), std::mem::take(&mut set[at as usize]));
                }
                let all: Vec<(u64, u64)> = ranges.ranges.iter().map(|(&s, &e)| (s, e)).collect();
                prop_assert!(all.windows(2).all(|w| w[0].1 < w[1].0));
                prop_assert!((0..80).all(|n| set[n as usize] == all.iter().any(|r| (r.0..r.1).contains(&n))));
            }
        }
    }
}
