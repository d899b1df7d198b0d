//! Flows steered by the device: the ring that their packets come from, and packets that have to wait.
//!
//! **How order is kept.** When a flow moves to another ring, older packets may still be in the old ring while another
//! core already polls newer ones from the new ring. So a packet from a different ring than its predecessor is held
//! until the old ring has been found empty afterwards. Nothing older is left then:
//! - The device writes all completions of the old ring before the first one of the new ring (guaranteed by the NIC,
//!   see its `steering`), and posted writes stay in order on their way to memory (PCIe Base 5.0, 2.4.1).
//! - So whoever finds a packet in the new ring also finds all older ones in the old ring, and the poll of the old
//!   ring reports when it is empty.
//!
//! The old ring is polled at once, on the core that found the new packet. Packets then go to the cores' backlogs in
//! order, and [`Flows`](super::tables::Flows) keeps that order. Linux does without this, and may reorder a few
//! packets when a rule takes effect.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::net::{FlowKey, RuleId};
use units::{Duration, Time};

use super::super::interfaces::Interfaces;
use super::super::means::Means;
use super::super::upward::{Ring, Upward};
use crate::net::NetDevice;

/// A flow that is, or was, steered.
struct SteeredFlow {
    /// The device's rule and its queue; `None` once it was removed.
    rule: Option<(RuleId, u16)>,
    /// Ring of all packets so far that were not held.
    ring: Ring,
    /// Held packets of other rings, in order of arrival.
    held: VecDeque<(Ring, Upward)>,
    /// When the last packet arrived.
    used: Time,
    /// When the device last agreed to a change.
    asked: Time,
    /// The device had no room: it is not asked again until then.
    refused_until: Time,
}

impl SteeredFlow {
    fn new(ring: Ring) -> Self {
        Self {
            rule: None,
            ring,
            held: VecDeque::new(),
            used: Time::ZERO,
            asked: Time::ZERO,
            refused_until: Time::ZERO,
        }
    }

    /// Whether to ask the device for `queue`: not if it is already set, nor while a change is pending, which it is for
    /// at most `patience`, since a device may find only later that it has no room.
    fn may_move(&self, ring: Ring, queue: u16, now: Time, patience: Duration) -> bool {
        let is_free = self.held.is_empty() && now >= self.refused_until;
        let Some((_, wanted)) = self.rule else { return is_free };
        let is_settled = wanted == ring.1 || now.since(self.asked) >= patience;
        is_free && is_settled && (wanted != queue || wanted != ring.1)
    }

    fn steered(&mut self, rule: RuleId, queue: u16, now: Time) {
        (self.rule, self.used, self.asked) = (Some((rule, queue)), now, now);
    }

    fn is_silent(&self, now: Time, idle: Duration) -> bool {
        self.held.is_empty() && now.since(self.used) >= idle
    }
}

pub struct Rings {
    me: Weak<Self>,
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    /// Idle time until a flow is removed, and the search interval.
    idle: Duration,
    scan: Duration,
    flows: RefCell<BTreeMap<FlowKey, SteeredFlow>>,
    /// The device's table was full: no requests for other flows until then.
    full_until: Cell<Time>,
    scanning: Cell<bool>,
}

