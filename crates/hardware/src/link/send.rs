//! From handing a TLP to the link until its delivery is scheduled.

use units::{Bytes, Time};
use wire::pcie::FlowClass;

use super::params::Credits;
use super::replay::Replayable;
use super::{Link, LinkContext, LinkEnd, LinkState, ReceiveSpace, Released, Side};
use crate::event::Event;
use crate::packet::{PacketId, Summary};

/// Wire occupancy of a TLP.
#[derive(Clone, Copy)]
pub(super) struct WireBytes {
    /// TLP bytes, framing included.
    pub tlp: u64,
    /// Padding bytes that its sender adds around it.
    pub padding: u64,
}

/// A TLP's way over a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    /// When its first byte is sent.
    pub start: Time,
    /// When the wire is free again.
    pub end: Time,
    /// When it is delivered.
    pub arrival: Time,
}

impl Link {
    /// Sends a TLP from `side`, at once if credits, replay space and the ordering rules allow it.
    ///
    /// Receive buffers that this frees (its own, where a switch forwards it) are appended to `released`.
    #[inline(always)]
    pub fn send(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, released: &mut Released) {
        if self.protected[side as usize] {
            cx.packets.protect(packet);
        }
        if self.state == LinkState::Down {
            self.lose(cx, packet, released);
            return;
        }
        let Summary { class, credits } = cx.packets.summary(packet);
        let now = cx.scheduler.now();
        self.settle(cx, side, now, released);
        // Fast path: nothing waits, so there is no order to keep.
        let transmitter = &mut self.transmitters[side as usize];
        if transmitter.replay.has_room(0) && transmitter.pay_at_once(now, class, credits) {
            let arrival = self.launch(cx, side, now, packet, (class, credits), None, released);
            self.deliver_at(cx, side, packet, arrival);
        } else {
            self.queue(cx, side, now, packet, released);
        }
    }

    /// Lets a TLP wait behind others, or for credits or replay space.
    #[inline(never)]
    pub(super) fn queue(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        now: Time,
        packet: PacketId,
        released: &mut Released,
    ) {
        let (key, Summary { class, credits }) = (cx.packets.ordering(packet), cx.packets.summary(packet));
        self.transmitters[side as usize].enqueue(class, packet, credits, key);
        self.drain(cx, side, now, released);
    }

