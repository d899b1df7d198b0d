//! Assignment of functions to domains: root table and context tables.

use super::super::entries::{ContextEntry, Features, RootEntry};
use super::{FrameAllocator, TableError, TableMemory, new_table, set_word, word};
use crate::pcie::Bdf;
use units::HostPhysical;

/// Root table and context tables, which assign functions to domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTables {
    root: HostPhysical,
}

impl ContextTables {
    /// Creates empty tables, which block all functions.
    ///
    /// # Errors
    /// If there is no memory for the root table.
    pub fn new(
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
    ) -> Result<Self, TableError> {
        Ok(Self { root: new_table(memory, frames)? })
    }

    /// Value for the root table address register.
    pub const fn root(&self) -> HostPhysical {
        self.root
    }

    /// Assigns a function to a domain. Replacing a present entry takes effect after a context-cache invalidation,
    /// adding an entry at once.
    ///
    /// # Errors
    /// If there is no memory for the context table.
    pub fn set(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        function: Bdf,
        entry: ContextEntry,
    ) -> Result<(), TableError> {
        let table = match self.context_table(memory, function)? {
            Some(table) => table,
            None => {
                let context_table = new_table(memory, frames)?;
                let root = self.root + u64::from(function.bus()) * 16;
                let [low, high] = RootEntry { context_table }.encode();
                set_word(memory, root + 8, high)?;
                set_word(memory, root, low)?;
                context_table
            }
        };
        let [low, high] = entry.encode();
        let place = table + u64::from(function.bits() & 0xff) * 16;
        set_word(memory, place + 8, high)?;
        set_word(memory, place, low)?;
        Ok(())
    }

    /// Blocks a function and returns its previous entry. Takes effect after a context-cache invalidation.
    ///
    /// # Errors
    /// If a table is outside memory.
    pub fn block(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        function: Bdf,
    ) -> Result<Option<ContextEntry>, TableError> {
        let old = self.get(memory, function)?;
        if let Some(table) = self.context_table(memory, function)? {
            let place = table + u64::from(function.bits() & 0xff) * 16;
            let [low, high] = ContextEntry::BLOCKED;
            set_word(memory, place, low)?;
            set_word(memory, place + 8, high)?;
        }
        Ok(old)
    }

    /// The context entry of a function; `None` if it is blocked.
    ///
    /// # Errors
    /// If a table is outside memory.
    pub fn get(
        &self,
        memory: &(impl TableMemory + ?Sized),
        function: Bdf,
    ) -> Result<Option<ContextEntry>, TableError> {
        let Some(table) = self.context_table(memory, function)? else { return Ok(None) };
        let place = table + u64::from(function.bits() & 0xff) * 16;
        let words = [word(memory, place)?, word(memory, place + 8)?];
        Ok(ContextEntry::decode(words, Features::ALL).ok())
    }

    fn context_table(
        &self,
        memory: &(impl TableMemory + ?Sized),
        function: Bdf,
    ) -> Result<Option<HostPhysical>, TableError> {
        let root = self.root + u64::from(function.bus()) * 16;
        let words = [word(memory, root)?, word(memory, root + 8)?];
        Ok(RootEntry::decode(words, Features::ALL).ok().map(|r| r.context_table))
    }
}
