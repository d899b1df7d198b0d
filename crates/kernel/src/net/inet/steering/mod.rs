//! Receive flow steering, in software (RFS) and by the device (ARFS): packets go to the core of the program that
//! reads them.
//!
//! ```text
//! recv, send ─▶ SocketFlows: the core that uses the flow's socket
//! packet of a ring ─▶ Rings: behind older packets in other rings ─▶ Flows: nor one in another core's backlog
//!                        │ (ARFS) the device is asked to use that core's ring      └▶ Backlogs ─▶ sockets
//! ```
//!
//! Modelled on Linux's `get_rps_cpu` and `set_rps_cpu` (net/core/dev.c, Documentation/networking/scaling.rst): one
//! table has the cores that use sockets, another the cores that process flows. A flow moves to another core only when
//! the old core has processed all its packets. Linux may reorder packets for a moment after a device changes a flow's
//! ring; here they wait instead, see [`rings`].

mod backlog;
mod rings;
mod tables;

use std::rc::{Rc, Weak};

use platform::costs::linux;
use platform::cpu::Cpu;
use platform::net::FlowKey;
use units::Duration;

use super::interfaces::Interfaces;
use super::means::Means;
use super::upward::{Ring, Sockets, Upward};
use backlog::Backlogs;
use rings::Rings;
use tables::{Flows, SocketFlows, hash_of};

use crate::irq::Softirqs;
use crate::net::NetDevice;

/// Parameters of receive flow steering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SteeringParams {
    /// Entries of the socket table and of the flow table (Linux: `rps_sock_flow_entries`, `rps_flow_cnt`).
    pub entries: u32,
    /// RFS: process packets on the core that uses their socket.
    pub rfs: bool,
    /// ARFS: ask devices to steer flows to that core's queue.
    pub arfs: bool,
    /// Idle time after which a flow's rule is removed.
    pub idle: Duration,
    /// Interval between searches for idle flows.
    pub scan: Duration,
}

impl SteeringParams {
    /// Off, as both are by default in Linux; the table size is the one its documentation recommends. The times are
    /// assumed: Linux's drivers search every 0.1 to 30 s.
    pub const fn linux() -> Self {
        Self {
            entries: const { linux("steering", "entries") } as u32,
            rfs: const { linux("steering", "rfs") } == 1,
            arfs: const { linux("steering", "arfs") } == 1,
            idle: Duration::from_ps(const { linux("steering", "idle") }),
            scan: Duration::from_ps(const { linux("steering", "scan") }),
        }
    }
}

/// Receive flow steering.
pub struct Steering {
    /// Passes packets to sockets.
    stack: Weak<dyn Sockets>,
    means: Rc<Means>,
    params: SteeringParams,
    cores: SocketFlows,
    flows: Flows,
    backlogs: Backlogs,
    rings: Rc<Rings>,
}

impl Steering {
    pub fn new(
        stack: Weak<dyn Sockets>,
        means: &Rc<Means>,
        softirqs: &Rc<Softirqs>,
        interfaces: &Rc<Interfaces>,
        params: SteeringParams,
    ) -> Rc<Self> {
        Rc::new(Self {
            stack: stack.clone(),
            means: Rc::clone(means),
            params,
            cores: SocketFlows::new(params.entries),
            flows: Flows::new(params.entries),
            backlogs: Backlogs::new(stack, Rc::clone(softirqs)),
            rings: Rings::new(means, interfaces, params.idle, params.scan),
        })
    }

    fn is_on(&self) -> bool {
        (self.params.rfs || self.params.arfs) && self.params.entries > 0
    }

    pub fn clear(&self) {
        self.rings.clear();
        self.backlogs.clear();
    }

    /// A ring was found empty: releases packets that waited for it.
    pub fn ring_emptied(&self, cpu: &Cpu, ring: Ring) {
        self.rings.emptied(cpu, ring, |ring, key, up| self.send_to_core(cpu, ring, key, up));
    }

    /// A device has stopped: drops packets that waited for its rings, as those in the rings are lost, too.
    pub fn forget_rings(&self, cpu: &Cpu, device: &NetDevice) {
        self.rings.forget(cpu, device);
    }

    /// A program uses a flow's socket on this core.
    pub fn used_here(&self, cpu: &Cpu, flow: FlowKey) {
        if self.is_on() {
            self.cores.note(self.means.memory(), cpu, hash_of(&flow));
        }
    }

    /// Takes a packet of a ring, or of this host itself, that is ready for its socket.
    pub fn upward(&self, cpu: &Cpu, ring: Option<Ring>, up: Upward) {
        let Some(ring) = ring.filter(|_| self.is_on()) else { return self.hand_up(cpu, up) };
        cpu.work(self.means.costs().net_steer);
        let key = up.key();
        if let Some(up) = self.rings.pass(cpu, ring, key, up) {
            self.send_to_core(cpu, ring, key, up);
        }
    }

    /// Sends a packet to the core of its socket. All earlier packets of its flow have been sent.
    fn send_to_core(&self, cpu: &Cpu, ring: Ring, key: FlowKey, up: Upward) {
        let hash = hash_of(&key);
        let wanted = self.cores.find(self.means.memory(), cpu, hash);
        if let Some(wanted) = wanted.filter(|_| self.params.arfs) {
            self.rings.ask_device(cpu, ring, key, wanted);
        }
        if !self.params.rfs {
            return self.hand_up(cpu, up);
        }
        let backlogs = &self.backlogs;
        let is_done = |core, until| backlogs.of(core).is_none_or(|backlog| backlog.has_done(until));
        let here = self.flows.core_for(self.means.memory(), cpu, hash, wanted, is_done);
        match here {
            // None of the flow's packets are elsewhere, and this is its core, so skip the backlog (Linux uses its own
            // backlog here).
            Some((core, until)) if core == cpu.id() && is_done(core, until) => self.hand_up(cpu, up),
            Some((core, _)) => {
                if core != cpu.id() {
                    self.means.count(|c| c.to_other_core += 1);
                }
                cpu.work(self.means.costs().net_queue);
                match backlogs.get(core).put(cpu, up) {
                    Some(until) => self.flows.set_until(hash, until),
                    None => self.means.count(|c| c.backlog_full += 1),
                }
            }
            None => self.hand_up(cpu, up),
        }
    }

    fn hand_up(&self, cpu: &Cpu, up: Upward) {
        match self.stack.upgrade() {
            Some(stack) => stack.hand_up(cpu, up),
            None => up.release(cpu),
        }
    }
}
