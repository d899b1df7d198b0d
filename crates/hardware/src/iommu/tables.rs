//! Software's side of the tables: what a kernel does to build, edit and inspect them.
//!
//! These functions change bytes in memory at once; what the stores cost and which invalidations follow is
//! the caller's business. The rule for page tables: after [`PageTable::unmap`], pages and the tables that it
//! answers may be used for something else only once an invalidation of the range has completed.

use super::format::{ContextEntry, Features, PageEntry, RootEntry, entry_offset, level_shift};
use super::ids::{PageSize, Permissions};
use crate::memory::{MemoryFault, PhysicalMemory};
use thiserror::Error;
use units::{Bytes, HostPhysical, Iova};
use wire::pcie::Bdf;

/// Bytes of a table.
pub const TABLE_BYTES: u64 = 4096;

/// Where tables are put.
pub trait FrameAllocator {
    /// A free, 4 KiB-aligned frame of 4 KiB; its content does not matter.
    fn allocate_frame(&mut self) -> Option<HostPhysical>;
}

/// Why tables could not be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TableError {
    /// Address or length is not a multiple of 4 KiB, or the length is zero.
    #[error("addresses and length must be multiples of 4 KiB and the length not zero: {iova} of {length}")]
    Misaligned {
        /// Start of the range.
        iova: Iova,
        /// Length of the range.
        length: Bytes,
    },
    /// The range leaves the address space of the table.
    #[error("{iova} is beyond the {bits} address bits of this table")]
    BeyondAddressWidth {
        /// The first address that does not fit.
        iova: Iova,
        /// What would fit.
        bits: u32,
    },
    /// Something is mapped there already.
    #[error("{iova} is mapped already")]
    AlreadyMapped {
        /// The first such address.
        iova: Iova,
    },
    /// There is no frame for a table.
    #[error("no memory is left for page tables")]
    NoFrame,
    /// A table that an entry points at is broken.
    #[error("the table entry for {iova} at level {level} has reserved bits set")]
    Corrupt {
        /// The address that leads to the entry.
        iova: Iova,
        /// The level of the table.
        level: u8,
    },
    /// A table lies where no memory is installed.
    #[error("a table lies outside memory: {0}")]
    Memory(#[from] MemoryFault),
}

fn clear_frame(memory: &mut PhysicalMemory, frame: HostPhysical) -> Result<(), MemoryFault> {
    memory.write(frame, &[0; TABLE_BYTES as usize])
}

fn new_table(
    memory: &mut PhysicalMemory,
    frames: &mut (impl FrameAllocator + ?Sized),
) -> Result<HostPhysical, TableError> {
    let frame = frames.allocate_frame().ok_or(TableError::NoFrame)?;
    clear_frame(memory, frame)?;
    Ok(frame)
}

/// The root table and the context tables below it: who belongs to which domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTables {
    root: HostPhysical,
}

impl ContextTables {
    /// Empty tables: every function is blocked.
    ///
    /// # Errors
    /// If there is no memory for the root table.
    pub fn new(
        memory: &mut PhysicalMemory,
        frames: &mut (impl FrameAllocator + ?Sized),
    ) -> Result<Self, TableError> {
        Ok(Self { root: new_table(memory, frames)? })
    }

    /// The address for the root table address register.
    pub const fn root(&self) -> HostPhysical {
        self.root
    }

