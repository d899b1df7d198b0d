//! Which member each flow is to come to. A worker tells the members, one flow after the other: first the new one, then the
//! old one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::net::{FlowKey, RuleId};
use rustc_hash::FxHashMap;

use super::Team;

/// Flows at most (assumed: as many as a card's table has rules).
const MOST: usize = 8192;

/// A flow that the stack has asked for.
#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: FlowKey,
    /// The member and its queue where it is to go.
    wanted: (usize, u16),
    /// The member that has a rule for it, and the rule.
    has: Option<(usize, RuleId)>,
    /// The worker has it before it.
    waits: bool,
}

/// The flows, by the numbers that the stack knows as rules.
#[derive(Default)]
pub(super) struct SteeredFlows {
    entries: RefCell<Vec<Option<Entry>>>,
    free: RefCell<Vec<u32>>,
    /// Only looked up, never walked.
    by_flow: RefCell<FxHashMap<FlowKey, u32>>,
    /// What the worker has before it: flows to steer, members' rules to remove.
    to_steer: RefCell<VecDeque<u32>>,
    to_remove: RefCell<VecDeque<(usize, RuleId)>>,
    /// Flows whose member's table was full, in the order in which they have places again.
    refused: RefCell<VecDeque<u32>>,
    works: Cell<bool>,
}

impl SteeredFlows {
    /// Notes where a flow is to go.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many, or a member's table is full.
    pub fn want(&self, flow: FlowKey, to: (usize, u16)) -> Result<RuleId, Error> {
        let known = self.by_flow.borrow().get(&flow).copied();
        let mut entries = self.entries.borrow_mut();
        let is_there = |&number: &u32| entries[number as usize].is_some_and(|entry| entry.wanted.0 == to.0);
        if known.is_none() && self.refused.borrow().iter().any(is_there) {
            return Err(Error::NoSpace);
        }
        let number = match known.or_else(|| self.free.borrow_mut().pop()) {
            Some(number) => number,
            None if entries.len() < MOST => {
                entries.push(None);
                entries.len() as u32 - 1
            }
            None => return Err(Error::NoSpace),
        };
        self.by_flow.borrow_mut().insert(flow, number);
        let entry =
            entries[number as usize].get_or_insert(Entry { flow, wanted: to, has: None, waits: false });
        entry.wanted = to;
        if !std::mem::replace(&mut entry.waits, true) {
            self.to_steer.borrow_mut().push_back(number);
        }
        Ok(RuleId(number))
    }

    /// A member has no rules any more: those that it is to have are made again.
    pub fn begin_anew(&self, member: usize) {
        self.to_remove.borrow_mut().retain(|&(other, _)| other != member);
        for (number, entry) in (0..).zip(self.entries.borrow_mut().iter_mut()) {
            let Some(entry) = entry else { continue };
            entry.has = entry.has.filter(|&(other, _)| other != member);
            if entry.wanted.0 == member && !std::mem::replace(&mut entry.waits, true) {
                self.to_steer.borrow_mut().push_back(number);
            }
        }
    }

    /// Forgets a flow.
    pub fn forget(&self, RuleId(number): RuleId) {
        let Some(entry) = self.entries.borrow_mut().get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        self.by_flow.borrow_mut().remove(&entry.flow);
        self.to_steer.borrow_mut().retain(|&other| other != number);
        self.refused.borrow_mut().retain(|&other| other != number);
        self.free.borrow_mut().push(number);
        self.to_remove.borrow_mut().extend(entry.has);
    }
}

impl Team {
    /// Starts the worker, unless it is at work or has nothing to do.
    pub(super) fn start_worker(&self, cpu: &Cpu) {
        let me = self.me.clone();
        if self.flows.works.replace(true) {
            return;
        }
        let work = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let _part = cpu.book(Part::Driver);
                while let Some(team) = me.upgrade()
                    && team.tell_next(&cpu)
                {
                    drop(team);
                    cpu.sync().await;
                }
                if let Some(team) = me.upgrade() {
                    team.flows.works.set(false);
                }
            })
        };
        self.kernel.queue_work(cpu, Box::new(work));
    }

    /// Tells members of the next flow that has moved or gone. Whether there was one.
    fn tell_next(&self, cpu: &Cpu) -> bool {
        let flows = &self.flows;
        let removed = flows.to_remove.borrow_mut().pop_front();
        if let Some((member, rule)) = removed {
            if let Some(driver) = self.members[member].driver() {
                driver.unsteer(cpu, rule);
            }
            // There is room for one that was refused there.
            let mut refused = flows.refused.borrow_mut();
            let is_there = |&number: &u32| {
                flows.entries.borrow()[number as usize].is_some_and(|entry| entry.wanted.0 == member)
            };
            let first = refused.iter().position(is_there);
            flows.to_steer.borrow_mut().extend(first.and_then(|at| refused.remove(at)));
            return true;
        }
        let Some(number) = flows.to_steer.borrow_mut().pop_front() else { return false };
        let entry = {
            let mut entries = flows.entries.borrow_mut();
            let Some(entry) = entries.get_mut(number as usize).and_then(Option::as_mut) else { return true };
            entry.waits = false;
            *entry
        };
        let (member, queue) = entry.wanted;
        let Some(driver) = self.members[member].driver() else { return true };
        match driver.steer(cpu, entry.flow, queue) {
            Ok(rule) => {
                let old = flows.entries.borrow_mut()[number as usize]
                    .as_mut()
                    .and_then(|entry| entry.has.replace((member, rule)));
                flows.to_remove.borrow_mut().extend(old.filter(|&(old, _)| old != member));
            }
            Err(Error::NoSpace) => flows.refused.borrow_mut().push_back(number),
            // The member is down: its flows go to others until it asks again.
            Err(_) => {}
        }
        true
    }
}
