//! The page cache of a block device.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | reads and writes of programs |
//! | `pages` | lookup, eviction |
//! | `write_back` | writing to the device |
//! | `errors` | write errors and who has seen them |

mod errors;
mod pages;
mod write_back;

use std::cell::Cell;
use std::ops::Range;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::Cpu;
use platform::memory::{PAGE, PhysAddr, Policy};
use platform::sync::{Completion, WaitQueue};

pub(super) use self::errors::Heard;
use self::pages::{CachePage, Content, PageTable};
use self::write_back::WriteBack;
use super::BlockParams;
use super::requests::Requests;
use crate::base::Base;

/// Pages that overlap a range of bytes.
pub(super) const fn touched(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE..offset.saturating_add(length).div_ceil(PAGE)
}

/// Cached pages of a device.
pub(super) struct Cache {
    me: Weak<Self>,
    requests: Rc<Requests>,
    params: BlockParams,
    pages: PageTable,
    back: Rc<WriteBack>,
    /// Woken when a page's state has changed, or a page is no longer in use.
    changed: Rc<WaitQueue>,
    /// End of the last read, and how far it read ahead.
    sequential: Cell<(u64, u64)>,
}

impl Cache {
    pub fn new(base: Base, requests: Rc<Requests>, params: BlockParams) -> Rc<Self> {
        let changed = Rc::new(WaitQueue::new());
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            pages: PageTable::new(base, params.cache_limit.get() / PAGE),
            back: WriteBack::new(Rc::clone(&requests), Rc::clone(&changed)),
            requests,
            params,
            changed,
            sequential: Cell::default(),
        })
    }

    pub fn dirty_pages(&self) -> u64 {
        self.back.dirty()
    }

    /// Error state for a new opener.
    pub fn opened(&self) -> Heard {
        self.back.opened()
    }

    pub fn cached_pages(&self) -> u64 {
        self.pages.count()
    }

    /// Whether any page is newer than the device.
    pub fn has_unwritten(&self) -> bool {
        self.back.has_unwritten()
    }

    /// Whether any page of a range is newer than the device.
    pub fn is_dirty(&self, offset: u64, length: u64) -> bool {
        self.has_unwritten() && self.pages.any_unwritten(touched(offset, length))
    }

    /// Reads through the cache.
    pub async fn read_cached(&self, cpu: &Cpu, offset: u64, into: &[Segment]) -> Result<(), Error> {
        let length: u64 = into.iter().map(|segment| u64::from(segment.length)).sum();
        self.in_range(offset, length)?;
        let (mut first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        // Handle at most one read-ahead at a time, so that others cannot evict pages between fill and copy.
        let most = (self.params.read_ahead.get() / PAGE).max(1);
        while first < end {
            let until = end.min(first + most);
            let pages = self.fill(cpu, first, until, Policy::Task, true).await?;
            for (page, index) in pages.iter().zip(first..) {
                page.copy(cpu, index, offset, into, false);
                if index + 1 < end {
                    cpu.sync().await;
                }
            }
            first = until;
        }
        Ok(())
    }

    /// Pins the pages of a range in the cache, and returns their memory.
    pub async fn cached_range(
        &self,
        cpu: &Cpu,
        offset: u64,
        length: u64,
        policy: Policy,
    ) -> Result<(Vec<Segment>, Vec<Rc<CachePage>>), Error> {
        self.in_range(offset, length)?;
        let (first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        let pages = self.fill(cpu, first, end, policy, true).await?;
        let segments = pages.iter().zip(first..).map(|(page, index)| {
            let (start, stop) = (offset.max(index * PAGE), (offset + length).min((index + 1) * PAGE));
            let at: PhysAddr = page.frame.start + start % PAGE;
            Segment { at, length: (stop - start) as u32 }
        });
        Ok((segments.collect(), pages))
    }

    /// Writes page by page. On an error, earlier pages are written and later ones are unchanged.
    pub async fn write_cached(&self, cpu: &Cpu, offset: u64, from: &[Segment]) -> Result<(), Error> {
        let length: u64 = from.iter().map(|segment| u64::from(segment.length)).sum();
        self.in_range(offset, length)?;
        let (first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        for index in first..end {
            let whole = offset <= index * PAGE && (index + 1) * PAGE <= offset + length;
            let page = self.page_to_write(cpu, index, whole).await?;
            // No await from here until the page is marked dirty, so the page stays in the cache.
            page.copy(cpu, index, offset, from, true);
            page.content.set(Content::There);
            self.back.mark(&page);
            // Yield, so that other tasks do not see one long burst of memory traffic.
            if index + 1 < end {
                cpu.sync().await;
            }
            if self.back.dirty() > self.params.dirty_limit.get() / PAGE {
                // A writer does not see errors of write-back; whoever syncs does.
                let _ = self.write_back(cpu, 0..u64::MAX).await;
            }
        }
        Ok(())
    }

    /// The page at `index`, for a caller that overwrites all (`whole`) or part of it at once.
    async fn page_to_write(&self, cpu: &Cpu, index: u64, whole: bool) -> Result<Rc<CachePage>, Error> {
        loop {
            self.requests.driver()?;
            let page = if whole {
                let (page, fresh) = self.pages.page(cpu, index, Policy::Task)?;
                // After a failed read the page is gone; try again with a new one.
                if !fresh && self.settled(&page).await.is_err() {
                    continue;
                }
                page
            } else {
                match self.fill(cpu, index, index + 1, Policy::Task, false).await?.pop() {
                    Some(page) => page,
                    None => continue,
                }
            };
            // The page may have been evicted while this task waited.
            if self.pages.has(index, &page) {
                return Ok(page);
            }
        }
    }

    /// Writes the dirty pages of a range, and waits for them and for writes of others that are already in flight. A
    /// page that cannot be written is lost.
    ///
    /// # Errors
    /// If a page could not be written.
    pub async fn write_back(&self, cpu: &Cpu, range: Range<u64>) -> Result<(), Error> {
        let pages = self.pages.select(range, |page| page.is_unwritten());
        self.back.write(cpu, &pages).await
    }

    /// Makes everything written so far durable, and reports write errors to an opener.
    pub async fn sync_all(&self, cpu: &Cpu, heard: &Heard) -> Result<(), Error> {
        // Write errors are reported below, to each opener once.
        let _ = self.write_back(cpu, 0..u64::MAX).await;
        let done = Completion::new();
        let told = done.clone();
        let ended = Box::new(move |_: &Cpu, result| told.complete(result));
        let bios = self.requests.prepare(cpu, BlockOp::Flush, 0, 0, &[], ended);
        if !bios.is_empty() {
            self.requests.dispatch(cpu, bios);
        }
        let flushed = done.wait().await;
        self.back.check(heard).and(flushed)
    }

    /// Drops the clean pages of a range, before and after a direct write changes the device there. Current users keep
    /// the old data; later readers read again.
    pub fn invalidate(&self, cpu: &Cpu, offset: u64, length: u64) {
        self.pages.drop_clean(cpu, touched(offset, length), |_| true);
    }

    /// Drops all clean pages that nobody uses.
    pub fn drop_unused(&self, cpu: &Cpu) {
        self.pages.drop_clean(cpu, 0..u64::MAX, |page| Rc::strong_count(page) == 1);
    }

    /// The device is gone: discards all pages, dirty ones too.
    pub async fn drop_pages(&self, cpu: &Cpu) {
        self.back.lose();
        self.pages.discard_changes();
        let gone = || {
            self.invalidate(cpu, 0, u64::MAX);
            self.pages.is_empty().then_some(())
        };
        self.changed.wait_for(gone).await;
    }

    /// Returns the pages `first..end`, filled. Reads missing ones, and further pages if `ahead`.
    async fn fill(
        &self,
        cpu: &Cpu,
        first: u64,
        end: u64,
        policy: Policy,
        ahead: bool,
    ) -> Result<Vec<Rc<CachePage>>, Error> {
        self.requests.driver()?;
        let last = (self.requests.limits().sectors * SECTOR).div_ceil(PAGE);
        let until = if ahead { self.read_to(first, end).min(last) } else { end };
        let mut missing: Vec<(u64, Rc<CachePage>)> = Vec::new();
        let mut wanted = Vec::new();
        for index in first..until {
            match self.pages.page(cpu, index, policy) {
                Ok((page, fresh)) => {
                    if index < end {
                        wanted.push(Rc::clone(&page));
                    }
                    if fresh {
                        missing.push((index, page));
                    }
                }
                // Failing to read ahead is no error.
                Err(_) if index >= end => break,
                Err(error) => {
                    missing.iter().for_each(|(index, page)| {
                        page.content.set(Content::Failed(error));
                        self.pages.remove(*index, page);
                    });
                    self.changed.wake_all();
                    return Err(error);
                }
            }
        }
        let mut bios = Vec::new();
        for run in missing.chunk_by(|a, b| a.0 + 1 == b.0) {
            let memory: Vec<Segment> =
                run.iter().map(|(_, page)| Segment { at: page.frame.start, length: PAGE as u32 }).collect();
            let (me, pages) = (self.me.clone(), run.to_vec());
            let ended = Box::new(move |_: &Cpu, result: Result<(), Error>| {
                let Some(cache) = me.upgrade() else { return };
                for (index, page) in &pages {
                    match result {
                        Ok(()) => page.content.set(Content::There),
                        Err(error) => {
                            page.content.set(Content::Failed(error));
                            cache.pages.remove(*index, page);
                        }
                    }
                }
                cache.changed.wake_all();
            });
            let (offset, length) = (run[0].0 * PAGE, run.len() as u64 * PAGE);
            // The device may end within the last page.
            let length = length.min(self.requests.limits().sectors * SECTOR - offset);
            let memory = shorten(memory, length);
            bios.extend(self.requests.prepare(cpu, BlockOp::Read, offset, length, &memory, ended));
        }
        if !bios.is_empty() {
            self.requests.dispatch(cpu, bios);
        }
        for page in &wanted {
            self.settled(page).await?;
        }
        Ok(wanted)
    }

    /// Waits until a page is valid or its read has failed.
    async fn settled(&self, page: &CachePage) -> Result<(), Error> {
        let ready = || match page.content.get() {
            Content::Coming => None,
            Content::There => Some(Ok(())),
            Content::Failed(error) => Some(Err(error)),
        };
        self.changed.wait_for(ready).await
    }

    /// Where to read to when `first..end` are wanted. The read-ahead grows with each sequential read.
    fn read_to(&self, first: u64, end: u64) -> u64 {
        let (expected, before) = self.sequential.get();
        let most = self.params.read_ahead.get().min(self.params.cache_limit.get() / 4) / PAGE;
        let ahead = if first == expected { (2 * before).clamp(4, most.max(4)).min(most) } else { 0 };
        self.sequential.set((end, ahead));
        // Half of the last read-ahead is unused: read more once it is used up.
        let there = self.pages.contains(end);
        if there { end } else { end + ahead }
    }

    fn in_range(&self, offset: u64, length: u64) -> Result<(), Error> {
        let end = offset.checked_add(length).ok_or(Error::Invalid)?;
        if end > self.requests.limits().sectors * SECTOR { Err(Error::NoSpace) } else { Ok(()) }
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
