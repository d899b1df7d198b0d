//! The member that should receive each flow, for a device made of several members: those of a team, or functions of
//! one card. A worker updates the members' rules one flow at a time: the new member first, then the old one. It runs on
//! the node of the member whose rule is next, if that is known and has cores, so that registers are not written across the
//! sockets' link.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::kernel::{Kernel, TaskParams};
use platform::net::{FlowKey, RuleId};
use rustc_hash::FxHashMap;

use crate::members::MemberDriver;

/// Most flows (assumed: as many as a card has rules).
const MOST: usize = 8192;

/// A flow that the stack has asked to steer.
#[derive(Clone, Copy, Debug)]
struct RequestedFlow {
    flow: FlowKey,
    /// Member and queue that should receive it.
    wanted: (usize, u16),
    /// The rule that makes it go somewhere.
    has: Option<Rule>,
    /// Queued for the worker.
    waits: bool,
}

/// A member's rule.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Member and queue that it leads to.
    place: (usize, u16),
    /// The member's number of it.
    id: RuleId,
}

/// Flows, indexed by the rule IDs that the stack sees, and what the worker has to do.
#[derive(Default)]
struct Table {
    entries: RefCell<Vec<Option<RequestedFlow>>>,
    free: RefCell<Vec<u32>>,
    /// Used only for lookups: iteration order is not deterministic.
    by_flow: RefCell<FxHashMap<FlowKey, u32>>,
    /// Work queue: flows to steer, and members' rules to remove.
    to_steer: RefCell<VecDeque<u32>>,
    to_remove: RefCell<VecDeque<Rule>>,
    /// Flows refused because a member's table was full; they get free entries in this order.
    refused: RefCell<VecDeque<u32>>,
}

