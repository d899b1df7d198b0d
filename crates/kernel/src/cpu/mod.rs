//! Cores and the execution contexts on them.
//!
//! A core runs one context at a time. There are three levels: the current task, deferred interrupt work and interrupt
//! handlers. A higher level preempts lower ones. A context runs ahead of the clock by the work it has computed since
//! its last sync. During a sync the simulation catches up, and only then can interrupts and the scheduler preempt it.

mod context;
mod device_lines;
mod idle;
mod timers;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use engine::{Handle, Trace};
use hardware::Fabric;
use platform::cpu::{CpuId, Node, Part};
use units::{Duration, Time};

pub(crate) use context::Context;
pub(crate) use timers::{Expiry, Timer, Timers};

use crate::account::{Ran, Times};
use crate::costs::{CoreParams, KernelCosts, SchedParams};
use crate::ground::{Ground, Store};
use crate::sched::{RunQueue, Task};

/// Priority of a context: it preempts those with a lower level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    Task,
    Softirq,
    Hardirq,
}

pub(crate) struct Core {
    pub id: CpuId,
    pub node: Node,
    /// Active contexts on the levels above tasks.
    raised: [RefCell<Weak<Context>>; 2],
    /// The current task.
    pub current: RefCell<Option<Rc<Task>>>,
    pub queue: RefCell<RunQueue>,
    times: RefCell<Times>,
    /// The part of these times that interrupts took.
    interrupted: Cell<Duration>,
    /// The task whose address space is loaded and which runs again without a switch; none in the idle loop.
    pub last_task: Cell<Option<platform::kernel::TaskId>>,
    /// The switch to the idle loop, until it is over.
    into_idle: Cell<Option<idle::Switch>>,
    pub timers: Timers,
}

impl Core {
    fn new(id: CpuId, node: Node) -> Self {
        Self {
            id,
            node,
            raised: Default::default(),
            current: RefCell::new(None),
            queue: RefCell::default(),
            times: RefCell::default(),
            interrupted: Cell::default(),
            last_task: Cell::new(None),
            into_idle: Cell::new(None),
            timers: Timers::default(),
        }
    }

    /// The highest active context above tasks.
    fn top(&self) -> Option<Rc<Context>> {
        self.raised[1].borrow().upgrade().or_else(|| self.raised[0].borrow().upgrade())
    }

    /// Starts interrupt work on `context`'s level and preempts what is below.
    pub fn raise(&self, context: &Rc<Context>) {
        let below = self.running();
        *self.raised[context.level as usize - 1].borrow_mut() = Rc::downgrade(context);
        if let Some(below) = below.filter(|below| below.level < context.level) {
            below.pause();
        }
    }

    /// Ends interrupt work on a level and resumes what is below.
    pub fn lower(&self, level: Level) {
        *self.raised[level as usize - 1].borrow_mut() = Weak::new();
        if let Some(next) = self.running() {
            next.go_on();
        }
    }

    /// The running context.
    pub fn running(&self) -> Option<Rc<Context>> {
        self.top().or_else(|| self.current.borrow().as_ref().map(|task| Rc::clone(&task.context)))
    }

    /// Accounts passed time on all levels.
    fn settle_account(&self) {
        let raised = self.raised.iter().filter_map(|context| context.borrow().upgrade());
        let current = self.current.borrow().as_ref().map(|task| Rc::clone(&task.context));
        raised.chain(current).for_each(|context| context.settle_account());
    }

    /// Whether the core is idle.
    pub fn is_idle(&self) -> bool {
        self.current.borrow().is_none() && self.queue.borrow().is_empty()
    }

    /// Whether its task has to yield, or was scheduled on the idle core after `since` (Linux: `need_resched`).
    pub fn is_to_switch(&self, since: Time) -> bool {
        let current = self.current.borrow();
        current.as_ref().is_some_and(|task| task.resched.get() || task.turn_began.get() >= since)
    }

    /// Whether `context` may run now.
    fn lets(&self, context: &Context) -> bool {
        match self.top() {
            Some(top) => top.level == context.level,
            None => {
                context.level == Level::Task
                    && self
                        .current
                        .borrow()
                        .as_ref()
                        .is_some_and(|task| std::ptr::eq(Rc::as_ptr(&task.context), context))
            }
        }
    }
}

