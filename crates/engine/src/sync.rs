//! What tasks use among themselves: [`Signal`], [`Notify`], [`Semaphore`], [`Mutex`], [`channel`].
//!
//! All are first come, first served: who began to wait first goes on first. The ends that do not wait
//! (raise, notify, release, `try_send`) may also be used by the world. Nothing is allocated per wait once
//! a queue has its size.

use crate::task::Wakeup;
use core::cell::{Cell, RefCell, RefMut};
use core::future::Future;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::rc::Rc;

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

/// A value that one task at a time may use, also across waits.
pub struct Mutex<T> {
    semaphore: Semaphore,
    value: RefCell<T>,
}

impl<T> Mutex<T> {
    /// `value`, unlocked.
    pub const fn new(value: T) -> Self {
        Self { semaphore: Semaphore::new(1), value: RefCell::new(value) }
    }

    /// Waits until nobody else uses the value.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        let permit = self.semaphore.acquire(1).await;
        MutexGuard { value: self.value.borrow_mut(), _permit: permit }
    }

    /// The value, if nobody uses it or waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let permit = self.semaphore.try_acquire(1)?;
        Some(MutexGuard { value: self.value.borrow_mut(), _permit: permit })
    }
}

/// A locked [`Mutex`]'s value.
pub struct MutexGuard<'a, T> {
    // Fields are dropped in order: the value is free before the next in the queue is woken.
    value: RefMut<'a, T>,
    _permit: Permit<'a>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

struct Shared<T> {
    values: RefCell<VecDeque<T>>,
    /// Places that are neither taken nor promised to a waiting sender.
    room: Semaphore,
    receiver: RefCell<Option<Wakeup>>,
    senders: Cell<usize>,
    open: Cell<bool>,
}

impl<T> Shared<T> {
    fn push(&self, value: T) {
        self.values.borrow_mut().push_back(value);
        self.wake_receiver();
    }

    fn wake_receiver(&self) {
        if let Some(receiver) = self.receiver.borrow_mut().take() {
            receiver.wake();
        }
    }
}

/// A queue with many senders and one receiver that holds at most `capacity` values; who sends more
/// waits.
///
/// # Panics
/// If `capacity` is zero.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a channel without room passes nothing on");
    let shared = Rc::new(Shared {
        values: RefCell::new(VecDeque::new()),
        room: Semaphore::new(capacity),
        receiver: RefCell::new(None),
        senders: Cell::new(1),
        open: Cell::new(true),
    });
    (Sender { shared: Rc::clone(&shared) }, Receiver { shared })
}

/// A queue with many senders and one receiver, as long as it needs to be.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

/// A value that could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// The channel is at its capacity, or others wait to send.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// An end of a [`channel`] that gives.
pub struct Sender<T> {
    shared: Rc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends at once or not at all; for the world too.
    ///
    /// # Errors
    /// [`SendError`] with the value.
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        if !self.shared.open.get() {
            return Err(SendError::Closed(value));
        }
        let Some(place) = self.shared.room.try_acquire(1) else { return Err(SendError::Full(value)) };
        place.forget();
        self.shared.push(value);
        Ok(())
    }

    /// Sends as soon as there is room.
    ///
    /// # Errors
    /// [`SendError::Closed`] with the value if the receiver is gone.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        let place = self.shared.room.acquire(1).await;
        if !self.shared.open.get() {
            return Err(SendError::Closed(value));
        }
        place.forget();
        self.shared.push(value);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.set(self.shared.senders.get() + 1);
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.senders.set(self.shared.senders.get() - 1);
        if self.shared.senders.get() == 0 {
            self.shared.wake_receiver();
        }
    }
}

/// The end of a [`channel`] that takes.
pub struct Receiver<T> {
    shared: Rc<Shared<T>>,
}

impl<T> Receiver<T> {
    /// The first value, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.shared.values.borrow_mut().pop_front()?;
        self.shared.room.release(1);
        Some(value)
    }

    /// Waits for a value; `None` once the channel is empty and all senders are gone.
    pub async fn recv(&mut self) -> Option<T> {
        core::future::poll_fn(|context| {
            if let Some(value) = self.try_recv() {
                return Poll::Ready(Some(value));
            }
            if self.shared.senders.get() == 0 {
                return Poll::Ready(None);
            }
            *self.shared.receiver.borrow_mut() = Some(Wakeup::of(context));
            Poll::Pending
        })
        .await
    }

    /// How many values are there to take.
    pub fn len(&self) -> usize {
        self.shared.values.borrow().len()
    }

    /// Whether there is nothing to take now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.open.set(false);
        // Whoever waits for room shall learn that it is for nothing.
        self.shared.room.release(self.shared.room.waiting());
        let values = core::mem::take(&mut *self.shared.values.borrow_mut());
        drop(values);
    }
}
