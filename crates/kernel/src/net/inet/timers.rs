//! Timers of the stack: deferred work of the core that set them (Linux: `TIMER_SOFTIRQ`), so that what they send leaves
//! from there.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Napi, NapiOps as _};
use units::Time;

use super::Stack;
use super::means::Means;
use crate::irq::{NapiState, Softirqs};

/// Owner of a timer: a socket by its number, all neighbours, or all fragments.
pub type Owner = u64;
pub const NEIGHBOURS: Owner = 0;
pub const FRAGMENTS: Owner = Owner::MAX;

/// All timers that are set.
pub struct Timers {
    /// Called when a timer expires.
    stack: Weak<Stack>,
    means: Rc<Means>,
    softirqs: Rc<Softirqs>,
    cores: RefCell<BTreeMap<CpuId, OfCore>>,
}

/// A core's timers, and the deferred work that calls their owners.
struct OfCore {
    wheel: Rc<Wheel>,
    work: Rc<NapiState>,
}

/// Timers of a core.
struct Wheel {
    stack: Weak<Stack>,
    set: RefCell<BTreeSet<(Time, Owner)>>,
    work: OnceCell<Weak<NapiState>>,
}

impl Timers {
    pub fn new(stack: Weak<Stack>, means: Rc<Means>, softirqs: Rc<Softirqs>) -> Rc<Self> {
        Rc::new(Self { stack, means, softirqs, cores: RefCell::default() })
    }

    /// Sets an owner's timer on this core; `None` leaves it as it is.
    pub fn arm(&self, cpu: &Cpu, owner: Owner, at: Option<Time>) {
        let Some(at) = at else { return };
        cpu.work(self.means.costs().timer);
        self.arm_on(cpu.id(), owner, at);
    }

    /// Sets an owner's timer on a core.
    pub fn arm_on(&self, core: CpuId, owner: Owner, at: Time) {
        let mut cores = self.cores.borrow_mut();
        let OfCore { wheel, work } = cores.entry(core).or_insert_with(|| {
            let (stack, set) = (self.stack.clone(), RefCell::default());
            let wheel = Rc::new(Wheel { stack, set, work: OnceCell::new() });
            let work = self.softirqs.napi(Rc::clone(&wheel) as Rc<dyn Napi>);
            work.enable();
            let _ = wheel.work.set(Rc::downgrade(&work));
            OfCore { wheel, work }
        });
        if wheel.set.borrow_mut().insert((at, owner)) {
            self.softirqs.schedule_at(core, at, work);
        }
    }
}

impl Wheel {
    /// Removes the first timer, if it has expired. Returns its owner.
    fn take_expired(&self, now: Time) -> Option<Owner> {
        let mut set = self.set.borrow_mut();
        set.first().filter(|&&(at, _)| at <= now)?;
        set.pop_first().map(|(_, owner)| owner)
    }
}

impl Napi for Wheel {
    /// Calls owners whose timers have expired, in the order of these.
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let mut done = 0;
            while done < budget {
                let Some(owner) = self.take_expired(cpu.now()) else { break };
                if let Some(stack) = self.stack.upgrade() {
                    stack.timer(cpu, owner);
                }
                done += 1;
                cpu.sync().await;
            }
            if done < budget
                && let Some(work) = self.work.get().and_then(Weak::upgrade)
            {
                work.complete(cpu);
            }
            done
        })
    }
}
