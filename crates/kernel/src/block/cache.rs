//! The page cache of a block device: pages by their place, found, filled, written back and dropped.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::{Cpu, Part};
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::sync::{Completion, WaitQueue};

use super::BlockDevice;
use crate::kernel::Inner;

/// A page's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    /// Being read.
    Coming,
    /// As on the device, or newer if it is dirty.
    There,
    /// Could not be read.
    Failed(Error),
}

/// A page of the cache.
pub(super) struct CachePage {
    frame: Pages,
    content: Cell<Content>,
    dirty: Cell<bool>,
    /// The device is given it at the moment.
    writing: Cell<bool>,
    /// It was used since it was last passed over.
    used: Cell<bool>,
}

/// The pages of a device.
#[derive(Default)]
pub(super) struct Cache {
    pages: RefCell<BTreeMap<u64, Rc<CachePage>>>,
    /// In which order pages are looked at when room is needed.
    clock: RefCell<VecDeque<u64>>,
    changed: WaitQueue,
    dirty: Cell<u64>,
    /// Where the last read ended, and how far was read ahead then.
    sequential: Cell<(u64, u64)>,
    /// A page could not be written since the last sync.
    failed: Cell<Option<Error>>,
}

impl Cache {
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.get()
    }

    pub fn cached_pages(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    /// Whether any page of a range holds what the device does not.
    pub fn is_dirty(&self, offset: u64, length: u64) -> bool {
        let range = offset / PAGE..offset.saturating_add(length).div_ceil(PAGE);
        self.dirty.get() > 0
            && self.pages.borrow().range(range).any(|(_, page)| page.dirty.get() || page.writing.get())
    }
}

impl BlockDevice {
    /// The page there, made if there is none; whether it was made, and is to be filled by who made it.
    fn page(
        &self,
        kernel: &Rc<Inner>,
        cpu: &Cpu,
        index: u64,
        policy: Policy,
    ) -> Result<(Rc<CachePage>, bool), Error> {
        cpu.work(kernel.cores.costs.cache_page);
        let known = self.cache.pages.borrow().get(&index).cloned();
        if let Some(page) = known {
            page.used.set(true);
            return Ok((page, false));
        }
        self.make_room(kernel, cpu, self.params.cache_limit.get() / PAGE);
        let frame = match kernel.take_pages(cpu, 0, policy) {
            Err(Error::NoMemory) => {
                // Half of the cache may be what the memory is missing.
                self.make_room(kernel, cpu, self.cache.cached_pages() / 2);
                kernel.take_pages(cpu, 0, policy)?
            }
            taken => taken?,
        };
        let page = Rc::new(CachePage {
            frame,
            content: Cell::new(Content::Coming),
            dirty: Cell::new(false),
            writing: Cell::new(false),
            used: Cell::new(true),
        });
        self.cache.pages.borrow_mut().insert(index, Rc::clone(&page));
        self.cache.clock.borrow_mut().push_back(index);
        Ok((page, true))
    }

    /// Drops clean pages that nobody holds until no more than `limit` are left, those not used lately first.
    fn make_room(&self, kernel: &Rc<Inner>, cpu: &Cpu, limit: u64) {
        let mut looks = 2 * self.cache.cached_pages();
        while self.cache.cached_pages() > limit && looks > 0 {
            looks -= 1;
            let Some(index) = self.cache.clock.borrow_mut().pop_front() else { return };
            let page = self.cache.pages.borrow().get(&index).cloned();
            let Some(page) = page else { continue };
            // One is held by the cache, one here.
            let held = Rc::strong_count(&page) > 2 || page.content.get() == Content::Coming;
            if held || page.dirty.get() || page.writing.get() || page.used.replace(false) {
                self.cache.clock.borrow_mut().push_back(index);
                continue;
            }
            self.cache.pages.borrow_mut().remove(&index);
            kernel.give_pages(cpu, page.frame);
        }
    }

