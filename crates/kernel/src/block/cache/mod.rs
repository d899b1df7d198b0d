//! The page cache of a block device: looks up, creates and evicts pages.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | lookup, eviction |
//! | `read` | filling pages |
//! | `write` | writing into pages |
//! | `back` | write-back and sync |
//! | `errors` | write errors and who has seen them |

mod back;
mod errors;
mod read;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{SECTOR, Segment};
use platform::cpu::{Cpu, Part};
use platform::memory::{PAGE, Pages, Policy};
use platform::sync::WaitQueue;

use self::back::PageWrite;
pub(super) use self::errors::Heard;
use self::errors::WriteErrors;
use super::BlockParams;
use super::requests::Requests;
use crate::base::Base;

/// State of a page's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    /// Being read, or about to be written by the task that created the page.
    Coming,
    /// Valid: equal to the device, or newer if dirty.
    There,
    /// The read failed; the page is no longer in the cache.
    Failed(Error),
}

pub(super) struct CachePage {
    frame: Pages,
    content: Cell<Content>,
    dirty: Cell<bool>,
    /// Its most recent write to the device, possibly still in flight.
    write: RefCell<Option<Rc<PageWrite>>>,
    /// Used since the clock hand last passed it.
    used: Cell<bool>,
}

/// Pages that overlap a range of bytes.
pub(super) const fn touched(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE..offset.saturating_add(length).div_ceil(PAGE)
}

impl CachePage {
    /// Whether it is being written to the device.
    fn is_writing(&self) -> bool {
        self.write.borrow().as_ref().is_some_and(|write| write.result().is_none())
    }
}

/// Cached pages of a device.
pub(super) struct Cache {
    me: Weak<Self>,
    base: Base,
    requests: Rc<Requests>,
    params: BlockParams,
    pages: RefCell<BTreeMap<u64, Rc<CachePage>>>,
    /// Pages removed from the cache but still in use.
    leaving: RefCell<Vec<Rc<CachePage>>>,
    /// Clock hand: where the next search for a victim starts.
    hand: Cell<u64>,
    changed: WaitQueue,
    dirty: Cell<u64>,
    /// Pages being written to the device.
    writing: Cell<u64>,
    /// End of the last read, and how far it read ahead.
    sequential: Cell<(u64, u64)>,
    errors: WriteErrors,
}

impl Cache {
    pub fn new(base: Base, requests: Rc<Requests>, params: BlockParams) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            base,
            requests,
            params,
            pages: RefCell::default(),
            leaving: RefCell::default(),
            hand: Cell::new(0),
            changed: WaitQueue::new(),
            dirty: Cell::new(0),
            writing: Cell::new(0),
            sequential: Cell::default(),
            errors: WriteErrors::default(),
        })
    }

    pub fn dirty_pages(&self) -> u64 {
        self.dirty.get()
    }

    /// Error state for a new opener.
    pub fn opened(&self) -> Heard {
        self.errors.open()
    }

    pub fn cached_pages(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    /// Whether any page is newer than the device.
    pub fn has_unwritten(&self) -> bool {
        self.dirty.get() + self.writing.get() > 0
    }

    /// Whether any page of a range is newer than the device.
    pub fn is_dirty(&self, offset: u64, length: u64) -> bool {
        self.has_unwritten()
            && self
                .pages
                .borrow()
                .range(touched(offset, length))
                .any(|(_, page)| page.dirty.get() || page.is_writing())
    }

    /// Whether the cache still holds this `page` at `index`.
    fn has(&self, index: u64, page: &Rc<CachePage>) -> bool {
        self.pages.borrow().get(&index).is_some_and(|there| Rc::ptr_eq(there, page))
    }

    /// The page at the clock hand, which then advances.
    fn under_hand(&self) -> Option<(u64, Rc<CachePage>)> {
        let pages = self.pages.borrow();
        let (&index, page) = pages.range(self.hand.get()..).next().or_else(|| pages.first_key_value())?;
        self.hand.set(index + 1);
        Some((index, Rc::clone(page)))
    }
}

