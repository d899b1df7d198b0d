//! A switch between the cables of adapters. It forwards TLPs between cables by destination node, and is in no host's
//! tree.

use std::collections::BTreeMap;

use units::{Duration, Time};
use wire::pcie::tlp::{CompletionHeader, CompletionStatus};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::event::{ClusterSend, ClusterSwitchId};
use super::{consume_whole, crossing_time, destination, tie};
use crate::event::Event;
use crate::link::{LinkEnd, LinkState};
use crate::packet::PacketId;
use crate::wires::Context;

/// What a cluster switch is like; all ports are alike.
#[derive(Clone, Debug)]
pub struct ClusterSwitchParams {
    /// From the arrival of a TLP's header at one port (or of the whole TLP if stored and forwarded) until it can leave
    /// another.
    pub latency: Duration,
    /// Whether TLPs are forwarded before their end has arrived, where possible.
    pub cut_through: bool,
}

/// A switch between cables of adapters: routes TLPs by the number of the node that they are for.
pub struct ClusterSwitch {
    id: ClusterSwitchId,
    params: ClusterSwitchParams,
    cables: Vec<LinkEnd>,
    /// By node: index of the cable towards it.
    pub(crate) routes: BTreeMap<u8, usize>,
    /// By ingress and egress cable: when the last TLP was forwarded.
    last: Vec<Vec<Time>>,
    /// TLPs forwarded.
    pub forwarded: u64,
    /// TLPs for a node without a cable that is up.
    pub unreachable: u64,
}

impl ClusterSwitch {
    pub(crate) fn new(id: ClusterSwitchId, params: ClusterSwitchParams) -> Self {
        Self {
            id,
            params,
            cables: Vec::new(),
            routes: BTreeMap::new(),
            last: Vec::new(),
            forwarded: 0,
            unreachable: 0,
        }
    }

    /// What it was created with.
    pub fn params(&self) -> &ClusterSwitchParams {
        &self.params
    }

    pub(crate) fn add_cable(&mut self, end: LinkEnd) {
        self.cables.push(end);
        let count = self.cables.len();
        self.last.push(Vec::new());
        self.last.iter_mut().for_each(|last| last.resize(count, Time::ZERO));
    }

    /// Handles a TLP that arrived through a cable.
    pub(crate) fn deliver(&mut self, cx: &mut Context<'_>, ingress: LinkEnd, packet: PacketId) {
        let Some(&tlp) = cx.wires.packets.header(packet) else {
            return consume_whole(cx, ingress, packet);
        };
        let from = self.cables.iter().position(|&end| end == ingress);
        let to = destination(&tlp).and_then(|node| self.routes.get(&node).copied());
        let is_up = |cable: &usize| cx.wires.link(self.cables[*cable].link).state() == LinkState::Up;
        let (Some(from), Some(to)) = (from, to.filter(is_up).filter(|to| Some(*to) != from)) else {
            self.unreachable += 1;
            return self.refuse(cx, ingress, packet, &tlp);
        };
        let egress = self.cables[to];
        let timing = (self.params.latency, self.params.cut_through);
        let at = crossing_time(cx, (ingress, egress), packet, timing, &mut self.last[from][to]);
        self.forwarded += 1;
        tie(cx, egress, packet);
        cx.scheduler.at(at, Event::Cluster(self.id, ClusterSend { end: egress, packet }));
    }

    /// The node is unreachable: completes a non-posted request.
    fn refuse(&self, cx: &mut Context<'_>, ingress: LinkEnd, packet: PacketId, tlp: &Tlp) {
        if let TlpKind::MemoryRead(request) = &tlp.kind {
            let status = CompletionStatus::UnsupportedRequest;
            let answer = CompletionHeader::for_read_error(Bdf::default(), request, status);
            let answer = cx.wires.packets.encode(&Tlp::new(TlpKind::Completion(answer)), &[]);
            cx.wires.tie(ingress, answer);
            let at = cx.now() + self.params.latency;
            cx.scheduler.at(at, Event::Cluster(self.id, ClusterSend { end: ingress, packet: answer }));
        }
        consume_whole(cx, ingress, packet);
    }

    /// Sends a TLP that has reached its egress port.
    pub(crate) fn handle(cx: &mut Context<'_>, send: ClusterSend) {
        cx.send_tied(send.end, send.packet);
    }
}
