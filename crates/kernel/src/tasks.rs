//! All tasks: running ones by ID, recently ended ones, and totals by name.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use platform::cpu::{CpuId, CpuOps as _, Part};
use platform::kernel::{Priority, Program, TaskId, TaskParams, TaskState};
use platform::memory::Policy;

use crate::account::Times;
use crate::cpu::{Context, Cores, Level};
use crate::sched::{State, Task, TaskFuture};

/// Ended tasks that are remembered.
const REMEMBERED: usize = 1024;

/// Description and usage of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskInfo {
    /// ID, not used again.
    pub id: TaskId,
    /// Name as shown by ps(1).
    pub name: String,
    /// Current or last core.
    pub cpu: CpuId,
    /// Nice value or real-time priority.
    pub priority: Priority,
    /// Cores that it may run on; empty for all.
    pub cpus: Vec<CpuId>,
    /// Memory policy.
    pub policy: Policy,
    /// CPU time by part.
    pub times: Times,
    /// Context switches from another task to this one.
    pub switches: u64,
    /// Migrations to another core.
    pub migrations: u64,
    /// Whether it has ended.
    pub ended: bool,
}

impl TaskInfo {
    fn of(task: &Task) -> Self {
        Self {
            id: task.id,
            name: task.name.clone(),
            cpu: task.context.core.get(),
            priority: task.priority(),
            cpus: task.cpus(),
            policy: task.context.policy(),
            times: task.times(),
            switches: task.turns.switches(),
            migrations: task.turns.migrations(),
            ended: task.turns.state() == State::Ended,
        }
    }

    fn state(self) -> TaskState {
        let Self { id, name, cpu, priority, cpus, policy, times, migrations, ended, .. } = self;
        TaskState { id, name, priority, cpu, cpus, policy, busy: times.total(), migrations, ended }
    }
}

/// Totals of all tasks with one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskTimes {
    /// Number of tasks.
    pub tasks: u64,
    /// CPU time by part.
    pub times: Times,
    /// Context switches from another task to these.
    pub switches: u64,
    /// Migrations to another core.
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

pub(crate) struct Tasks {
    me: Weak<Self>,
    cores: Rc<Cores>,
    alive: RefCell<BTreeMap<TaskId, Rc<Task>>>,
    ended: RefCell<VecDeque<TaskInfo>>,
    /// Totals of ended tasks, by name.
    sums: RefCell<BTreeMap<String, TaskTimes>>,
    last: Cell<u32>,
    /// The task being polled.
    polled: Rc<Cell<Option<TaskId>>>,
    /// Names of the devices that each running process has opened.
    opened: RefCell<BTreeMap<TaskId, BTreeSet<String>>>,
}

impl Tasks {
    pub fn new(cores: Rc<Cores>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            cores,
            alive: RefCell::default(),
            ended: RefCell::default(),
            sums: RefCell::default(),
            last: Cell::new(0),
            polled: Rc::default(),
            opened: RefCell::default(),
        })
    }

    /// Notes that the current process has opened a device.
    pub fn opens(&self, device: &str) {
        if let Some(task) = self.current() {
            self.opened.borrow_mut().entry(task.process).or_default().insert(device.to_owned());
        }
    }

    /// Names of the devices that a process has opened, as lsof(8) shows them; of the current one without its number.
    pub fn opened(&self, process: Option<TaskId>) -> BTreeSet<String> {
        let process = process.or_else(|| self.current().map(|task| task.process));
        process.and_then(|process| self.opened.borrow().get(&process).cloned()).unwrap_or_default()
    }

    /// Starts a program.
    pub fn spawn(&self, params: TaskParams, program: Program) -> TaskId {
        self.last.set(self.last.get() + 1);
        let id = TaskId(self.last.get());
        let parent = self.current().filter(|_| params.is_child);
        let cpus = match &parent {
            Some(parent) if params.cpus.is_empty() => parent.cpus(),
            _ => params.cpus,
        };
        let priority = match &parent {
            Some(parent) if params.priority == Priority::default() => parent.priority(),
            _ => params.priority,
        };
        let process = parent.map_or(id, |parent| parent.process);
        let first = cpus.first().copied().unwrap_or_default();
        let cores = Rc::clone(&self.cores);
        let context = Context::with_policy(cores, Level::Task, first, Part::User, params.policy);
        let task = Task::new((id, process), params.name, priority, cpus, context);
        let cpu = task.context.cpu();
        self.alive.borrow_mut().insert(id, Rc::clone(&task));
        let (me, future) = (self.me.clone(), TaskFuture::new(task, program(cpu), Rc::clone(&self.polled)));
        self.cores.hw.spawn(async move {
            future.await;
            if let Some(tasks) = me.upgrade() {
                tasks.ended(id);
            }
        });
        id
    }

    /// The task being polled (Linux: `current`); `None` in an interrupt.
    fn current(&self) -> Option<Rc<Task>> {
        self.get(self.polled.get()?)
    }

    /// Running tasks of a process.
    pub fn of_process(&self, process: TaskId) -> Vec<Rc<Task>> {
        self.alive.borrow().values().filter(|task| task.process == process).cloned().collect()
    }

    /// A running task.
    pub fn get(&self, id: TaskId) -> Option<Rc<Task>> {
        self.alive.borrow().get(&id).cloned()
    }

    /// Forgets old ended tasks, so that memory does not grow with the number of tasks.
    fn ended(&self, id: TaskId) {
        let Some(task) = self.alive.borrow_mut().remove(&id) else { return };
        self.opened.borrow_mut().remove(&id);
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

    /// As [`all`](Self::all), in the form for programs.
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
