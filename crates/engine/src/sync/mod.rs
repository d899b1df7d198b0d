//! What tasks use among themselves: [`Signal`], [`Notify`], [`Semaphore`], [`Mutex`], [`channel`].
//!
//! All are first come, first served: who began to wait first goes on first. The ends that do not wait
//! (raise, notify, release, `try_send`) may also be used by the world. Nothing is allocated per wait once
//! a queue has its size.

mod channel;
mod mutex;
mod semaphore;
mod signal;

pub use channel::{Receiver, SendError, Sender, channel, unbounded};
pub use mutex::{Mutex, MutexGuard};
pub use semaphore::{Acquire, Permit, Semaphore};
pub use signal::{Notify, Signal};

use crate::task::Wakeup;
use core::task::Context;
use std::collections::VecDeque;

/// Those who wait, in order of arrival, each with what it waits for.
struct WaitQueue<T> {
    /// Tickets rise along the queue.
    waiting: VecDeque<(u64, T, Wakeup)>,
    next_ticket: u64,
}

impl<T> WaitQueue<T> {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), next_ticket: 0 }
    }

    fn push(&mut self, what: T, wakeup: Wakeup) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back((ticket, what, wakeup));
        ticket
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |entry| entry.0).ok()
    }

    /// Whether `ticket` still waits; if so, whoever polls now is who will be woken.
    fn still_waits(&mut self, ticket: u64, context: &Context<'_>) -> bool {
        let Some(position) = self.position(ticket) else { return false };
        let wakeup = &mut self.waiting[position].2;
        if !wakeup.is_for(context) {
            *wakeup = Wakeup::of(context);
        }
        true
    }

    fn remove(&mut self, ticket: u64) -> bool {
        self.position(ticket).and_then(|position| self.waiting.remove(position)).is_some()
    }

    fn wake_all(&mut self) {
        for (_, _, wakeup) in self.waiting.drain(..) {
            wakeup.wake();
        }
    }
}
