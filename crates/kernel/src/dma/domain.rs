//! An IOMMU domain: IOVA allocator and page tables.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::memory::{PAGE, PhysAddr};
use units::{Bytes, HostPhysical, Iova};

use super::base::{DmaBase, DmaMode};
use super::iova::IovaSpace;
use super::unit::Unit;
use crate::ground::convert;
use wire::iommu::decode_page;
use wire::vtd::tables::PageTable;
use wire::vtd::{ContextEntry, DomainId, PageEntry, PageSize, Permissions, entry_offset};

/// Bytes of a page table entry.
const ENTRY: u64 = 8;

/// Unmapped pages whose IOTLB entries are not invalidated yet.
#[derive(Default)]
struct Flush {
    /// First page, number of pages, and page table frames that became unused.
    ranges: Vec<(u64, u64, Vec<HostPhysical>)>,
    /// Whether a task is due to flush.
    armed: bool,
}

/// IOVA space and page tables of a domain.
pub(super) struct Domain {
    pub id: DomainId,
    base: Rc<DmaBase>,
    unit: Rc<Unit>,
    table: PageTable,
    space: RefCell<IovaSpace>,
    /// Ranges at addresses chosen by the caller: first page, number of pages.
    chosen: RefCell<BTreeMap<u64, u64>>,
    /// Flush queues, by core.
    flushes: RefCell<Vec<Flush>>,
    pub lazy: bool,
    closed: Cell<bool>,
}

impl Domain {
    /// An empty domain for the DMA API.
    pub fn new(base: &Rc<DmaBase>, unit: Rc<Unit>) -> Result<Rc<Self>, Error> {
        let params = base.params;
        let space = IovaSpace::new(48, base.cores.all.len(), params.low_first);
        Self::with_space(base, unit, space, params.mode == DmaMode::Lazy)
    }

    /// As [`new`](Self::new), for a caller that chooses addresses itself.
    pub fn owned(base: &Rc<DmaBase>, unit: Rc<Unit>) -> Result<Rc<Self>, Error> {
        let space = IovaSpace::whole(48, base.cores.all.len(), base.params.low_first);
        Self::with_space(base, unit, space, false)
    }

    fn with_space(
        base: &Rc<DmaBase>,
        unit: Rc<Unit>,
        space: IovaSpace,
        lazy: bool,
    ) -> Result<Rc<Self>, Error> {
        let levels = 4;
        let table = base
            .memory
            .edit_tables(unit.node, |memory, frames| PageTable::new(memory, frames, levels, unit.features));
        let table = table.map_err(|_| Error::NoMemory)?;
        let id = base.domains.take().inspect_err(|_| base.free_table(&table))?;
        let id = DomainId(id);
        Ok(Rc::new(Self {
            id,
            base: Rc::clone(base),
            unit,
            space: RefCell::new(space),
            chosen: RefCell::default(),
            flushes: RefCell::new(base.cores.all.iter().map(|_| Flush::default()).collect()),
            table,
            lazy,
            closed: Cell::new(false),
        }))
    }

    /// The IOMMU of this domain.
    pub fn unit(&self) -> Rc<Unit> {
        Rc::clone(&self.unit)
    }

    /// Context entry that points a function at this domain.
    pub fn entry(&self) -> ContextEntry {
        self.table.context_entry(self.id)
    }

    /// Maps `length` bytes from `at` to an address below `2^bits`.
    pub fn map(
        &self,
        cpu: &Cpu,
        at: PhysAddr,
        length: u64,
        permissions: Permissions,
        bits: u8,
    ) -> Result<Iova, Error> {
        let costs = self.base.cores.costs;
        let lead = at.offset_in(PAGE);
        let pages = (lead + length).div_ceil(PAGE);
        let end = 1u64 << (bits.clamp(13, 48) - 12);
        let taken = self.space.borrow_mut().take(cpu.id(), pages, end);
        let (page, listed) = taken.ok_or(Error::NoMemory)?;
        cpu.work(if listed { costs.iova_cached } else { costs.iova_slow });
        let iova = Iova::new(page * PAGE);
        let entered = self.enter(cpu, (iova, at.align_down(PAGE)), pages, permissions);
        if entered.is_err() {
            self.space.borrow_mut().give(cpu.id(), page, pages);
        }
        entered.map(|()| iova + lead)
    }

