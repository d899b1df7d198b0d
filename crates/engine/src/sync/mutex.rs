//! A value for one task at a time.

use super::{Permit, Semaphore};
use core::cell::{RefCell, RefMut};
use core::ops::{Deref, DerefMut};

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
