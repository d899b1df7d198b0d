//! Synchronisation for tasks, built on the standard library's wakers.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::rc::Rc;

use units::Time;

use crate::cpu::Cpu;

/// Tasks that wait for a change, in order of arrival.
#[derive(Default)]
pub struct WaitQueue {
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

/// Removes a waiter from the queue if it gives up.
struct WaiterTicket<'a> {
    queue: &'a WaitQueue,
    ticket: Option<u64>,
}

impl Drop for WaiterTicket<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let place = self.queue.waiting.borrow().iter().position(|(t, _)| *t == ticket);
        match place {
            Some(place) => drop(self.queue.waiting.borrow_mut().remove(place)),
            // It was woken but gives up: pass the wake-up on.
            None => self.queue.wake_one(),
        }
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { waiting: RefCell::new(VecDeque::new()), next: Cell::new(0) }
    }

    /// Wakes the first waiter.
    pub fn wake_one(&self) {
        let first = self.waiting.borrow_mut().pop_front();
        if let Some((_, waker)) = first {
            waker.wake();
        }
    }

    /// Wakes all waiters.
    pub fn wake_all(&self) {
        let all = core::mem::take(&mut *self.waiting.borrow_mut());
        all.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Waits until `ready` returns a value; it is called at once and after each wake-up.
    pub async fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut place = WaiterTicket { queue: self, ticket: None };
        poll_fn(|context| {
            if let Some(value) = ready() {
                let mine = place.ticket.take();
                self.waiting.borrow_mut().retain(|(ticket, _)| Some(*ticket) != mine);
                return Poll::Ready(value);
            }
            let mut waiting = self.waiting.borrow_mut();
            if let Some(old) = place.ticket
                && let Some(entry) = waiting.iter_mut().find(|(ticket, _)| *ticket == old)
            {
                entry.1.clone_from(context.waker());
                return Poll::Pending;
            }
            match place.ticket {
                // Woken, but another task was faster: keep the place in the queue.
                Some(ticket) => waiting.push_front((ticket, context.waker().clone())),
                None => {
                    let ticket = self.next.replace(self.next.get() + 1);
                    waiting.push_back((ticket, context.waker().clone()));
                    place.ticket = Some(ticket);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The result of `future`, or `None` at `deadline`.
pub async fn until<T>(cpu: &Cpu, deadline: Time, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = pin!(cpu.sleep_until(deadline));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => timer.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// A single value passed from one task to another.
pub struct Completion<T> {
    shared: Rc<(RefCell<Option<T>>, WaitQueue)>,
}

impl<T> Clone for Completion<T> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<T> Default for Completion<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Completion<T> {
    /// An empty completion.
    pub fn new() -> Self {
        Self { shared: Rc::new((RefCell::new(None), WaitQueue::new())) }
    }

    /// Sets the value. Replaces an earlier one that was not taken.
    pub fn complete(&self, value: T) {
        *self.shared.0.borrow_mut() = Some(value);
        self.shared.1.wake_one();
    }

    /// Takes the value, if there is one.
    pub fn try_take(&self) -> Option<T> {
        self.shared.0.borrow_mut().take()
    }

    /// Waits for the value and takes it.
    pub async fn wait(&self) -> T {
        self.shared.1.wait_for(|| self.try_take()).await
    }
}

/// A counting semaphore: slots of a ring, tags, buffers.
pub struct Semaphore {
    free: Cell<usize>,
    queue: WaitQueue,
}

impl Semaphore {
    /// Creates a semaphore with this number of permits.
    pub const fn new(permits: usize) -> Self {
        Self { free: Cell::new(permits), queue: WaitQueue::new() }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> bool {
        let free = self.free.get();
        self.free.set(free.saturating_sub(1));
        free > 0
    }

    /// Waits for a permit. The caller has to [release](Self::release) it.
    pub async fn acquire(&self) {
        self.queue.wait_for(|| self.try_acquire().then_some(())).await;
    }

    /// Returns a permit.
    pub fn release(&self) {
        self.free.set(self.free.get() + 1);
        self.queue.wake_one();
    }

    /// Free permits.
    pub fn available(&self) -> usize {
        self.free.get()
    }
}
