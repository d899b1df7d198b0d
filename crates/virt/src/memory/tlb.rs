//! What a core of a guest remembers of the host's tables.

use std::cell::{Cell, RefCell};

use platform::memory::PhysAddr;

/// Entries of a core's second-level TLB (Intel optimisation manual: 1,024 on Haswell, 1,536 on Broadwell and Skylake).
const ENTRIES: usize = 1024;

/// Pages of 2 MiB, each in one place, and where they are.
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

    /// Misses so far.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// Where it believes a page to be.
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

    /// Forgets a page.
    pub fn forget(&self, page: u64) {
        let entry = &mut self.pages.borrow_mut()[place(page)];
        if entry.0 == page {
            *entry = NONE;
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.pages.borrow_mut().fill(NONE);
    }
}
