//! Deferred interrupt work, polled after the handlers with a budget. A task takes over if there is too much.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use engine::Notify;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Napi, NapiOps, Pollers};
use platform::kernel::TaskParams;
use platform::sync::WaitQueue;
use units::{Duration, Time};

use super::IPI_VECTOR;
use super::apic::Apics;
use crate::cpu::{Context, CoreTimers, Cores, Level};
use crate::tasks::Tasks;

/// Work items per poll (Linux: `NAPI_POLL_WEIGHT`).
const WEIGHT: usize = 64;
/// Work items per round (Linux: `netdev_budget`).
const BUDGET: usize = 300;
/// Time limit of a round (Linux: `netdev_budget_usecs`).
const TURN: Duration = Duration::from_ms(2);
/// Rounds (Linux: `MAX_SOFTIRQ_RESTART`) and total time (`MAX_SOFTIRQ_TIME`) before the core's task takes over.
const ROUNDS: usize = 10;
const ROUNDS_TIME: Duration = Duration::from_ms(2);

/// Deferred work of a core.
#[derive(Default)]
struct Softirq {
    list: RefCell<VecDeque<Rc<NapiState>>>,
    /// Work that other cores queued here; an IPI announces it.
    asked: RefCell<VecDeque<Rc<NapiState>>>,
    notify: Notify,
    /// The core's task for excess work waits here.
    overflow: WaitQueue,
    /// Whether that task is running.
    deferred: Cell<bool>,
}

impl Softirq {
    /// Wakes the core's loop, or leaves the work to the running one.
    fn wake(&self) {
        if !self.deferred.get() {
            self.notify.notify_one();
        }
    }
}

/// Deferred work of all cores.
pub(crate) struct Softirqs {
    cores: Rc<Cores>,
    apics: Rc<Apics>,
    all: Vec<Softirq>,
}

/// A piece of deferred work and its state.
pub(crate) struct NapiState {
    softirqs: Weak<Softirqs>,
    napi: Rc<dyn Napi>,
    enabled: Cell<bool>,
    scheduled: Cell<bool>,
    missed: Cell<bool>,
    quiet: WaitQueue,
    /// Set if a task polls it rather than the softirq context: the task's list.
    thread: RefCell<Option<Rc<Pollers>>>,
    me: Weak<Self>,
}

impl NapiState {
    fn new(softirqs: Weak<Softirqs>, napi: Rc<dyn Napi>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            softirqs,
            napi,
            enabled: Cell::new(false),
            scheduled: Cell::new(false),
            missed: Cell::new(false),
            quiet: WaitQueue::new(),
            thread: RefCell::new(None),
            me: me.clone(),
        })
    }

    /// Polls once. The flag says to poll again.
    async fn turn(&self, cpu: &Cpu) -> (usize, bool) {
        let done = self.napi.poll(cpu, WEIGHT).await;
        cpu.sync().await;
        let again = done >= WEIGHT && self.scheduled.get();
        if again && !self.enabled.get() {
            self.scheduled.set(false);
            self.quiet.wake_all();
            return (done, false);
        }
        (done, again)
    }

    /// Like [`schedule`](NapiOps::schedule), on another core, which gets an IPI.
    pub fn schedule_on(&self, cpu: &Cpu, core: CpuId) {
        if core == cpu.id() {
            self.schedule(cpu);
            return;
        }
        let (Some(softirqs), Some(me)) = (self.softirqs.upgrade(), self.me.upgrade()) else { return };
        if !self.enabled.get() {
            return;
        }
        if self.scheduled.replace(true) {
            self.missed.set(true);
            return;
        }
        softirqs.ask(cpu, core, me);
    }
}

impl NapiOps for NapiState {
    fn schedule(&self, cpu: &Cpu) -> bool {
        let (Some(softirqs), Some(me)) = (self.softirqs.upgrade(), self.me.upgrade()) else { return false };
        if !self.enabled.get() {
            return false;
        }
        if self.scheduled.replace(true) {
            self.missed.set(true);
            return false;
        }
        cpu.work(softirqs.cores.costs.napi);
        if let Some(thread) = &*self.thread.borrow() {
            thread.put(me);
            return true;
        }
        let softirq = softirqs.of(cpu.id());
        softirq.list.borrow_mut().push_back(me);
        softirq.wake();
        true
    }

    fn complete(&self, cpu: &Cpu) -> bool {
        if let Some(softirqs) = self.softirqs.upgrade() {
            cpu.work(softirqs.cores.costs.napi);
        }
        self.scheduled.set(false);
        if self.missed.replace(false) && self.schedule(cpu) {
            return false;
        }
        self.quiet.wake_all();
        true
    }

    fn enable(&self) {
        self.enabled.set(true);
    }

