//! Tasks by number: those that run, the last that ended, and what all of them together have used.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use platform::cpu::{CpuId, CpuOps as _};
use platform::kernel::{Priority, TaskId, TaskState};
use platform::memory::Policy;

use crate::account::Times;
use crate::sched::{State, Task};

/// Tasks that are remembered after their end.
const REMEMBERED: usize = 1024;

/// What a task has used.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskInfo {
    /// Its number.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// The core that it is on, or was on last.
    pub cpu: CpuId,
    /// How urgent it is.
    pub priority: Priority,
    /// The cores that it may run on; empty for all.
    pub cpus: Vec<CpuId>,
    /// Where its memory comes from.
    pub policy: Policy,
    /// Time by part.
    pub times: Times,
    /// How often it was given a core that another task had had.
    pub switches: u64,
    /// How often it went to another core.
    pub migrations: u64,
    /// It has ended.
    pub ended: bool,
}

impl TaskInfo {
    fn of(task: &Task) -> Self {
        Self {
            id: task.id,
            name: task.name.clone(),
            cpu: task.context.core.get(),
            priority: task.priority.get(),
            cpus: task.cpus.borrow().clone(),
            policy: task.context.policy(),
            times: *task.times.borrow(),
            switches: task.switches.get(),
            migrations: task.migrations.get(),
            ended: task.state.get() == State::Ended,
        }
    }

    fn state(self) -> TaskState {
        let Self { id, name, cpu, priority, cpus, policy, times, migrations, ended, .. } = self;
        TaskState { id, name, priority, cpu, cpus, policy, busy: times.total(), migrations, ended }
    }
}

/// What the tasks of one name have used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskTimes {
    /// How many there were.
    pub tasks: u64,
    /// Time by part.
    pub times: Times,
    /// How often they were given a core that another task had had.
    pub switches: u64,
    /// How often they went to another core.
    pub migrations: u64,
}

impl TaskTimes {
    fn add(&mut self, info: &TaskInfo) {
        self.tasks += 1;
        self.times += &info.times;
        self.switches += info.switches;
        self.migrations += info.migrations;
    }
}

/// The tasks of a kernel.
#[derive(Default)]
pub(crate) struct Tasks {
    alive: RefCell<BTreeMap<TaskId, Rc<Task>>>,
    ended: RefCell<VecDeque<TaskInfo>>,
    /// Of all that ended, by name.
    sums: RefCell<BTreeMap<String, TaskTimes>>,
    last: Cell<u32>,
    /// The one whose program is being polled.
    polled: Rc<Cell<Option<TaskId>>>,
}

impl Tasks {
    /// A number that no task has had.
    pub fn next_id(&self) -> TaskId {
        self.last.set(self.last.get() + 1);
        TaskId(self.last.get())
    }

    pub fn add(&self, task: Rc<Task>) {
        self.alive.borrow_mut().insert(task.id, task);
    }

    /// What says which task's program is being polled.
    pub fn polled(&self) -> Rc<Cell<Option<TaskId>>> {
        Rc::clone(&self.polled)
    }

    /// The task whose program is being polled (Linux: `current`); none while an interrupt is served.
    pub fn current(&self) -> Option<Rc<Task>> {
        self.get(self.polled.get()?)
    }

    /// The tasks of a process that have not ended.
    pub fn of_process(&self, process: TaskId) -> Vec<Rc<Task>> {
        self.alive.borrow().values().filter(|task| task.process == process).cloned().collect()
    }

    /// A task that has not ended.
    pub fn get(&self, id: TaskId) -> Option<Rc<Task>> {
        self.alive.borrow().get(&id).cloned()
    }

    /// A task has ended: what is kept of it no longer grows with the number of tasks.
    pub fn ended(&self, id: TaskId) {
        let Some(task) = self.alive.borrow_mut().remove(&id) else { return };
        let info = TaskInfo::of(&task);
        self.sums.borrow_mut().entry(info.name.clone()).or_default().add(&info);
        let mut ended = self.ended.borrow_mut();
        if ended.len() == REMEMBERED {
            ended.pop_front();
        }
        ended.push_back(info);
    }

    pub fn all(&self) -> Vec<TaskInfo> {
        let alive = self.alive.borrow();
        let mut all: Vec<_> = self.ended.borrow().iter().cloned().collect();
        all.extend(alive.values().map(|task| TaskInfo::of(task)));
        all
    }

    /// As [`all`](Self::all), as programs see them.
    pub fn states(&self) -> Vec<TaskState> {
        let alive = self.alive.borrow();
        let ended = self.ended.borrow();
        ended
            .iter()
            .cloned()
            .chain(alive.values().map(|task| TaskInfo::of(task)))
            .map(TaskInfo::state)
            .collect()
    }

    pub fn by_name(&self) -> BTreeMap<String, TaskTimes> {
        let mut sums = self.sums.borrow().clone();
        for task in self.alive.borrow().values() {
            sums.entry(task.name.clone()).or_default().add(&TaskInfo::of(task));
        }
        sums
    }
}