    /// Maps several blocks of whole pages to consecutive addresses.
    pub fn map_row(
        &self,
        cpu: &Cpu,
        blocks: &[(PhysAddr, u64)],
        permissions: Permissions,
    ) -> Result<Iova, Error> {
        let pages = blocks.iter().map(|(_, length)| length / PAGE).sum();
        let taken = self.space.borrow_mut().take(cpu.id(), pages, 1 << (48 - 12));
        let (page, _) = taken.ok_or(Error::NoMemory)?;
        cpu.work(self.base.cores.costs.iova_slow);
        let (row, mut done) = (Iova::new(page * PAGE), 0);
        for &(at, length) in blocks {
            if let Err(error) = self.enter(cpu, (row + done, at), length / PAGE, permissions) {
                // The entries were never used, so nothing has to be invalidated.
                let _ = self.base.memory.edit_tables(self.unit.node, |memory, frames| {
                    self.table.unmap(memory, frames, row, Bytes::new(done))
                });
                self.space.borrow_mut().give(cpu.id(), page, pages);
                return Err(error);
            }
            done += length;
        }
        Ok(row)
    }

    /// Maps whole pages from `at` to an address chosen by the caller.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is not page-aligned, or overlaps the interrupt range or the end of the address
    /// space; [`Error::Busy`] if part of it is mapped; [`Error::NoMemory`].
    pub fn map_at(
        &self,
        cpu: &Cpu,
        (iova, at): (Iova, PhysAddr),
        length: u64,
        permissions: Permissions,
    ) -> Result<(), Error> {
        if length == 0 || (iova.get() | at.0 | length) % PAGE != 0 {
            return Err(Error::Invalid);
        }
        let (page, pages) = (iova.get() / PAGE, length / PAGE);
        self.space.borrow_mut().take_at(page, pages)?;
        cpu.work(self.base.cores.costs.iova_slow);
        let entered = self.enter(cpu, (iova, at), pages, permissions);
        match entered {
            Ok(()) => drop(self.chosen.borrow_mut().insert(page, pages)),
            Err(_) => self.space.borrow_mut().give_at(page, pages),
        }
        entered
    }

    /// Writes page table entries from `iova` to the pages from `at`.
    fn enter(
        &self,
        cpu: &Cpu,
        (iova, at): (Iova, PhysAddr),
        pages: u64,
        permissions: Permissions,
    ) -> Result<(), Error> {
        let frame = convert::physical(at);
        self.walk(cpu, iova);
        let bytes = Bytes::new(pages * PAGE);
        let mapped = self.base.memory.edit_tables(self.unit.node, |memory, frames| {
            self.table.map(memory, frames, iova, frame, bytes, permissions, PageSize::Size1GiB)
        });
        let entries = mapped.map_err(|_| Error::NoMemory)?;
        self.edited(cpu, iova, entries);
        Ok(())
    }

    /// Unmaps a range from [`map`](Self::map) or [`map_at`](Self::map_at).
    pub fn unmap(self: &Rc<Self>, cpu: &Cpu, at: Iova, length: u64) -> Result<(), Error> {
        let pages = (at.offset_in(PAGE) + length).div_ceil(PAGE);
        let iova = at.align_down(PAGE);
        let page = iova.get() / PAGE;
        self.walk(cpu, iova);
        let undone = self.base.memory.edit_tables(self.unit.node, |memory, frames| {
            self.table.unmap(memory, frames, iova, Bytes::new(pages * PAGE))
        });
        let undone = undone.map_err(|_| Error::Invalid)?;
        if undone.bytes < Bytes::new(pages * PAGE) {
            self.base
                .log
                .write(format!("dma, domain {}: unmap of a range that is not mapped at {iova}", self.id.0));
            return Err(Error::Invalid);
        }
        self.edited(cpu, iova, undone.entries_written);
        if self.lazy {
            self.defer(cpu, page, pages, undone.tables);
        } else {
            self.unit.flush_pages(cpu, self.id, page, pages);
            self.free(cpu, page, pages, undone.tables);
        }
        Ok(())
    }

