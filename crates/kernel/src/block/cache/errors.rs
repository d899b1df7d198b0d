//! Write-back errors, reported once to each opener of the device (Linux: `errseq_t`).

use std::cell::Cell;

use platform::Error;

/// Write errors since the device was added.
#[derive(Default)]
pub struct WriteErrors {
    /// Number of errors, and the cause of the last one.
    happened: Cell<u64>,
    last: Cell<Option<Error>>,
    /// Number of errors reported to at least one opener.
    told: Cell<u64>,
}

/// Number of errors already reported to an opener.
pub struct Heard(Cell<u64>);

impl WriteErrors {
    /// Records a failed write.
    pub fn add(&self, error: Error) {
        self.happened.set(self.happened.get() + 1);
        self.last.set(Some(error));
    }

    /// State for a new opener. It sees later errors and those that nobody has seen yet, since the writer may have
    /// closed the device without a sync.
    pub fn open(&self) -> Heard {
        Heard(Cell::new(self.told.get()))
    }

    /// Reports errors that this opener has not seen.
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