    /// Pages from `first` to before `end`, there and filled; reads what is missing, and more behind it if `ahead`.
    async fn fill(
        &self,
        cpu: &Cpu,
        first: u64,
        end: u64,
        policy: Policy,
        ahead: bool,
    ) -> Result<Vec<Rc<CachePage>>, Error> {
        let (kernel, _) = self.alive()?;
        let last = (self.limits.sectors * SECTOR).div_ceil(PAGE);
        let until = if ahead { self.read_ahead(first, end).min(last) } else { end };
        let mut missing: Vec<(u64, Rc<CachePage>)> = Vec::new();
        let mut wanted = Vec::new();
        for index in first..until {
            match self.page(&kernel, cpu, index, policy) {
                Ok((page, fresh)) => {
                    if index < end {
                        wanted.push(Rc::clone(&page));
                    }
                    if fresh {
                        missing.push((index, page));
                    }
                }
                // What is read ahead is a gift.
                Err(_) if index >= end => break,
                Err(error) => {
                    missing.iter().for_each(|(index, page)| self.forget_page(&kernel, cpu, *index, page));
                    self.cache.changed.wake_all();
                    return Err(error);
                }
            }
        }
        let mut bios = Vec::new();
        for run in missing.chunk_by(|a, b| a.0 + 1 == b.0) {
            let memory: Vec<Segment> =
                run.iter().map(|(_, page)| Segment { at: page.frame.start, length: PAGE as u32 }).collect();
            let (me, pages) = (self.me.clone(), run.to_vec());
            let ended = Box::new(move |cpu: &Cpu, result: Result<(), Error>| {
                let Some(device) = me.upgrade() else { return };
                for (index, page) in &pages {
                    match result {
                        Ok(()) => page.content.set(Content::There),
                        Err(error) => {
                            page.content.set(Content::Failed(error));
                            if let Some(kernel) = device.kernel.upgrade() {
                                device.forget_page(&kernel, cpu, *index, page);
                            }
                        }
                    }
                }
                device.cache.changed.wake_all();
            });
            let (offset, length) = (run[0].0 * PAGE, run.len() as u64 * PAGE);
            // The last page of a device may be there in part only.
            let length = length.min(self.limits.sectors * SECTOR - offset);
            let memory = shorten(memory, length);
            bios.extend(self.prepare(cpu, BlockOp::Read, offset, length, &memory, ended));
        }
        if !bios.is_empty() {
            self.dispatch(cpu, bios);
        }
        for page in &wanted {
            let ready = || match page.content.get() {
                Content::Coming => None,
                Content::There => Some(Ok(())),
                Content::Failed(error) => Some(Err(error)),
            };
            self.cache.changed.wait_for(ready).await?;
        }
        Ok(wanted)
    }

    /// Up to which page to read if `first` to `end` are wanted: more each time a read goes on where the last ended.
    fn read_ahead(&self, first: u64, end: u64) -> u64 {
        let (expected, before) = self.cache.sequential.get();
        let most = self.params.read_ahead.get().min(self.params.cache_limit.get() / 4) / PAGE;
        let ahead = if first == expected { (2 * before).clamp(4, most.max(4)).min(most) } else { 0 };
        self.cache.sequential.set((end, ahead));
        // Half of what was read ahead is still to come: more is asked for in one piece when it is used up.
        let there = self.cache.pages.borrow().contains_key(&end);
        if there { end } else { end + ahead }
    }

    fn forget_page(&self, kernel: &Rc<Inner>, cpu: &Cpu, index: u64, page: &Rc<CachePage>) {
        if page.content.get() == Content::Coming {
            page.content.set(Content::Failed(Error::NoMemory));
        }
        self.cache.pages.borrow_mut().remove(&index);
        kernel.give_pages(cpu, page.frame);
    }