    /// Puts a function into a domain. A changed entry takes effect after a context-cache invalidation, an
    /// entry that was absent at once.
    ///
    /// # Errors
    /// If there is no memory for the context table.
    pub fn set(
        &self,
        memory: &mut PhysicalMemory,
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
                memory.write_u64(root + 8, high)?;
                memory.write_u64(root, low)?;
                context_table
            }
        };
        let [low, high] = entry.encode();
        let place = table + u64::from(function.bits() & 0xff) * 16;
        memory.write_u64(place + 8, high)?;
        memory.write_u64(place, low)?;
        Ok(())
    }

    /// Blocks a function; answers what it was. Takes effect after a context-cache invalidation.
    ///
    /// # Errors
    /// If a table lies outside memory.
    pub fn block(
        &self,
        memory: &mut PhysicalMemory,
        function: Bdf,
    ) -> Result<Option<ContextEntry>, TableError> {
        let old = self.get(memory, function)?;
        if let Some(table) = self.context_table(memory, function)? {
            let place = table + u64::from(function.bits() & 0xff) * 16;
            let [low, high] = ContextEntry::BLOCKED;
            memory.write_u64(place, low)?;
            memory.write_u64(place + 8, high)?;
        }
        Ok(old)
    }

    /// The domain of a function; `None` if it is blocked.
    ///
    /// # Errors
    /// If a table lies outside memory.
    pub fn get(&self, memory: &PhysicalMemory, function: Bdf) -> Result<Option<ContextEntry>, TableError> {
        let Some(table) = self.context_table(memory, function)? else { return Ok(None) };
        let place = table + u64::from(function.bits() & 0xff) * 16;
        let words = [memory.read_u64(place)?, memory.read_u64(place + 8)?];
        Ok(ContextEntry::decode(words, Features::ALL).ok())
    }

    fn context_table(
        &self,
        memory: &PhysicalMemory,
        function: Bdf,
    ) -> Result<Option<HostPhysical>, TableError> {
        let root = self.root + u64::from(function.bus()) * 16;
        let words = [memory.read_u64(root)?, memory.read_u64(root + 8)?];
        Ok(RootEntry::decode(words, Features::ALL).ok().map(|r| r.context_table))
    }
}

/// What a walk by software finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The page's IOVA.
    pub iova: Iova,
    /// The page's host-physical address.
    pub frame: HostPhysical,
    /// Its size.
    pub size: PageSize,
    /// What all levels together permit.
    pub permissions: Permissions,
}

impl Mapping {
    /// Where `iova`, which lies in this page, is.
    pub fn resolve(&self, iova: Iova) -> HostPhysical {
        self.frame + iova.offset_in(self.size.get())
    }
}

/// What [`PageTable::unmap`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unmapped {
    /// Bytes that were mapped and are not any more.
    pub bytes: Bytes,
    /// Entries written.
    pub entries_written: u64,
    /// Tables that are part of the structure no longer, to be freed after the invalidation.
    pub tables: Vec<HostPhysical>,
    /// Leave empty tables in place.
    keep_tables: bool,
}

/// The second-level page table of one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTable {
    root: HostPhysical,
    levels: u8,
    features: Features,
}

