//! Cores and the execution contexts on them.
//!
//! A core runs one context at a time. There are three levels: the current task, deferred interrupt work and interrupt
//! handlers. A higher level preempts lower ones. A context runs ahead of the clock by the work it has computed since
//! its last sync. During a sync the simulation catches up, and only then can interrupts and the scheduler preempt it.

mod context;
mod device_lines;
mod timers;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use engine::{Handle, Trace};
use hardware::Fabric;
use platform::cpu::{Cpu, CpuId, Node, Part};
use platform::mmio::Store;
use units::{Duration, Time};

pub(crate) use context::Context;
pub(crate) use timers::{CoreTimers, Expiry, Timer};

use crate::account::{Ran, Times};
use crate::costs::{CoreParams, KernelCosts, SchedParams};
use crate::ground::Ground;
use crate::sched::{CoreTasks, Scheduler};

/// Priority of a context: it preempts those with a lower level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    Task,
    Softirq,
    Hardirq,
}

/// A switch to the idle loop. No task waits for it, but one that is woken before its end does.
#[derive(Clone, Copy)]
struct IdleSwitch {
    /// Up to when it is accounted.
    accounted: Time,
    end: Time,
}

pub(crate) struct Core {
    pub id: CpuId,
    pub node: Node,
    /// Active contexts on the levels above tasks.
    raised: [RefCell<Weak<Context>>; 2],
    pub tasks: CoreTasks,
    times: RefCell<Times>,
    /// The part of these times that interrupts took.
    interrupted: Cell<Duration>,
    /// The switch to the idle loop, until it is over.
    into_idle: Cell<Option<IdleSwitch>>,
    /// What such switches took, and leaving the idle loop.
    idling: Cell<Duration>,
    /// Time in which it waited for devices: for what a load reads, and for room for stores.
    stalled: Cell<Duration>,
    pub timers: CoreTimers,
}

impl Core {
    fn new(id: CpuId, node: Node) -> Self {
        Self {
            id,
            node,
            raised: Default::default(),
            tasks: CoreTasks::default(),
            times: RefCell::default(),
            interrupted: Cell::default(),
            into_idle: Cell::new(None),
            idling: Cell::default(),
            stalled: Cell::default(),
            timers: CoreTimers::default(),
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

    /// The context with the highest level; `None` if the core is idle.
    pub fn running(&self) -> Option<Rc<Context>> {
        self.top().or_else(|| self.tasks.running())
    }

    /// Accounts passed time on all levels.
    fn settle_account(&self) {
        let raised = self.raised.iter().filter_map(|context| context.borrow().upgrade());
        raised.chain(self.tasks.running()).for_each(|context| context.settle_account());
    }

    /// Whether the core is idle.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether `context` may run now.
    fn lets(&self, context: &Context) -> bool {
        match self.top() {
            Some(top) => top.level == context.level,
            None => context.level == Level::Task && self.tasks.runs(context),
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

    pub fn scheduler(&self) -> Scheduler<'_> {
        Scheduler { cores: self }
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

    /// Time in which a core switched to the idle loop and back.
    pub fn idling(&self, id: CpuId) -> Duration {
        let core = self.get(id);
        self.settle_account(core);
        core.idling.get()
    }

    /// Time in which a core waited for devices.
    pub fn stalled(&self, id: CpuId) -> Duration {
        self.get(id).stalled.get()
    }

    /// Counts a wait of a core for a device.
    fn note_stall(&self, id: CpuId, time: Duration) {
        let stalled = &self.get(id).stalled;
        stalled.set(stalled.get() + time);
    }

    /// Waits for a device's answer while the core stalls.
    pub async fn stall_on_device<T>(&self, cpu: &Cpu, answer: impl Future<Output = T>) -> T {
        cpu.sync().await;
        let since = cpu.now();
        let answer = cpu.stall_on(answer).await;
        self.note_stall(cpu.id(), cpu.now().since(since));
        answer
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

    /// A core without a task switches to the idle loop. A vCPU halts at once: its host does not run it any longer.
    pub fn enter_idle(&self, core: &Core) {
        // Below an interrupt's work the switch takes no time of its own.
        if !self.has_clocks && core.running().is_none() {
            let now = self.now();
            let end = now + self.time_for(self.costs.context_switch);
            core.into_idle.set(Some(IdleSwitch { accounted: now, end }));
        }
    }

    /// Accounts the passed part of the switch to the idle loop. Returns the rest of it.
    fn settle_idle(&self, core: &Core) -> Option<IdleSwitch> {
        let switch = core.into_idle.take()?;
        let passed = self.now().min(switch.end);
        let time = passed.since(switch.accounted);
        self.book(core.id, Level::Task, Part::Scheduler, time);
        core.idling.set(core.idling.get() + time);
        if self.is_watched.get() && passed > switch.accounted {
            let (core, level, part) = (core.id, Level::Task as u8, Part::Scheduler);
            let from = switch.accounted;
            self.trace.borrow_mut().record(|| Ran { core, level, task: None, part, from, to: passed });
        }
        let rest = Some(IdleSwitch { accounted: passed, ..switch }).filter(|rest| rest.accounted < rest.end);
        core.into_idle.set(rest);
        rest
    }

    /// Work has come to a core. If it idles, `context` takes it out of the idle loop, or waits until it has got there.
    pub fn leave_idle(&self, core: &Core, context: &Context, part: Part) {
        if !core.is_idle() || core.running().is_some() {
            return;
        }
        // What it costs to have been idle is no work, either: more of it, and the core would not have been.
        let cost = match self.settle_idle(core) {
            Some(rest) => {
                let left = rest.end.since(rest.accounted);
                context.charge(Part::Scheduler, left);
                left
            }
            None => {
                context.cycles(part, self.costs.idle_exit);
                self.time_for(self.costs.idle_exit)
            }
        };
        core.idling.set(core.idling.get() + cost);
        core.into_idle.set(None);
    }
}
