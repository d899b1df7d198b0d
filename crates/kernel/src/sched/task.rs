//! A task: its program, scheduling state and CPU time.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use platform::cpu::{Async, Cpu, CpuId, CpuOps, Part};
use platform::kernel::{Priority, TaskId};
use units::Duration;

use super::queue::{Urgency, urgency};
use super::turns::{State, TaskTurns};
use crate::account::Times;
use crate::cpu::Context;

/// Told when a task gets and loses a core (Linux: `preempt_notifier`).
pub trait TaskWatcher {
    /// The task became runnable.
    fn waits(&self);
    /// The task got a core.
    fn runs(&self, cpu: &Cpu);
    /// The task lost its core: to another task if `preempted`, else by choice.
    fn stops(&self, cpu: &Cpu, preempted: bool);
}

pub(crate) struct Task {
    pub id: TaskId,
    /// First task of its process.
    pub process: TaskId,
    pub name: String,
    pub context: Rc<Context>,
    pub turns: TaskTurns,
    priority: Cell<Priority>,
    cpus: RefCell<Vec<CpuId>>,
    /// Virtual runtime: picoseconds at nice 0.
    vruntime: Cell<u64>,
    /// It is being polled, so it will notice by itself that it got a core.
    polled: Cell<bool>,
    times: RefCell<Times>,
    watcher: RefCell<Option<Rc<dyn TaskWatcher>>>,
}

/// Each nice level is a quarter more or a fifth less of a core's time (sched(7)).
fn weight(nice: i8) -> u64 {
    let steps = nice.clamp(-20, 19);
    (0..steps.unsigned_abs()).fold(1 << 10, |w, _| if steps > 0 { w * 4 / 5 } else { w * 5 / 4 })
}

impl Task {
    pub fn new(
        (id, process): (TaskId, TaskId),
        name: String,
        priority: Priority,
        cpus: Vec<CpuId>,
        context: Rc<Context>,
    ) -> Rc<Self> {
        let task = Rc::new(Self {
            id,
            process,
            name,
            context,
            turns: TaskTurns::default(),
            priority: Cell::new(priority),
            cpus: RefCell::new(cpus),
            vruntime: Cell::new(0),
            polled: Cell::new(false),
            times: RefCell::default(),
            watcher: RefCell::new(None),
        });
        *task.context.task.borrow_mut() = Rc::downgrade(&task);
        task
    }

    pub fn priority(&self) -> Priority {
        self.priority.get()
    }

    /// Changes its priority. Runtime in an old class does not count in a new one, in which it starts at the `floor`.
    pub fn set_priority(&self, priority: Priority, floor: u64) {
        let was_fair = self.is_fair();
        self.priority.set(priority);
        if was_fair != self.is_fair() {
            self.vruntime.set(floor);
        }
    }

    /// Cores that it may run on; all if there are none.
    pub fn cpus(&self) -> Vec<CpuId> {
        self.cpus.borrow().clone()
    }

    pub fn set_cpus(&self, cpus: Vec<CpuId>) {
        *self.cpus.borrow_mut() = cpus;
    }

    /// Virtual runtime: picoseconds at nice 0.
    pub fn vruntime(&self) -> u64 {
        self.vruntime.get()
    }

    /// Whether it is being polled, so that it will notice by itself that it got a core.
    pub fn is_polled(&self) -> bool {
        self.polled.get()
    }

    /// CPU time by part.
    pub fn times(&self) -> Times {
        *self.times.borrow()
    }

    /// Reports when it gets and loses a core.
    pub fn watch(&self, watcher: Rc<dyn TaskWatcher>) {
        *self.watcher.borrow_mut() = Some(watcher);
    }

    /// Calls its watcher.
    pub fn tell(&self, told: impl FnOnce(&dyn TaskWatcher, &Cpu)) {
        let watcher = self.watcher.borrow().clone();
        if let Some(watcher) = watcher {
            told(&*watcher, &self.context.cpu());
        }
    }

    pub fn is_fair(&self) -> bool {
        matches!(self.priority.get(), Priority::Nice(_))
    }

    pub fn may_run_on(&self, cpu: CpuId) -> bool {
        let cpus = self.cpus.borrow();
        cpus.is_empty() || cpus.contains(&cpu)
    }

    /// Sort key in a run queue.
    pub fn key(&self) -> (u8, u64, u32) {
        match self.priority.get() {
            Priority::RealTime(priority) => (0, 99 - u64::from(priority.min(99)), self.id.0),
            Priority::Nice(_) => (1, self.vruntime.get(), self.id.0),
            Priority::Idle => (2, self.vruntime.get(), self.id.0),
        }
    }

