//! An execution context: a program's clock on its core, and how it synchronises with the simulation.

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context as PollContext, Poll, Waker};

use engine::{Completion, Sleep};
use hardware::Fabric;
use platform::cpu::{Async, Barrier, Cpu, CpuId, CpuOps, Node, Part, Published, Sweep};
use platform::memory::{PhysAddr, Policy};
use platform::mmio::Store;
use units::{Cycles, Duration, Time};

use super::{Cores, Level, Timer};
use crate::account::Ran;
use crate::ground::Swept;
use crate::sched::Task;

/// State of a context between two syncs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Computing ahead of the clock, or waiting for an event.
    Free,
    /// Waiting for the core's clock to reach `end`.
    CatchingUp { end: Time },
    /// Preempted by a higher level, with so much work left.
    Stopped { left: Duration },
}

/// Polling interval for the clock of a core that is not running; well below the time it takes to schedule such a
/// core.
const LOOK: Duration = Duration::from_ns(500);

/// Gives a policy its own copy of shared state, so that it cannot affect others.
fn own(policy: Policy) -> Policy {
    if policy == Policy::Task { Policy::Local } else { policy }
}

/// An execution context on a core.
pub(crate) struct Context {
    pub cores: Rc<Cores>,
    pub level: Level,
    pub core: Cell<CpuId>,
    ahead: Cell<Duration>,
    phase: Cell<Phase>,
    /// Whether it keeps the core while waiting for an answer.
    holds: Cell<bool>,
    /// Since when it has kept the core without being preempted.
    held_since: Cell<Option<Time>>,
    timer: RefCell<Option<Sleep<Fabric>>>,
    /// The core's clock when it was last read in a wait.
    seen: Cell<Time>,
    waker: RefCell<Option<Waker>>,
    part: Cell<Part>,
    /// Work computed but not yet accounted, in order: time is accounted once it has passed.
    owed: RefCell<Vec<(Part, Duration)>>,
    /// Resolves when the store buffer has room again.
    room: RefCell<Option<(Completion<()>, Time)>>,
    pub task: RefCell<Weak<Task>>,
    /// NUMA memory policy of the task.
    policy: Cell<Policy>,
}

impl Context {
    pub fn new(cores: Rc<Cores>, level: Level, core: CpuId, part: Part) -> Rc<Self> {
        Self::with_policy(cores, level, core, part, Policy::Local)
    }

    /// As [`new`](Self::new), with a memory policy.
    pub fn with_policy(cores: Rc<Cores>, level: Level, core: CpuId, part: Part, policy: Policy) -> Rc<Self> {
        Rc::new(Self {
            cores,
            level,
            policy: Cell::new(own(policy)),
            core: Cell::new(core),
            ahead: Cell::new(Duration::ZERO),
            phase: Cell::new(Phase::Free),
            holds: Cell::new(false),
            held_since: Cell::new(None),
            timer: RefCell::new(None),
            seen: Cell::new(Time::ZERO),
            waker: RefCell::new(None),
            part: Cell::new(part),
            owed: RefCell::default(),
            room: RefCell::new(None),
            task: RefCell::default(),
        })
    }