    fn in_range(&self, offset: u64, length: u64) -> Result<(), Error> {
        let end = offset.checked_add(length).ok_or(Error::Invalid)?;
        if end > self.limits.sectors * SECTOR { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Copies between a program's memory and pages from byte `offset` on.
    fn copy(&self, cpu: &Cpu, pages: &[Rc<CachePage>], offset: u64, memory: &[Segment], to_pages: bool) {
        let _part = cpu.book(Part::Copy);
        let first = offset / PAGE;
        let mut at = offset;
        for segment in memory {
            let mut done = 0;
            while done < u64::from(segment.length) {
                let here = (PAGE - at % PAGE).min(u64::from(segment.length) - done);
                let cached = pages[(at / PAGE - first) as usize].frame.start + at % PAGE;
                let user = segment.at + done;
                let (to, from) = if to_pages { (cached, user) } else { (user, cached) };
                cpu.copy(to, from, here);
                (at, done) = (at + here, done + here);
            }
        }
    }

    pub(super) async fn read_cached(&self, cpu: &Cpu, offset: u64, into: &[Segment]) -> Result<(), Error> {
        let length: u64 = into.iter().map(|segment| u64::from(segment.length)).sum();
        self.in_range(offset, length)?;
        let (first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        let pages = self.fill(cpu, first, end, Policy::Local, true).await?;
        self.copy(cpu, &pages, offset, into, false);
        Ok(())
    }

    pub(super) async fn write_cached(&self, cpu: &Cpu, offset: u64, from: &[Segment]) -> Result<(), Error> {
        let length: u64 = from.iter().map(|segment| u64::from(segment.length)).sum();
        self.in_range(offset, length)?;
        let (kernel, _) = self.alive()?;
        let (first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        let whole = |index: u64| offset <= index * PAGE && (index + 1) * PAGE <= offset + length;
        let mut pages = Vec::new();
        for index in first..end {
            if whole(index) {
                let (page, fresh) = self.page(&kernel, cpu, index, Policy::Local)?;
                if fresh {
                    // Nobody can read it before it has been written: there is no wait between.
                    page.content.set(Content::There);
                } else {
                    self.cache
                        .changed
                        .wait_for(|| (page.content.get() != Content::Coming).then_some(()))
                        .await;
                }
                pages.push(page);
            } else {
                pages.extend(self.fill(cpu, index, index + 1, Policy::Local, false).await?);
            }
        }
        self.copy(cpu, &pages, offset, from, true);
        for page in &pages {
            if !page.dirty.replace(true) {
                self.cache.dirty.set(self.cache.dirty.get() + 1);
            }
        }
        if self.cache.dirty.get() > self.params.dirty_limit.get() / PAGE {
            self.write_back(cpu).await;
        }
        Ok(())
    }

    /// Writes all dirty pages. A page that cannot be written is lost, and the next sync says so.
    pub(super) async fn write_back(&self, cpu: &Cpu) {
        let dirty: Vec<(u64, Rc<CachePage>)> = {
            let pages = self.cache.pages.borrow();
            let dirty = pages.iter().filter(|(_, page)| page.dirty.get());
            dirty.map(|(index, page)| (*index, Rc::clone(page))).collect()
        };
        let mut waiting = Vec::new();
        let mut bios = Vec::new();
        for run in dirty.chunk_by(|a, b| a.0 + 1 == b.0) {
            for (_, page) in run {
                // What is being written must have been before it is again.
                self.cache.changed.wait_for(|| (!page.writing.get()).then_some(())).await;
                if page.dirty.replace(false) {
                    self.cache.dirty.set(self.cache.dirty.get() - 1);
                }
                page.writing.set(true);
            }
            let memory: Vec<Segment> =
                run.iter().map(|(_, page)| Segment { at: page.frame.start, length: PAGE as u32 }).collect();
            let done = Completion::new();
            waiting.push(done.clone());
            let (me, pages) = (self.me.clone(), run.to_vec());
            let ended = Box::new(move |_: &Cpu, result: Result<(), Error>| {
                pages.iter().for_each(|(_, page)| page.writing.set(false));
                if let Some(device) = me.upgrade() {
                    if let Err(error) = result {
                        device.cache.failed.set(Some(error));
                        device.count(|c| c.lost_pages += pages.len() as u64);
                    }
                    device.cache.changed.wake_all();
                }
                done.complete(());
            });
            let offset = run[0].0 * PAGE;
            let length = (run.len() as u64 * PAGE).min(self.limits.sectors * SECTOR - offset);
            let memory = shorten(memory, length);
            let op = BlockOp::Write { fua: false };
            bios.extend(self.prepare(cpu, op, offset, length, &memory, ended));
        }
        if !bios.is_empty() {
            self.dispatch(cpu, bios);
        }
        for done in waiting {
            done.wait().await;
        }
    }

    pub(super) async fn sync_all(&self, cpu: &Cpu) -> Result<(), Error> {
        self.write_back(cpu).await;
        let done = Completion::new();
        let told = done.clone();
        let ended = Box::new(move |_: &Cpu, result| told.complete(result));
        let bios = self.prepare(cpu, BlockOp::Flush, 0, 0, &[], ended);
        if !bios.is_empty() {
            self.dispatch(cpu, bios);
        }
        let flushed = done.wait().await;
        self.cache.failed.take().map_or(flushed, Err)
    }

    /// The memory of a range, held in the cache.
    pub(super) async fn cached_range(
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

    /// Drops clean pages of a range, before something else changes the device there; all that can be for no range.
    pub(super) fn invalidate(&self, cpu: &Cpu, range: Option<(u64, u64)>) {
        let Some(kernel) = self.kernel.upgrade() else { return };
        let (first, end) = match range {
            Some((offset, length)) => (offset / PAGE, offset.saturating_add(length).div_ceil(PAGE)),
            None => (0, u64::MAX),
        };
        let free = |page: &Rc<CachePage>| {
            Rc::strong_count(page) == 1
                && page.content.get() != Content::Coming
                && !page.dirty.get()
                && !page.writing.get()
        };
        let mut pages = self.cache.pages.borrow_mut();
        let gone: Vec<u64> =
            pages.range(first..end).filter(|(_, page)| free(page)).map(|(index, _)| *index).collect();
        for index in gone {
            if let Some(page) = pages.remove(&index) {
                kernel.give_pages(cpu, page.frame);
            }
        }
    }

    /// The device is gone, and with it what only the cache held.
    pub(super) fn drop_pages(&self, cpu: &Cpu) {
        let dirty = self.cache.dirty.take();
        self.count(|c| c.lost_pages += dirty);
        self.cache.pages.borrow().values().for_each(|page| page.dirty.set(false));
        self.invalidate(cpu, None);
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