impl Table {
    /// Records where a flow should go.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many flows or the member's table is full; a flow that has a rule keeps it.
    fn want(&self, flow: FlowKey, to: (usize, u16)) -> Result<RuleId, Error> {
        let known = self.by_flow.borrow().get(&flow).copied();
        let mut entries = self.entries.borrow_mut();
        let is_there = |&number: &u32| entries[number as usize].is_some_and(|entry| entry.wanted.0 == to.0);
        let has = known.and_then(|number| entries[number as usize]?.has);
        if has.is_none_or(|rule| rule.place.0 != to.0) && self.refused.borrow().iter().any(is_there) {
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
        let entry = entries[number as usize].get_or_insert(RequestedFlow {
            flow,
            wanted: to,
            has: None,
            waits: false,
        });
        entry.wanted = to;
        if !std::mem::replace(&mut entry.waits, true) {
            self.to_steer.borrow_mut().push_back(number);
        }
        Ok(RuleId(number))
    }

    /// Removes a flow.
    fn forget(&self, RuleId(number): RuleId) {
        let Some(entry) = self.entries.borrow_mut().get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        self.by_flow.borrow_mut().remove(&entry.flow);
        self.to_steer.borrow_mut().retain(|&other| other != number);
        self.refused.borrow_mut().retain(|&other| other != number);
        self.free.borrow_mut().push(number);
        self.to_remove.borrow_mut().extend(entry.has);
    }

    /// A member was removed, and its rules with it.
    fn lose(&self, member: usize) {
        self.to_remove.borrow_mut().retain(|rule| rule.place.0 != member);
        for entry in self.entries.borrow_mut().iter_mut().flatten() {
            entry.has = entry.has.filter(|rule| rule.place.0 != member);
        }
    }

    /// Queues a member's flows that have no rule there, or one for another queue.
    fn retry(&self, member: usize) {
        for (number, entry) in (0..).zip(self.entries.borrow_mut().iter_mut()) {
            let Some(entry) = entry else { continue };
            let lacks_rule = entry.has.is_none_or(|rule| rule.place != entry.wanted);
            if entry.wanted.0 == member && lacks_rule && !std::mem::replace(&mut entry.waits, true) {
                self.to_steer.borrow_mut().push_back(number);
            }
        }
    }

    /// The next flow to steer. It no longer counts as refused: it may have moved to a member with room.
    fn next(&self) -> Option<(u32, RequestedFlow)> {
        loop {
            let number = self.to_steer.borrow_mut().pop_front()?;
            self.refused.borrow_mut().retain(|&other| other != number);
            if let Some(entry) = self.entries.borrow_mut().get_mut(number as usize).and_then(Option::as_mut) {
                entry.waits = false;
                return Some((number, *entry));
            }
        }
    }

    /// A member has a rule for a flow: the one that it had elsewhere is to be removed.
    fn steered(&self, number: u32, rule: Rule) {
        let mut entries = self.entries.borrow_mut();
        let old = entries[number as usize].as_mut().and_then(|entry| entry.has.replace(rule));
        self.to_remove.borrow_mut().extend(old.filter(|old| old.place.0 != rule.place.0));
    }

    /// A member's rule was removed: a flow that it had refused can have the place.
    fn freed(&self, member: usize) {
        let mut refused = self.refused.borrow_mut();
        let is_there = |&number: &u32| {
            self.entries.borrow()[number as usize].is_some_and(|entry| entry.wanted.0 == member)
        };
        let first = refused.iter().position(is_there);
        self.to_steer.borrow_mut().extend(first.and_then(|at| refused.remove(at)));
    }

    /// The member whose rules change next.
    fn next_member(&self) -> Option<usize> {
        if let Some(rule) = self.to_remove.borrow().front() {
            return Some(rule.place.0);
        }
        let number = *self.to_steer.borrow().front()?;
        self.entries.borrow()[number as usize].map(|entry| entry.wanted.0)
    }
}

/// The flows of a device made of members, and the worker that keeps the members' rules.
pub(crate) struct SteeredFlows {
    me: Weak<Self>,
    kernel: Rc<dyn Kernel>,
    /// The driver of a member, unless it is gone.
    driver_of: MemberDriver,
    table: Table,
    works: Cell<bool>,
}

impl SteeredFlows {
    /// A table without flows.
    pub fn new(kernel: Rc<dyn Kernel>, driver_of: MemberDriver) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            kernel,
            driver_of,
            table: Table::default(),
            works: Cell::new(false),
        })
    }

    /// Steers a flow to a member's queue, soon.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many flows or the member's table is full; a flow that has a rule keeps it.
    pub fn steer(&self, flow: FlowKey, to: (usize, u16)) -> Result<RuleId, Error> {
        let rule = self.table.want(flow, to)?;
        self.start_worker();
        Ok(rule)
    }

    /// Removes a flow and, soon, its rule.
    pub fn unsteer(&self, rule: RuleId) {
        self.table.forget(rule);
        self.start_worker();
    }

    /// A member was removed, and its rules with it.
    pub fn lose(&self, member: usize) {
        self.table.lose(member);
    }

    /// A member takes rules again: steers those of its flows that have none there.
    pub fn retry(&self, member: usize) {
        self.table.retry(member);
        self.start_worker();
    }

    /// Starts the worker if there is work and it is not running.
    fn start_worker(&self) {
        let Some(member) = self.table.next_member() else { return };
        if self.works.replace(true) {
            return;
        }
        let me = self.me.clone();
        let work = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let _part = cpu.book(Part::Driver);
                while let Some(flows) = me.upgrade()
                    && flows.table.next_member().is_some_and(|member| flows.is_near(member, &cpu))
                {
                    flows.update_next(&cpu);
                    drop(flows);
                    cpu.sync().await;
                }
                if let Some(flows) = me.upgrade() {
                    flows.works.set(false);
                    flows.start_worker();
                }
            })
        };
        // Any core of the node will do (Linux: mlx5's `mlx5e_arfs` is an unbound work queue): one may be busy for long.
        let node = self.node_of(member);
        let near = |&core: &CpuId| node.is_none_or(|node| self.kernel.node_of(core) == node);
        let cpus = (0..self.kernel.cpus()).map(CpuId).filter(near).collect();
        self.kernel.spawn(TaskParams { cpus, ..TaskParams::named("arfs") }, Box::new(work));
    }

    /// A member's node, if it is known and has cores.
    fn node_of(&self, member: usize) -> Option<Node> {
        let node = (self.driver_of)(member)?.node_of(0)?;
        (0..self.kernel.cpus()).any(|core| self.kernel.node_of(CpuId(core)) == node).then_some(node)
    }

    fn is_near(&self, member: usize, cpu: &Cpu) -> bool {
        self.node_of(member).is_none_or(|node| node == cpu.node())
    }

    /// Updates a member for the next flow that moved or ended.
    fn update_next(&self, cpu: &Cpu) {
        let removed = self.table.to_remove.borrow_mut().pop_front();
        if let Some(Rule { place: (member, _), id }) = removed {
            if let Some(driver) = (self.driver_of)(member) {
                driver.unsteer(cpu, id);
            }
            return self.table.freed(member);
        }
        let Some((number, entry)) = self.table.next() else { return };
        let (member, queue) = entry.wanted;
        let Some(driver) = (self.driver_of)(member) else { return };
        match driver.steer(cpu, entry.flow, queue) {
            Ok(id) => self.table.steered(number, Rule { place: entry.wanted, id }),
            Err(Error::NoSpace) => self.table.refused.borrow_mut().push_back(number),
            // The member is down: others take its flows until it is up again and [`retry`](Self::retry) is called.
            Err(_) => {}
        }
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
        let table = Table::default();
        table.want(flow(1), (0, 0)).unwrap();
        let (number, _) = table.next().unwrap();
        table.refused.borrow_mut().push_back(number);
        assert_eq!(table.want(flow(2), (0, 0)), Err(Error::NoSpace), "member 0 is full");
        assert!(table.want(flow(2), (1, 0)).is_ok());
        let (number, _) = table.next().unwrap();
        table.steered(number, Rule { place: (1, 0), id: RuleId(7) });
        assert_eq!(table.want(flow(2), (0, 0)), Err(Error::NoSpace), "it stays where it is");
        assert!(table.want(flow(2), (1, 3)).is_ok());

        table.want(flow(1), (1, 0)).unwrap();
        while table.next().is_some() {}
        assert!(table.want(flow(3), (1, 0)).is_ok(), "member 1 has refused nobody");
        assert!(table.want(flow(4), (0, 0)).is_ok(), "nobody waits for member 0 any more");
    }

    #[test]
    fn more_flows_than_places_are_refused_until_one_ends() {
        let table = Table::default();
        let flow = |n: usize| FlowKey { source: [10, 1, (n >> 8) as u8, n as u8], ..flow(1) };
        let rules: Vec<RuleId> = (0..MOST).map(|n| table.want(flow(n), (n % 2, 0)).unwrap()).collect();
        assert_eq!(table.want(flow(MOST), (0, 0)), Err(Error::NoSpace));
        assert_eq!(table.want(flow(3), (0, 0)), Ok(rules[3]), "one that has a place may move");
        table.forget(rules[5]);
        assert_eq!(table.want(flow(MOST), (0, 0)), Ok(rules[5]));
    }

    #[test]
    fn flows_that_their_member_did_not_take_are_tried_again() {
        let table = Table::default();
        let next = || table.next().map(|(number, _)| number);
        table.want(flow(1), (0, 3)).unwrap();
        let number = next().unwrap();
        table.retry(1);
        assert_eq!(next(), None, "it is not for that member");
        table.retry(0);
        assert_eq!(next(), Some(number));
        table.steered(number, Rule { place: (0, 3), id: RuleId(7) });
        table.retry(0);
        assert_eq!(next(), None, "it is there");
        table.want(flow(1), (0, 4)).unwrap();
        next().unwrap();
        table.retry(0);
        assert_eq!(next(), Some(number), "it is there, but at another queue");
        table.steered(number, Rule { place: (1, 0), id: RuleId(2) });
        let removed = |rule: &Rule| (rule.place.0, rule.id);
        assert_eq!(table.to_remove.borrow().iter().map(removed).collect::<Vec<_>>(), [(0, RuleId(7))]);
    }
}