    /// Changes the memory policy.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.set(own(policy));
    }

    /// The handle for programs and drivers.
    pub fn cpu(self: &Rc<Self>) -> Cpu {
        Cpu::new(Rc::clone(self) as Rc<dyn CpuOps>)
    }

    /// Computes for some time, accounted to `part`.
    pub fn charge(&self, part: Part, time: Duration) {
        if self.cores.is_watched.get() {
            let from = self.now();
            self.report(part, from, from + time);
        }
        self.ahead.set(self.ahead.get() + time);
        // Consecutive work is mostly of the same part.
        let mut owed = self.owed.borrow_mut();
        match owed.last_mut() {
            Some((last, sum)) if *last == part => *sum += time,
            _ => owed.push((part, time)),
        }
    }

    /// Computes for some cycles, accounted to `part`.
    pub fn cycles(&self, part: Part, cycles: u64) {
        self.charge(part, self.cores.time_for(cycles));
    }

    /// Reports a span of work to the observer.
    #[cold]
    fn report(&self, part: Part, from: Time, to: Time) {
        let task = self.task.borrow().upgrade().map(|task| task.id);
        let (core, level) = (self.core.get(), self.level as u8);
        self.cores.trace.borrow_mut().record(|| Ran { core, level, task, part, from, to });
    }

    fn part(&self) -> Part {
        self.part.get()
    }

    fn book_passed(&self, part: Part, time: Duration) {
        self.cores.book(self.core.get(), self.level, part, time);
        if let Some(task) = self.task.borrow().upgrade() {
            task.ran(part, time);
        }
    }

    /// Work computed but not yet simulated.
    fn left(&self) -> Duration {
        let catching_up = match self.phase.get() {
            Phase::Free => Duration::ZERO,
            Phase::CatchingUp { end } => end.since(self.clock()),
            Phase::Stopped { left } => left,
        };
        catching_up + self.ahead.get()
    }

    /// The clock of its core.
    fn clock(&self) -> Time {
        self.cores.clock(self.core.get())
    }

    /// Accounts work and waits that have passed.
    pub fn settle_account(&self) {
        if self.held_since.get().is_some() {
            self.close_hold();
            self.open_hold();
        }
        let mut owed = self.owed.borrow_mut();
        if owed.is_empty() {
            return;
        }
        let left = self.left();
        if left.is_zero() {
            return self.book_all(owed.drain(..));
        }
        let sum: Duration = owed.iter().map(|&(_, time)| time).sum();
        let mut passed = sum - left;
        let mut whole = 0;
        for (part, time) in &mut *owed {
            let now = (*time).min(passed);
            if !now.is_zero() {
                self.book_passed(*part, now);
            }
            passed -= now;
            *time -= now;
            if !time.is_zero() {
                break;
            }
            whole += 1;
        }
        owed.drain(..whole);
    }

    /// Accounts spans of work that have passed, merged by part, because parts alternate within a burst of packets.
    fn book_all(&self, pieces: impl Iterator<Item = (Part, Duration)>) {
        let mut sums = [Duration::ZERO; Part::ALL.len()];
        for (part, time) in pieces {
            sums[part as usize] += time;
        }
        for (part, time) in Part::ALL.into_iter().zip(sums).filter(|(_, time)| !time.is_zero()) {
            self.book_passed(part, time);
        }
    }

    /// Whether it keeps its core while waiting.
    pub fn keeps_core(&self) -> bool {
        self.holds.get() || self.phase.get() != Phase::Free
    }

    /// Whether it is ahead of the simulation.
    pub fn is_ahead(&self) -> bool {
        !self.ahead.get().is_zero()
    }

    /// Preempts it.
    pub fn pause(&self) {
        if let Phase::CatchingUp { end } = self.phase.get() {
            self.phase.set(Phase::Stopped { left: end.since(self.clock()) });
            self.settle_account();
        }
        self.close_hold();
    }

    /// Resumes it after a preemption.
    pub fn go_on(&self) {
        self.open_hold();
        self.wake();
    }

    /// Starts accounting the wait, unless there is work to do first.
    fn open_hold(&self) {
        if self.holds.get() && self.held_since.get().is_none() && self.phase.get() == Phase::Free {
            self.held_since.set(Some(self.cores.now()));
        }
    }

    /// Accounts the wait so far.
    fn close_hold(&self) {
        let Some(since) = self.held_since.take() else { return };
        let (part, now) = (self.part.get(), self.cores.now());
        if self.cores.is_watched.get() {
            self.report(part, since, now);
        }
        self.book_passed(part, now.since(since));
    }

    /// Polls it again.
    pub fn wake(&self) {
        let waker = self.waker.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn remember(&self, context: &PollContext<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(old) if old.will_wake(context.waker()) => {}
            slot => *slot = Some(context.waker().clone()),
        }
    }

    /// Advances the program's clock to at least `time`, accounted to its current part.
    pub fn advance_to(&self, time: Time) {
        self.charge(self.part.get(), time.since(self.now()));
    }

    /// Waits until the store buffer has room for pending device stores.
    fn poll_store_buffer(&self, context: &mut PollContext<'_>) -> Poll<()> {
        let mut room = self.room.borrow_mut();
        if room.is_none() {
            let (core, most) = (self.core.get(), usize::from(self.cores.params.store_buffer));
            let completion = self.cores.ground.stores_pending_at_most(core, most);
            *room = completion.map(|completion| (completion, self.cores.now()));
            if room.is_some() {
                self.hold(true);
            }
        }
        if let Some((completion, since)) = &mut *room {
            if Pin::new(completion).poll(context).is_pending() {
                self.open_hold();
                self.remember(context);
                return Poll::Pending;
            }
            self.cores.note_stall(self.core.get(), self.cores.now().since(*since));
            *room = None;
            self.hold(false);
        }
        Poll::Ready(())
    }

    /// Moves the bytes of a loop over arrays, and returns when it is done.
    fn run_sweep(&self, arrays: Sweep<'_>, step: Duration, compute: &mut dyn FnMut(&mut [u8])) -> Swept {
        let ground = &self.cores.ground;
        let length = arrays.length as usize;
        let mut bytes = vec![0; length * arrays.from.len().max(1)];
        for (&from, into) in arrays.from.iter().zip(bytes.chunks_mut(length.max(1))) {
            if !ground.peek(from, into) {
                into.fill(0xff);
            }
        }
        compute(&mut bytes);
        if let Some(to) = arrays.to {
            // Stores to addresses without memory are lost.
            let _ = ground.poke(to, &bytes[..length]);
        }
        ground.sweep(self.core.get(), self.now(), arrays, step)
    }

    fn wait_until(&self, end: Time, context: &mut PollContext<'_>) -> Poll<()> {
        let mut timer = self.timer.borrow_mut();
        let sleep = timer.insert(self.cores.hw.sleep_until(end));
        Pin::new(sleep).poll(context)
    }
}

