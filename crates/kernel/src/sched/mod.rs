//! Scheduler: run queues, time slices, placement and balancing.
//!
//! Fair tasks are ordered by virtual runtime; real-time tasks go first, idle-class tasks last. A waking task goes to
//! an idle core near its last one. An idle core takes a task from the busiest core, of its own node first. A
//! real-time task goes to the core with the least urgent work, and a core takes a waiting real-time task from
//! elsewhere if that is more urgent than its own next task. Like Linux's push and pull, this never lets a real-time
//! task wait while a core that it may use runs something less urgent.

mod queue;
mod task;
mod turns;

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;

use platform::cpu::{CpuId, Part};
use platform::kernel::{Priority, TaskId};
use units::Time;

use queue::RunQueue;
pub use task::TaskWatcher;
pub(crate) use task::{Task, TaskFuture};
pub(crate) use turns::State;

use crate::cpu::{Context, Core, Cores, Level};

/// The task that runs on a core, and those that wait for it.
#[derive(Default)]
pub(crate) struct CoreTasks {
    /// The task that has the core, even if interrupts preempt it.
    current: RefCell<Option<Rc<Task>>>,
    queue: RefCell<RunQueue>,
    /// The task whose address space is loaded and which runs again without a switch; none in the idle loop.
    last: Cell<Option<TaskId>>,
}

impl CoreTasks {
    /// The context of the current task.
    pub fn running(&self) -> Option<Rc<Context>> {
        self.current.borrow().as_ref().map(|task| Rc::clone(&task.context))
    }

    /// Whether `context` is that of the current task.
    pub fn runs(&self, context: &Context) -> bool {
        self.current.borrow().as_ref().is_some_and(|task| ptr::eq(Rc::as_ptr(&task.context), context))
    }

    /// Whether there is no task, current or waiting.
    pub fn is_empty(&self) -> bool {
        self.current.borrow().is_none() && self.queue.borrow().is_empty()
    }

    /// Whether the current task has to yield, or was scheduled on the idle core after `since` (Linux: `need_resched`).
    pub fn is_to_switch(&self, since: Time) -> bool {
        let current = self.current.borrow();
        current.as_ref().is_some_and(|task| task.turns.is_cut() || task.turns.began() >= since)
    }
}

/// The scheduler, for all cores.
#[derive(Clone, Copy)]
pub(crate) struct Scheduler<'a> {
    pub cores: &'a Cores,
}

