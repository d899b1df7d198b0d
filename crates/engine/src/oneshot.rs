//! Oneshots: a single value from the world to a task, with which a request is awaited.

use crate::task::{Cancelled, Wakeup};
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::{Rc, Weak};

enum Stage<T> {
    Pending,
    Waited(Wakeup),
    Done(T),
    /// The other end has been dropped.
    Closed,
}

struct Channel<T> {
    stage: RefCell<Stage<T>>,
    /// Where the allocation is returned when both ends have been dropped.
    home: Weak<Home<T>>,
}

type Home<T> = RefCell<Vec<Rc<Channel<T>>>>;

impl<T> Channel<T> {
    /// Called when an end is dropped: the last one recycles the allocation.
    fn retire(self: &Rc<Self>) {
        if Rc::strong_count(self) == 1
            && let Some(home) = self.home.upgrade()
        {
            let before = self.stage.replace(Stage::Pending);
            home.borrow_mut().push(Rc::clone(self));
            drop(before);
        }
    }
}

/// The sending end, kept in a request table. Dropping it cancels the completion.
pub struct Completer<T> {
    channel: Rc<Channel<T>>,
}

/// The receiving end.
#[must_use = "a completion does nothing unless awaited"]
pub struct Completion<T> {
    channel: Rc<Channel<T>>,
}

/// Creates both ends of a value. One allocation.
pub fn oneshot<T>() -> (Completer<T>, Completion<T>) {
    pair(Rc::new(Channel { stage: RefCell::new(Stage::Pending), home: Weak::new() }))
}

fn pair<T>(channel: Rc<Channel<T>>) -> (Completer<T>, Completion<T>) {
    (Completer { channel: Rc::clone(&channel) }, Completion { channel })
}

/// A pool of [`oneshot`]s that recycles their memory, for components that need one for each request.
///
/// Allocates only as many as are ever pending at once.
pub struct Oneshots<T> {
    home: Rc<Home<T>>,
}

impl<T> Default for Oneshots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Oneshots<T> {
    /// Creates an empty pool.
    pub fn new() -> Self {
        Self { home: Rc::default() }
    }

    /// Like [`oneshot`], without an allocation if both ends of an earlier one have been dropped.
    pub fn pair(&self) -> (Completer<T>, Completion<T>) {
        let used = self.home.borrow_mut().pop();
        pair(used.unwrap_or_else(|| {
            Rc::new(Channel { stage: RefCell::new(Stage::Pending), home: Rc::downgrade(&self.home) })
        }))
    }
}

impl<T> Completer<T> {
    /// Sends the value. The receiver is put on the ready queue, at the current simulated time.
    pub fn complete(self, value: T) {
        self.settle(Stage::Done(value));
    }

    /// Whether the receiver has been dropped.
    pub fn is_abandoned(&self) -> bool {
        matches!(*self.channel.stage.borrow(), Stage::Closed)
    }

    fn settle(&self, outcome: Stage<T>) {
        let before = {
            let mut stage = self.channel.stage.borrow_mut();
            if !matches!(*stage, Stage::Pending | Stage::Waited(_)) {
                return;
            }
            core::mem::replace(&mut *stage, outcome)
        };
        if let Stage::Waited(wakeup) = before {
            wakeup.wake();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.settle(Stage::Closed);
        self.channel.retire();
    }
}

impl<T> Completion<T> {
    /// Takes the value, if it has been sent.
    pub fn try_take(&mut self) -> Option<T> {
        let mut stage = self.channel.stage.borrow_mut();
        match core::mem::replace(&mut *stage, Stage::Closed) {
            Stage::Done(value) => Some(value),
            other => {
                *stage = other;
                None
            }
        }
    }
}

impl<T> Future for Completion<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.channel.stage.borrow_mut();
        match &*stage {
            Stage::Waited(wakeup) if wakeup.is_for(context) => Poll::Pending,
            Stage::Pending | Stage::Waited(_) => {
                *stage = Stage::Waited(Wakeup::of(context));
                Poll::Pending
            }
            Stage::Done(_) | Stage::Closed => match core::mem::replace(&mut *stage, Stage::Closed) {
                Stage::Done(value) => Poll::Ready(Ok(value)),
                _ => Poll::Ready(Err(Cancelled)),
            },
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        // Dropped outside the borrow, as a value's destructor may do anything.
        let before = self.channel.stage.replace(Stage::Closed);
        drop(before);
        self.channel.retire();
    }
}
