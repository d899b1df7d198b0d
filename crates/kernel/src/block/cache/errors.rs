//! Errors of writing back: told once to each of those who have the device open (Linux: `errseq_t`).

use std::cell::Cell;

use platform::Error;

/// What could not be written since the device came.
#[derive(Default)]
pub struct WriteErrors {
    /// How many times something could not be written, and why it could not last.
    happened: Cell<u64>,
    last: Cell<Option<Error>>,
    /// How many of them somebody has heard of.
    told: Cell<u64>,
}

/// How many errors an opener has heard of.
pub struct Heard(Cell<u64>);

impl WriteErrors {
    /// Something could not be written.
    pub fn add(&self, error: Error) {
        self.happened.set(self.happened.get() + 1);
        self.last.set(Some(error));
    }

    /// For a new opener, who hears of what happens from now on, and of what nobody has heard of yet: who wrote it may have
    /// closed the device without a sync.
    pub fn open(&self) -> Heard {
        Heard(Cell::new(self.told.get()))
    }

    /// Tells an opener of what he has not heard of.
    pub fn check(&self, heard: &Heard) -> Result<(), Error> {
        let happened = self.happened.get();
        if heard.0.replace(happened) == happened {
            return Ok(());
        }
        self.told.set(happened);
        self.last.get().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_opener_hears_once_of_what_happened_while_it_had_the_device_open() {
        let errors = WriteErrors::default();
        let (first, second) = (errors.open(), errors.open());
        assert_eq!((errors.check(&first), errors.check(&second)), (Ok(()), Ok(())));
        errors.add(Error::Io);
        assert_eq!((errors.check(&first), errors.check(&first)), (Err(Error::Io), Ok(())));
        let late = errors.open();
        assert_eq!((errors.check(&late), errors.check(&second)), (Ok(()), Err(Error::Io)));
        errors.add(Error::TimedOut);
        assert_eq!(errors.check(&late), Err(Error::TimedOut));
    }

    #[test]
    fn what_nobody_has_heard_of_the_next_opener_hears() {
        let errors = WriteErrors::default();
        errors.add(Error::Io);
        let (first, second) = (errors.open(), errors.open());
        assert_eq!((errors.check(&first), errors.check(&second)), (Err(Error::Io), Err(Error::Io)));
        assert_eq!(errors.check(&errors.open()), Ok(()));
    }
}
