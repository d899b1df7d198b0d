//! One task for all timers. It sleeps until the first expires or an earlier one is set.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, Part};
use platform::sync::WaitQueue;
use units::Time;

use super::Stack;
use super::means::Means;

/// Owner of a timer: a socket by its number, all neighbours, or all fragments.
pub type Owner = u64;
pub const NEIGHBOURS: Owner = 0;
pub const FRAGMENTS: Owner = Owner::MAX;

/// All timers that are set.
pub struct Timers {
    me: Weak<Self>,
    /// Called when a timer expires.
    stack: Weak<Stack>,
    means: Rc<Means>,
    set: RefCell<BTreeSet<(Time, Owner)>>,
    changed: WaitQueue,
    running: Cell<bool>,
}

impl Timers {
    pub fn new(stack: Weak<Stack>, means: Rc<Means>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            stack,
            means,
            set: RefCell::default(),
            changed: WaitQueue::new(),
            running: Cell::new(false),
        })
    }

    /// Sets an owner's timer; `None` leaves it as it is.
    pub fn arm(&self, cpu: &Cpu, owner: Owner, at: Option<Time>) {
        let Some(at) = at else { return };
        cpu.work(self.means.costs().timer);
        let mut set = self.set.borrow_mut();
        let is_first = set.first().is_none_or(|&(first, _)| at < first);
        set.insert((at, owner));
        drop(set);
        if is_first {
            self.changed.wake_all();
        }
        if !self.running.replace(true) {
            let me = self.me.clone();
            let program = move |cpu: Cpu| -> Async<'static, ()> {
                Box::pin(async move {
                    if let Some(me) = me.upgrade() {
                        me.serve(&cpu).await;
                    }
                })
            };
            self.means.spawn("inet-timers", program);
        }
    }

    /// Calls owners in the order of their timers, while there are any.
    async fn serve(&self, cpu: &Cpu) {
        let _part = cpu.book(Part::Net);
        loop {
            let first = self.set.borrow().first().copied();
            let Some((at, owner)) = first else { break };
            if at > cpu.now() {
                self.sleep_until_or_changed(cpu, at).await;
                continue;
            }
            self.set.borrow_mut().remove(&(at, owner));
            if let Some(stack) = self.stack.upgrade() {
                stack.timer(cpu, owner);
            }
            cpu.sync().await;
        }
        self.running.set(false);
    }

    /// Sleeps until a time, or until an earlier timer is set.
    async fn sleep_until_or_changed(&self, cpu: &Cpu, at: Time) {
        let earlier = || self.set.borrow().first().is_none_or(|&(first, _)| first < at).then_some(());
        engine::either(cpu.sleep_until(at), self.changed.wait_for(earlier)).await;
    }
}