impl Cache {
    /// Finds or creates a page. The flag says that it is new, and that the caller has to fill it.
    fn page(&self, cpu: &Cpu, index: u64, policy: Policy) -> Result<(Rc<CachePage>, bool), Error> {
        cpu.work(self.base.costs().cache_page);
        let known = self.pages.borrow().get(&index).cloned();
        if let Some(page) = known {
            page.used.set(true);
            return Ok((page, false));
        }
        self.make_room(cpu, self.params.cache_limit.get() / PAGE);
        let frame = match self.base.memory.take(cpu, 0, policy) {
            Err(Error::NoMemory) => {
                // Half of the cache may free enough memory.
                self.make_room(cpu, self.cached_pages() / 2);
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
        let mut looks = 2 * self.cached_pages();
        while self.cached_pages() > limit && looks > 0 {
            looks -= 1;
            let Some((index, page)) = self.under_hand() else { return };
            // The cache and this function hold one reference each.
            let held = Rc::strong_count(&page) > 2 || page.content.get() == Content::Coming;
            if held || page.dirty.get() || page.is_writing() || page.used.replace(false) {
                continue;
            }
            self.pages.borrow_mut().remove(&index);
            self.base.memory.give(cpu, page.frame);
        }
    }

    /// Removes a page from the cache. Its memory is freed once nobody uses it.
    fn forget_page(&self, index: u64, page: &Rc<CachePage>) {
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

    fn in_range(&self, offset: u64, length: u64) -> Result<(), Error> {
        let end = offset.checked_add(length).ok_or(Error::Invalid)?;
        if end > self.requests.limits().sectors * SECTOR { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Drops the clean pages of a range, before and after a direct write changes the device there. Current users keep
    /// the old data; later readers read again.
    pub(super) fn invalidate(&self, cpu: &Cpu, offset: u64, length: u64) {
        self.drop_clean(cpu, touched(offset, length), |_| true);
    }

    /// Drops all clean pages that nobody uses.
    pub(super) fn drop_unused(&self, cpu: &Cpu) {
        self.drop_clean(cpu, 0..u64::MAX, |page| Rc::strong_count(page) == 1);
    }

    fn drop_clean(&self, cpu: &Cpu, range: Range<u64>, which: impl Fn(&Rc<CachePage>) -> bool) {
        let gone = |page: &Rc<CachePage>| !page.dirty.get() && !page.is_writing() && which(page);
        let gone: Vec<(u64, Rc<CachePage>)> = {
            let pages = self.pages.borrow();
            let gone = pages.range(range).filter(|(_, page)| gone(page));
            gone.map(|(index, page)| (*index, Rc::clone(page))).collect()
        };
        gone.iter().for_each(|(index, page)| self.forget_page(*index, page));
        drop(gone);
        self.free_leaving(cpu);
    }

    /// The device is gone: discards all pages, dirty ones too.
    pub(super) async fn drop_pages(&self, cpu: &Cpu) {
        let dirty = self.dirty.take();
        self.requests.count(|c| c.lost_pages += dirty);
        self.pages.borrow().values().for_each(|page| page.dirty.set(false));
        let gone = || {
            self.invalidate(cpu, 0, u64::MAX);
            (self.leaving.borrow().is_empty() && self.cached_pages() == 0).then_some(())
        };
        self.changed.wait_for(gone).await;
    }
}

/// Pages pinned for a caller; dropping this releases them.
pub(super) struct HeldPages {
    cache: Weak<Cache>,
    pages: Vec<Rc<CachePage>>,
}

impl HeldPages {
    pub fn new(cache: &Rc<Cache>, pages: Vec<Rc<CachePage>>) -> Self {
        Self { cache: Rc::downgrade(cache), pages }
    }
}

impl Drop for HeldPages {
    fn drop(&mut self) {
        self.pages.clear();
        if let Some(cache) = self.cache.upgrade() {
            cache.changed.wake_all();
        }
    }
}

/// Copies between a page and the matching part of a program's memory, which starts at byte `offset` of the device.
fn copy_page(cpu: &Cpu, page: &CachePage, index: u64, offset: u64, memory: &[Segment], to_page: bool) {
    let _part = cpu.book(Part::Copy);
    let (start, end) = (index * PAGE, (index + 1) * PAGE);
    let mut at = offset;
    for segment in memory {
        let (from, to) = (at.max(start), (at + u64::from(segment.length)).min(end));
        if from < to {
            let cached = page.frame.start + (from - start);
            let user = segment.at + (from - at);
            let (to_at, from_at) = if to_page { (cached, user) } else { (user, cached) };
            cpu.copy(to_at, from_at, to - from);
        }
        at += u64::from(segment.length);
    }
}

/// Truncates a list of segments to `length` bytes.
fn shorten(mut memory: Vec<Segment>, length: u64) -> Vec<Segment> {
    let mut left = length;
    memory.retain_mut(|segment| {
        segment.length = u64::from(segment.length).min(left) as u32;
        left -= u64::from(segment.length);
        segment.length > 0
    });
    memory
}
