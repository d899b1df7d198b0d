//! Cores, and what runs on them.
//!
//! A core does one thing at a time. What can run on it are contexts on three levels: the current task, deferred
//! interrupt work, and the interrupt handler; a higher level stops the lower ones where they are. A context runs
//! ahead of the clock by what it has computed since it last synchronised; while it synchronises, the simulation
//! catches up, and it is there that interrupts and the scheduler find it.

mod access;
mod context;
mod device_lines;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use engine::{Completion, Handle, Scheduler, Trace};
use hardware::core::{Store, StoreMark};
use hardware::root::{Host, HostId};
use hardware::wires::Wires;
use hardware::{Event, Fabric};
use platform::cpu::{CpuId, Node, Part};
use units::{Duration, Time};

pub(crate) use context::Context;

use crate::account::{Ran, Times};
use crate::costs::{CoreParams, KernelCosts, SchedParams};
use crate::sched::{RunQueue, Task};

/// How urgent a context is: it stops those below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    Task,
    Softirq,
    Hardirq,
}

/// A core.
pub(crate) struct Core {
    pub id: CpuId,
    pub node: Node,
    /// What is active on the levels above tasks.
    raised: [RefCell<Weak<Context>>; 2],
    /// The task that has the core.
    pub current: RefCell<Option<Rc<Task>>>,
    pub queue: RefCell<RunQueue>,
    times: RefCell<Times>,
    /// When stores that have retired will have been written.
    pub stores: RefCell<VecDeque<Time>>,
    /// Cycles that the next task on this core pays for the switch to it.
    pub last_task: Cell<Option<platform::kernel::TaskId>>,
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
            stores: RefCell::default(),
            last_task: Cell::new(None),
        }
    }

    /// The context on the highest active level above tasks.
    fn top(&self) -> Option<Rc<Context>> {
        self.raised[1].borrow().upgrade().or_else(|| self.raised[0].borrow().upgrade())
    }

    /// Begins interrupt work on `context`'s level: what is below stops.
    pub fn raise(&self, context: &Rc<Context>) {
        let below = self.running();
        *self.raised[context.level as usize - 1].borrow_mut() = Rc::downgrade(context);
        if let Some(below) = below.filter(|below| below.level < context.level) {
            below.pause();
        }
    }

    /// Ends interrupt work on a level: what is below goes on.
    pub fn lower(&self, level: Level) {
        *self.raised[level as usize - 1].borrow_mut() = Weak::new();
        if let Some(next) = self.running() {
            next.go_on();
        }
    }

    /// What the core does now.
    pub fn running(&self) -> Option<Rc<Context>> {
        self.top().or_else(|| self.current.borrow().as_ref().map(|task| Rc::clone(&task.context)))
    }

    /// Books what has passed on all levels.
    fn settle_account(&self) {
        let raised = self.raised.iter().filter_map(|context| context.borrow().upgrade());
        let current = self.current.borrow().as_ref().map(|task| Rc::clone(&task.context));
        raised.chain(current).for_each(|context| context.settle_account());
    }

    /// Whether it does nothing.
    pub fn is_idle(&self) -> bool {
        self.current.borrow().is_none() && self.queue.borrow().is_empty()
    }

    /// Whether `context` may run on it now.
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

/// The part of the machine that a kernel runs on: its cores and its way to the hardware.
pub(crate) struct Cores {
    pub hw: Handle<Fabric>,
    pub host: HostId,
    pub params: CoreParams,
    pub costs: KernelCosts,
    pub sched: SchedParams,
    pub all: Vec<Core>,
    /// What mappings that are cached keep of devices.
    pub device_lines: device_lines::DeviceLines,
    /// Whether somebody wants to know what the cores do, and who.
    pub is_watched: Cell<bool>,
    pub trace: RefCell<Trace<Ran>>,
    /// Picoseconds of a cycle, times 2^32: no division for each piece of work.
    cycle_q32: u128,
    /// From one access to a line to the next.
    pub issue: Duration,
    /// What the core's own caches take at most to answer.
    pub own_hit: Duration,
}

