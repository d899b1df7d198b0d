//! Flows that the device was told to steer: in which ring their packets are, and which wait for others.
//!
//! **What keeps the order.** When a flow changes its ring, older packets may still be in the old one, and newer ones be
//! found first in the new one, which another core polls. A packet that comes from another ring than the one before it is
//! held until the old ring has been found empty after that. Then nothing older is left:
//! - the device writes what an old ring has to report before the new ring's first completion (its own promise, see
//!   `steering` of the NIC), and posted writes keep their order on the way to memory (PCIe Base 5.0, 2.4.1);
//! - so whoever found the new ring's packet finds all older ones in the old ring when it looks next, and the ring's poll says
//!   when it found nothing more.
//!
//! The old ring is polled at once for that, on the core that wants to know. Packets go on from here to the cores' backlogs
//! in order, where [`Flows`](super::tables::Flows) keeps it. Linux does without: there, a few packets may be reordered
//! when a rule takes effect.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::net::{FlowKey, RuleId};
use units::{Duration, Time};

use super::super::interfaces::Interfaces;
use super::super::means::Means;
use super::{Ring, Upward};
use crate::net::NetDevice;

/// A flow that is steered, or was.
struct SteeredFlow {
    /// The device's rule and the queue that it names; none if it was told to forget it.
    rule: Option<(RuleId, u16)>,
    /// Where all packets came from that are not held.
    ring: Ring,
    /// Packets of other rings, in the order in which they were found.
    held: VecDeque<(Ring, Upward)>,
    /// When the last packet came.
    used: Time,
}

impl SteeredFlow {
    fn new(ring: Ring) -> Self {
        Self { rule: None, ring, held: VecDeque::new(), used: Time::ZERO }
    }

    /// Whether the device may be asked for another queue: not while it is about to change, nor for what it does already.
    fn may_move(&self, ring: Ring, queue: u16) -> bool {
        let is_settled = self.held.is_empty() && self.rule.is_none_or(|(_, now)| now == ring.1);
        is_settled && self.rule.is_none_or(|(_, now)| now != queue)
    }

    fn steered(&mut self, rule: RuleId, queue: u16, now: Time) {
        (self.rule, self.used) = (Some((rule, queue)), now);
    }

    fn is_silent(&self, now: Time, idle: Duration) -> bool {
        self.held.is_empty() && now.since(self.used) >= idle
    }
}

/// All such flows.
pub struct Rings {
    me: Weak<Self>,
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    /// For how long a flow is silent until it is forgotten, and how often that is looked for.
    idle: Duration,
    scan: Duration,
    flows: RefCell<BTreeMap<FlowKey, SteeredFlow>>,
    /// The device's table was full: nothing is asked of it until then.
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

    /// A packet goes on if it comes from where its elders came from; otherwise it is held.
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

    /// A ring was found empty: what waited for that goes on.
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
                // Nothing more of it is steered.
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

    /// Tells devices to forget flows that have been silent (Linux: `rps_may_expire_flow`). Their packets, if there should
    /// be any, find their order until the ring has been found empty.
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

    /// A device has stopped: what waited for its rings is dropped, as what they held is.
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

    /// Asks the device to send a flow to the ring at home on a core, unless it does.
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
            Some(known) if !known.may_move(ring, queue) => return,
            None if queue == ring.1 => return,
            _ => {}
        }
        if now < self.full_until.get() {
            return;
        }
        match device.steer(cpu, key, queue) {
            Ok(rule) => {
                all.entry(key).or_insert_with(|| SteeredFlow::new(ring)).steered(rule, queue, now);
                drop(all);
                self.means.count(|c| c.steered += 1);
                self.start_scan();
            }
            Err(_) => {
                self.full_until.set(now + self.scan);
                drop(all);
                self.means.count(|c| c.steer_failed += 1);
            }
        }
    }

    /// The task that forgets silent flows. It ends when there is none left.
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