    /// Urgency compared with other tasks.
    pub fn urgency(&self) -> Urgency {
        let (class, order, _) = self.key();
        urgency(class, order)
    }

    pub fn is_real_time(&self) -> bool {
        matches!(self.priority.get(), Priority::RealTime(_))
    }

    /// Accounts CPU time.
    pub fn ran(&self, part: Part, time: Duration) {
        self.times.borrow_mut().add(part, time);
        let share = match self.priority.get() {
            Priority::Nice(nice) => time.as_ps().saturating_mul(1024) / weight(nice),
            _ => time.as_ps(),
        };
        // The key must not change while the task is in a queue.
        if self.turns.state() != State::Runnable {
            self.vruntime.set(self.vruntime.get().saturating_add(share));
        }
    }

    /// Whether it preempts `current` when it wakes.
    pub fn preempts(&self, current: &Task, granularity: Duration) -> bool {
        let (mine, theirs) = (self.key(), current.key());
        mine.0 < theirs.0
            || mine.0 == 0 && theirs.0 == 0 && mine.1 < theirs.1
            || mine.0 == 1 && theirs.0 == 1 && mine.1 + granularity.as_ps() < theirs.1
    }

    /// A new task starts at the floor, so that a program that keeps starting tasks gets no more than its share.
    pub fn begin(&self, floor: u64) {
        self.vruntime.set(floor);
    }

    /// After a long sleep, a task gets a small lead, not all the time that it missed.
    pub fn catch_up(&self, floor: u64, latency: Duration) {
        let least = floor.saturating_sub(latency.as_ps() / 2);
        self.vruntime.set(self.vruntime.get().max(least));
    }

    /// Moves to another queue, keeping its lead or lag.
    pub fn move_floor(&self, from: u64, to: u64) {
        self.vruntime.set((self.vruntime.get() + to).saturating_sub(from));
    }
}

/// Polls a task's program, only while the task has a core.
pub(crate) struct TaskFuture {
    task: Rc<Task>,
    /// The task being polled.
    polled: Rc<Cell<Option<TaskId>>>,
    program: Option<Async<'static, ()>>,
    /// The program has blocked, but its last computation still has to pass before it loses the core.
    settling: bool,
}

impl TaskFuture {
    pub fn new(task: Rc<Task>, program: Async<'static, ()>, polled: Rc<Cell<Option<TaskId>>>) -> Self {
        Self { task, polled, program: Some(program), settling: false }
    }
}

impl Future for TaskFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut PollContext<'_>) -> Poll<()> {
        self.task.polled.set(true);
        self.polled.set(Some(self.task.id));
        let result = self.run(cx);
        self.polled.set(None);
        self.task.polled.set(false);
        result
    }
}

impl TaskFuture {
    fn run(&mut self, cx: &mut PollContext<'_>) -> Poll<()> {
        let task = Rc::clone(&self.task);
        let context = &task.context;
        let cores = Rc::clone(&context.cores);
        loop {
            context.remember(cx);
            match task.turns.state() {
                State::New | State::Blocked => {
                    context.cycles(Part::Scheduler, cores.costs.wake_up);
                    cores.scheduler().enqueue(&task);
                    if task.turns.state() != State::Running {
                        return Poll::Pending;
                    }
                }
                State::Runnable => return Poll::Pending,
                State::Ended => return Poll::Ready(()),
                // The vCPU behind its core may not be running.
                State::Running if !cores.runs(context.core.get()) => return Poll::Pending,
                State::Running => {}
            }
            if self.settling {
                if context.poll_sync(cx).is_pending() {
                    return Poll::Pending;
                }
                self.settling = false;
            }
            // The program may have been woken while settling: poll it again before it loses its core.
            let ended = match &mut self.program {
                Some(program) => program.as_mut().poll(cx).is_ready(),
                None => true,
            };
            if ended {
                self.program = None;
            }
            if context.is_ahead() && !context.keeps_core() {
                self.settling = true;
            } else if ended {
                cores.scheduler().release(&task, State::Ended);
                return Poll::Ready(());
            } else if task.turns.state() == State::Running && !context.keeps_core() {
                cores.scheduler().release(&task, State::Blocked);
                return Poll::Pending;
            } else {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for TaskFuture {
    fn drop(&mut self) {
        // The program may hold a reference to the cores.
        self.program = None;
        let core = self.task.context.cores.get(self.task.context.core.get());
        core.tasks.queue.borrow_mut().remove(&self.task);
        let mut current = core.tasks.current.borrow_mut();
        if current.as_ref().is_some_and(|task| Rc::ptr_eq(task, &self.task)) {
            *current = None;
        }
    }
}
