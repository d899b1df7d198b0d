//! Which task a core runs: run queues, turns, placement and balancing.
//!
//! Fair among equals by virtual runtime, real-time tasks first, idle ones last. A task that wakes goes to an idle
//! core, near to where it ran before; a core that falls idle takes from the busiest, of its own node first. A real-time
//! task goes to the core whose work is least urgent, and a core whose next work is less urgent than a real-time task that
//! waits elsewhere takes that first, as Linux pushes and pulls them: none waits while a lesser one runs where it may.

mod queue;
mod task;

use std::rc::Rc;

use platform::cpu::{CpuId, Part};
use platform::kernel::Priority;
use units::Time;

pub(crate) use queue::RunQueue;
pub use task::TaskWatcher;
pub(crate) use task::{State, Task, TaskFuture};

use crate::cpu::{Context, Core, Cores, Level};

impl Cores {
    /// A task wants to run: finds it a core, and gives it the core if that is free.
    pub fn enqueue(&self, task: &Rc<Task>) {
        task.context.settle_account();
        let id = self.place(task);
        let core = self.get(id);
        self.raise_floor(core);
        let floor = core.queue.borrow().floor();
        let before = task.context.core.get();
        if task.state.get() == State::New {
            task.begin(floor);
        } else {
            if before != id {
                task.move_floor(self.get(before).queue.borrow().floor(), floor);
            }
            task.catch_up(floor, self.sched.latency);
        }
        let idle = core.is_idle();
        if idle && core.running().is_none() {
            task.context.cycles(Part::Scheduler, self.costs.idle_exit);
        }
        task.context.core.set(id);
        task.wait(self.now());
        core.queue.borrow_mut().insert(Rc::clone(task));
        task.tell(|watcher, _| watcher.waits());
        self.look_at(core, task);
    }

    /// Where newcomers of a core start rises with those who run and wait there, however long nobody has come.
    fn raise_floor(&self, core: &Core) {
        let running = core.current.borrow().as_ref().filter(|task| task.is_fair()).map(|task| {
            task.context.settle_account();
            task.vruntime.get()
        });
        core.queue.borrow_mut().raise_floor(running);
    }

    /// A task has come into a core's queue: the core goes to it if nobody has it, or is given up soon if the task is
    /// urgent enough.
    fn look_at(&self, core: &Core, task: &Task) {
        if core.current.borrow().is_none() {
            self.dispatch(core);
            return;
        }
        let current = core.current.borrow().clone();
        if let Some(current) = current {
            current.context.settle_account();
            if task.preempts(&current, self.sched.wakeup_granularity) {
                current.resched.set(true);
            }
            // It may have counted on having the core for itself.
            current.context.wake();
        }
    }

    /// The core for a task that wakes.
    fn place(&self, task: &Task) -> CpuId {
        let before = task.context.core.get();
        let node = self.get(before).node;
        let allowed = |core: &&Core| task.may_run_on(core.id);
        let idle = |core: &&Core| core.is_idle();
        let cores = || self.all.iter().filter(allowed);
        let fresh = task.state.get() == State::New;
        if task.is_real_time() {
            return self.place_real_time(task);
        }
        if task.may_run_on(before) && !fresh && self.get(before).is_idle() {
            return before;
        }
        if let Some(core) = cores().filter(|c| c.node == node).find(idle).or_else(|| cores().find(idle)) {
            return core.id;
        }
        if task.may_run_on(before) && !fresh {
            return before;
        }
        cores().min_by_key(|core| (core.queue.borrow().len(), core.id)).map_or(before, |core| core.id)
    }

