//! Writes dirty pages back to the device.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::Cpu;
use platform::memory::PAGE;
use platform::sync::WaitQueue;

use super::errors::{Heard, WriteErrors};
use super::pages::CachePage;
use super::shorten;
use crate::block::requests::Requests;

/// Most pages submitted together before waiting (Linux: `BIO_MAX_VECS`).
const TOGETHER: usize = 256;

/// A write of adjacent pages to the device.
#[derive(Default)]
pub(in crate::block) struct PageWrite {
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

/// Write-back of a device's pages.
pub(super) struct WriteBack {
    me: Weak<Self>,
    requests: Rc<Requests>,
    /// Woken when a write has ended.
    changed: Rc<WaitQueue>,
    dirty: Cell<u64>,
    /// Pages being written to the device.
    writing: Cell<u64>,
    errors: WriteErrors,
}

impl WriteBack {
    pub fn new(requests: Rc<Requests>, changed: Rc<WaitQueue>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            requests,
            changed,
            dirty: Cell::new(0),
            writing: Cell::new(0),
            errors: WriteErrors::default(),
        })
    }

    /// Number of dirty pages.
    pub fn dirty(&self) -> u64 {
        self.dirty.get()
    }

    /// Whether any page is newer than the device.
    pub fn has_unwritten(&self) -> bool {
        self.dirty.get() + self.writing.get() > 0
    }

    /// Marks a page as newer than the device.
    pub fn mark(&self, page: &CachePage) {
        if !page.dirty.replace(true) {
            self.dirty.set(self.dirty.get() + 1);
        }
    }

    /// Forgets about the dirty pages, which are lost.
    pub fn lose(&self) {
        let dirty = self.dirty.take();
        self.requests.count(|c| c.lost_pages += dirty);
    }

    /// Error state for a new opener.
    pub fn opened(&self) -> Heard {
        self.errors.open()
    }

    /// Write errors that an opener has not seen.
    pub fn check(&self, heard: &Heard) -> Result<(), Error> {
        self.errors.check(heard)
    }

    /// Writes those of these pages that are dirty, and waits for them and for writes of others that are already in
    /// flight. A page that cannot be written is lost.
    ///
    /// # Errors
    /// If a page could not be written.
    pub async fn write(&self, cpu: &Cpu, pages: &[(u64, Rc<CachePage>)]) -> Result<(), Error> {
        let mut writes: Vec<Rc<PageWrite>> = Vec::new();
        let mut plug = Plug::default();
        for (index, page) in pages {
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
                let Some(back) = me.upgrade() else { return };
                let count = pages.len() as u64;
                back.writing.set(back.writing.get() - count);
                if let Err(error) = result {
                    back.errors.add(error);
                    back.requests.count(|c| c.lost_pages += count);
                }
                back.changed.wake_all();
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
}
