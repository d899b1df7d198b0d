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
    wheels: RefCell<BTreeMap<CpuId, (Rc<Wheel>, Rc<NapiState>)>>,
}

/// Timers of a core.
struct Wheel {
    stack: Weak<Stack>,
    set: RefCell<BTreeSet<(Time, Owner)>>,
    napi: OnceCell<Weak<NapiState>>,
}

impl Timers {
    pub fn new(stack: Weak<Stack>, means: Rc<Means>, softirqs: Rc<Softirqs>) -> Rc<Self> {
        Rc::new(Self { stack, means, softirqs, wheels: RefCell::default() })
    }

    /// Sets an owner's timer on this core; `None` leaves it as it is.
    pub fn arm(&self, cpu: &Cpu, owner: Owner, at: Option<Time>) {
        let Some(at) = at else { return };
        cpu.work(self.means.costs().timer);
        self.arm_on(cpu.id(), owner, at);
    }

    /// Sets an owner's timer on a core.
    pub fn arm_on(&self, core: CpuId, owner: Owner, at: Time) {
        let mut wheels = self.wheels.borrow_mut();
        let (wheel, napi) = wheels.entry(core).or_insert_with(|| {
            let (stack, set) = (self.stack.clone(), RefCell::default());
            let wheel = Rc::new(Wheel { stack, set, napi: OnceCell::new() });
            let napi = self.softirqs.napi(Rc::clone(&wheel) as Rc<dyn Napi>);
            napi.enable();
            let _ = wheel.napi.set(Rc::downgrade(&napi));
            (wheel, napi)
        });
        if wheel.set.borrow_mut().insert((at, owner)) {
            self.softirqs.schedule_at(core, at, napi);
        }
    }
}

impl Napi for Wheel {
    /// Calls owners whose timers have expired, in the order of their times.
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let is_due = |&(at, _): &(Time, Owner)| at <= cpu.now();
            let mut done = 0;
            while done < budget {
                let mut set = self.set.borrow_mut();
                let Some((_, owner)) = set.first().copied().filter(is_due) else { break };
                set.pop_first();
                drop(set);
                if let Some(stack) = self.stack.upgrade() {
                    stack.timer(cpu, owner);
                }
                done += 1;
                cpu.sync().await;
            }
            if done < budget
                && let Some(napi) = self.napi.get().and_then(Weak::upgrade)
            {
                napi.complete(cpu);
            }
            done
        })
    }
}
