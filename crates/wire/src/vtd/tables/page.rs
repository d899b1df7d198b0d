//! The second-level page table of a domain: creation and lookup.

use super::super::entries::{ContextEntry, Features, PageEntry, TranslationType, entry_offset, level_shift};
use super::super::ids::{DomainId, PageSize, Permissions};
use super::{FrameAllocator, TableError, TableMemory, new_table, word};
use crate::iommu::{decode_page, encode_page};
use units::{Bytes, HostPhysical, Iova};

/// Result of a software walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The page's IOVA.
    pub iova: Iova,
    /// The page's host-physical address.
    pub frame: HostPhysical,
    /// How much it maps.
    pub size: PageSize,
    /// Combined permissions of all levels.
    pub permissions: Permissions,
}

impl Mapping {
    /// Translates `iova`, which must be in this page.
    pub fn resolve(&self, iova: Iova) -> HostPhysical {
        self.frame + iova.offset_in(self.size.get())
    }
}

/// Result of [`PageTable::unmap`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unmapped {
    /// Bytes that were mapped before.
    pub bytes: Bytes,
    /// Entries stored: cleared ones, and those of tables that split larger pages.
    pub entries_written: u64,
    /// Removed tables, to be freed after the invalidation.
    pub tables: Vec<HostPhysical>,
    /// Leave empty tables in place.
    pub(super) keep_tables: bool,
}

/// The second-level page table of one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTable {
    pub(super) root: HostPhysical,
    pub(super) levels: u8,
    features: Features,
}

impl PageTable {
    /// Creates an empty page table of 3, 4 or 5 `levels` (39, 48 or 57 address bits) for an IOMMU with `features`.
    ///
    /// # Errors
    /// If there is no memory for the top-level table.
    pub fn new(
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        levels: u8,
        features: Features,
    ) -> Result<Self, TableError> {
        Ok(Self { root: new_table(memory, frames)?, levels: levels.clamp(3, 5), features })
    }

    /// The top-level table.
    pub const fn root(&self) -> HostPhysical {
        self.root
    }
    /// Number of levels.
    pub const fn levels(&self) -> u8 {
        self.levels
    }
    /// The context entry that assigns a function to `domain`, of which this is the table.
    pub const fn context_entry(&self, domain: DomainId) -> ContextEntry {
        ContextEntry {
            domain,
            translation: TranslationType::Untranslated,
            levels: self.levels,
            page_table: self.root,
            fault_processing_disabled: false,
        }
    }
    /// Address width in bits.
    pub const fn address_bits(&self) -> u32 {
        level_shift(self.levels + 1)
    }

    /// The largest leaf that the IOMMU supports.
    pub const fn largest_page(&self) -> PageSize {
        match (self.features.pages_1gib, self.features.pages_2mib) {
            (true, _) => PageSize::Size1GiB,
            (false, true) => PageSize::Size2MiB,
            _ => PageSize::Size4KiB,
        }
    }

    /// All tables, to free them together with the domain.
    ///
    /// # Errors
    /// If a table is invalid.
    pub fn tables(&self, memory: &(impl TableMemory + ?Sized)) -> Result<Vec<HostPhysical>, TableError> {
        let mut tables = vec![self.root];
        self.collect_tables(memory, self.root, self.levels, 0, &mut tables)?;
        Ok(tables)
    }

    /// The mapping that contains `iova`.
    ///
    /// # Errors
    /// If a table is invalid.
    pub fn lookup(
        &self,
        memory: &(impl TableMemory + ?Sized),
        iova: Iova,
    ) -> Result<Option<Mapping>, TableError> {
        if iova.get() >> self.address_bits() != 0 {
            return Ok(None);
        }
        let (mut table, mut permissions) = (self.root, Permissions::READ_WRITE);
        for level in (1..=self.levels).rev() {
            match self.entry(memory, table, level, iova.get())? {
                PageEntry::Absent => return Ok(None),
                PageEntry::Table { table: next, permissions: p } => {
                    (table, permissions) = (next, permissions.and(p));
                }
                PageEntry::Leaf { frame, size, permissions: p } => {
                    let iova = iova.align_down(size.get());
                    return Ok(Some(Mapping { iova, frame, size, permissions: permissions.and(p) }));
                }
            }
        }
        Ok(None)
    }

    /// The table with the 4 KiB leaf for `iova`, if there is one.
    ///
    /// # Errors
    /// If a table is invalid.
    pub fn leaf_table(
        &self,
        memory: &(impl TableMemory + ?Sized),
        iova: Iova,
    ) -> Result<Option<HostPhysical>, TableError> {
        let mut at = self.root;
        for level in (2..=self.levels).rev() {
            let PageEntry::Table { table, .. } = self.entry(memory, at, level, iova.get())? else {
                return Ok(None);
            };
            at = table;
        }
        Ok(Some(at))
    }

    /// All mappings by address, for inspection.
    ///
    /// # Errors
    /// If a table is invalid.
    pub fn mappings(&self, memory: &(impl TableMemory + ?Sized)) -> Result<Vec<Mapping>, TableError> {
        let mut found = Vec::new();
        self.collect(memory, self.root, self.levels, 0, Permissions::READ_WRITE, &mut found)?;
        Ok(found)
    }

    /// The word of an entry in a table of `level`.
    pub(super) const fn word(&self, entry: PageEntry, level: u8) -> u64 {
        encode_page(entry, level, self.features.format)
    }

    pub(super) fn entry(
        &self,
        memory: &(impl TableMemory + ?Sized),
        table: HostPhysical,
        level: u8,
        at: u64,
    ) -> Result<PageEntry, TableError> {
        let iova = Iova::new(at);
        let word = word(memory, table + entry_offset(iova, level))?;
        decode_page(word, level, self.features).map_err(|_| TableError::Corrupt { iova, level })
    }

    fn collect(
        &self,
        memory: &(impl TableMemory + ?Sized),
        table: HostPhysical,
        level: u8,
        base: u64,
        permissions: Permissions,
        found: &mut Vec<Mapping>,
    ) -> Result<(), TableError> {
        for n in 0..512 {
            let at = base + (n << level_shift(level));
            match self.entry(memory, table, level, at)? {
                PageEntry::Absent => {}
                PageEntry::Table { table, permissions: p } => {
                    self.collect(memory, table, level - 1, at, permissions.and(p), found)?;
                }
                PageEntry::Leaf { frame, size, permissions: p } => {
                    let permissions = permissions.and(p);
                    found.push(Mapping { iova: Iova::new(at), frame, size, permissions });
                }
            }
        }
        Ok(())
    }

    fn collect_tables(
        &self,
        memory: &(impl TableMemory + ?Sized),
        table: HostPhysical,
        level: u8,
        base: u64,
        tables: &mut Vec<HostPhysical>,
    ) -> Result<(), TableError> {
        for n in 0..512 {
            let at = base + (n << level_shift(level));
            if let PageEntry::Table { table, .. } = self.entry(memory, table, level, at)? {
                tables.push(table);
                self.collect_tables(memory, table, level - 1, at, tables)?;
            }
        }
        Ok(())
    }
}
