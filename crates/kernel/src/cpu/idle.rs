//! How a core enters and leaves the idle loop.

use platform::cpu::Part;
use units::Time;

use super::{Context, Core, Cores, Level};
use crate::account::Ran;

/// A switch to the idle loop. No task waits for it, but one that is woken before its end does.
#[derive(Clone, Copy)]
pub(super) struct Switch {
    /// Up to when it is accounted.
    accounted: Time,
    end: Time,
}

impl Cores {
    /// A core without a task switches to the idle loop. A vCPU halts at once: its host does not run it any longer.
    pub fn enter_idle(&self, core: &Core) {
        if !self.has_clocks {
            let now = self.now();
            let end = now + self.time_for(self.costs.context_switch);
            core.into_idle.set(Some(Switch { accounted: now, end }));
        }
    }

    /// Accounts the passed part of the switch to the idle loop. Returns the rest of it.
    pub(super) fn settle_idle(&self, core: &Core) -> Option<Switch> {
        let switch = core.into_idle.take()?;
        let passed = self.now().min(switch.end);
        self.book(core.id, Level::Task, Part::Scheduler, passed.since(switch.accounted));
        if self.is_watched.get() && passed > switch.accounted {
            let (core, level, part) = (core.id, Level::Task as u8, Part::Scheduler);
            let from = switch.accounted;
            self.trace.borrow_mut().record(|| Ran { core, level, task: None, part, from, to: passed });
        }
        let rest = Some(Switch { accounted: passed, ..switch }).filter(|rest| rest.accounted < rest.end);
        core.into_idle.set(rest);
        rest
    }

    /// Work has come to a core. If it idles, `context` takes it out of the idle loop, or waits until it has got there.
    pub fn leave_idle(&self, core: &Core, context: &Context, part: Part) {
        if !core.is_idle() || core.running().is_some() {
            return;
        }
        match self.settle_idle(core) {
            Some(rest) => context.charge(Part::Scheduler, rest.end.since(rest.accounted)),
            None => context.cycles(part, self.costs.idle_exit),
        }
        core.into_idle.set(None);
    }
}
