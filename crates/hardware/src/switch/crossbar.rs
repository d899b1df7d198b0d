//! Input queues: the TLPs of a class leave an ingress port in the order in which they arrived there, whatever egress they have. One
//! whose egress is busy blocks those behind it (head-of-line blocking).
//!
//! An egress takes the head that has waited longest as soon as its link is free, and a port sends one TLP at a time. Queues of switches without this are in their
//! links' transmitters.

use std::collections::VecDeque;

use units::{Duration, Time};
use wire::pcie::FlowClass;

use super::{SwitchEvent, SwitchId, SwitchPort};
use crate::event::Event;
use crate::link::LinkState;
use crate::packet::PacketId;
use crate::wires::Context;

/// How soon a head is tried again if its egress lacks credits (assumed: a few cycles).
const RETRY: Duration = Duration::from_ns(10);

/// A TLP that waits for its egress.
struct InputEntry {
    packet: PacketId,
    egress: usize,
    /// Posted requests that arrived before it, of which none may be left.
    behind: u64,
}

/// What has arrived at a port and has not left.
#[derive(Default)]
struct Ingress {
    queues: [VecDeque<InputEntry>; 3],
    /// Since when each queue has had its head.
    since: [Time; 3],
    /// When the last byte of the last TLP has left: a port's memory is read as fast as its link.
    free: Time,
    /// Posted requests so far, and those that have left.
    posted: u64,
    left: u64,
}

/// The input queues of all ports.
#[derive(Default)]
pub(super) struct Crossbar {
    ingress: Vec<Ingress>,
    /// By egress: when it is looked at next.
    due: Vec<Option<Time>>,
    /// Egresses to be served; reused.
    open: Vec<usize>,
}

impl Crossbar {
    /// A TLP that arrived at port `from` could leave by port `to` now.
    pub fn enter(
        &mut self,
        cx: &mut Context<'_>,
        (switch, ports): (SwitchId, &[SwitchPort]),
        (from, to): (usize, usize),
        packet: PacketId,
    ) {
        self.ingress.resize_with(ports.len(), Ingress::default);
        self.due.resize(ports.len(), None);
        let now = cx.now();
        let class = cx.wires.packets.summary(packet).class;
        let ingress = &mut self.ingress[from];
        // A request that may pass posted ones waits for none (relaxed ordering of completions).
        let is_relaxed = class == FlowClass::Completion
            && cx.wires.packets.header(packet).is_some_and(|tlp| tlp.common.relaxed_ordering);
        let behind = if class == FlowClass::Posted || is_relaxed { 0 } else { ingress.posted };
        ingress.posted += u64::from(class == FlowClass::Posted);
        let queue = &mut ingress.queues[class as usize];
        queue.push_back(InputEntry { packet, egress: to, behind });
        if queue.len() == 1 {
            ingress.since[class as usize] = now;
            self.serve(cx, (switch, ports), to);
        }
    }

    /// An egress may be free.
    pub fn look(&mut self, cx: &mut Context<'_>, (switch, ports): (SwitchId, &[SwitchPort]), egress: usize) {
        let now = cx.now();
        if self.due.get_mut(egress).and_then(|due| due.take_if(|due| *due <= now)).is_some() {
            self.serve(cx, (switch, ports), egress);
        }
    }

    /// Sends heads by an egress while it is free, and by those that this gives new heads to.
    fn serve(&mut self, cx: &mut Context<'_>, (switch, ports): (SwitchId, &[SwitchPort]), egress: usize) {
        let now = cx.now();
        let mut open = std::mem::take(&mut self.open);
        open.push(egress);
        while let Some(egress) = open.pop() {
            while let Some((at, _, from, class)) = self.longest(egress, now) {
                let free = blocked_until(cx, &ports[egress], class).map_or(at, |free| free.max(at));
                if free > now {
                    self.look_at(cx, switch, egress, free);
                    break;
                }
                let ingress = &mut self.ingress[from];
                let queue = &mut ingress.queues[class as usize];
                let Some(InputEntry { packet, .. }) = queue.pop_front() else { break };
                ingress.left += u64::from(class == FlowClass::Posted);
                ingress.since[class as usize] = now;
                let end = ports[egress].end();
                cx.send_tied(end, packet);
                self.ingress[from].free = cx.wires.link(end.link).wire_free(end.side);
                let heads = self.ingress[from].queues.iter().filter_map(VecDeque::front);
                open.extend(heads.map(|head| head.egress).filter(|&next| next != egress));
            }
        }
        self.open = open;
    }

    /// The port and class of the head for an egress that can leave first and has waited longest, with both times.
    fn longest(&self, egress: usize, now: Time) -> Option<(Time, Time, usize, FlowClass)> {
        let heads = self.ingress.iter().enumerate().flat_map(|(from, ingress)| {
            FlowClass::ALL.into_iter().filter_map(move |class| {
                let head = ingress.queues[class as usize].front()?;
                let may_go = head.egress == egress && head.behind <= ingress.left;
                may_go.then_some((ingress.free.max(now), ingress.since[class as usize], from, class))
            })
        });
        heads.min_by_key(|&(at, since, from, class)| (at, since, from, class as u8))
    }

    fn look_at(&mut self, cx: &mut Context<'_>, switch: SwitchId, egress: usize, at: Time) {
        if self.due[egress].is_none_or(|due| due > at) {
            self.due[egress] = Some(at);
            cx.scheduler.at(at, Event::Switch(switch, SwitchEvent::Look { port: egress as u8 }));
        }
    }
}

/// Until when a port takes no TLP of a class: its link sends another, or lacks credits for the last one.
fn blocked_until(cx: &Context<'_>, port: &SwitchPort, class: FlowClass) -> Option<Time> {
    let (end, now) = (port.end(), cx.now());
    let link = cx.wires.link(end.link);
    if link.state() == LinkState::Down {
        return None;
    }
    if link.waiting_of(end.side, class) > 0 {
        return Some(now + RETRY);
    }
    Some(link.wire_free(end.side)).filter(|&free| free > now)
}
