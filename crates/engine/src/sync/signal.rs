//! Levels and single wake-ups.

use super::{Semaphore, WaitQueue};
use crate::task::Wakeup;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

/// A level that is up or down; tasks wait for it to be up.
pub struct Signal {
    up: Cell<bool>,
    queue: RefCell<WaitQueue<()>>,
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal {
    /// A signal that is down.
    pub const fn new() -> Self {
        Self { up: Cell::new(false), queue: RefCell::new(WaitQueue::new()) }
    }

    /// Whether it is up.
    pub fn is_raised(&self) -> bool {
        self.up.get()
    }

    /// Lets all go on who wait, and who come until it is lowered.
    pub fn raise(&self) {
        self.up.set(true);
        self.queue.borrow_mut().wake_all();
    }

    /// Makes those who come from now on wait.
    pub fn lower(&self) {
        self.up.set(false);
    }

    /// Waits until it is up. Who began to wait before it was raised goes on even if it has been
    /// lowered again since.
    pub fn wait(&self) -> impl Future<Output = ()> {
        SignalWait { signal: self, ticket: None }
    }
}

struct SignalWait<'a> {
    signal: &'a Signal,
    ticket: Option<u64>,
}

impl Future for SignalWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.signal.queue.borrow_mut();
        match self.ticket {
            Some(ticket) if queue.still_waits(ticket, context) => Poll::Pending,
            Some(_) => Poll::Ready(()),
            None if self.signal.up.get() => Poll::Ready(()),
            None => {
                let ticket = queue.push((), Wakeup::of(context));
                drop(queue);
                self.ticket = Some(ticket);
                Poll::Pending
            }
        }
    }
}

impl Drop for SignalWait<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.signal.queue.borrow_mut().remove(ticket);
        }
    }
}

/// Wakes one task, or all, that wait for something to have happened.
///
/// A notification of one that finds nobody waiting is kept for the next who comes; two that find
/// nobody are kept as one. An interrupt line to a handler task behaves like this.
pub struct Notify {
    semaphore: Semaphore,
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl Notify {
    /// A notifier with nothing to tell.
    pub const fn new() -> Self {
        Self { semaphore: Semaphore::new(0) }
    }

    /// Wakes the first who waits, or else the next who comes.
    pub fn notify_one(&self) {
        if self.semaphore.available() == 0 {
            self.semaphore.release(1);
        }
    }

    /// Wakes all who wait now.
    pub fn notify_all(&self) {
        let waiting = self.semaphore.waiting();
        if waiting > 0 {
            self.semaphore.release(waiting);
        }
    }

    /// Waits for a notification.
    pub async fn notified(&self) {
        self.semaphore.acquire(1).await.forget();
    }
}
