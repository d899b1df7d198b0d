//! Numbers of which each may have one owner at a time.

use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;

use platform::Error;

/// Numbers of a range; those that were given back come first, the last one before the others.
pub(super) struct Numbers {
    /// The first that nobody has had yet, and the last that there is.
    next: Cell<u32>,
    last: u16,
    free: RefCell<Vec<u16>>,
}

impl Numbers {
    pub fn new(all: RangeInclusive<u16>) -> Self {
        Self { next: Cell::new((*all.start()).into()), last: *all.end(), free: RefCell::default() }
    }

    /// A number that nobody has.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none.
    pub fn take(&self) -> Result<u16, Error> {
        if let Some(free) = self.free.borrow_mut().pop() {
            return Ok(free);
        }
        let next = u16::try_from(self.next.get()).ok().filter(|&next| next <= self.last);
        self.next.set(self.next.get() + u32::from(next.is_some()));
        next.ok_or(Error::NoSpace)
    }

    /// Gives a number back, of which nothing remembers anything.
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
