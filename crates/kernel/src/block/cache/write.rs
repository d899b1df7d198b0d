//! Writing into pages.

use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::memory::{PAGE, Policy};

use super::{Cache, CachePage, Content, copy_page};

impl Cache {
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
                self.dirty.set(self.dirty.get() + 1);
            }
            // Nobody else shall find the memory busy with what is copied later.
            if index + 1 < end {
                cpu.sync().await;
            }
            if self.dirty.get() > self.params.dirty_limit.get() / PAGE {
                // Who writes does not hear of what others wrote; who syncs does.
                let _ = self.write_back(cpu, 0..u64::MAX).await;
            }
        }
        Ok(())
    }

    /// The page at `index` for somebody who overwrites it at once, all of it or not.
    async fn page_to_write(&self, cpu: &Cpu, index: u64, whole: bool) -> Result<Rc<CachePage>, Error> {
        loop {
            self.requests.driver()?;
            let page = if whole {
                let (page, fresh) = self.page(cpu, index, Policy::Task)?;
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
            if self.has(index, &page) {
                return Ok(page);
            }
        }
    }
}
