//! Guest-physical memory.
//!
//! A guest's memory is made of a few large blocks of its host's, aligned so that extended page tables need entries of 2 MiB alone.
//! The tables are real ones in the host's memory, in the format of VT-d's second level, which is that of EPT but for bits that
//! nobody looks at here.

use std::cell::{Cell, RefCell};

use hardware::iommu::tables::{FrameAllocator, PageTable};
use hardware::iommu::{Features, PageSize, Permissions};
use kernel::Ground;
use platform::Error;
use platform::cpu::{Cpu, CpuId, Node};
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use units::{Bytes, GuestPhysical, HostPhysical, Iova, Time};

/// Memory below 4 GiB that a guest may have; the rest begins at 4 GiB, so that there is room for BARs.
const LOW: u64 = 2 << 30;
const HIGH: u64 = 4 << 30;
/// Bytes of a page of the tables.
const LARGE: u64 = 2 << 20;
/// Largest block: 1 GiB.
const LARGEST: u8 = 18;

/// A piece of guest memory that is one piece of the host's.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Where the guest sees it.
    pub guest: GuestPhysical,
    /// Where it is.
    pub host: Pages,
}

/// A guest's memory.
pub struct GuestMemory {
    /// By guest-physical address.
    blocks: Vec<Block>,
    table: PageTable,
}

/// Frames that were taken before.
struct Taken(Vec<HostPhysical>);

impl FrameAllocator for Taken {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        self.0.pop()
    }
}

impl GuestMemory {
    /// Takes `size` of a host's memory from a node, and builds the tables.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Invalid`] if it is no multiple of 2 MiB, or none.
    pub fn new(
        kernel: &dyn Kernel,
        ground: &dyn Ground,
        cpu: &Cpu,
        size: Bytes,
        node: Node,
    ) -> Result<Self, Error> {
        let size = size.get();
        if size == 0 || size % LARGE != 0 {
            return Err(Error::Invalid);
        }
        let (mut blocks, mut done) = (Vec::new(), 0);
        while done < size {
            let (at, room) = if done < LOW { (done, LOW - done) } else { (HIGH + done - LOW, u64::MAX) };
            let left = (size - done).min(room);
            // The largest power of two that fits and to which the place is aligned.
            let order = (left / PAGE).ilog2().min(alignment(at / PAGE)).min(LARGEST.into());
            let host = kernel.alloc_pages(cpu, order as u8, Policy::Bind(node))?;
            blocks.push(Block { guest: GuestPhysical::new(at), host });
            done += host.len();
        }
        let mut frames = Vec::new();
        // A table for each GiB that is touched, and two above them.
        for _ in 0..blocks.len() + 4 {
            frames.push(kernel.alloc_pages(cpu, 0, Policy::Bind(node))?);
        }
        let mut taken = Taken(frames.iter().map(|page| HostPhysical::new(page.start.0)).collect());
        let features = Features { pages_1gib: false, ..Features::ALL };
        let mut built = Err(Error::NoMemory);
        ground.edit_tables(&mut |memory| {
            let table = PageTable::new(memory, &mut taken, 4, features);
            built = table
                .and_then(|table| {
                    for block in &blocks {
                        let (from, to) =
                            (Iova::new(block.guest.get()), HostPhysical::new(block.host.start.0));
                        let length = Bytes::new(block.host.len());
                        table.map(
                            memory,
                            &mut taken,
                            from,
                            to,
                            length,
                            Permissions::READ_WRITE,
                            PageSize::Size2MiB,
                        )?;
                    }
                    Ok(table)
                })
                .map_err(|_| Error::NoMemory);
        });
        Ok(Self { blocks, table: built? })
    }

    /// Its pieces, by guest-physical address.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Where an address is, and how many bytes from there on are one piece; `None` where there is no memory.
    pub fn place(&self, at: PhysAddr) -> Option<(PhysAddr, u64)> {
        let next = self.blocks.partition_point(|block| block.guest.get() <= at.0);
        let block = &self.blocks[next.checked_sub(1)?];
        let offset = at.0 - block.guest.get();
        (offset < block.host.len()).then(|| (block.host.start + offset, block.host.len() - offset))
    }

    /// Reads the entries on the way to an address, as a core does whose TLB lacks it: when it has them.
    fn walk(&self, ground: &dyn Ground, core: CpuId, mut now: Time, at: PhysAddr) -> Time {
        let mut table = PhysAddr(self.table.root().get());
        for level in (2..=self.table.levels()).rev() {
            let index = at.0 >> (12 + 9 * (u32::from(level) - 1)) & 0x1ff;
            let mut entry = [0; 8];
            now = ground.load(core, now, table + index * 8, &mut entry);
            table = PhysAddr(u64::from_le_bytes(entry) & 0x000f_ffff_ffff_f000);
        }
        now
    }
}

/// The largest power of two that divides a page number, as a logarithm.
const fn alignment(page: u64) -> u32 {
    if page == 0 { u32::MAX } else { page.trailing_zeros() }
}

/// What a vCPU's core knows of guest memory: pages of 2 MiB, each in one place.
pub struct Tlb {
    pages: RefCell<Vec<u64>>,
    misses: Cell<u64>,
}

impl Tlb {
    /// An empty one.
    pub fn new(entries: usize) -> Self {
        Self { pages: RefCell::new(vec![u64::MAX; entries.max(1)]), misses: Default::default() }
    }

    /// Misses so far.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// When a core that is at `now` knows where an address is.
    pub fn look_up(
        &self,
        memory: &GuestMemory,
        ground: &dyn Ground,
        core: CpuId,
        now: Time,
        at: PhysAddr,
    ) -> Time {
        let page = at.0 / LARGE;
        let mut pages = self.pages.borrow_mut();
        let entries = pages.len() as u64;
        let place = &mut pages[(page % entries) as usize];
        if *place == page {
            return now;
        }
        *place = page;
        self.misses.set(self.misses.get() + 1);
        memory.walk(ground, core, now, at)
    }
}
