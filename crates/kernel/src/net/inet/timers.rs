//! One task for all timers: it sleeps until the first is due, or an earlier one is set.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use platform::cpu::{Async, Cpu, Part};
use platform::kernel::TaskParams;
use platform::sync::WaitQueue;
use units::Time;

use super::Stack;

/// Whom a timer is for: a socket by its number, all neighbours, or all fragments.
pub(super) type Owner = u64;
pub(super) const NEIGHBOURS: Owner = 0;
/// Those of fragments.
pub(super) const FRAGMENTS: Owner = Owner::MAX;

/// All timers that are set.
#[derive(Default)]
pub(super) struct Timers {
    set: RefCell<BTreeSet<(Time, Owner)>>,
    changed: WaitQueue,
    running: Cell<bool>,
}

impl Stack {
    /// Sees to it that an owner is called when it wants to be.
    pub(super) fn arm(&self, cpu: &Cpu, owner: Owner) {
        let at = match owner {
            NEIGHBOURS => self.interfaces.deadline(),
            FRAGMENTS => self.fragments.borrow().deadline(),
            socket => self.tcp.deadline(socket),
        };
        if let Some(at) = at {
            self.arm_at(cpu, owner, at);
        }
    }

    /// Calls an owner at a time.
    pub(super) fn arm_at(&self, cpu: &Cpu, owner: Owner, at: Time) {
        cpu.work(self.costs().timer);
        let mut set = self.timers.set.borrow_mut();
        let is_first = set.first().is_none_or(|&(first, _)| at < first);
        set.insert((at, owner));
        drop(set);
        if is_first {
            self.timers.changed.wake_all();
        }
        if !self.timers.running.replace(true) {
            let me = self.me.clone();
            let program = move |cpu: Cpu| -> Async<'static, ()> {
                Box::pin(async move {
                    if let Some(me) = me.upgrade() {
                        me.serve_timers(&cpu).await;
                    }
                })
            };
            self.base.tasks.spawn(TaskParams::named("inet-timers"), Box::new(program));
        }
    }

    /// Calls owners in the order of their times, as long as there are any.
    async fn serve_timers(&self, cpu: &Cpu) {
        let _part = cpu.book(Part::Net);
        loop {
            let first = self.timers.set.borrow().first().copied();
            let Some((at, owner)) = first else { break };
            if at > cpu.now() {
                self.sleep_until_or_changed(cpu, at).await;
                continue;
            }
            self.timers.set.borrow_mut().remove(&(at, owner));
            match owner {
                NEIGHBOURS => self.neighbour_timer(cpu),
                FRAGMENTS => self.fragment_timer(cpu),
                socket => self.tcp.timer(cpu, socket),
            }
            self.close_abandoned(cpu);
            cpu.sync().await;
        }
        self.timers.running.set(false);
    }

    /// Sleeps until a time, or until an earlier timer is set.
    async fn sleep_until_or_changed(&self, cpu: &Cpu, at: Time) {
        let mut sleep = pin!(cpu.sleep_until(at));
        let earlier = || self.timers.set.borrow().first().is_none_or(|&(first, _)| first < at).then_some(());
        let mut changed = pin!(self.timers.changed.wait_for(earlier));
        poll_fn(|context| {
            let slept = sleep.as_mut().poll(context).is_ready();
            if slept || changed.as_mut().poll(context).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Asks neighbours again, and gives those up that do not answer.
    fn neighbour_timer(&self, cpu: &Cpu) {
        for interface in 0..self.interfaces.count() {
            let (ask, lost) = self.interfaces.timer(cpu.now(), interface);
            ask.into_iter().for_each(|hop| self.ask(cpu, interface, hop));
            lost.into_iter().for_each(|hop| self.neighbour_lost(cpu, interface, hop));
        }
        self.arm(cpu, NEIGHBOURS);
    }
}
