//! Writes dirty pages back to the device and makes them durable.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::Cpu;
use platform::memory::PAGE;
use platform::sync::Completion;

use super::errors::Heard;
use super::{Cache, CachePage, shorten};

/// Most pages submitted together before waiting (Linux: `BIO_MAX_VECS`).
const TOGETHER: usize = 256;

/// A write of adjacent pages to the device.
#[derive(Default)]
pub(super) struct PageWrite {
    result: Cell<Option<Result<(), Error>>>,
}

impl PageWrite {
    /// Result of the write; `None` until it has ended.
    pub fn result(&self) -> Option<Result<(), Error>> {
        self.result.get()
    }
}

/// Adjacent pages that are about to be written.
struct Run {
    first: u64,
    pages: Vec<Rc<CachePage>>,
    write: Rc<PageWrite>,
}

/// Pages collected for writing but not yet submitted.
#[derive(Default)]
struct Plug {
    runs: Vec<Run>,
    pages: usize,
}

impl Plug {
    /// Adds a page that was dirty. Calls come with ascending indices.
    fn take(&mut self, index: u64, page: &Rc<CachePage>) {
        let goes_on = |run: &&mut Run| run.first + run.pages.len() as u64 == index;
        let run = match self.runs.last_mut().filter(goes_on) {
            Some(run) => run,
            None => {
                self.runs.push(Run { first: index, pages: Vec::new(), write: Rc::default() });
                let last = self.runs.len() - 1;
                &mut self.runs[last]
            }
        };
        run.pages.push(Rc::clone(page));
        self.pages += 1;
        *page.write.borrow_mut() = Some(Rc::clone(&run.write));
    }
}

impl Cache {
    /// Writes the dirty pages of a range, and waits for them and for writes of others that are already in flight. A
    /// page that cannot be written is lost.
    ///
    /// # Errors
    /// If a page could not be written.
    pub(in crate::block) async fn write_back(&self, cpu: &Cpu, range: Range<u64>) -> Result<(), Error> {
        let pages: Vec<(u64, Rc<CachePage>)> = {
            let pages = self.pages.borrow();
            let unwritten = pages.range(range).filter(|(_, page)| page.dirty.get() || page.is_writing());
            unwritten.map(|(index, page)| (*index, Rc::clone(page))).collect()
        };
        let mut writes: Vec<Rc<PageWrite>> = Vec::new();
        let mut plug = Plug::default();
        for (index, page) in &pages {
            while page.dirty.get() && page.is_writing() {
                // A page must not be written twice at once. Submit first, so that nobody waits for our pages
                // meanwhile.
                self.unplug(cpu, &mut plug).await;
                self.changed.wait_for(|| (!page.is_writing()).then_some(())).await;
            }
            if page.dirty.replace(false) {
                self.dirty.set(self.dirty.get() - 1);
                self.writing.set(self.writing.get() + 1);
                plug.take(*index, page);
            }
            // If the page is clean by now, another task is writing it.
            let write = page.write.borrow().clone();
            writes.extend(write.filter(|write| !writes.last().is_some_and(|last| Rc::ptr_eq(last, write))));
            if plug.pages == TOGETHER {
                self.unplug(cpu, &mut plug).await;
            }
        }
        self.unplug(cpu, &mut plug).await;
        let mut result = Ok(());
        for write in writes {
            result = result.and(self.changed.wait_for(|| write.result()).await);
        }
        result
    }

    /// Submits the collected pages.
    async fn unplug(&self, cpu: &Cpu, plug: &mut Plug) {
        let mut bios = Vec::new();
        for Run { first, pages, write } in std::mem::take(plug).runs {
            let segment = |page: &Rc<CachePage>| Segment { at: page.frame.start, length: PAGE as u32 };
            let (offset, length) = (first * PAGE, pages.len() as u64 * PAGE);
            let length = length.min(self.requests.limits().sectors * SECTOR - offset);
            let memory = shorten(pages.iter().map(segment).collect(), length);
            let me = self.me.clone();
            let ended = Box::new(move |_: &Cpu, result: Result<(), Error>| {
                write.result.set(Some(result));
                let Some(cache) = me.upgrade() else { return };
                let count = pages.len() as u64;
                cache.writing.set(cache.writing.get() - count);
                if let Err(error) = result {
                    cache.errors.add(error);
                    cache.requests.count(|c| c.lost_pages += count);
                }
                cache.changed.wake_all();
            });
            bios.extend(self.requests.prepare(
                cpu,
                BlockOp::Write { fua: false },
                offset,
                length,
                &memory,
                ended,
            ));
        }
        if !bios.is_empty() {
            self.requests.dispatch(cpu, bios);
            cpu.sync().await;
        }
    }

    /// Makes everything written so far durable, and reports write errors to an opener.
    pub(in crate::block) async fn sync_all(&self, cpu: &Cpu, heard: &Heard) -> Result<(), Error> {
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
        self.errors.check(heard).and(flushed)
    }
}
