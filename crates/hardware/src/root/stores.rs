//! Stores of cores to devices: from a core's buffers through a root port to the link.

use engine::{Completion, Seed, Trace};
use platform::cpu::StoreMark;
use platform::mmio::Store;
use units::{Bytes, HostPhysical, Time};
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Tlp, TlpKind};

use super::means::Means;
use super::ports::Ports;
use super::{HostId, OutboundError, RootEvent};
use crate::core::{Departure, FillBuffers, LINE, LinePassed, Step, StoreParams, StoreUnit, WayOut};
use crate::event::Event;
use crate::memory::{Cause, CoreId, MemorySystem, NodeId};
use crate::packet::PacketId;
use crate::wires::Context;

/// Paths from one core to all ports at a given time.
struct FromCore<'a> {
    now: Time,
    node: NodeId,
    ports: &'a mut Ports,
    memory: &'a mut MemorySystem,
}

impl WayOut for FromCore<'_> {
    fn has_room(&mut self, port: u8) -> bool {
        self.ports[port].has_place(self.now)
    }

    fn cross(&mut self, port: u8, cause: Cause, bytes: u64) -> Option<Time> {
        let to = self.ports[port].params().node;
        (to != self.node)
            .then(|| self.memory.charge_interconnect(self.now, cause, self.node, to, Bytes::new(bytes)))
    }

    fn answer(&mut self, port: u8, cause: Cause, arrived: Time) -> Time {
        let from = self.ports[port].params().node;
        self.memory.charge_interconnect(arrived, cause, from, self.node, Bytes::ZERO)
    }
}

/// The store units of all cores.
pub struct Stores {
    host: HostId,
    units: Vec<StoreUnit>,
}

impl Stores {
    /// Creates empty store units.
    pub(super) fn new(host: HostId, memory: &MemorySystem, params: &StoreParams) -> Self {
        let seed = Seed::new(memory.params().seed);
        let units = (0..)
            .map_while(|n| memory.node_of_core(CoreId(n)).map(|_| n))
            .map(|n| StoreUnit::new(params.clone(), seed.component(&format!("core{n}/stores"))))
            .collect();
        Self { host, units }
    }

