//! Reference-counted entries of a hardware table.

/// A table with the value and the use count of each entry.
pub(super) struct Places<T> {
    taken: Vec<Option<(T, usize)>>,
}

impl<T: Copy + PartialEq> Places<T> {
    pub fn new(count: usize) -> Self {
        Self { taken: vec![None; count] }
    }

    pub fn get(&self, place: usize) -> Option<T> {
        self.taken.get(place).copied().flatten().map(|(what, _)| what)
    }

    /// The entry that holds `what`, or a free one.
    pub fn take(&mut self, what: T) -> Option<usize> {
        let known = self.taken.iter().position(|place| place.is_some_and(|(is, _)| is == what));
        let place = known.or_else(|| self.taken.iter().position(Option::is_none))?;
        let count = self.taken[place].map_or(0, |(_, count)| count);
        self.taken[place] = Some((what, count + 1));
        Some(place)
    }

    /// The first of `count` consecutive free entries; each gets the value that `what` returns for its index.
    pub fn take_row(&mut self, count: usize, what: impl Fn(usize) -> T) -> Option<usize> {
        let first = self.taken.windows(count).position(|row| row.iter().all(Option::is_none))?;
        for n in 0..count {
            self.taken[first + n] = Some((what(n), 1));
        }
        Some(first)
    }

    /// Drops one use of an entry. Returns whether that was the last.
    pub fn give(&mut self, place: usize) -> bool {
        let Some(Some((_, count))) = self.taken.get_mut(place) else { return false };
        *count -= 1;
        let is_free = *count == 0;
        if is_free {
            self.taken[place] = None;
        }
        is_free
    }

    pub fn places(&self) -> usize {
        self.taken.len()
    }

    pub fn used(&self) -> usize {
        self.taken.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_there_twice_leaves_twice() {
        let mut places = Places::new(2);
        assert_eq!([places.take('a'), places.take('b'), places.take('a')], [Some(0), Some(1), Some(0)]);
        assert_eq!(places.take('c'), None);
        assert!(!places.give(0) && places.give(0) && !places.give(0));
        assert_eq!((places.take('c'), places.used()), (Some(0), 2));
    }

    #[test]
    fn a_row_needs_neighbours() {
        let mut places = Places::new(4);
        assert_eq!(places.take(9), Some(0));
        assert_eq!(places.take_row(4, |n| n), None);
        assert_eq!(places.take_row(3, |n| n), Some(1));
        assert_eq!(places.get(3), Some(2));
        assert!(places.give(2));
        assert_eq!(places.take_row(2, |n| n), None);
    }
}
