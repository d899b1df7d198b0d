//! Timers of a core (Linux: hrtimers on the local APIC's deadline). The core's timer interrupt wakes the tasks that sleep
//! by them, and calls who asked for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};

use engine::{Notify, either};
use platform::cpu::{Cpu, CpuId};
use units::Time;

use super::Cores;

/// What the interrupt of an expired timer does.
pub(crate) enum Expiry {
    Wake(Waker),
    Call(Box<dyn FnOnce(&Cpu)>),
}

/// The timers that are set, by deadline and in the order of setting.
#[derive(Default)]
pub(crate) struct CoreTimers {
    /// `None` for a sleep that nothing has waited for yet.
    set: RefCell<BTreeMap<(Time, u64), Option<Expiry>>>,
    next: Cell<u64>,
    /// The first deadline may have changed.
    changed: Notify,
    /// The timer's interrupt has been handled.
    handled: Notify,
}

impl CoreTimers {
    /// Waits until the first deadline of a core has passed.
    pub async fn expiry(cores: &Cores, core: CpuId) {
        let timers = &cores.get(core).timers;
        loop {
            let first = timers.set.borrow().keys().next().map(|&(deadline, _)| deadline);
            let Some(first) = first else {
                timers.changed.notified().await;
                continue;
            };
            if first <= cores.now() {
                return;
            }
            either(cores.hw.sleep_until(first), timers.changed.notified()).await;
        }
    }

    /// Sets a timer. Returns what it is found by.
    fn set(&self, cores: &Cores, deadline: Time, expiry: Option<Expiry>) -> (Time, u64) {
        let key = (deadline.max(cores.now()), self.next.replace(self.next.get() + 1));
        self.set.borrow_mut().insert(key, expiry);
        self.changed.notify_one();
        key
    }

    /// Has a core's timer interrupt call a function at a time, or at once if that has passed. Returns what
    /// [`cancel`](Self::cancel) takes.
    pub fn call_at(
        cores: &Cores,
        core: CpuId,
        deadline: Time,
        call: impl FnOnce(&Cpu) + 'static,
    ) -> (Time, u64) {
        cores.get(core).timers.set(cores, deadline, Some(Expiry::Call(Box::new(call))))
    }

    /// Removes a timer, if it has not expired.
    pub fn cancel(&self, key: (Time, u64)) {
        self.set.borrow_mut().remove(&key);
    }

    /// Removes timers that have expired. Returns what to do.
    pub fn take_expired(&self, now: Time) -> Vec<Expiry> {
        let mut set = self.set.borrow_mut();
        let later = set.split_off(&(now + units::Duration::from_ps(1), 0));
        self.handled.notify_one();
        std::mem::replace(&mut *set, later).into_values().flatten().collect()
    }

    /// Waits until the timer's interrupt has been handled.
    pub async fn handled(&self) {
        self.handled.notified().await;
    }
}

/// A sleep by a core's timer; resolves once its interrupt has been handled. Dropping it cancels it.
pub(crate) struct Timer {
    cores: Rc<Cores>,
    core: CpuId,
    key: (Time, u64),
}

impl Timer {
    pub fn set(cores: Rc<Cores>, core: CpuId, deadline: Time) -> Self {
        let key = cores.get(core).timers.set(&cores, deadline, None);
        Self { cores, core, key }
    }

    fn timers(&self) -> &CoreTimers {
        &self.cores.get(self.core).timers
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<()> {
        match self.timers().set.borrow_mut().get_mut(&self.key) {
            Some(expiry) => {
                *expiry = Some(Expiry::Wake(context.waker().clone()));
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.timers().cancel(self.key);
    }
}
