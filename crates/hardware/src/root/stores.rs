//! Stores of cores to devices: from a core's buffers through a root port to the link.

use engine::{Completion, Scheduler, Seed, Trace};
use units::{Bytes, HostPhysical, Time};
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Tlp, TlpKind};

use super::{Host, OutboundError, RootEvent, RootPort};
use crate::core::{
    Departure, FillBuffers, LINE, LinePassed, Step, Store, StoreMark, StoreParams, StoreUnit, WayOut,
};
use crate::event::Event;
use crate::memory::{Cause, CoreId, MemorySystem, NodeId};
use crate::packet::PacketId;
use crate::wires::Context;

/// The store units of all cores of a host.
pub(super) fn units(memory: &MemorySystem, params: &StoreParams) -> Vec<StoreUnit> {
    let seed = Seed::new(memory.params().seed);
    (0..)
        .map_while(|n| memory.node_of_core(CoreId(n)).map(|_| n))
        .map(|n| StoreUnit::new(params.clone(), seed.component(&format!("core{n}/stores"))))
        .collect()
}

/// Paths from one core to all ports at a given time.
struct FromCore<'a> {
    now: Time,
    node: NodeId,
    ports: &'a mut [RootPort],
    memory: &'a mut MemorySystem,
}

impl WayOut for FromCore<'_> {
    fn has_room(&mut self, port: u8) -> bool {
        self.ports[usize::from(port)].has_place(self.now)
    }

    fn cross(&mut self, port: u8, cause: Cause, bytes: u64) -> Option<Time> {
        let to = self.ports[usize::from(port)].params.node;
        (to != self.node)
            .then(|| self.memory.charge_interconnect(self.now, cause, self.node, to, Bytes::new(bytes)))
    }

    fn answer(&mut self, port: u8, cause: Cause, arrived: Time) -> Time {
        let from = self.ports[usize::from(port)].params.node;
        self.memory.charge_interconnect(arrived, cause, from, self.node, Bytes::ZERO)
    }
}

impl Host {
    /// Configures all cores' store units, which start empty.
    pub fn set_store_params(&mut self, params: &StoreParams) {
        self.stores = units(&self.memory, params);
    }

