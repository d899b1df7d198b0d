//! Wake-ups between tasks, first come, first served.

use crate::task::Wakeup;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;

/// Wakes one waiting task, or all of them.
///
/// If nobody waits, one notification is kept for the next task that does; further ones are merged with it. An interrupt
/// line to a handler task behaves like this. The world may notify, too. Waiting does not allocate once the queue has
/// reached its size.
#[derive(Default)]
pub struct Notify {
    kept: Cell<bool>,
    /// Waiting tasks in order of arrival, each with a ticket; tickets ascend along the queue.
    waiting: RefCell<VecDeque<(u64, Wakeup)>>,
    next_ticket: Cell<u64>,
}

impl Notify {
    /// Creates a notifier without a pending notification.
    pub const fn new() -> Self {
        Self { kept: Cell::new(false), waiting: RefCell::new(VecDeque::new()), next_ticket: Cell::new(0) }
    }

    /// Wakes the first waiting task, or else the next one to wait.
    pub fn notify_one(&self) {
        match self.waiting.borrow_mut().pop_front() {
            Some((_, wakeup)) => wakeup.wake(),
            None => self.kept.set(true),
        }
    }

    /// Wakes all tasks waiting now.
    pub fn notify_all(&self) {
        for (_, wakeup) in self.waiting.borrow_mut().drain(..) {
            wakeup.wake();
        }
    }

    /// Waits for a notification.
    pub fn notified(&self) -> impl Future<Output = ()> {
        Notified { notify: self, progress: Progress::New }
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        self.waiting.borrow().binary_search_by_key(&ticket, |entry| entry.0).ok()
    }
}

enum Progress {
    New,
    Waits(u64),
    Told,
}

struct Notified<'a> {
    notify: &'a Notify,
    progress: Progress,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        match self.progress {
            Progress::New if notify.kept.take() => {}
            Progress::New => {
                let ticket = notify.next_ticket.get();
                notify.next_ticket.set(ticket + 1);
                notify.waiting.borrow_mut().push_back((ticket, Wakeup::of(context)));
                self.progress = Progress::Waits(ticket);
                return Poll::Pending;
            }
            Progress::Waits(ticket) => {
                if let Some(place) = notify.position(ticket) {
                    // Wake the task that polled last.
                    let wakeup = &mut notify.waiting.borrow_mut()[place].1;
                    if !wakeup.is_for(context) {
                        *wakeup = Wakeup::of(context);
                    }
                    return Poll::Pending;
                }
            }
            Progress::Told => {}
        }
        self.progress = Progress::Told;
        Poll::Ready(())
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Progress::Waits(ticket) = self.progress else { return };
        match self.notify.position(ticket) {
            Some(place) => drop(self.notify.waiting.borrow_mut().remove(place)),
            // Notified but dropped: pass the notification on.
            None => self.notify.notify_one(),
        }
    }
}
