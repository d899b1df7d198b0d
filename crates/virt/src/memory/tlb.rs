//! TLB of a vCPU.

use std::cell::{Cell, RefCell};

use platform::memory::PhysAddr;

/// Entries of a second-level TLB (Intel optimisation manual: 1,024 on Haswell, 1,536 on Broadwell and Skylake).
const ENTRIES: usize = 1024;

/// A direct-mapped TLB for 2 MiB pages.
pub struct Tlb {
    pages: RefCell<Box<[(u64, PhysAddr)]>>,
    misses: Cell<u64>,
}

const NONE: (u64, PhysAddr) = (u64::MAX, PhysAddr(0));

fn place(page: u64) -> usize {
    page as usize % ENTRIES
}

impl Tlb {
    pub fn new() -> Self {
        Self { pages: RefCell::new(Box::new([NONE; ENTRIES])), misses: Cell::new(0) }
    }

    /// Number of misses.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// Looks up a page.
    pub fn find(&self, page: u64) -> Option<PhysAddr> {
        let (known, frame) = self.pages.borrow()[place(page)];
        if known == page {
            return Some(frame);
        }
        self.misses.set(self.misses.get() + 1);
        None
    }

    pub fn fill(&self, page: u64, frame: PhysAddr) {
        self.pages.borrow_mut()[place(page)] = (page, frame);
    }

    /// Invalidates a page.
    pub fn forget(&self, page: u64) {
        let entry = &mut self.pages.borrow_mut()[place(page)];
        if entry.0 == page {
            *entry = NONE;
        }
    }

    /// Invalidates all pages.
    pub fn clear(&self) {
        self.pages.borrow_mut().fill(NONE);
    }
}
