//! Writing into pages, and pages to the device.

use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::Cpu;
use platform::memory::{PAGE, Policy};
use platform::sync::Completion;

use super::{CachePage, Content, copy_page, shorten};
use crate::block::BlockDevice;

impl BlockDevice {
    /// Writes page by page: where one cannot be had, those before it are written and the others as they were.
    pub(in crate::block) async fn write_cached(
        &self,
        cpu: &Cpu,
        offset: u64,
        from: &[Segment],
    ) -> Result<(), Error> {
        let length: u64 = from.iter().map(|segment| u64::from(segment.length)).sum();
        self.in_range(offset, length)?;
        let (first, end) = (offset / PAGE, (offset + length).div_ceil(PAGE));
        for index in first..end {
            let whole = offset <= index * PAGE && (index + 1) * PAGE <= offset + length;
            let page = self.page_to_write(cpu, index, whole).await?;
            // From here to the end of the page nothing waits: it is what the cache has, and it stays so.
            copy_page(cpu, &page, index, offset, from, true);
            page.content.set(Content::There);
            if !page.dirty.replace(true) {
                self.cache.dirty.set(self.cache.dirty.get() + 1);
            }
        }
        if self.cache.dirty.get() > self.params.dirty_limit.get() / PAGE {
            self.write_back(cpu).await;
        }
        Ok(())
    }

    /// The page at `index` for somebody who overwrites it at once, all of it or not.
    async fn page_to_write(&self, cpu: &Cpu, index: u64, whole: bool) -> Result<Rc<CachePage>, Error> {
        loop {
            let (kernel, _) = self.alive()?;
            let page = if whole {
                let (page, fresh) = self.page(&kernel, cpu, index, Policy::Task)?;
                // Whose read failed is gone, and what is written here needs a page that is not.
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
            // It may have been dropped while it was waited for.
            if self.cache.has(index, &page) {
                return Ok(page);
            }
        }
    }

    /// Writes all dirty pages. A page that cannot be written is lost, and the next sync says so.
    pub(in crate::block) async fn write_back(&self, cpu: &Cpu) {
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
            let memory: Vec<Segment> = run
                .iter()
                .map(|(_, page)| Segment { at: page.frame.get().start, length: PAGE as u32 })
                .collect();
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

    pub(in crate::block) async fn sync_all(&self, cpu: &Cpu) -> Result<(), Error> {
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
}