/// The cores of a kernel, and their access to the hardware.
pub(crate) struct Cores {
    /// Simulation tasks and clock.
    pub hw: Handle<Fabric>,
    pub ground: Rc<dyn Ground>,
    pub params: CoreParams,
    pub costs: KernelCosts,
    pub sched: SchedParams,
    pub all: Vec<Core>,
    /// Cached lines of devices.
    pub device_lines: device_lines::DeviceLines,
    /// Whether an observer is set, and which.
    pub is_watched: Cell<bool>,
    pub trace: RefCell<Trace<Ran>>,
    /// Whether cores run only at times, as vCPUs do.
    pub has_clocks: bool,
    /// Picoseconds per cycle times 2^32, to avoid a division for each piece of work.
    cycle_q32: u128,
}

impl Cores {
    pub fn new(
        hw: Handle<Fabric>,
        ground: Rc<dyn Ground>,
        nodes: &[Node],
        params: CoreParams,
        costs: KernelCosts,
        sched: SchedParams,
    ) -> Self {
        let all = (0..).map(CpuId).zip(nodes).map(|(id, &node)| Core::new(id, node)).collect();
        let cycle_q32 = (1_000_000_000_000 << 32) / u128::from(params.frequency.hz());
        Self {
            hw,
            has_clocks: ground.core_clocks().is_some(),
            ground,
            params,
            costs,
            sched,
            all,
            device_lines: Default::default(),
            is_watched: Cell::new(false),
            trace: RefCell::default(),
            cycle_q32,
        }
    }

    pub fn get(&self, id: CpuId) -> &Core {
        &self.all[usize::from(id.0)]
    }

    pub fn now(&self) -> Time {
        self.hw.now()
    }

    /// The clock that a core computes by: the simulation's, or the core's own if it does not always run.
    #[inline]
    pub fn clock(&self, core: CpuId) -> Time {
        if self.has_clocks { self.clock_of(core) } else { self.hw.now() }
    }

    #[cold]
    fn clock_of(&self, core: CpuId) -> Time {
        self.ground.core_clocks().map_or_else(|| self.hw.now(), |clocks| clocks.clock(core))
    }

    /// Whether a core is running.
    #[inline]
    pub fn runs(&self, core: CpuId) -> bool {
        !self.has_clocks || self.ground.core_clocks().is_none_or(|clocks| clocks.runs(core))
    }

    /// Tells the host's scheduler whether a core has work.
    #[inline]
    pub fn note_busy(&self, core: &Core) {
        if self.has_clocks
            && let Some(clocks) = self.ground.core_clocks()
        {
            clocks.set_busy(core.id, core.running().is_some());
        }
    }

    /// A core stores to a device at `when`.
    pub fn store(&self, core: CpuId, when: Time, store: Store<'_>) {
        self.ground.store_to_device(core, when, store);
    }

    pub fn time_for(&self, cycles: u64) -> Duration {
        Duration::from_ps(((u128::from(cycles) * self.cycle_q32 + (1 << 31)) >> 32) as u64)
    }

    /// Accounts passed time on all cores.
    pub fn settle_accounts(&self) {
        self.all.iter().for_each(|core| self.settle_account(core));
    }

    /// Accounts passed time of a core.
    fn settle_account(&self, core: &Core) {
        core.settle_account();
        self.settle_idle(core);
    }

    /// Time of a core by part.
    pub fn times(&self, id: CpuId) -> Times {
        let core = self.get(id);
        self.settle_account(core);
        *core.times.borrow()
    }

    /// Time of a core's interrupts, handlers and deferred work.
    pub fn interrupt_time(&self, id: CpuId) -> Duration {
        let core = self.get(id);
        core.settle_account();
        core.interrupted.get()
    }

    pub fn book(&self, id: CpuId, level: Level, part: Part, time: Duration) {
        let core = self.get(id);
        core.times.borrow_mut().add(part, time);
        if level != Level::Task {
            core.interrupted.set(core.interrupted.get() + time);
        }
    }
}