impl Scheduler<'_> {
    /// Makes a task runnable: chooses a core and starts it there if the core is free.
    pub fn enqueue(self, task: &Rc<Task>) {
        task.context.settle_account();
        let id = self.place(task);
        let core = self.cores.get(id);
        self.raise_floor(core);
        let floor = core.tasks.queue.borrow().floor();
        let before = task.context.core.get();
        if task.turns.state() == State::New {
            task.begin(floor);
        } else {
            if before != id {
                task.move_floor(self.cores.get(before).tasks.queue.borrow().floor(), floor);
            }
            task.catch_up(floor, self.cores.sched.latency);
        }
        self.cores.leave_idle(core, &task.context, Part::Scheduler);
        task.context.core.set(id);
        task.turns.wait(self.cores.now());
        core.tasks.queue.borrow_mut().insert(Rc::clone(task));
        task.tell(|watcher, _| watcher.waits());
        self.look_at(core, task);
    }

    /// Raises a queue's floor, the virtual runtime of newcomers, along with its tasks, even if no task has arrived
    /// for long.
    fn raise_floor(self, core: &Core) {
        let running = core.tasks.current.borrow().as_ref().filter(|task| task.is_fair()).map(|task| {
            task.context.settle_account();
            task.vruntime()
        });
        core.tasks.queue.borrow_mut().raise_floor(running);
    }

    /// After a task joined a core's queue: starts it if the core is free, or preempts the current task if the new one
    /// is urgent enough.
    fn look_at(self, core: &Core, task: &Task) {
        if core.tasks.current.borrow().is_none() {
            self.dispatch(core);
            return;
        }
        let current = core.tasks.current.borrow().clone();
        if let Some(current) = current {
            current.context.settle_account();
            if task.preempts(&current, self.cores.sched.wakeup_granularity) {
                current.turns.cut();
            }
            // The current task may have relied on being alone.
            current.context.wake();
        }
    }

    /// The core for a waking task.
    fn place(self, task: &Task) -> CpuId {
        let before = task.context.core.get();
        let node = self.cores.get(before).node;
        let allowed = |core: &&Core| task.may_run_on(core.id);
        let idle = |core: &&Core| core.is_idle();
        let cores = || self.cores.all.iter().filter(allowed);
        let fresh = task.turns.state() == State::New;
        if task.is_real_time() {
            return self.place_real_time(task);
        }
        if task.may_run_on(before) && !fresh && self.cores.get(before).is_idle() {
            return before;
        }
        if let Some(core) = cores().filter(|c| c.node == node).find(idle).or_else(|| cores().find(idle)) {
            return core.id;
        }
        if task.may_run_on(before) && !fresh {
            return before;
        }
        cores().min_by_key(|core| (core.tasks.queue.borrow().len(), core.id)).map_or(before, |core| core.id)
    }

    /// The core for a real-time task: the one with the least urgent work, if that is less urgent. Prefers the last
    /// core, then nearby ones.
    fn place_real_time(self, task: &Task) -> CpuId {
        let before = self.cores.get(task.context.core.get());
        let urgency = |core: &Core| {
            let current = core.tasks.current.borrow().as_ref().map(|task| task.urgency());
            let waiting = core.tasks.queue.borrow().urgency();
            current.into_iter().chain(waiting).min().unwrap_or((u8::MAX, 0))
        };
        let place = |core: &&Core| {
            let near = (core.id == before.id, core.node == before.node);
            (urgency(core), near, core::cmp::Reverse(core.id))
        };
        let best = self.cores.all.iter().filter(|core| task.may_run_on(core.id)).max_by_key(place);
        best.map_or(before.id, |core| core.id)
    }

    /// Takes the most urgent waiting real-time task that may run on `core` from another core, if it is more urgent
    /// than this core's own work.
    fn pull(self, core: &Core) -> Option<Rc<Task>> {
        let may = |task: &Task| task.may_run_on(core.id);
        let mine = core.tasks.queue.borrow().urgency().unwrap_or((u8::MAX, 0));
        let waiting =
            |other: &&Core| other.tasks.queue.borrow().real_time(may).map(|urgency| (urgency, other.id));
        let others = self.cores.all.iter().filter(|other| other.id != core.id);
        let (urgency, from) = others.filter_map(|other| waiting(&other)).min()?;
        if urgency >= mine {
            return None;
        }
        let from = self.cores.get(from);
        let task = from.tasks.queue.borrow_mut().take_for_other(may)?;
        self.move_to(&task, from, core);
        Some(task)
    }

    /// Starts the first task of a free core's queue.
    fn dispatch(self, core: &Core) {
        debug_assert!(core.tasks.current.borrow().is_none());
        let first = self.pull(core).or_else(|| core.tasks.queue.borrow_mut().take_first());
        let Some(next) = first.or_else(|| self.steal(core)) else {
            core.tasks.last.set(None);
            self.cores.enter_idle(core);
            self.cores.note_busy(core);
            return;
        };
        next.turns.begin(self.cores.now());
        if core.tasks.last.replace(Some(next.id)) != Some(next.id) {
            next.turns.switched();
            next.context.cycles(Part::Scheduler, self.cores.costs.context_switch);
        }
        *core.tasks.current.borrow_mut() = Some(Rc::clone(&next));
        next.tell(|watcher, cpu| watcher.runs(cpu));
        self.cores.note_busy(core);
        if !next.is_polled() {
            next.context.wake();
        }
    }

    /// Takes a waiting task from the longest queue, of the same node first.
    fn steal(self, thief: &Core) -> Option<Rc<Task>> {
        let may = |task: &Task| task.may_run_on(thief.id);
        let has_some = |c: &&Core| c.id != thief.id && c.tasks.queue.borrow().any(may);
        let farther =
            |c: &&Core| (c.node != thief.node, core::cmp::Reverse(c.tasks.queue.borrow().len()), c.id);
        let victim = self.cores.all.iter().filter(has_some).min_by_key(farther)?;
        self.raise_floor(victim);
        let task = victim.tasks.queue.borrow_mut().take_for_other(may)?;
        self.move_to(&task, victim, thief);
        Some(task)
    }

    /// Moves a task that is in no queue to another core.
    fn move_to(self, task: &Task, from: &Core, to: &Core) {
        task.move_floor(from.tasks.queue.borrow().floor(), to.tasks.queue.borrow().floor());
        task.context.core.set(to.id);
        task.turns.migrated();
    }

    /// The core for a task at the end of its time slice: the same one, unless it may not stay or others have much
    /// less to do. Leaving the node takes a larger difference.
    fn place_after_turn(self, task: &Task, core: &Core) -> CpuId {
        if task.is_real_time() {
            return self.place_real_time(task);
        }
        let load = |c: &Core| c.tasks.queue.borrow().len() + usize::from(c.tasks.current.borrow().is_some());
        let mine = load(core);
        let others = self.cores.all.iter().filter(|c| c.id != core.id && task.may_run_on(c.id));
        if !task.may_run_on(core.id) {
            return others.min_by_key(|c| (load(c), c.node != core.node, c.id)).map_or(core.id, |c| c.id);
        }
        let gain = |c: &Core| mine.saturating_sub(load(c) + usize::from(c.node != core.node));
        match others.max_by_key(|c| (gain(c), core::cmp::Reverse(c.id))) {
            Some(other) if gain(other) >= 1 => other.id,
            _ => core.id,
        }
    }

    /// A task gives up its core, temporarily or for good.
    pub fn release(self, task: &Task, state: State) {
        let core = self.cores.get(task.context.core.get());
        self.raise_floor(core);
        task.tell(|watcher, cpu| watcher.stops(cpu, false));
        task.turns.end(state);
        *core.tasks.current.borrow_mut() = None;
        self.dispatch(core);
    }

    /// Whether another task should get this task's core.
    pub fn turn_is_over(self, task: &Task) -> bool {
        if task.turns.state() != State::Running {
            return false;
        }
        let core = self.cores.get(task.context.core.get());
        task.turns.is_cut() || self.turn_ends(core) <= self.cores.now()
    }

    /// End of the current task's time slice; never, while no equally urgent task waits.
    pub fn turn_ends(self, core: &Core) -> Time {
        let current = core.tasks.current.borrow();
        let Some(current) = current.as_ref() else { return Time::NEVER };
        let queue = core.tasks.queue.borrow();
        if !queue.has_rival_of(current) {
            return Time::NEVER;
        }
        let turn = (self.cores.sched.latency / (queue.len() as u64 + 1)).max(self.cores.sched.granularity);
        current.turns.began() + turn
    }

    /// Reschedules the core of `context`'s task if its time slice is over.
    pub fn yield_if_due(self, context: &Context) -> bool {
        debug_assert_eq!(context.level, Level::Task);
        let Some(task) = context.task.borrow().upgrade() else { return false };
        if !self.turn_is_over(&task) {
            return false;
        }
        let core = self.cores.get(context.core.get());
        self.raise_floor(core);
        task.tell(|watcher, cpu| watcher.stops(cpu, true));
        *core.tasks.current.borrow_mut() = None;
        task.turns.wait(self.cores.now());
        let target = self.cores.get(self.place_after_turn(&task, core));
        if target.id != core.id {
            self.raise_floor(target);
            self.cores.leave_idle(target, &task.context, Part::Scheduler);
            self.move_to(&task, core, target);
        }
        target.tasks.queue.borrow_mut().insert(Rc::clone(&task));
        self.dispatch(core);
        if target.id != core.id && task.turns.state() == State::Runnable {
            self.look_at(target, &task);
        }
        // The task may have got the core back at once.
        task.turns.state() != State::Running
    }

    /// Changes a task's priority.
    pub fn set_priority(self, task: &Rc<Task>, priority: Priority) {
        task.context.settle_account();
        let core = self.cores.get(task.context.core.get());
        self.raise_floor(core);
        let set = || task.set_priority(priority, core.tasks.queue.borrow().floor());
        match task.turns.state() {
            // Its position in the queue changes.
            State::Runnable => {
                core.tasks.queue.borrow_mut().remove(task);
                set();
                self.enqueue(task);
            }
            State::Running => {
                set();
                // A waiting task may go first now.
                task.turns.cut();
                task.context.wake();
            }
            _ => set(),
        }
    }

    /// Changes the cores that a task may run on.
    pub fn set_affinity(self, task: &Rc<Task>, cpus: Vec<CpuId>) {
        task.set_cpus(cpus);
        let core = self.cores.get(task.context.core.get());
        // A waiting real-time task may start on another core now.
        let waits = task.is_real_time() && task.turns.state() == State::Runnable;
        if task.may_run_on(core.id) && !waits {
            return;
        }
        match task.turns.state() {
            State::Running => {
                task.turns.cut();
                task.context.wake();
            }
            State::Runnable => {
                core.tasks.queue.borrow_mut().remove(task);
                task.turns.migrated();
                self.enqueue(task);
            }
            _ => {}
        }
    }
}
