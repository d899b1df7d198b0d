//! The pages of a cache: lookup, creation, eviction.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Cpu, Part};
use platform::memory::{PAGE, Pages, Policy};

use super::write_back::PageWrite;
use crate::base::Base;

/// State of a page's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::block) enum Content {
    /// Being read, or about to be written by the task that created the page.
    Coming,
    /// Valid: equal to the device, or newer if dirty.
    There,
    /// The read failed; the page is no longer in the cache.
    Failed(Error),
}

pub(in crate::block) struct CachePage {
    pub frame: Pages,
    pub content: Cell<Content>,
    pub dirty: Cell<bool>,
    /// Its most recent write to the device, possibly still in flight.
    pub write: RefCell<Option<Rc<PageWrite>>>,
    /// Used since the clock hand last passed it.
    used: Cell<bool>,
}

impl CachePage {
    /// Whether it is being written to the device.
    pub fn is_writing(&self) -> bool {
        self.write.borrow().as_ref().is_some_and(|write| write.result().is_none())
    }

    /// Whether it is newer than the device.
    pub fn is_unwritten(&self) -> bool {
        self.dirty.get() || self.is_writing()
    }

    /// Copies between the page and the matching part of a program's memory, which starts at byte `offset` of the device.
    pub fn copy(&self, cpu: &Cpu, index: u64, offset: u64, memory: &[Segment], to_page: bool) {
        let _part = cpu.book(Part::Copy);
        let (start, end) = (index * PAGE, (index + 1) * PAGE);
        let mut at = offset;
        for segment in memory {
            let (from, to) = (at.max(start), (at + u64::from(segment.length)).min(end));
            if from < to {
                let cached = self.frame.start + (from - start);
                let user = segment.at + (from - at);
                let (to_at, from_at) = if to_page { (cached, user) } else { (user, cached) };
                cpu.copy(to_at, from_at, to - from);
            }
            at += u64::from(segment.length);
        }
    }
}

/// The pages of a device that are in memory, by index.
pub(super) struct PageTable {
    base: Base,
    /// Most pages.
    limit: u64,
    pages: RefCell<BTreeMap<u64, Rc<CachePage>>>,
    /// Pages removed from the table but still in use.
    leaving: RefCell<Vec<Rc<CachePage>>>,
    /// Clock hand: where the next search for a victim starts.
    hand: Cell<u64>,
}

impl PageTable {
    pub fn new(base: Base, limit: u64) -> Self {
        Self { base, limit, pages: RefCell::default(), leaving: RefCell::default(), hand: Cell::new(0) }
    }

    /// Number of pages.
    pub fn count(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    /// Whether there is a page at `index`.
    pub fn contains(&self, index: u64) -> bool {
        self.pages.borrow().contains_key(&index)
    }

    /// Whether this `page` is still at `index`.
    pub fn has(&self, index: u64, page: &Rc<CachePage>) -> bool {
        self.pages.borrow().get(&index).is_some_and(|there| Rc::ptr_eq(there, page))
    }

    /// Whether all pages are gone and free.
    pub fn is_empty(&self) -> bool {
        self.leaving.borrow().is_empty() && self.pages.borrow().is_empty()
    }

    /// Whether any page of a range is newer than the device.
    pub fn any_unwritten(&self, range: Range<u64>) -> bool {
        self.pages.borrow().range(range).any(|(_, page)| page.is_unwritten())
    }

    /// The pages of a range that satisfy `which`.
    pub fn select(
        &self,
        range: Range<u64>,
        which: impl Fn(&Rc<CachePage>) -> bool,
    ) -> Vec<(u64, Rc<CachePage>)> {
        let pages = self.pages.borrow();
        let selected = pages.range(range).filter(|(_, page)| which(page));
        selected.map(|(index, page)| (*index, Rc::clone(page))).collect()
    }

    /// Finds or creates a page. The flag says that it is new, and that the caller has to fill it.
    pub fn page(&self, cpu: &Cpu, index: u64, policy: Policy) -> Result<(Rc<CachePage>, bool), Error> {
        cpu.work(self.base.costs().cache_page);
        let known = self.pages.borrow().get(&index).cloned();
        if let Some(page) = known {
            page.used.set(true);
            return Ok((page, false));
        }
        self.make_room(cpu, self.limit);
        let frame = match self.base.memory.take(cpu, 0, policy) {
            Err(Error::NoMemory) => {
                // Half of the cache may free enough memory.
                self.make_room(cpu, self.count() / 2);
                self.base.memory.take(cpu, 0, policy)?
            }
            taken => taken?,
        };
        let page = Rc::new(CachePage {
            frame,
            content: Cell::new(Content::Coming),
            dirty: Cell::new(false),
            write: RefCell::default(),
            used: Cell::new(true),
        });
        self.pages.borrow_mut().insert(index, Rc::clone(&page));
        Ok((page, true))
    }

    /// Evicts clean, unused pages until at most `limit` are left, least recently used first.
    fn make_room(&self, cpu: &Cpu, limit: u64) {
        self.free_leaving(cpu);
        let mut looks = 2 * self.count();
        while self.count() > limit && looks > 0 {
            looks -= 1;
            let Some((index, page)) = self.under_hand() else { return };
            // The table and this function hold one reference each.
            let held = Rc::strong_count(&page) > 2 || page.content.get() == Content::Coming;
            if held || page.is_unwritten() || page.used.replace(false) {
                continue;
            }
            self.pages.borrow_mut().remove(&index);
            self.base.memory.give(cpu, page.frame);
        }
    }

    /// Removes a page. Its memory is freed once nobody uses it.
    pub fn remove(&self, index: u64, page: &Rc<CachePage>) {
        if self.has(index, page)
            && let Some(page) = self.pages.borrow_mut().remove(&index)
        {
            self.leaving.borrow_mut().push(page);
        }
    }

    /// Frees the memory of removed pages that nobody uses any more.
    fn free_leaving(&self, cpu: &Cpu) {
        self.leaving.borrow_mut().retain(|page| {
            let held = Rc::strong_count(page) > 1;
            if !held {
                self.base.memory.give(cpu, page.frame);
            }
            held
        });
    }

    /// The page at the clock hand, which then advances.
    fn under_hand(&self) -> Option<(u64, Rc<CachePage>)> {
        let pages = self.pages.borrow();
        let (&index, page) = pages.range(self.hand.get()..).next().or_else(|| pages.first_key_value())?;
        self.hand.set(index + 1);
        Some((index, Rc::clone(page)))
    }

    /// Drops the clean pages of a range that satisfy `which`.
    pub fn drop_clean(&self, cpu: &Cpu, range: Range<u64>, which: impl Fn(&Rc<CachePage>) -> bool) {
        let gone = self.select(range, |page| !page.is_unwritten() && which(page));
        gone.iter().for_each(|(index, page)| self.remove(*index, page));
        drop(gone);
        self.free_leaving(cpu);
    }

    /// Forgets that pages are newer than the device.
    pub fn discard_changes(&self) {
        self.pages.borrow().values().for_each(|page| page.dirty.set(false));
    }
}
