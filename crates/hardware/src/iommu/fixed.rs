//! Domains of a host without a kernel.

use super::Iommu;
use crate::memory::PhysicalMemory;
use units::{Bytes, HostPhysical, Iova};
use wire::pcie::Bdf;
use wire::vtd::tables::{ContextTables, FrameAllocator, PageTable, TABLE_BYTES, TableError};
use wire::vtd::{DomainId, Features, PageSize, Permissions};

/// Hands out one frame after the other.
#[derive(Debug)]
pub struct ConsecutiveFrames {
    next: HostPhysical,
}

impl ConsecutiveFrames {
    /// Frames from `start` on, which must be aligned to 4 KiB.
    pub const fn new(start: HostPhysical) -> Self {
        Self { next: start }
    }
}

impl FrameAllocator for ConsecutiveFrames {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        self.allocate_frames(0)
    }

    fn allocate_frames(&mut self, order: u8) -> Option<HostPhysical> {
        let bytes = TABLE_BYTES << order;
        let frame = self.next.checked_add(bytes - 1)?.align_down(bytes);
        self.next = frame.checked_add(bytes)?;
        Some(frame)
    }
}

/// Domains that stay as they were when the host started.
#[derive(Debug)]
pub struct FixedDomains {
    frames: ConsecutiveFrames,
    contexts: ContextTables,
    last: DomainId,
}

impl FixedDomains {
    /// Levels of the page tables: 48 address bits.
    const LEVELS: u8 = 4;

    /// No domain yet. All tables lie from `start` on, which must be aligned to 4 KiB, and are for IOMMUs with `features`.
    ///
    /// # Errors
    /// If `start` is outside memory.
    pub fn new(
        memory: &mut PhysicalMemory,
        start: HostPhysical,
        features: Features,
    ) -> Result<Self, TableError> {
        let mut frames = ConsecutiveFrames::new(start);
        let contexts = ContextTables::new(memory, &mut frames, features)?;
        Ok(Self { frames, contexts, last: DomainId(0) })
    }

    /// Adds a domain of `functions` that may read and write `ranges`: IOVA, frame, length. Domains are numbered from 1.
    /// Pages have the largest size, up to `largest`, that an IOMMU with `features` and alignment allow.
    ///
    /// # Errors
    /// If a range is invalid or memory has no room for the tables.
    pub fn add(
        &mut self,
        memory: &mut PhysicalMemory,
        features: Features,
        functions: &[Bdf],
        ranges: impl IntoIterator<Item = (Iova, HostPhysical, Bytes)>,
        largest: PageSize,
    ) -> Result<PageTable, TableError> {
        let frames = &mut self.frames;
        let table = PageTable::new(memory, frames, Self::LEVELS, features)?;
        for (iova, frame, length) in ranges {
            table.map(memory, frames, iova, frame, length, Permissions::READ_WRITE, largest)?;
        }
        self.last.0 += 1;
        for &function in functions {
            self.contexts.set(memory, frames, function, table.context_entry(self.last))?;
        }
        Ok(table)
    }

    /// Makes `iommu` translate with these domains.
    pub fn enable(&self, iommu: &mut Iommu) {
        iommu.set_root_table(self.contexts.root());
        iommu.set_enabled(true);
    }

    /// End of the tables.
    pub const fn end(&self) -> HostPhysical {
        self.frames.next
    }
}
