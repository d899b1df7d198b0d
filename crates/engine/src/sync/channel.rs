//! Queues of values between tasks.

use super::Semaphore;
use crate::task::Wakeup;
use core::cell::{Cell, RefCell};
use core::task::Poll;
use std::collections::VecDeque;
use std::rc::Rc;

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
