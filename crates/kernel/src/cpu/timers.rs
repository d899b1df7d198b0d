//! Timers of a core, by which tasks sleep (Linux: hrtimers on the local APIC's deadline). The core's timer interrupt
//! wakes the tasks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};

use engine::{Notify, either};
use platform::cpu::CpuId;
use units::Time;

use super::Cores;

/// Timers that are set, by deadline and in the order of setting.
#[derive(Default)]
pub(crate) struct Timers {
    set: RefCell<BTreeMap<(Time, u64), Option<Waker>>>,
    next: Cell<u64>,
    /// The first deadline may have changed.
    changed: Notify,
    /// The timer's interrupt has been handled.
    handled: Notify,
}

impl Timers {
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

    /// Removes timers that have expired. Returns the tasks to wake.
    pub fn take_expired(&self, now: Time) -> Vec<Waker> {
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

/// A timer on a core; resolves once its interrupt has been handled. Dropping it cancels it.
pub(crate) struct Timer {
    cores: Rc<Cores>,
    core: CpuId,
    key: (Time, u64),
}

impl Timer {
    pub fn set(cores: Rc<Cores>, core: CpuId, deadline: Time) -> Self {
        let timers = &cores.get(core).timers;
        let key = (deadline.max(cores.now()), timers.next.replace(timers.next.get() + 1));
        timers.set.borrow_mut().insert(key, None);
        timers.changed.notify_one();
        Self { cores, core, key }
    }

    fn timers(&self) -> &Timers {
        &self.cores.get(self.core).timers
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<()> {
        match self.timers().set.borrow_mut().get_mut(&self.key) {
            Some(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.timers().set.borrow_mut().remove(&self.key);
    }
}