impl CpuOps for Context {
    fn id(&self) -> CpuId {
        self.core.get()
    }

    fn node(&self) -> Node {
        self.cores.get(self.core.get()).node
    }

    fn policy(&self) -> Policy {
        self.policy.get()
    }

    fn now(&self) -> Time {
        let left = match self.phase.get() {
            Phase::Free => Duration::ZERO,
            Phase::CatchingUp { end } => end.since(self.clock()),
            Phase::Stopped { left } => left,
        };
        self.cores.now() + left + self.ahead.get()
    }

    fn work(&self, cycles: Cycles) {
        self.cycles(self.part.get(), cycles.get());
    }

    fn stall(&self, time: Duration) {
        self.charge(self.part.get(), time);
    }

    fn load(&self, at: PhysAddr, into: &mut [u8]) {
        let done = self.cores.ground.load(self.core.get(), self.now(), at, into);
        self.advance_to(done);
    }

    fn store(&self, at: PhysAddr, from: &[u8]) {
        let done = self.cores.ground.store(self.core.get(), self.now(), at, from);
        self.advance_to(done);
    }

    fn exchange(&self, at: PhysAddr, from: &[u8]) {
        let done = self.cores.ground.exchange(self.core.get(), self.now(), at, from);
        self.advance_to(done);
    }

    fn stream(&self, at: PhysAddr, from: &[u8]) {
        let done = self.cores.ground.stream(self.core.get(), self.now(), at, from);
        self.advance_to(done);
    }

    fn copy(&self, to: PhysAddr, from: PhysAddr, length: u64) {
        let step = self.cores.time_for(self.cores.costs.copy_line);
        let arrays = Sweep { to: Some(to), from: &[from], length, streaming: false };
        let swept = self.run_sweep(arrays, step, &mut |_| {});
        self.advance_to(self.cores.ground.complete(self.core.get(), swept));
    }

    fn sweep(&self, arrays: Sweep<'_>, line: Cycles, compute: &mut dyn FnMut(&mut [u8])) {
        let done = self.run_sweep(arrays, self.cores.time_for(line.get()), compute).issued;
        self.advance_to(done);
    }

    fn gather(&self, places: &[PhysAddr], each: Cycles, into: &mut [u8]) {
        let ground = &self.cores.ground;
        for (&place, into) in places.iter().zip(into.chunks_mut((into.len() / places.len().max(1)).max(1))) {
            if !ground.peek(place, into) {
                into.fill(0xff);
            }
        }
        let step = self.cores.time_for(each.get());
        let done = ground.gather(self.core.get(), self.now(), places, step);
        self.advance_to(done);
    }

    fn prefetch(&self, at: PhysAddr, length: u64) {
        let done = self.cores.ground.prefetch(self.core.get(), self.now(), at, length);
        self.advance_to(done);
    }

    fn barrier(&self, kind: Barrier) {
        let costs = &self.cores.costs;
        self.work(Cycles::new(match kind {
            Barrier::Stores | Barrier::All => costs.fence,
            Barrier::Locked => costs.locked,
            // Included in the cost of the instruction itself.
            Barrier::Serialising => 0,
        }));
        self.cores.store(self.core.get(), self.now(), Store::Barrier);
        if matches!(kind, Barrier::Locked | Barrier::All) {
            // Both drain the store buffer (SDM volume 3, 8.2.2), and so wait for earlier doorbells.
            self.advance_to(self.cores.ground.uncached_accepted_by(self.core.get(), self.now()));
        }
    }