impl PageTable {
    /// An empty page table of 3, 4 or 5 `levels` (39, 48 or 57 address bits) in the format of an IOMMU with
    /// `features`.
    ///
    /// # Errors
    /// If there is no memory for its top level.
    pub fn new(
        memory: &mut PhysicalMemory,
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
    /// How many levels it has.
    pub const fn levels(&self) -> u8 {
        self.levels
    }
    /// Bits of its addresses.
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

    /// Maps `length` bytes from `iova` to `frame` with the largest pages, up to `largest`, that alignment
    /// and the IOMMU allow; answers the number of entries written.
    ///
    /// # Errors
    /// Nothing is changed if the range is not free or not valid. If memory for tables runs out, what had been
    /// mapped is unmapped again; tables made on the way stay for later use.
    #[allow(clippy::too_many_arguments)]
    pub fn map(
        &self,
        memory: &mut PhysicalMemory,
        frames: &mut (impl FrameAllocator + ?Sized),
        iova: Iova,
        frame: HostPhysical,
        length: Bytes,
        permissions: Permissions,
        largest: PageSize,
    ) -> Result<u64, TableError> {
        let end = self.check(iova, length)?;
        if frame.offset_in(TABLE_BYTES) != 0 {
            return Err(TableError::Misaligned { iova, length });
        }
        if let Some(iova) = self.first_mapped(memory, self.root, self.levels, iova.get(), end)? {
            return Err(TableError::AlreadyMapped { iova });
        }
        let mut run =
            Run { memory, frames, permissions, largest: largest.min(self.largest_page()), written: 0 };
        let result = self.map_in(&mut run, self.root, self.levels, iova.get(), end, frame.get());
        let written = run.written;
        if let Err(error) = result {
            let mut undone = Unmapped { keep_tables: true, ..Default::default() };
            self.unmap_in(memory, frames, self.root, self.levels, iova.get(), end, &mut undone)?;
            return Err(error);
        }
        Ok(written)
    }

    /// Unmaps all that is mapped of `length` bytes from `iova`. A superpage that is only partly in the range
    /// is split. Tables whose whole range is unmapped are taken out.
    ///
    /// # Errors
    /// If the range is not valid, or a superpage cannot be split for lack of memory.
    pub fn unmap(
        &self,
        memory: &mut PhysicalMemory,
        frames: &mut (impl FrameAllocator + ?Sized),
        iova: Iova,
        length: Bytes,
    ) -> Result<Unmapped, TableError> {
        let end = self.check(iova, length)?;
        let mut done = Unmapped::default();
        self.unmap_in(memory, frames, self.root, self.levels, iova.get(), end, &mut done)?;
        Ok(done)
    }

    /// All tables, for freeing them when the domain is gone.
    ///
    /// # Errors
    /// If a table is broken.
    pub fn tables(&self, memory: &PhysicalMemory) -> Result<Vec<HostPhysical>, TableError> {
        let mut tables = vec![self.root];
        self.collect_tables(memory, self.root, self.levels, 0, &mut tables)?;
        Ok(tables)
    }

    /// The page that `iova` is in.
    ///
    /// # Errors
    /// If a table is broken.
    pub fn lookup(&self, memory: &PhysicalMemory, iova: Iova) -> Result<Option<Mapping>, TableError> {
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

    /// All pages, by address, for inspection.
    ///
    /// # Errors
    /// If a table is broken.
    pub fn mappings(&self, memory: &PhysicalMemory) -> Result<Vec<Mapping>, TableError> {
        let mut found = Vec::new();
        self.collect(memory, self.root, self.levels, 0, Permissions::READ_WRITE, &mut found)?;
        Ok(found)
    }

    fn check(&self, iova: Iova, length: Bytes) -> Result<u64, TableError> {
        if iova.offset_in(TABLE_BYTES) != 0 || length.get() % TABLE_BYTES != 0 || length == Bytes::ZERO {
            return Err(TableError::Misaligned { iova, length });
        }
        let bits = self.address_bits();
        match iova.get().checked_add(length.get()) {
            Some(end) if end <= 1 << bits => Ok(end),
            _ => Err(TableError::BeyondAddressWidth { iova: iova.max(Iova::new(1 << bits)), bits }),
        }
    }

    fn entry(
        &self,
        memory: &PhysicalMemory,
        table: HostPhysical,
        level: u8,
        at: u64,
    ) -> Result<PageEntry, TableError> {
        let iova = Iova::new(at);
        let word = memory.read_u64(table + entry_offset(iova, level))?;
        PageEntry::decode(word, level, self.features).map_err(|_| TableError::Corrupt { iova, level })
    }

    fn first_mapped(
        &self,
        memory: &PhysicalMemory,
        table: HostPhysical,
        level: u8,
        start: u64,
        end: u64,
    ) -> Result<Option<Iova>, TableError> {
        for (at, stop) in pieces(level, start, end) {
            let found = match self.entry(memory, table, level, at)? {
                PageEntry::Absent => None,
                PageEntry::Leaf { .. } => Some(Iova::new(at)),
                PageEntry::Table { table, .. } => self.first_mapped(memory, table, level - 1, at, stop)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn map_in<F: FrameAllocator + ?Sized>(
        &self,
        run: &mut Run<'_, F>,
        table: HostPhysical,
        level: u8,
        start: u64,
        end: u64,
        frame: u64,
    ) -> Result<(), TableError> {
        for (at, stop) in pieces(level, start, end) {
            let frame = frame + (at - start);
            let entry = self.entry(run.memory, table, level, at)?;
            let place = table + entry_offset(Iova::new(at), level);
            let leaf = PageSize::of_level(level)
                .filter(|&s| s <= run.largest && stop - at == s.get() && frame & (s.get() - 1) == 0);
            match (entry, leaf) {
                (PageEntry::Absent, Some(size)) => {
                    let frame = HostPhysical::new(frame);
                    let word = PageEntry::Leaf { frame, size, permissions: run.permissions }.encode();
                    run.memory.write_u64(place, word)?;
                    run.written += 1;
                }
                (PageEntry::Absent, None) => {
                    let below = new_table(run.memory, run.frames)?;
                    let entry = PageEntry::Table { table: below, permissions: Permissions::READ_WRITE };
                    run.memory.write_u64(place, entry.encode())?;
                    run.written += 1;
                    self.map_in(run, below, level - 1, at, stop, frame)?;
                }
                (PageEntry::Table { table: below, .. }, _) => {
                    self.map_in(run, below, level - 1, at, stop, frame)?;
                }
                (PageEntry::Leaf { .. }, _) => {
                    return Err(TableError::AlreadyMapped { iova: Iova::new(at) });
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn unmap_in(
        &self,
        memory: &mut PhysicalMemory,
        frames: &mut (impl FrameAllocator + ?Sized),
        table: HostPhysical,
        level: u8,
        start: u64,
        end: u64,
        done: &mut Unmapped,
    ) -> Result<(), TableError> {
        for (at, stop) in pieces(level, start, end) {
            let whole = stop - at == 1 << level_shift(level);
            let place = table + entry_offset(Iova::new(at), level);
            match self.entry(memory, table, level, at)? {
                PageEntry::Absent => {}
                PageEntry::Leaf { size, .. } if whole => {
                    memory.write_u64(place, PageEntry::Absent.encode())?;
                    done.bytes += size.bytes();
                    done.entries_written += 1;
                }
                PageEntry::Leaf { frame, permissions, .. } => {
                    let below = self.split(memory, frames, level - 1, frame, permissions)?;
                    let entry = PageEntry::Table { table: below, permissions: Permissions::READ_WRITE };
                    memory.write_u64(place, entry.encode())?;
                    done.entries_written += 513;
                    self.unmap_in(memory, frames, below, level - 1, at, stop, done)?;
                }
                PageEntry::Table { table: below, .. } => {
                    self.unmap_in(memory, frames, below, level - 1, at, stop, done)?;
                    if whole && !done.keep_tables {
                        memory.write_u64(place, PageEntry::Absent.encode())?;
                        done.entries_written += 1;
                        done.tables.push(below);
                    }
                }
            }
        }
        Ok(())
    }

    /// A table of `level` whose leaves map what one leaf of the level above maps.
    fn split(
        &self,
        memory: &mut PhysicalMemory,
        frames: &mut (impl FrameAllocator + ?Sized),
        level: u8,
        frame: HostPhysical,
        permissions: Permissions,
    ) -> Result<HostPhysical, TableError> {
        let table = new_table(memory, frames)?;
        let size = if level == 1 { PageSize::Size4KiB } else { PageSize::Size2MiB };
        for n in 0..512 {
            let leaf = PageEntry::Leaf { frame: frame + n * size.get(), size, permissions };
            memory.write_u64(table + n * 8, leaf.encode())?;
        }
        Ok(table)
    }

    fn collect(
        &self,
        memory: &PhysicalMemory,
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
        memory: &PhysicalMemory,
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

/// What stays the same during one call of [`PageTable::map`].
struct Run<'a, F: ?Sized> {
    memory: &'a mut PhysicalMemory,
    frames: &'a mut F,
    permissions: Permissions,
    largest: PageSize,
    written: u64,
}

/// Cuts a range at the boundaries of the entries of `level`.
fn pieces(level: u8, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let span = 1u64 << level_shift(level);
    let mut at = start;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let from = at;
            at = end.min((at & !(span - 1)) + span);
            (from, at)
        })
    })
}
