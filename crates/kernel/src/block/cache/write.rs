//! Writes into pages.

use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::memory::{PAGE, Policy};

use super::{Cache, CachePage, Content, copy_page};

impl Cache {
    /// Writes page by page. On an error, earlier pages are written and later ones are unchanged.
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
            // No await from here until the page is marked dirty, so the page stays in the cache.
            copy_page(cpu, &page, index, offset, from, true);
            page.content.set(Content::There);
            if !page.dirty.replace(true) {
                self.dirty.set(self.dirty.get() + 1);
            }
            // Yield, so that other tasks do not see one long burst of memory traffic.
            if index + 1 < end {
                cpu.sync().await;
            }
            if self.dirty.get() > self.params.dirty_limit.get() / PAGE {
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
                let (page, fresh) = self.page(cpu, index, Policy::Task)?;
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
            if self.has(index, &page) {
                return Ok(page);
            }
        }
    }
}