impl Cores {
    pub fn new(
        hw: Handle<Fabric>,
        host: HostId,
        params: CoreParams,
        costs: KernelCosts,
        sched: SchedParams,
    ) -> Self {
        let (all, own_hit) = hw.with(|fabric, _| {
            let memory = &fabric.host(host).memory;
            let own_hit = memory.params().sockets.iter().map(|socket| socket.private.l2_hit).max();
            let all = (0u16..)
                .map_while(|n| Some((CpuId(n), memory.node_of_core(hardware::memory::CoreId(n))?)))
                .map(|(id, node)| Core::new(id, crate::convert::node(node)))
                .collect();
            (all, own_hit.unwrap_or_default())
        });
        let issue = params.frequency.time_for(params.issue);
        let cycle_q32 = (1_000_000_000_000 << 32) / u128::from(params.frequency.hz());
        Self {
            hw,
            host,
            params,
            costs,
            sched,
            all,
            device_lines: Default::default(),
            is_watched: Cell::new(false),
            trace: RefCell::default(),
            cycle_q32,
            issue,
            own_hit,
        }
    }

    pub fn get(&self, id: CpuId) -> &Core {
        &self.all[usize::from(id.0)]
    }

    pub fn now(&self) -> Time {
        self.hw.now()
    }

    /// Uses the host and the links.
    pub fn with<R>(&self, act: impl FnOnce(&mut Host, &mut Wires, &mut Scheduler<Event>) -> R) -> R {
        self.hw.with(|fabric, scheduler| {
            let (host, wires) = fabric.host_and_wires(self.host);
            act(host, wires, scheduler)
        })
    }

    /// A core that is at `when` stores to a device.
    pub fn store(&self, core: CpuId, when: Time, store: Store<'_>) {
        let core = crate::convert::core(core);
        // Where no window is, a store is lost, as on a real bus.
        let _ = self.with(|host, wires, scheduler| host.store(wires, scheduler, core, when, store));
    }

    /// How far a core is with its stores to devices.
    pub fn store_mark(&self, core: CpuId) -> StoreMark {
        self.with(|host, _, _| host.stores_of(crate::convert::core(core)).mark())
    }

    /// When a core's uncached stores so far have been accepted, as far as it can be known; no earlier than `when`.
    pub fn uncached_accepted_by(&self, core: CpuId, when: Time) -> Time {
        self.with(|host, _, _| host.uncached_accepted_by(crate::convert::core(core), when))
    }

    /// A core that is at `when` comes behind what another had stored at a mark; gives when it does.
    pub fn follow_stores(&self, core: CpuId, when: Time, (other, mark): (CpuId, StoreMark)) -> Time {
        let (core, other) = (crate::convert::core(core), crate::convert::core(other));
        self.with(|host, _, scheduler| host.follow_stores(scheduler, core, when, (other, mark)))
    }

    /// Resolves when no more than `most` of a core's stores to devices are pending; `None` if that is so now.
    pub fn stores_pending_at_most(&self, core: CpuId, most: usize) -> Option<Completion<()>> {
        let core = crate::convert::core(core);
        self.with(|host, _, _| {
            (host.stores_of(core).pending() > most).then(|| host.stores_pending_at_most(core, most))
        })
    }

    pub fn time_for(&self, cycles: u64) -> Duration {
        Duration::from_ps(((u128::from(cycles) * self.cycle_q32 + (1 << 31)) >> 32) as u64)
    }

    /// Books what has passed on all cores.
    pub fn settle_accounts(&self) {
        self.all.iter().for_each(Core::settle_account);
    }

    /// Time of a core by part.
    pub fn times(&self, id: CpuId) -> Times {
        let core = self.get(id);
        core.settle_account();
        *core.times.borrow()
    }

    pub fn book(&self, id: CpuId, part: Part, time: Duration) {
        self.get(id).times.borrow_mut().add(part, time);
    }
}
