//! The page cache of a block device: pages by their place, found, made and let go.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the pages |
//! | `read` | filling them |
//! | `write` | writing into them |
//! | `back` | writing them to the device, and syncing it |
//! | `errors` | who hears of what could not be written |

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

/// A page's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    /// Being read, or about to be written by who made the page.
    Coming,
    /// As on the device, or newer if it is dirty.
    There,
    /// Could not be read; the page is not in the cache any more.
    Failed(Error),
}

pub(super) struct CachePage {
    frame: Pages,
    content: Cell<Content>,
    dirty: Cell<bool>,
    /// The last write of it to the device, which may be under way.
    write: RefCell<Option<Rc<PageWrite>>>,
    /// It was used since it was last passed over.
    used: Cell<bool>,
}

/// The pages that a range of bytes touches.
pub(super) const fn touched(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE..offset.saturating_add(length).div_ceil(PAGE)
}

impl CachePage {
    /// Whether the device is given it at the moment.
    fn is_writing(&self) -> bool {
        self.write.borrow().as_ref().is_some_and(|write| write.result().is_none())
    }
}

/// The pages of a device.
pub(super) struct Cache {
    me: Weak<Self>,
    base: Base,
    requests: Rc<Requests>,
    params: BlockParams,
    pages: RefCell<BTreeMap<u64, Rc<CachePage>>>,
    /// Pages that are not in the cache any more, but still held by somebody.
    leaving: RefCell<Vec<Rc<CachePage>>>,
    /// The clock's hand: from which page on to look when room is needed.
    hand: Cell<u64>,
    changed: WaitQueue,
    dirty: Cell<u64>,
    /// Pages that the device is given at the moment.
    writing: Cell<u64>,
    /// Where the last read ended, and how far was read ahead then.
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

    /// For somebody who opens the device: the errors of writing that he is to hear of.
    pub fn opened(&self) -> Heard {
        self.errors.open()
    }

    pub fn cached_pages(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    /// Whether any page holds what the device does not.
    pub fn has_unwritten(&self) -> bool {
        self.dirty.get() + self.writing.get() > 0
    }

    /// Whether any page of a range holds what the device does not.
    pub fn is_dirty(&self, offset: u64, length: u64) -> bool {
        self.has_unwritten()
            && self
                .pages
                .borrow()
                .range(touched(offset, length))
                .any(|(_, page)| page.dirty.get() || page.is_writing())
    }

    /// Whether `page` is what the cache has at `index`.
    fn has(&self, index: u64, page: &Rc<CachePage>) -> bool {
        self.pages.borrow().get(&index).is_some_and(|there| Rc::ptr_eq(there, page))
    }

    /// The page that the hand points at, which goes on to the next.
    fn under_hand(&self) -> Option<(u64, Rc<CachePage>)> {
        let pages = self.pages.borrow();
        let (&index, page) = pages.range(self.hand.get()..).next().or_else(|| pages.first_key_value())?;
        self.hand.set(index + 1);
        Some((index, Rc::clone(page)))
    }
}

impl Cache {
    /// The page there, made if there is none; whether it was made, and is to be filled by who made it.
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
                // Half of the cache may be what the memory is missing.
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

    /// Drops clean pages that nobody holds until no more than `limit` are left, those not used lately first.
    fn make_room(&self, cpu: &Cpu, limit: u64) {
        self.free_leaving(cpu);
        let mut looks = 2 * self.cached_pages();
        while self.cached_pages() > limit && looks > 0 {
            looks -= 1;
            let Some((index, page)) = self.under_hand() else { return };
            // One is held by the cache, one here.
            let held = Rc::strong_count(&page) > 2 || page.content.get() == Content::Coming;
            if held || page.dirty.get() || page.is_writing() || page.used.replace(false) {
                continue;
            }
            self.pages.borrow_mut().remove(&index);
            self.base.memory.give(cpu, page.frame);
        }
    }

    /// Takes a page out of the cache. Its memory is free when nobody holds it any more.
    fn forget_page(&self, index: u64, page: &Rc<CachePage>) {
        if self.has(index, page)
            && let Some(page) = self.pages.borrow_mut().remove(&index)
        {
            self.leaving.borrow_mut().push(page);
        }
    }

    /// Gives the memory of pages back that left the cache and that nobody holds any more.
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

    /// Drops the clean pages of a range, before and after something else changes the device there. Who holds one keeps
    /// what was there, who looks next reads anew.
    pub(super) fn invalidate(&self, cpu: &Cpu, offset: u64, length: u64) {
        self.drop_clean(cpu, touched(offset, length), |_| true);
    }

    /// Drops all clean pages that nobody holds.
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

    /// The device is gone, and with it what only the cache held.
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

/// Pages held for somebody outside, who lets them go when this is dropped.
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

/// Copies between a page, from byte `at` of the device on, and as much of a program's memory, which begins at byte
/// `offset`.
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

/// The first `length` bytes of memory.
fn shorten(mut memory: Vec<Segment>, length: u64) -> Vec<Segment> {
    let mut left = length;
    memory.retain_mut(|segment| {
        segment.length = u64::from(segment.length).min(left) as u32;
        left -= u64::from(segment.length);
        segment.length > 0
    });
    memory
}