    /// Adds a range to the core's flush queue.
    fn defer(self: &Rc<Self>, cpu: &Cpu, page: u64, pages: u64, tables: Vec<HostPhysical>) {
        cpu.work(self.base.cores.costs.flush_queue);
        let id = usize::from(cpu.id().0);
        let (full, arm) = {
            let flush = &mut self.flushes.borrow_mut()[id];
            flush.ranges.push((page, pages, tables));
            let full = flush.ranges.len() >= self.base.params.flush_entries;
            (full, !full && !std::mem::replace(&mut flush.armed, true))
        };
        if full {
            self.flush(cpu, id);
        }
        if arm {
            let (domain, wait) = (Rc::clone(self), self.base.params.flush_time);
            let params = platform::kernel::TaskParams::named(format!("iova-flush/{id}")).on(cpu.id());
            self.base.tasks.spawn(
                params,
                Box::new(move |cpu| {
                    Box::pin(async move {
                        cpu.sleep(wait).await;
                        let _part = cpu.book(platform::cpu::Part::Dma);
                        domain.flush(&cpu, id);
                    })
                }),
            );
        }
    }

    /// Invalidates the IOTLB entries of everything in one core's queue.
    fn flush(&self, cpu: &Cpu, id: usize) {
        let flush = std::mem::take(&mut self.flushes.borrow_mut()[id]);
        if flush.ranges.is_empty() {
            return;
        }
        self.unit.flush_domain(cpu, self.id);
        for (page, pages, tables) in flush.ranges {
            self.free(cpu, page, pages, tables);
        }
    }

    /// Invalidates the IOTLB entries of everything in all queues.
    pub fn flush_all(&self, cpu: &Cpu) {
        let cores = self.base.cores.all.len();
        (0..cores).for_each(|id| self.flush(cpu, id));
    }

    fn free(&self, cpu: &Cpu, page: u64, pages: u64, tables: Vec<HostPhysical>) {
        let costs = self.base.cores.costs;
        let was_chosen = self.chosen.borrow().get(&page) == Some(&pages);
        let listed = match was_chosen {
            true => {
                self.chosen.borrow_mut().remove(&page);
                self.space.borrow_mut().give_at(page, pages);
                false
            }
            false => self.space.borrow_mut().give(cpu.id(), page, pages),
        };
        cpu.work(if listed { costs.iova_cached } else { costs.iova_slow });
        self.base.memory.free_tables(tables);
    }

    /// Reads the entries on the path to an address, as software does when it edits a table.
    fn walk(&self, cpu: &Cpu, iova: Iova) {
        cpu.work(self.base.cores.costs.page_table_edit);
        let mut table = PhysAddr(self.table.root().get());
        for level in (2..=self.table.levels()).rev() {
            let entry = cpu.load_u64(table + entry_offset(iova, level));
            // Otherwise it is not present, or a superpage.
            let Ok(PageEntry::Table { table: below, .. }) = decode_page(entry, level, self.unit.features)
            else {
                return;
            };
            table = convert::address(below);
        }
    }

    /// Charges the stores to the edited entries, line by line.
    fn edited(&self, cpu: &Cpu, iova: Iova, entries: u64) {
        cpu.work(self.base.cores.costs.page_table_edit * entries.div_ceil(8));
        let leaf = self.leaf_table(iova);
        if let Some(table) = leaf {
            let first = entry_offset(iova, 1);
            let length = (entries * ENTRY).min(PAGE - first);
            let mut bytes = vec![0; length as usize];
            self.base.cores.ground.peek(table + first, &mut bytes);
            cpu.store(table + first, &bytes);
        }
    }

    /// The lowest page table on the path to an address.
    fn leaf_table(&self, iova: Iova) -> Option<PhysAddr> {
        let table = self.base.cores.ground.edit(|memory| self.table.leaf_table(memory, iova));
        table.ok().flatten().map(convert::address)
    }

    /// The physical page that an address maps to.
    pub fn frame(&self, iova: Iova) -> Option<PhysAddr> {
        self.base.cores.ground.edit(|memory| {
            let mapping = self.table.lookup(memory, iova).ok()??;
            Some(PhysAddr(mapping.frame.get() + (iova.get() - mapping.iova.get())))
        })
    }

    /// Number of mapped pages, for inspection.
    pub fn mapped(&self) -> u64 {
        self.base.cores.ground.edit(|memory| {
            let mappings = self.table.mappings(memory).unwrap_or_default();
            mappings.iter().map(|mapping| mapping.size.get() / PAGE).sum()
        })
    }

    /// Frees all page tables. No function is attached, and no flush is pending.
    pub fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        self.base.domains.give(self.id.0);
        self.base.free_table(&self.table);
    }
}