    fn stores_accepted(&self) -> Async<'_, ()> {
        Box::pin(async move {
            poll_fn(|context| self.poll_sync(context)).await;
            if let Some(accepted) = self.cores.ground.stores_pending_at_most(self.core.get(), 0) {
                self.hold(true);
                // The core owns the completer, so it cannot go away.
                let _ = accepted.await;
                self.hold(false);
            }
        })
    }

    fn publish(&self) -> Published {
        let (core, at) = (self.core.get(), self.now());
        Published { at, core, stores: self.cores.ground.store_mark(core, at) }
    }

    fn observe(&self, what: &Published) {
        let mut seen = what.at.max(self.now());
        if what.core != self.core.get() {
            let behind = (what.core, what.stores);
            seen = self.cores.ground.follow_stores(self.core.get(), seen, behind);
        }
        self.advance_to(seen);
    }

    fn flush_line(&self, at: PhysAddr) {
        self.cycles(self.part(), self.cores.costs.line_flush);
        let (core, now) = (self.core.get(), self.now());
        if !self.cores.ground.flush(core, now, at) {
            self.cores.device_lines.evict(&*self.cores.ground, core, now, at.0);
            self.cores.store(core, now, Store::Flush(at.0));
        }
    }

    fn book(&self, part: Part) -> Part {
        self.part.replace(part)
    }

    fn set_prefetchers(&self, on: bool) {
        self.cores.ground.set_prefetchers(self.core.get(), on);
    }

    fn rebook(&self, from: Part, to: Part) {
        self.owed.borrow_mut().iter_mut().filter(|(part, _)| *part == from).for_each(|(part, _)| *part = to);
    }

    fn hold(&self, on: bool) {
        self.holds.set(on);
        match on {
            true => self.open_hold(),
            false => self.close_hold(),
        }
    }

    fn poll_sync(&self, context: &mut PollContext<'_>) -> Poll<()> {
        loop {
            let core = self.cores.get(self.core.get());
            let clock = self.clock();
            match self.phase.get() {
                Phase::Free => {
                    let left = self.ahead.replace(Duration::ZERO);
                    let task = self.task.borrow().upgrade();
                    let over = task.is_some_and(|task| self.cores.scheduler().turn_is_over(&task));
                    if left.is_zero() && !over && core.lets(self) {
                        return self.poll_store_buffer(context);
                    }
                    self.close_hold();
                    self.phase.set(Phase::Stopped { left });
                }
                Phase::Stopped { left } => {
                    self.remember(context);
                    if !core.lets(self) {
                        return Poll::Pending;
                    }
                    if self.level == Level::Task && self.cores.scheduler().yield_if_due(self) {
                        return Poll::Pending;
                    }
                    self.phase.set(match left.is_zero() {
                        true => Phase::Free,
                        // On the clock of the current core: the task may have just been migrated.
                        false => Phase::CatchingUp { end: self.clock() + left },
                    });
                }
                Phase::CatchingUp { end } if clock >= end => {
                    *self.timer.borrow_mut() = None;
                    self.phase.set(Phase::Free);
                    self.settle_account();
                }
                Phase::CatchingUp { end } => {
                    self.remember(context);
                    if self.level == Level::Task {
                        let task = self.task.borrow().upgrade();
                        if task.is_some_and(|task| self.cores.scheduler().turn_is_over(&task)) {
                            self.pause();
                            continue;
                        }
                    }
                    // If the core's clock has not moved, look again later.
                    let stands = self.cores.has_clocks && self.seen.replace(clock) == clock;
                    let least = if stands { LOOK } else { Duration::ZERO };
                    let end = self.cores.now() + end.since(clock).max(least);
                    let until = match self.level {
                        Level::Task => end.min(self.cores.scheduler().turn_ends(core)),
                        _ => end,
                    };
                    if self.wait_until(until, context).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn sleep_until(&self, deadline: Time) -> Async<'static, ()> {
        self.cycles(Part::Kernel, self.cores.costs.timer);
        Box::pin(Timer::set(Rc::clone(&self.cores), self.core.get(), deadline))
    }
}