    /// The core for a real-time task: where the least urgent work is done, if that is less urgent; where it was, or at
    /// least near to it, among equals.
    fn place_real_time(&self, task: &Task) -> CpuId {
        let before = self.get(task.context.core.get());
        let urgency = |core: &Core| {
            let current = core.current.borrow().as_ref().map(|task| task.urgency());
            let waiting = core.queue.borrow().urgency();
            current.into_iter().chain(waiting).min().unwrap_or((u8::MAX, 0))
        };
        let place = |core: &&Core| {
            let near = (core.id == before.id, core.node == before.node);
            (urgency(core), near, core::cmp::Reverse(core.id))
        };
        let best = self.all.iter().filter(|core| task.may_run_on(core.id)).max_by_key(place);
        best.map_or(before.id, |core| core.id)
    }

    /// Takes the most urgent real-time task that waits elsewhere and may run on `core`, if it is more urgent than
    /// what the core has to do.
    fn pull(&self, core: &Core) -> Option<Rc<Task>> {
        let may = |task: &Task| task.may_run_on(core.id);
        let mine = core.queue.borrow().urgency().unwrap_or((u8::MAX, 0));
        let waiting = |other: &&Core| other.queue.borrow().real_time(may).map(|urgency| (urgency, other.id));
        let others = self.all.iter().filter(|other| other.id != core.id);
        let (urgency, from) = others.filter_map(|other| waiting(&other)).min()?;
        if urgency >= mine {
            return None;
        }
        let from = self.get(from);
        let task = from.queue.borrow_mut().take_for_other(may)?;
        self.move_to(&task, from, core);
        Some(task)
    }

    /// Gives a core that nobody has to the first in its queue.
    fn dispatch(&self, core: &Core) {
        debug_assert!(core.current.borrow().is_none());
        let first = self.pull(core).or_else(|| core.queue.borrow_mut().take_first());
        let Some(next) = first.or_else(|| self.steal(core)) else {
            self.note_busy(core);
            return;
        };
        next.begin_turn(self.now());
        next.resched.set(false);
        if core.last_task.replace(Some(next.id)) != Some(next.id) {
            next.switches.set(next.switches.get() + 1);
            next.context.cycles(Part::Scheduler, self.costs.context_switch);
        }
        *core.current.borrow_mut() = Some(Rc::clone(&next));
        next.tell(|watcher, cpu| watcher.runs(cpu));
        self.note_busy(core);
        if !next.polled.get() {
            next.context.wake();
        }
    }

    /// Takes a waiting task from the longest queue, of the same node first.
    fn steal(&self, thief: &Core) -> Option<Rc<Task>> {
        let may = |task: &Task| task.may_run_on(thief.id);
        let has_some = |c: &&Core| c.id != thief.id && c.queue.borrow().any(may);
        let farther = |c: &&Core| (c.node != thief.node, core::cmp::Reverse(c.queue.borrow().len()), c.id);
        let victim = self.all.iter().filter(has_some).min_by_key(farther)?;
        self.raise_floor(victim);
        let task = victim.queue.borrow_mut().take_for_other(may)?;
        self.move_to(&task, victim, thief);
        Some(task)
    }

    /// A task that is in no queue goes to another core.
    fn move_to(&self, task: &Task, from: &Core, to: &Core) {
        task.move_floor(from.queue.borrow().floor(), to.queue.borrow().floor());
        task.context.core.set(to.id);
        task.migrations.set(task.migrations.get() + 1);
    }

    /// The core for a task whose turn is over: where it was, unless it must not stay there or others have much less to
    /// do. A node is left only for a greater difference.
    fn place_after_turn(&self, task: &Task, core: &Core) -> CpuId {
        if task.is_real_time() {
            return self.place_real_time(task);
        }
        let load = |c: &Core| c.queue.borrow().len() + usize::from(c.current.borrow().is_some());
        let mine = load(core);
        let others = self.all.iter().filter(|c| c.id != core.id && task.may_run_on(c.id));
        if !task.may_run_on(core.id) {
            return others.min_by_key(|c| (load(c), c.node != core.node, c.id)).map_or(core.id, |c| c.id);
        }
        let gain = |c: &Core| mine.saturating_sub(load(c) + usize::from(c.node != core.node));
        match others.max_by_key(|c| (gain(c), core::cmp::Reverse(c.id))) {
            Some(other) if gain(other) >= 1 => other.id,
            _ => core.id,
        }
    }

