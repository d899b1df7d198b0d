//! The files in which drives keep their blocks. A fault of one is a fault of the machine that runs the simulation, and no
//! drive's: it ends the run.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use devices::nvme::{FileMedia, Media};
use files::{FileRefused, Folder, Operation, may_fail};
use machine::Placed;

use crate::computer::error::ComputerError;

/// Where a scenario's drives keep their blocks.
#[derive(Default)]
pub struct BlockFiles {
    folder: Folder,
    fault: Rc<BlockFault>,
}

/// The first fault of a file.
#[derive(Default)]
struct BlockFault {
    happened: Cell<bool>,
    told: RefCell<Option<(String, io::Error)>>,
}

impl BlockFiles {
    /// Files below `folder`.
    pub fn new(folder: Folder) -> Self {
        Self { folder, fault: Rc::default() }
    }

    /// A sparse file for the blocks: the one that the scenario names, or a temporary one without a name.
    ///
    /// # Errors
    /// If it cannot be used, at the line that names it.
    pub fn open(
        &self,
        backing: Option<&Placed<String>>,
        bytes: u64,
    ) -> Result<Box<dyn Media>, ComputerError> {
        let (file, name) = match backing {
            None => {
                let made = may_fail(Operation::Open).and_then(|()| tempfile::tempfile());
                let media = made.and_then(|file| FileMedia::temporary(file, bytes));
                (media.map_err(ComputerError::Temporary)?, "a temporary file for a drive's blocks".to_owned())
            }
            Some(backing) => {
                let name = &backing.value;
                let (file, is_new) =
                    self.folder.blocks(name, bytes).map_err(|FileRefused { problem, remedy }| {
                        backing.complaint(format!("cannot keep blocks in `{name}`: {problem}"), Some(remedy))
                    })?;
                (FileMedia::new(file, is_new), format!("`{name}`, a drive's blocks"))
            }
        };
        Ok(Box::new(WatchedMedia { file, name, fault: Rc::clone(&self.fault) }))
    }

    /// Whether a file has failed. Quick.
    pub fn have_failed(&self) -> bool {
        self.fault.happened.get()
    }

    /// Ends a run in which a file has failed.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), ComputerError> {
        match self.fault.told.take() {
            Some((file, problem)) => Err(ComputerError::Blocks { file, problem }),
            None => Ok(()),
        }
    }
}

/// Media whose faults are told.
struct WatchedMedia {
    file: FileMedia,
    name: String,
    fault: Rc<BlockFault>,
}

impl WatchedMedia {
    fn attempt(
        &mut self,
        operation: Operation,
        act: impl FnOnce(&mut FileMedia) -> io::Result<()>,
    ) -> io::Result<()> {
        may_fail(operation).and_then(|()| act(&mut self.file)).map_err(|error| {
            let kind = error.kind();
            if !self.fault.happened.replace(true) {
                *self.fault.told.borrow_mut() = Some((self.name.clone(), error));
            }
            kind.into()
        })
    }
}

impl Media for WatchedMedia {
    fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.attempt(Operation::Read, |file| file.read(at, into))
    }

    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()> {
        self.attempt(Operation::Write, |file| file.write(at, from))
    }

    fn discard(&mut self, at: u64, length: u64) -> io::Result<()> {
        self.attempt(Operation::Write, |file| file.discard(at, length))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.attempt(Operation::Sync, FileMedia::sync)
    }
}
