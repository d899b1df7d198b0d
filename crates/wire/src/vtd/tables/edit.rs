//! Mapping and unmapping.

use super::super::entries::{PageEntry, entry_offset, level_shift};
use super::super::ids::{PageSize, Permissions};
use super::page::{PageTable, Unmapped};
use super::{FrameAllocator, TABLE_BYTES, TableError, TableMemory, new_table, set_word};
use units::{Bytes, HostPhysical, Iova};

impl PageTable {
    /// Maps `length` bytes from `iova` to `frame`, using the largest pages, up to `largest`, that alignment and the
    /// IOMMU allow. Returns the number of entries written.
    ///
    /// # Errors
    /// If the range is invalid or not free; then nothing is changed. If memory for tables runs out, pages mapped so far
    /// are unmapped again; new tables stay for later use.
    #[allow(clippy::too_many_arguments)]
    pub fn map(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
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

    /// Unmaps all pages in the `length` bytes from `iova`. A superpage that is only partly in the range is split.
    /// Tables that the range covers entirely are removed.
    ///
    /// # Errors
    /// If the range is invalid, or there is no memory to split a superpage.
    pub fn unmap(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        iova: Iova,
        length: Bytes,
    ) -> Result<Unmapped, TableError> {
        let end = self.check(iova, length)?;
        let mut done = Unmapped::default();
        self.unmap_in(memory, frames, self.root, self.levels, iova.get(), end, &mut done)?;
        Ok(done)
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

    fn first_mapped(
        &self,
        memory: &(impl TableMemory + ?Sized),
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

    fn map_in(
        &self,
        run: &mut Run<'_, impl TableMemory + ?Sized, impl FrameAllocator + ?Sized>,
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
                    let entry = PageEntry::Leaf { frame, size, permissions: run.permissions };
                    set_word(run.memory, place, self.word(entry, level))?;
                    run.written += 1;
                }
                (PageEntry::Absent, None) => {
                    let below = new_table(run.memory, run.frames)?;
                    let entry = PageEntry::Table { table: below, permissions: Permissions::READ_WRITE };
                    set_word(run.memory, place, self.word(entry, level))?;
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
        memory: &mut (impl TableMemory + ?Sized),
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
                    set_word(memory, place, self.word(PageEntry::Absent, level))?;
                    done.bytes += size.bytes();
                    done.entries_written += 1;
                }
                PageEntry::Leaf { frame, permissions, .. } => {
                    let below = self.split(memory, frames, level - 1, frame, permissions)?;
                    let entry = PageEntry::Table { table: below, permissions: Permissions::READ_WRITE };
                    set_word(memory, place, self.word(entry, level))?;
                    done.entries_written += 513;
                    self.unmap_in(memory, frames, below, level - 1, at, stop, done)?;
                }
                PageEntry::Table { table: below, .. } => {
                    self.unmap_in(memory, frames, below, level - 1, at, stop, done)?;
                    if whole && !done.keep_tables {
                        set_word(memory, place, self.word(PageEntry::Absent, level))?;
                        done.entries_written += 1;
                        done.tables.push(below);
                    }
                }
            }
        }
        Ok(())
    }

    /// Creates a table of `level` whose leaves map the same range as one leaf of the level above.
    fn split(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        level: u8,
        frame: HostPhysical,
        permissions: Permissions,
    ) -> Result<HostPhysical, TableError> {
        let table = new_table(memory, frames)?;
        let size = if level == 1 { PageSize::Size4KiB } else { PageSize::Size2MiB };
        for n in 0..512 {
            let leaf = PageEntry::Leaf { frame: frame + n * size.get(), size, permissions };
            set_word(memory, table + n * 8, self.word(leaf, level))?;
        }
        Ok(table)
    }
}

/// Arguments that stay constant during one call of [`PageTable::map`].
struct Run<'a, M: ?Sized, F: ?Sized> {
    memory: &'a mut M,
    frames: &'a mut F,
    permissions: Permissions,
    largest: PageSize,
    written: u64,
}

/// Splits a range at the entry boundaries of `level`.
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