    fn disable(&self) -> Async<'static, ()> {
        self.enabled.set(false);
        self.missed.set(false);
        let me = self.me.upgrade();
        Box::pin(async move {
            let Some(me) = me else { return };
            me.quiet.wait_for(|| (!me.scheduled.get()).then_some(())).await;
        })
    }

    fn set_thread(&self, list: &Rc<Pollers>) {
        *self.thread.borrow_mut() = Some(Rc::clone(list));
    }

    fn poll<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, usize> {
        Box::pin(async move {
            let (done, again) = self.turn(cpu).await;
            let thread = self.thread.borrow().clone();
            if let (true, Some(thread), Some(me)) = (again, thread, self.me.upgrade()) {
                thread.put(me);
            }
            done
        })
    }
}

impl Softirqs {
    pub fn new(cores: Rc<Cores>, apics: Rc<Apics>) -> Rc<Self> {
        let all = cores.all.iter().map(|_| Softirq::default()).collect();
        Rc::new(Self { cores, apics, all })
    }

    fn of(&self, core: CpuId) -> &Softirq {
        &self.all[usize::from(core.0)]
    }

    /// Creates a piece of deferred work.
    pub fn napi(self: &Rc<Self>, napi: Rc<dyn Napi>) -> Rc<NapiState> {
        NapiState::new(Rc::downgrade(self), napi)
    }

    /// Has a core's timer schedule work at a time, and no longer at another. Returns what it is found by.
    pub fn schedule_at(
        &self,
        core: CpuId,
        at: Time,
        work: &Rc<NapiState>,
        instead_of: Option<(Time, u64)>,
    ) -> (Time, u64) {
        instead_of.into_iter().for_each(|key| self.cores.get(core).timers.cancel(key));
        let work = Rc::downgrade(work);
        CoreTimers::call_at(&self.cores, core, at, move |cpu| {
            if let Some(work) = work.upgrade() {
                work.schedule(cpu);
            }
        })
    }

    /// Queues work on another core.
    fn ask(&self, cpu: &Cpu, core: CpuId, work: Rc<NapiState>) {
        let mut asked = self.of(core).asked.borrow_mut();
        asked.push_back(work);
        // One IPI is enough until the core has taken it.
        let is_first = asked.len() == 1;
        drop(asked);
        if is_first {
            self.apics.send(cpu, core, IPI_VECTOR);
        }
    }

    /// Takes work that other cores have queued here.
    pub fn take_asked(&self, cpu: &Cpu, id: CpuId) {
        let softirq = self.of(id);
        let asked = softirq.asked.take();
        cpu.work(self.cores.costs.napi * asked.len() as u64);
        softirq.list.borrow_mut().extend(asked);
        softirq.wake();
    }

    pub fn clear(&self) {
        for softirq in &self.all {
            softirq.list.borrow_mut().clear();
            softirq.asked.borrow_mut().clear();
        }
    }

    /// Polls a core's list until it is empty; `false` if the time limit was reached first.
    async fn poll_list(&self, cpu: &Cpu, id: CpuId) -> bool {
        let softirq = self.of(id);
        let end = cpu.now() + TURN;
        let mut left = BUDGET;
        loop {
            let next = softirq.list.borrow_mut().pop_front();
            let Some(napi) = next else { return true };
            cpu.work(self.cores.costs.softirq);
            let (done, again) = napi.turn(cpu).await;
            if again {
                softirq.list.borrow_mut().push_back(napi);
            }
            left = left.saturating_sub(done);
            if (left == 0 || cpu.now() >= end) && !softirq.list.borrow().is_empty() {
                return false;
            }
        }
    }

    /// A core's loop for deferred work.
    pub async fn serve(self: Rc<Self>, id: CpuId) {
        let cores = Rc::clone(&self.cores);
        let context = Context::new(Rc::clone(&cores), Level::Softirq, id, Part::Softirq);
        let cpu = context.cpu();
        loop {
            self.of(id).notify.notified().await;
            let core = cores.get(id);
            core.raise(&context);
            cores.note_busy(core);
            cpu.sync().await;
            let began = cpu.now();
            let (mut finished, mut rounds) = (self.poll_list(&cpu, id).await, 1);
            while !finished
                && rounds < ROUNDS
                && cpu.now() < began + ROUNDS_TIME
                && !core.tasks.is_to_switch(began)
            {
                finished = self.poll_list(&cpu, id).await;
                rounds += 1;
            }
            cpu.sync().await;
            core.lower(Level::Softirq);
            cores.note_busy(core);
            if !finished {
                let softirq = self.of(id);
                softirq.deferred.set(true);
                softirq.overflow.wake_all();
            }
        }
    }

    /// The task that takes over if deferred work does not end.
    pub fn start_task(self: &Rc<Self>, tasks: &Tasks, id: CpuId) {
        let me = Rc::clone(self);
        let params = TaskParams::named(format!("ksoftirqd/{}", id.0)).on(id);
        tasks.spawn(
            params,
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Softirq);
                    let softirq = me.of(id);
                    loop {
                        softirq.overflow.wait_for(|| softirq.deferred.get().then_some(())).await;
                        if me.poll_list(&cpu, id).await {
                            softirq.deferred.set(false);
                        }
                        cpu.sync().await;
                    }
                })
            }),
        );
    }
}