    /// Sends a TLP whose credits have been consumed: assigns its sequence number and wire time. Returns when it is
    /// delivered.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn launch(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        now: Time,
        packet: PacketId,
        (class, credits): (FlowClass, Credits),
        expected: Option<Crossing>,
        released: &mut Released,
    ) -> Time {
        let sequence = self.transmitters[side as usize].replay.number();
        let there = self.end(side.opposite());
        let is_limited = self.receivers[there.side as usize].occupy(class, credits);
        let held = is_limited.then_some(ReceiveSpace { end: there, class, credits, epoch: self.epoch });
        let (length, hop) = cx.packets.length_and_hop(packet);
        (hop.sequence, hop.epoch) = (sequence, self.epoch);
        if hop.held.is_some() {
            released.extend(hop.held);
        }
        hop.held = held;
        let bytes = WireBytes { tlp: length as u64 + self.framing_bytes(), padding: hop.padding.into() };
        if self.injector.is_some() {
            let copy = cx.packets.duplicate(packet);
            let kept = Replayable { sequence, copy, wire_bytes: bytes.tlp as u32 };
            self.transmitters[side as usize].replay.keep(kept);
        }
        let counters = &mut self.counters[side as usize];
        counters.tlps[class as usize] += 1;
        counters.tlp_bytes[class as usize] += Bytes::new(bytes.tlp);
        self.put_on_wire(cx, side, now, packet, sequence, bytes, expected)
    }

    /// Receive buffer space that a TLP takes at `side`; none if the credits are infinite.
    #[inline]
    pub(super) fn receive_space(
        &self,
        side: Side,
        class: FlowClass,
        credits: Credits,
    ) -> Option<ReceiveSpace> {
        let is_limited = self.receivers[side as usize].is_limited(class);
        is_limited.then(|| ReceiveSpace { end: self.end(side), class, credits, epoch: self.epoch })
    }

    #[cold]
    fn lose(&mut self, cx: &mut LinkContext<'_>, packet: PacketId, released: &mut Released) {
        released.extend(cx.packets.hop(packet).held);
        cx.packets.free(packet);
    }

    /// Sends what can be sent from `side`, and schedules a retry if something cannot.
    #[inline(never)]
    pub(super) fn drain(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time, released: &mut Released) {
        loop {
            let transmitter = &mut self.transmitters[side as usize];
            let next = transmitter.replay.has_room(0).then(|| transmitter.take_next(now));
            let Some((class, waiting)) = next.flatten() else { break };
            let needed = (class, waiting.credits);
            let arrival = self.launch(cx, side, now, waiting.packet, needed, None, released);
            self.deliver_at(cx, side, waiting.packet, arrival);
        }
        let starved = self.transmitters[side as usize].is_waiting();
        let stalled = self.transmitters[side as usize].note_starvation(now, starved);
        self.counters[side as usize].stalled += stalled;
        if starved {
            self.arrange_wake(cx, side, now);
        }
    }

    /// Schedules the delivery of a TLP that `side` has sent.
    #[inline(always)]
    pub(super) fn deliver_at(&self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, arrival: Time) {
        let at = arrival.max(cx.scheduler.now());
        cx.scheduler.at(at, Event::Deliver { end: self.end(side.opposite()), packet });
    }

    /// When a TLP that starts at `start` ends on the wire, and when it is delivered.
    #[inline(always)]
    fn crossing(&self, side: Side, bytes: WireBytes, start: Time) -> Crossing {
        let end = start + self.wire_time(side, bytes.tlp + bytes.padding);
        let routed = if self.receivers[side.opposite() as usize].params.cut_through {
            start + self.wire(side).time_for(HEADER_BYTES_TO_ROUTE.min(bytes.tlp))
        } else {
            end
        };
        Crossing { start, end, arrival: routed + self.params.latency }
    }

    /// How `packet` would cross the link if it started at `start`.
    #[inline]
    pub(super) fn expected_crossing(
        &self,
        cx: &LinkContext<'_>,
        side: Side,
        packet: PacketId,
        start: Time,
    ) -> Crossing {
        let tlp = cx.packets.length(packet) as u64 + self.framing_bytes();
        let bytes = WireBytes { tlp, padding: cx.packets.hop(packet).padding.into() };
        self.crossing(side, bytes, start)
    }

    /// Puts a TLP on the wire, first transmission or replay, `expected` to cross the link then. Returns when it is
    /// delivered.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn put_on_wire(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        now: Time,
        packet: PacketId,
        sequence: u16,
        bytes: WireBytes,
        expected: Option<Crossing>,
    ) -> Time {
        let start = self.transmitters[side as usize].wire.begin(now);
        let crossing = match expected {
            Some(crossing) if crossing.start == start => crossing,
            _ => self.crossing(side, bytes, start),
        };
        let Crossing { end, arrival, .. } = crossing;
        self.transmitters[side as usize].wire.occupy_until(end);
        self.counters[side as usize].busy += end - start;
        if !self.is_plain {
            self.interfere(cx, side, packet, sequence, (start, end));
        }
        arrival
    }

    /// Applies error injection to a TLP that is on the wire from `span.0` until `span.1`, and records it at the tap.
    #[cold]
    fn interfere(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        packet: PacketId,
        sequence: u16,
        span: (Time, Time),
    ) {
        let transmitter = &mut self.transmitters[side as usize];
        if let Some(injector) = &mut self.injector {
            injector.damage(cx.packets, packet, sequence);
            let deadline = span.1 + injector.replay_timeout;
            if transmitter.replay.start_timer(deadline) {
                cx.scheduler.at(deadline, Event::ReplayTimer(LinkEnd { link: self.id, side }));
            }
        }
        if let Some(tap) = &mut self.tap {
            let lcrc = cx.packets.hop(packet).lcrc;
            tap.tlp(side, span, sequence, cx.packets.bytes(packet), lcrc);
        }
    }
}

/// Bytes that must have arrived before a TLP can be routed: framing and a four-doubleword header.
pub(super) const HEADER_BYTES_TO_ROUTE: u64 = 20;
