//! Fills pages from the device and reads from them.

use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::Cpu;
use platform::memory::{PAGE, PhysAddr, Policy};

use super::{Cache, CachePage, Content, copy_page, shorten};

impl Cache {
    /// Returns the pages `first..end`, filled. Reads missing ones, and further pages if `ahead`.
    pub(super) async fn fill(
        &self,
        cpu: &Cpu,
        first: u64,
        end: u64,
        policy: Policy,
        ahead: bool,
    ) -> Result<Vec<Rc<CachePage>>, Error> {
        self.requests.driver()?;
        let last = (self.requests.limits().sectors * SECTOR).div_ceil(PAGE);
        let until = if ahead { self.read_ahead(first, end).min(last) } else { end };
        let mut missing: Vec<(u64, Rc<CachePage>)> = Vec::new();
        let mut wanted = Vec::new();
        for index in first..until {
            match self.page(cpu, index, policy) {
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
                        self.forget_page(*index, page);
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
                            cache.forget_page(*index, page);
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
    pub(super) async fn settled(&self, page: &CachePage) -> Result<(), Error> {
        let ready = || match page.content.get() {
            Content::Coming => None,
            Content::There => Some(Ok(())),
            Content::Failed(error) => Some(Err(error)),
        };
        self.changed.wait_for(ready).await
    }

    /// Where to read to when `first..end` are wanted. The read-ahead grows with each sequential read.
    fn read_ahead(&self, first: u64, end: u64) -> u64 {
        let (expected, before) = self.sequential.get();
        let most = self.params.read_ahead.get().min(self.params.cache_limit.get() / 4) / PAGE;
        let ahead = if first == expected { (2 * before).clamp(4, most.max(4)).min(most) } else { 0 };
        self.sequential.set((end, ahead));
        // Half of the last read-ahead is unused: read more once it is used up.
        let there = self.pages.borrow().contains_key(&end);
        if there { end } else { end + ahead }
    }

    pub(in crate::block) async fn read_cached(
        &self,
        cpu: &Cpu,
        offset: u64,
        into: &[Segment],
    ) -> Result<(), Error> {
        let length: u64 = into.iter().map(|segment| u64::from(segment.length)).sum();
        self.in_range(offset, length)?;
        let (mut first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        // Handle at most one read-ahead at a time, so that others cannot evict pages between fill and copy.
        let most = (self.params.read_ahead.get() / PAGE).max(1);
        while first < end {
            let until = end.min(first + most);
            let pages = self.fill(cpu, first, until, Policy::Task, true).await?;
            for (page, index) in pages.iter().zip(first..) {
                copy_page(cpu, page, index, offset, into, false);
                if index + 1 < end {
                    cpu.sync().await;
                }
            }
            first = until;
        }
        Ok(())
    }

    /// Pins the pages of a range in the cache, and returns their memory.
    pub(in crate::block) async fn cached_range(
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
}
