//! A single value from the world to a task: how a request is awaited.

use crate::task::{Cancelled, Wakeup};
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;

enum State<T> {
    Pending,
    Waited(Wakeup),
    Done(T),
    /// The other end is gone.
    Closed,
}

/// The end that gives the value; a request table keeps it. Dropping it cancels the completion.
pub struct Completer<T> {
    state: Rc<RefCell<State<T>>>,
}

/// The end that awaits the value.
#[must_use = "a completion does nothing unless awaited"]
pub struct Completion<T> {
    state: Rc<RefCell<State<T>>>,
}

/// Two ends of a value that is yet to come. One allocation.
pub fn oneshot<T>() -> (Completer<T>, Completion<T>) {
    let state = Rc::new(RefCell::new(State::Pending));
    (Completer { state: Rc::clone(&state) }, Completion { state })
}

impl<T> Completer<T> {
    /// Gives the value; who awaits it goes on the ready queue, at the present simulated time.
    pub fn complete(self, value: T) {
        self.settle(State::Done(value));
    }

    /// Whether nobody can receive the value any more.
    pub fn is_abandoned(&self) -> bool {
        matches!(*self.state.borrow(), State::Closed)
    }

    fn settle(&self, outcome: State<T>) {
        let before = {
            let mut state = self.state.borrow_mut();
            if !matches!(*state, State::Pending | State::Waited(_)) {
                return;
            }
            core::mem::replace(&mut *state, outcome)
        };
        if let State::Waited(wakeup) = before {
            wakeup.wake();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.settle(State::Closed);
    }
}

impl<T> Completion<T> {
    /// The value, if it has come.
    pub fn try_take(&mut self) -> Option<T> {
        let mut state = self.state.borrow_mut();
        match core::mem::replace(&mut *state, State::Closed) {
            State::Done(value) => Some(value),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl<T> Future for Completion<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.state.borrow_mut();
        match &*state {
            State::Waited(wakeup) if wakeup.is_for(context) => Poll::Pending,
            State::Pending | State::Waited(_) => {
                *state = State::Waited(Wakeup::of(context));
                Poll::Pending
            }
            State::Done(_) | State::Closed => match core::mem::replace(&mut *state, State::Closed) {
                State::Done(value) => Poll::Ready(Ok(value)),
                _ => Poll::Ready(Err(Cancelled)),
            },
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        // Dropped outside the borrow: a value's destructor may do anything.
        let before = core::mem::replace(&mut *self.state.borrow_mut(), State::Closed);
        drop(before);
    }
}