    /// A core's store unit.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn stores_of(&self, core: CoreId) -> &StoreUnit {
        &self.stores[core.index()]
    }

    /// Records every line that leaves a write-combining buffer of a core from now on.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn watch_stores(&mut self, core: CoreId, trace: Trace<LinePassed>) {
        self.stores[core.index()].watch(trace);
    }

    /// A core's line fill occupies one of the buffers shared with write combining from `begin` to `end`.
    pub fn line_fill(&mut self, core: CoreId, begin: Time, end: Time) {
        self.stores[core.index()].line_fill(begin, end);
    }

    /// When each of a core's fill buffers is available to a miss at `when`. Write combining holds the others; if it
    /// holds all of them, a line is evicted.
    pub fn fill_buffers(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        core: CoreId,
        when: Time,
    ) -> FillBuffers {
        let buffers = self.stores[core.index()].fill_buffers(when);
        if buffers.free_at() > when {
            self.look_again(scheduler, core, scheduler.now());
        }
        buffers
    }

    /// Resolves when at most `most` of a core's stores to devices are still pending in the core.
    pub fn stores_pending_at_most(&mut self, core: CoreId, most: usize) -> Completion<()> {
        self.stores[core.index()].pending_at_most(most)
    }

    /// Stores to a device from a core at time `when`, which is now or later.
    ///
    /// # Errors
    /// If no port forwards the address or the bytes span more than one line: the store is lost.
    pub fn store(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        when: Time,
        store: Store<'_>,
    ) -> Result<(), OutboundError> {
        let port = match store {
            Store::Uncached(address, bytes) | Store::Combining { address, bytes, .. } => {
                self.port_for(address, bytes.len())?
            }
            Store::Direct(address, line) => self.port_for(address, line.len())?,
            Store::Flush(_) | Store::Barrier => {
                let unit = &mut self.stores[core.index()];
                if unit.is_idle(when) && (unit.has_arrived(when) || store != Store::Barrier) {
                    return Ok(());
                }
                0
            }
        };
        self.stores[core.index()].push(when, port, store);
        self.look_again(cx.scheduler, core, when);
        Ok(())
    }

    /// When a core's uncached stores and fences so far have been accepted, as far as known, but not before `when`.
    /// Locked instructions and `mfence` wait for that.
    pub fn uncached_accepted_by(&self, core: CoreId, when: Time) -> Time {
        self.accepted_before(core, self.stores[core.index()].mark(when)).max(when)
    }

    fn accepted_before(&self, core: CoreId, mark: StoreMark) -> Time {
        let node = self.node_of(core);
        let way = |port: u8| self.memory.way_and_back(node, self.ports[usize::from(port)].params.node);
        self.stores[core.index()].accepted_before(mark, way)
    }

    /// Orders a core's stores after those of another core whose ordinary store it has seen at a mark. x86 stores are
    /// seen in program order (SDM volume 3, 8.2.2), so the other core's earlier uncached stores and fences have been
    /// accepted, and later stores of this core follow them. Returns when they have been accepted, as far as known.
    pub fn follow_stores(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        core: CoreId,
        when: Time,
        (other, mark): (CoreId, StoreMark),
    ) -> Time {
        if core == other {
            return when;
        }
        let seen = self.accepted_before(other, mark).max(when);
        let leader = &mut self.stores[other.index()];
        if leader.holds_before(mark) {
            let number = self.stores[core.index()].follow(when);
            self.stores[other.index()].add_follower(mark, core, number);
            self.look_again(scheduler, core, when);
        }
        seen
    }

    /// Returns when a core's access that leaves the core at `when` reaches the port, behind earlier ones.
    pub(super) fn reach_port(
        &mut self,
        core: CoreId,
        when: Time,
        port: u8,
        cause: Cause,
        bytes: usize,
    ) -> Time {
        let (from, to) = (self.node_of(core), self.ports[usize::from(port)].params.node);
        if from == to {
            return when;
        }
        let there = self.memory.charge_interconnect(when, cause, from, to, Bytes::new(bytes as u64));
        self.stores[core.index()].reaches(there)
    }

    pub(super) fn node_of(&self, core: CoreId) -> NodeId {
        self.memory.node_of_core(core).expect("accesses are made by cores of the host")
    }

    fn port_for(&self, address: u64, length: usize) -> Result<u8, OutboundError> {
        let address = HostPhysical::new(address);
        if address.offset_in(LINE) + length as u64 > LINE {
            return Err(OutboundError::TooLong { address, length });
        }
        self.window(address, length)
    }

    /// Advances a core's stores as far as possible.
    pub(super) fn run_stores(&mut self, cx: &mut Context<'_>, core: CoreId) {
        let now = cx.now();
        let unit = &mut self.stores[core.index()];
        if unit.wake.is_some_and(|wake| wake <= now) {
            unit.wake = None;
        }
        let node = self.node_of(core);
        let (until, blocked) = loop {
            let Self { stores, ports, memory, .. } = self;
            let step = stores[core.index()].step(now, &mut FromCore { now, node, ports, memory });
            match step {
                Step::Leave(departure) => self.leave(cx, departure),
                Step::Wait { until, blocked } => break (until, blocked),
            }
        };
        if let Some(until) = until {
            self.look_again(cx.scheduler, core, until);
        }
        if blocked {
            self.wait_for_place(cx.scheduler, core);
        }
        for (follower, number) in self.stores[core.index()].take_followers() {
            self.stores[follower.index()].go_on(number);
            self.look_again(cx.scheduler, follower, now);
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>, departure: Departure) {
        let requester = self.ports[usize::from(departure.port)].id;
        let request = MemoryRequest { requester, ..departure.request };
        let tlp = Tlp::new(TlpKind::MemoryWrite(request));
        let packet = cx.wires.packets.encode(&tlp, departure.payload());
        self.port_mut(departure.port).send_posted(cx, departure.arrives, packet);
    }

    /// Handles a core's posted write that has reached its port.
    pub(super) fn posted_arrived(&mut self, cx: &mut Context<'_>, port: u8, packet: PacketId) {
        self.port_mut(port).posted_arrived(cx, packet);
        self.places_freed(cx, port);
    }

    /// A port's link may have sent or lost waiting packets.
    pub fn link_drained(&mut self, cx: &mut Context<'_>, port: u8) {
        self.port_mut(port).count_places(cx.wires);
        self.places_freed(cx, port);
    }

    /// Resumes cores that wait for a place in a port, while there are free places.
    pub(super) fn places_freed(&mut self, cx: &mut Context<'_>, port: u8) {
        let now = cx.now();
        let places = &mut self.ports[usize::from(port)].places;
        if places.wake.is_some_and(|wake| wake <= now) {
            places.wake = None;
        }
        let asked = places.waiting.len();
        for _ in 0..asked {
            let state = self.port_mut(port);
            if !state.has_place(now) {
                break;
            }
            let Some(core) = state.places.waiting.pop_front() else { break };
            self.run_stores(cx, core);
        }
        self.port_mut(port).arrange_look(cx.scheduler);
    }

    /// Queues a core at the ports for which its stores wait.
    fn wait_for_place(&mut self, scheduler: &mut Scheduler<Event>, core: CoreId) {
        let wanted: Vec<u8> = self.stores[core.index()].wanted_ports().collect();
        for port in wanted {
            self.port_mut(port).wait_for_place(scheduler, core);
        }
    }

    fn look_again(&mut self, scheduler: &mut Scheduler<Event>, core: CoreId, at: Time) {
        let unit = &mut self.stores[core.index()];
        if unit.wake.is_none_or(|wake| wake > at) {
            unit.wake = Some(at);
            scheduler.at(at.max(scheduler.now()), Event::Root(self.id, RootEvent::Stores { core }));
        }
    }
}
