//! Permits, given out first come, first served.

use super::WaitQueue;
use crate::task::Wakeup;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

/// A number of permits.
///
/// A request for many is not overtaken by later requests for few.
pub struct Semaphore {
    available: Cell<usize>,
    queue: RefCell<WaitQueue<usize>>,
}

impl Semaphore {
    /// `permits` permits, all available.
    pub const fn new(permits: usize) -> Self {
        Self { available: Cell::new(permits), queue: RefCell::new(WaitQueue::new()) }
    }

    /// How many permits nobody holds or has been granted.
    pub fn available(&self) -> usize {
        self.available.get()
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.queue.borrow().waiting.len()
    }

    /// Adds `permits`: returned ones, or new ones.
    pub fn release(&self, permits: usize) {
        self.available.set(self.available.get() + permits);
        self.grant();
    }

    /// Waits for `permits`, which return when the guard is dropped.
    pub fn acquire(&self, permits: usize) -> Acquire<'_> {
        Acquire { semaphore: self, permits, progress: Progress::New }
    }

    /// `permits` at once, if there are that many and nobody waits.
    pub fn try_acquire(&self, permits: usize) -> Option<Permit<'_>> {
        // Lazily: a permit that is made and dropped would be returned.
        self.take(permits).then(|| Permit { semaphore: self, permits })
    }

    fn take(&self, permits: usize) -> bool {
        let free = self.available.get();
        let granted = free >= permits && self.queue.borrow().waiting.is_empty();
        if granted {
            self.available.set(free - permits);
        }
        granted
    }

    /// Gives the first in the queue what they wait for, as far as the permits go.
    fn grant(&self) {
        let mut queue = self.queue.borrow_mut();
        while let Some(&(_, permits, _)) = queue.waiting.front()
            && permits <= self.available.get()
        {
            self.available.set(self.available.get() - permits);
            if let Some((_, _, wakeup)) = queue.waiting.pop_front() {
                wakeup.wake();
            }
        }
    }
}

enum Progress {
    New,
    Queued(u64),
    Done,
}

/// A wait for permits of a [`Semaphore`].
#[must_use = "permits are acquired when this is awaited"]
pub struct Acquire<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
    progress: Progress,
}

impl<'a> Future for Acquire<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<'a>> {
        let Self { semaphore, permits, .. } = *self;
        match self.progress {
            Progress::New if semaphore.take(permits) => {}
            Progress::New => {
                let ticket = semaphore.queue.borrow_mut().push(permits, Wakeup::of(context));
                self.progress = Progress::Queued(ticket);
                return Poll::Pending;
            }
            Progress::Queued(ticket) if semaphore.queue.borrow_mut().still_waits(ticket, context) => {
                return Poll::Pending;
            }
            Progress::Queued(_) => {}
            Progress::Done => panic!("polled after it was ready"),
        }
        self.progress = Progress::Done;
        Poll::Ready(Permit { semaphore, permits })
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Progress::Queued(ticket) = self.progress {
            if self.semaphore.queue.borrow_mut().remove(ticket) {
                // Those behind it may be content with less.
                self.semaphore.grant();
            } else {
                self.semaphore.release(self.permits);
            }
        }
    }
}

/// Permits held; dropping it returns them.
#[must_use = "the permits return when this is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl Permit<'_> {
    /// Keeps the permits for good; somebody else will [release](Semaphore::release) them.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.permits);
    }
}
