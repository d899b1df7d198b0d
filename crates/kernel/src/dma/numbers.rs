//! Allocator for IDs.

use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;

use platform::Error;

/// IDs of a range. The ID freed last is reused first.
pub(super) struct Numbers {
    /// The first ID never used, and the last of the range.
    next: Cell<u32>,
    last: u16,
    free: RefCell<Vec<u16>>,
}

impl Numbers {
    pub fn new(all: RangeInclusive<u16>) -> Self {
        Self { next: Cell::new((*all.start()).into()), last: *all.end(), free: RefCell::default() }
    }

    /// Allocates an ID.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if all are in use.
    pub fn take(&self) -> Result<u16, Error> {
        if let Some(free) = self.free.borrow_mut().pop() {
            return Ok(free);
        }
        let next = u16::try_from(self.next.get()).ok().filter(|&next| next <= self.last);
        self.next.set(self.next.get() + u32::from(next.is_some()));
        next.ok_or(Error::NoSpace)
    }

    /// Frees an ID. No cache may still refer to it.
    pub fn give(&self, number: u16) {
        self.free.borrow_mut().push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_when_it_was_given_back_and_never_twice_at_once() {
        for all in [0..=3, 1..=u16::MAX] {
            let numbers = Numbers::new(all.clone());
            for _ in 0..200_000 {
                numbers.give(numbers.take().unwrap());
            }
            let mut taken: Vec<_> = std::iter::from_fn(|| numbers.take().ok()).collect();
            assert_eq!(numbers.take(), Err(Error::NoSpace));
            taken.sort_unstable();
            assert_eq!(taken, all.collect::<Vec<_>>());
        }
    }
}