impl Rings {
    pub fn new(means: &Rc<Means>, interfaces: &Rc<Interfaces>, idle: Duration, scan: Duration) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            idle,
            scan,
            flows: RefCell::default(),
            full_until: Cell::new(Time::ZERO),
            scanning: Cell::new(false),
        })
    }

    pub fn clear(&self) {
        self.flows.borrow_mut().clear();
    }

    /// Passes a packet if it comes from the flow's current ring; holds it otherwise.
    pub fn pass(&self, cpu: &Cpu, ring: Ring, key: FlowKey, up: Upward) -> Option<Upward> {
        let mut all = self.flows.borrow_mut();
        let Some(flow) = all.get_mut(&key) else { return Some(up) };
        flow.used = cpu.now();
        if flow.ring == ring {
            return Some(up);
        }
        flow.held.push_back((ring, up));
        let old = flow.ring;
        drop(all);
        cpu.work(self.means.costs().net_queue);
        self.means.count(|c| c.steer_held += 1);
        self.look_at(cpu, old);
        None
    }

    fn look_at(&self, cpu: &Cpu, ring: Ring) {
        if let Some(device) = self.interfaces.device_numbered(ring.0) {
            device.poll_queue(cpu, ring.1);
        }
    }

    /// A ring was found empty: releases packets that waited for it.
    pub fn emptied(&self, cpu: &Cpu, ring: Ring, go_on: impl Fn(Ring, FlowKey, Upward)) {
        if self.flows.borrow().is_empty() {
            return;
        }
        let mut freed: Vec<(FlowKey, Ring, Upward)> = Vec::new();
        let mut look = Vec::new();
        self.flows.borrow_mut().retain(|&key, flow| {
            if flow.ring != ring {
                return true;
            }
            let Some(&(next, _)) = flow.held.front() else {
                // Keep the flow only if it is still steered.
                return flow.rule.is_some();
            };
            flow.ring = next;
            for (from, up) in core::mem::take(&mut flow.held) {
                match from == next {
                    true => freed.push((key, from, up)),
                    false => flow.held.push_back((from, up)),
                }
            }
            if !flow.held.is_empty() {
                look.push(next);
            }
            true
        });
        freed.into_iter().for_each(|(key, from, up)| go_on(from, key, up));
        look.into_iter().for_each(|ring| self.look_at(cpu, ring));
    }

    /// Removes the rules of idle flows (Linux: `rps_may_expire_flow`). Late packets are still ordered until the ring
    /// was found empty.
    fn forget_silent(&self, cpu: &Cpu) {
        let mut expired = Vec::new();
        for (&key, flow) in self.flows.borrow_mut().iter_mut() {
            if flow.is_silent(cpu.now(), self.idle) {
                expired.push((key, flow.ring, flow.rule.take()));
            }
        }
        for (_, ring, rule) in expired {
            if let (Some((rule, _)), Some(device)) = (rule, self.interfaces.device_numbered(ring.0)) {
                device.unsteer(cpu, rule);
                self.means.count(|c| c.steer_expired += 1);
            }
            self.look_at(cpu, ring);
        }
    }

    /// A device has stopped: drops packets that waited for its rings, as those in the rings are lost, too.
    pub fn forget(&self, cpu: &Cpu, device: &NetDevice) {
        let mut gone = Vec::new();
        self.flows.borrow_mut().retain(|_, flow| {
            let stays = flow.ring.0 != device.number();
            if !stays {
                gone.push((flow.rule.take(), core::mem::take(&mut flow.held)));
            }
            stays
        });
        for (rule, held) in gone {
            if let Some((rule, _)) = rule {
                device.unsteer(cpu, rule);
            }
            held.into_iter().for_each(|(_, up)| up.release(cpu));
        }
    }

    /// Asks the device to steer a flow to the ring of a core, unless it does already.
    pub fn ask_device(&self, cpu: &Cpu, ring: Ring, key: FlowKey, core: CpuId) {
        let Some(device) =
            self.interfaces.device_numbered(ring.0).filter(|device| device.features().flow_steering)
        else {
            return;
        };
        let queue = device.rx_queue_for(core);
        let now = cpu.now();
        let mut all = self.flows.borrow_mut();
        match all.get(&key) {
            Some(known) if !known.may_move(ring, queue, now, self.scan) => return,
            None if queue == ring.1 || now < self.full_until.get() => return,
            _ => {}
        }
        match device.steer(cpu, key, queue) {
            Ok(rule) => {
                all.entry(key).or_insert_with(|| SteeredFlow::new(ring)).steered(rule, queue, now);
                drop(all);
                self.means.count(|c| c.steered += 1);
                self.start_scan();
            }
            Err(_) => {
                match all.get_mut(&key) {
                    Some(known) => known.refused_until = now + self.scan,
                    None => self.full_until.set(now + self.scan),
                }
                drop(all);
                self.means.count(|c| c.steer_failed += 1);
            }
        }
    }

    /// The task that removes idle flows; it ends when none is left.
    fn start_scan(&self) {
        if self.scanning.replace(true) {
            return;
        }
        let (me, scan) = (self.me.clone(), self.scan);
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let _part = cpu.book(Part::Net);
                let are_left = |rings: &Rc<Self>| !rings.flows.borrow().is_empty();
                while me.upgrade().is_some_and(|rings| are_left(&rings)) {
                    cpu.sleep(scan).await;
                    if let Some(rings) = me.upgrade() {
                        rings.forget_silent(&cpu);
                    }
                    cpu.sync().await;
                }
                if let Some(rings) = me.upgrade() {
                    rings.scanning.set(false);
                }
            })
        };
        self.means.spawn("arfs", program);
    }
}
