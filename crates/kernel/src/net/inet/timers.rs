//! Timers of the stack: deferred work of the core that set them (Linux: `TIMER_SOFTIRQ`), so that what they send leaves
//! from there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Napi, NapiOps as _};
use units::Time;

use super::means::Means;
use crate::irq::{NapiState, Softirqs};

/// Owner of a timer: a socket by its number, all neighbours, or all fragments.
pub type Owner = u64;
pub const NEIGHBOURS: Owner = 0;
pub const FRAGMENTS: Owner = Owner::MAX;

/// What handles expired timers.
pub trait Expired {
    /// The timer of `owner` has expired on this core.
    fn expired(&self, cpu: &Cpu, owner: Owner);
}

/// All timers that are set, one per owner.
pub struct Timers {
    me: Weak<Self>,
    /// Called when a timer expires.
    stack: Weak<dyn Expired>,
    means: Rc<Means>,
    softirqs: Rc<Softirqs>,
    of: RefCell<BTreeMap<Owner, (CpuId, Time)>>,
    cores: RefCell<BTreeMap<CpuId, CoreDeadlines>>,
}

/// Deadlines of the owners whose timers a core has, and its work when one passes.
struct CoreDeadlines {
    set: BTreeSet<(Time, Owner)>,
    work: Rc<NapiState>,
    /// When the work will be done next, and the core's timer for that.
    next: Option<(Time, u64)>,
}

impl Timers {
    pub fn new(stack: Weak<dyn Expired>, means: Rc<Means>, softirqs: Rc<Softirqs>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            stack,
            means,
            softirqs,
            of: RefCell::default(),
            cores: RefCell::default(),
        })
    }

    /// Sets an owner's timer on this core, unless it is set to expire before, on whichever core: checking again then is
    /// cheaper than moving it for each segment. `None` leaves it as it is.
    pub fn arm(&self, cpu: &Cpu, owner: Owner, at: Option<Time>) {
        if let Some(at) = at {
            self.arm_on(cpu, cpu.id(), owner, at);
        }
    }

    /// As [`arm`](Self::arm), on another core.
    pub fn arm_on(&self, cpu: &Cpu, core: CpuId, owner: Owner, at: Time) {
        let mut of = self.of.borrow_mut();
        let set = of.get(&owner).copied();
        if set.is_some_and(|(_, earlier)| earlier <= at) {
            return;
        }
        cpu.work(self.means.costs().timer);
        of.insert(owner, (core, at));
        let mut cores = self.cores.borrow_mut();
        if let Some((core, later)) = set
            && let Some(timers) = cores.get_mut(&core)
        {
            timers.set.remove(&(later, owner));
        }
        let timers = cores.entry(core).or_insert_with(|| {
            let work = self.softirqs.napi(Rc::new(Expiries { timers: self.me.clone(), core }));
            work.enable();
            CoreDeadlines { set: BTreeSet::new(), work, next: None }
        });
        timers.set.insert((at, owner));
        self.schedule(core, timers);
    }

    /// Has a core do its work when its first timer expires.
    fn schedule(&self, core: CpuId, timers: &mut CoreDeadlines) {
        let Some(&(first, _)) = timers.set.first() else { return };
        if timers.next.is_none_or(|(next, _)| next != first) {
            timers.next = Some(self.softirqs.schedule_at(core, first, &timers.work, timers.next));
        }
    }

    /// Removes a core's first timer, if it has expired. Returns its owner.
    fn take_expired(&self, core: CpuId, now: Time) -> Option<Owner> {
        let mut cores = self.cores.borrow_mut();
        let set = &mut cores.get_mut(&core)?.set;
        set.first().filter(|&&(at, _)| at <= now)?;
        let (_, owner) = set.pop_first()?;
        self.of.borrow_mut().remove(&owner);
        Some(owner)
    }

    /// A core has called the owners of all its timers that have expired.
    fn done(&self, cpu: &Cpu, core: CpuId) {
        let mut cores = self.cores.borrow_mut();
        let Some(timers) = cores.get_mut(&core) else { return };
        timers.next = timers.next.filter(|&(next, _)| next > cpu.now());
        self.schedule(core, timers);
        let work = Rc::clone(&timers.work);
        drop(cores);
        work.complete(cpu);
    }
}

/// What a core does with its timers that have expired.
struct Expiries {
    timers: Weak<Timers>,
    core: CpuId,
}

impl Napi for Expiries {
    /// Calls their owners, in the order of their times.
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let Some(timers) = self.timers.upgrade() else { return 0 };
            for done in 0..budget {
                let Some(owner) = timers.take_expired(self.core, cpu.now()) else {
                    timers.done(cpu, self.core);
                    return done;
                };
                if let Some(stack) = timers.stack.upgrade() {
                    stack.expired(cpu, owner);
                }
                cpu.sync().await;
            }
            budget
        })
    }
}
