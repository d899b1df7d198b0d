//! The member that should receive each flow. A worker updates the members' rules one flow at a time: the new member
//! first, then the old one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::net::{FlowKey, RuleId};
use rustc_hash::FxHashMap;

use super::Team;

/// Most flows (assumed: as many as a card has rules).
const MOST: usize = 8192;

/// A flow that the stack has asked to steer.
#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: FlowKey,
    /// Member and queue that should receive it.
    wanted: (usize, u16),
    /// Member that has a rule for it, with the rule.
    has: Option<(usize, RuleId)>,
    /// Queued for the worker.
    waits: bool,
}

/// Flows, indexed by the rule IDs that the stack sees.
#[derive(Default)]
pub(super) struct SteeredFlows {
    entries: RefCell<Vec<Option<Entry>>>,
    free: RefCell<Vec<u32>>,
    /// Used only for lookups: iteration order is not deterministic.
    by_flow: RefCell<FxHashMap<FlowKey, u32>>,
    /// Work queue: flows to steer, and members' rules to remove.
    to_steer: RefCell<VecDeque<u32>>,
    to_remove: RefCell<VecDeque<(usize, RuleId)>>,
    /// Flows refused because a member's table was full; they get free entries in this order.
    refused: RefCell<VecDeque<u32>>,
    works: Cell<bool>,
}

impl SteeredFlows {
    /// Records where a flow should go.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many flows or the member's table is full.
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

    /// A member has lost its rules: queues its flows for steering again.
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

    /// The next flow to steer. It no longer counts as refused: it may have moved to a member with room.
    fn next(&self) -> Option<(u32, Entry)> {
        loop {
            let number = self.to_steer.borrow_mut().pop_front()?;
            self.refused.borrow_mut().retain(|&other| other != number);
            if let Some(entry) = self.entries.borrow_mut().get_mut(number as usize).and_then(Option::as_mut) {
                entry.waits = false;
                return Some((number, *entry));
            }
        }
    }

    /// Removes a flow.
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
    /// Starts the worker if there is work and it is not running.
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

    /// Updates the members for the next flow that moved or ended. Returns whether there was one.
    fn tell_next(&self, cpu: &Cpu) -> bool {
        let flows = &self.flows;
        let removed = flows.to_remove.borrow_mut().pop_front();
        if let Some((member, rule)) = removed {
            if let Some(driver) = self.members[member].driver() {
                driver.unsteer(cpu, rule);
            }
            // A rule was freed, so a refused flow can have it.
            let mut refused = flows.refused.borrow_mut();
            let is_there = |&number: &u32| {
                flows.entries.borrow()[number as usize].is_some_and(|entry| entry.wanted.0 == member)
            };
            let first = refused.iter().position(is_there);
            flows.to_steer.borrow_mut().extend(first.and_then(|at| refused.remove(at)));
            return true;
        }
        let Some((number, entry)) = flows.next() else { return false };
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
            // The member is down; its flows go to others until it is up again.
            Err(_) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> FlowKey {
        FlowKey { protocol: 6, source: [10, 0, 0, 2], destination: [10, 0, 0, 1], ports: (port, 5001) }
    }

    #[test]
    fn a_refused_flow_that_moves_refuses_no_others_at_its_new_member() {
        let flows = SteeredFlows::default();
        flows.want(flow(1), (0, 0)).unwrap();
        let (number, _) = flows.next().unwrap();
        flows.refused.borrow_mut().push_back(number);
        assert_eq!(flows.want(flow(2), (0, 0)), Err(Error::NoSpace), "member 0 is full");
        assert!(flows.want(flow(2), (1, 0)).is_ok());

        flows.want(flow(1), (1, 0)).unwrap();
        while flows.next().is_some() {}
        assert!(flows.want(flow(3), (1, 0)).is_ok(), "member 1 has refused nobody");
        assert!(flows.want(flow(4), (0, 0)).is_ok(), "nobody waits for member 0 any more");
    }
}
