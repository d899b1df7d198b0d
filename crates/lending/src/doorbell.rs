//! Doorbell bits of the adapter, each for an interrupt of a function borrowed by a guest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;

/// Bits that can be allocated. The lowest bit announces mail, the highest a cable change.
const BITS: std::ops::Range<u8> = 1..31;

/// Called when a bit rings.
pub(crate) type Heard = Rc<dyn Fn(&Cpu)>;

/// Doorbell bits with their listeners.
#[derive(Default)]
pub(crate) struct Doorbell {
    heard: RefCell<BTreeMap<u8, Heard>>,
}

impl Doorbell {
    /// Allocates consecutive bits, at most one per listener. Returns the first and the number.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if none is free.
    pub fn take(&self, listeners: Vec<Heard>) -> Result<(u8, u8), Error> {
        let mut heard = self.heard.borrow_mut();
        let row = |first: u8| (first..BITS.end).take_while(|bit| !heard.contains_key(bit)).count();
        let best = BITS.map(|first| (row(first).min(listeners.len()), first));
        // The longest range, and the first of equals.
        let (count, first) = best.max_by_key(|&(count, first)| (count, BITS.end - first)).unwrap_or_default();
        if count == 0 {
            return Err(Error::NoSpace);
        }
        heard.extend((first..).zip(listeners).take(count));
        Ok((first, count as u8))
    }

    /// Frees bits.
    pub fn give(&self, (first, count): (u8, u8)) {
        self.heard.borrow_mut().retain(|bit, _| !(first..first + count).contains(bit));
    }

    /// Bits have rung: calls their listeners.
    pub fn ring(&self, cpu: &Cpu, bits: u32) {
        let heard: Vec<Heard> = self
            .heard
            .borrow()
            .iter()
            .filter(|(bit, _)| bits >> **bit & 1 == 1)
            .map(|(_, h)| Rc::clone(h))
            .collect();
        heard.into_iter().for_each(|heard| heard(cpu));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_belong_to_one_each_and_come_back() {
        let (doorbell, listener) = (Doorbell::default(), || Rc::new(|_: &Cpu| {}) as Heard);
        let take = |count| doorbell.take((0..count).map(|_| listener()).collect());
        assert_eq!(take(20), Ok((1, 20)));
        assert_eq!(take(20), Ok((21, 10)), "as many as there are");
        assert_eq!(take(1), Err(Error::NoSpace));
        doorbell.give((1, 20));
        assert_eq!(take(2), Ok((1, 2)));
        assert_eq!(take(0), Err(Error::NoSpace));
    }
}