    /// A task gives its core away, for a while or for good.
    pub fn release(&self, task: &Task, state: State) {
        let core = self.get(task.context.core.get());
        self.raise_floor(core);
        task.tell(|watcher, cpu| watcher.stops(cpu, false));
        task.state.set(state);
        *core.current.borrow_mut() = None;
        self.dispatch(core);
    }

    /// Whether somebody else should have a task's core.
    pub fn turn_is_over(&self, task: &Task) -> bool {
        if task.state.get() != State::Running {
            return false;
        }
        let core = self.get(task.context.core.get());
        task.resched.get() || self.turn_ends(core) <= self.now()
    }

    /// When the current task's turn ends: never while nobody waits who is as urgent.
    pub fn turn_ends(&self, core: &Core) -> Time {
        let current = core.current.borrow();
        let Some(current) = current.as_ref() else { return Time::NEVER };
        let queue = core.queue.borrow();
        if !queue.has_rival_of(current) {
            return Time::NEVER;
        }
        let turn = (self.sched.latency / (queue.len() as u64 + 1)).max(self.sched.granularity);
        current.turn_began.get() + turn
    }

    /// Gives the core of `context`'s task to somebody else if its turn is over.
    pub fn yield_if_due(&self, context: &Context) -> bool {
        debug_assert_eq!(context.level, Level::Task);
        let Some(task) = context.task.borrow().upgrade() else { return false };
        if !self.turn_is_over(&task) {
            return false;
        }
        let core = self.get(context.core.get());
        self.raise_floor(core);
        task.tell(|watcher, cpu| watcher.stops(cpu, true));
        *core.current.borrow_mut() = None;
        task.wait(self.now());
        let target = self.get(self.place_after_turn(&task, core));
        if target.id != core.id {
            self.raise_floor(target);
            self.move_to(&task, core, target);
        }
        target.queue.borrow_mut().insert(Rc::clone(&task));
        self.dispatch(core);
        if target.id != core.id && task.state.get() == State::Runnable {
            self.look_at(target, &task);
        }
        // It may have got the core again, being still the first.
        task.state.get() != State::Running
    }

    /// Makes a task more or less urgent.
    pub fn set_priority(&self, task: &Rc<Task>, priority: Priority) {
        task.context.settle_account();
        let core = self.get(task.context.core.get());
        self.raise_floor(core);
        let set = || {
            let was_fair = task.is_fair();
            task.priority.set(priority);
            if was_fair != task.is_fair() {
                // What it computed in another class counts neither for it nor against it.
                task.vruntime.set(core.queue.borrow().floor());
            }
        };
        match task.state.get() {
            // Its place in the queue is another one now.
            State::Runnable => {
                core.queue.borrow_mut().remove(task);
                set();
                self.enqueue(task);
            }
            State::Running => {
                set();
                // Somebody who waits may go before it now.
                task.resched.set(true);
                task.context.wake();
            }
            _ => set(),
        }
    }

    /// Lets a task run on other cores.
    pub fn set_affinity(&self, task: &Rc<Task>, cpus: Vec<CpuId>) {
        *task.cpus.borrow_mut() = cpus;
        let core = self.get(task.context.core.get());
        // A real-time task that waits may now go where it need not.
        let waits = task.is_real_time() && task.state.get() == State::Runnable;
        if task.may_run_on(core.id) && !waits {
            return;
        }
        match task.state.get() {
            State::Running => {
                task.resched.set(true);
                task.context.wake();
            }
            State::Runnable => {
                core.queue.borrow_mut().remove(task);
                task.migrations.set(task.migrations.get() + 1);
                self.enqueue(task);
            }
            _ => {}
        }
    }
}