    /// A core's unit.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn of(&self, core: CoreId) -> &StoreUnit {
        &self.units[core.index()]
    }

    /// Records every line that leaves a write-combining buffer of a core from now on.
    pub fn watch(&mut self, core: CoreId, trace: Trace<LinePassed>) {
        self.units[core.index()].watch(trace);
    }

    /// A core's line fill occupies one of the buffers shared with write combining from `begin` to `end`.
    pub fn line_fill(&mut self, core: CoreId, begin: Time, end: Time) {
        self.units[core.index()].line_fill(begin, end);
    }

    /// When each of a core's fill buffers is available to a miss at `when`. Write combining holds the others; if it
    /// holds all of them, a line is evicted.
    pub fn fill_buffers(&mut self, cx: &mut Context<'_>, core: CoreId, when: Time) -> FillBuffers {
        let buffers = self.units[core.index()].fill_buffers(when);
        if buffers.free_at() > when {
            self.look_again(cx, core, cx.now());
        }
        buffers
    }

    /// Resolves when at most `most` of a core's stores to devices are still pending in the core.
    pub fn pending_at_most(&mut self, core: CoreId, most: usize) -> Completion<()> {
        self.units[core.index()].pending_at_most(most)
    }

    /// See [`Host::store`](super::Host::store).
    pub(super) fn store(
        &mut self,
        cx: &mut Context<'_>,
        ports: &Ports,
        core: CoreId,
        when: Time,
        store: Store<'_>,
    ) -> Result<(), OutboundError> {
        let port_for = |address, length| {
            let address = HostPhysical::new(address);
            if address.offset_in(LINE) + length as u64 > LINE {
                return Err(OutboundError::TooLong { address, length });
            }
            ports.of_access(address, length)
        };
        let unit = &mut self.units[core.index()];
        let port = match store {
            Store::Uncached(address, bytes) | Store::Combining { address, bytes, .. } => {
                port_for(address, bytes.len())?
            }
            Store::Direct(address, line) => port_for(address, line.len())?,
            Store::Flush(_) | Store::Barrier => {
                if unit.is_idle(when) && (unit.has_arrived(when) || store != Store::Barrier) {
                    return Ok(());
                }
                0
            }
        };
        unit.push(when, port, store);
        self.look_again(cx, core, when);
        Ok(())
    }

    /// When a core's uncached stores and fences before a mark have been accepted, as far as known.
    pub(super) fn accepted_before(
        &self,
        ports: &Ports,
        memory: &MemorySystem,
        core: CoreId,
        mark: StoreMark,
    ) -> Time {
        let node = memory.node_of_core(core).expect("stores are made by cores of the host");
        self.of(core).accepted_before(mark, |port| memory.way_and_back(node, ports[port].params().node))
    }

    /// Lets a core's later stores follow those of another core before a mark, if the other core still holds some.
    pub(super) fn follow(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        when: Time,
        (other, mark): (CoreId, StoreMark),
    ) {
        if self.of(other).holds_before(mark) {
            let number = self.units[core.index()].follow(when);
            self.units[other.index()].add_follower(mark, core, number);
            self.look_again(cx, core, when);
        }
    }

    /// Returns when a core's access that leaves the core now reaches the port, behind earlier ones.
    pub(super) fn reach_port(
        &mut self,
        means: &mut Means<'_, '_>,
        core: CoreId,
        port: u8,
        cause: Cause,
        bytes: usize,
    ) -> Time {
        let (now, from, to) = (means.cx.now(), means.node_of(core), means.ports[port].params().node);
        if from == to {
            return now;
        }
        let there = means.memory.charge_interconnect(now, cause, from, to, Bytes::new(bytes as u64));
        self.units[core.index()].reaches(there)
    }

    /// Advances a core's stores as far as possible.
    pub(super) fn run(&mut self, means: &mut Means<'_, '_>, core: CoreId) {
        let now = means.cx.now();
        let node = means.node_of(core);
        let unit = &mut self.units[core.index()];
        unit.wake.take_if(|wake| *wake <= now);
        let (until, blocked) = loop {
            let Means { ports, memory, .. } = means;
            match unit.step(now, &mut FromCore { now, node, ports, memory }) {
                Step::Leave(departure) => leave(means, departure),
                Step::Wait { until, blocked } => break (until, blocked),
            }
        };
        if let Some(until) = until {
            self.look_again(means.cx, core, until);
        }
        let unit = &mut self.units[core.index()];
        if blocked {
            for port in unit.wanted_ports() {
                means.ports[port].wait_for_place(means.cx, core);
            }
        }
        for (follower, number) in unit.take_followers() {
            self.units[follower.index()].go_on(number);
            self.look_again(means.cx, follower, now);
        }
    }

    /// Handles a core's posted write that has reached its port.
    pub(super) fn posted_arrived(&mut self, means: &mut Means<'_, '_>, port: u8, packet: PacketId) {
        means.ports[port].posted_arrived(means.cx, packet);
        self.places_freed(means, port);
    }

    /// A port's link may have sent or lost waiting packets.
    pub(super) fn link_drained(&mut self, means: &mut Means<'_, '_>, port: u8) {
        means.ports[port].count_places(means.cx);
        self.places_freed(means, port);
    }

    /// Resumes cores that wait for a place in a port, while there are free places.
    pub(super) fn places_freed(&mut self, means: &mut Means<'_, '_>, port: u8) {
        let now = means.cx.now();
        for _ in 0..means.ports[port].waiting(now) {
            let Some(core) = means.ports[port].next_waiting(now) else { break };
            self.run(means, core);
        }
        means.ports[port].arrange_look(means.cx);
    }

    fn look_again(&mut self, cx: &mut Context<'_>, core: CoreId, at: Time) {
        let unit = &mut self.units[core.index()];
        if unit.wake.is_none_or(|wake| wake > at) {
            unit.wake = Some(at);
            cx.scheduler.at(at.max(cx.now()), Event::Root(self.host, RootEvent::Stores { core }));
        }
    }
}

fn leave(means: &mut Means<'_, '_>, departure: Departure) {
    let port = &mut means.ports[departure.port];
    let request = MemoryRequest { requester: port.id(), ..departure.request };
    let tlp = Tlp::new(TlpKind::MemoryWrite(request));
    let packet = means.cx.wires.packets.encode(&tlp, departure.payload());
    port.send_posted(means.cx, departure.arrives, packet);
}
