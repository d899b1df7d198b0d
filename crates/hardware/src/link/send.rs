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

impl Link {
    /// Sends a TLP from `side`, at once if credits, replay space and the ordering rules allow it.
    ///
    /// Receive buffers that this frees (its own, where a switch forwards it) are appended to `released`.
    #[inline]
    pub fn send(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, released: &mut Released) {
        if self.state == LinkState::Down {
            self.lose(cx, packet, released);
            return;
        }
        let Summary { class, credits } = cx.packets.summary(packet);
        let now = cx.scheduler.now();
        self.settle(cx, side, now, released);
        // Fast path: nothing waits, so there is no order to keep.
        if self.transmitters[side as usize].replay.has_room(0)
            && self.transmitters[side as usize].pay_at_once(now, class, credits)
        {
            let arrival = self.launch(cx, side, now, class, packet, credits, released);
            self.deliver_at(cx, side, packet, arrival);
            return;
        }
        let key = cx.packets.ordering(packet);
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
        class: FlowClass,
        packet: PacketId,
        credits: Credits,
        released: &mut Released,
    ) -> Time {
        let sequence = self.transmitters[side as usize].replay.number();
        let held = self.receive_space(side.opposite(), class, credits);
        let (length, hop) = cx.packets.length_and_hop(packet);
        (hop.sequence, hop.epoch) = (sequence, self.epoch);
        if let Some(before) = std::mem::replace(&mut hop.held, held) {
            released.push(before);
        }
        let bytes = WireBytes { tlp: length as u64 + self.framing_bytes(), padding: hop.padding.into() };
        if self.injector.is_some() {
            let copy = cx.packets.duplicate(packet);
            let kept = Replayable { sequence, copy, wire_bytes: bytes.tlp as u32 };
            self.transmitters[side as usize].replay.keep(kept);
        }
        self.receivers[side.opposite() as usize].occupy(class, credits);
        let counters = &mut self.counters[side as usize];
        counters.tlps[class as usize] += 1;
        counters.tlp_bytes[class as usize] += Bytes::new(bytes.tlp);
        self.put_on_wire(cx, side, now, packet, sequence, bytes)
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

    fn lose(&mut self, cx: &mut LinkContext<'_>, packet: PacketId, released: &mut Released) {
        released.extend(cx.packets.hop(packet).held);
        cx.packets.free(packet);
    }

    /// Sends what can be sent from `side`, and schedules a retry if something cannot.
    pub(super) fn drain(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time, released: &mut Released) {
        loop {
            let transmitter = &mut self.transmitters[side as usize];
            let next = transmitter.replay.has_room(0).then(|| transmitter.take_next(now));
            let Some((class, waiting)) = next.flatten() else { break };
            let arrival = self.launch(cx, side, now, class, waiting.packet, waiting.credits, released);
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

    /// When the wire is free after a TLP that starts at `start`, and when the TLP is delivered.
    #[inline(always)]
    fn times_on_wire(&self, side: Side, bytes: WireBytes, start: Time) -> (Time, Time) {
        let end = start + self.wire_time(side, bytes.tlp + bytes.padding);
        let routed = if self.receivers[side.opposite() as usize].params.cut_through {
            start + self.wire(side).time_for(HEADER_BYTES_TO_ROUTE.min(bytes.tlp))
        } else {
            end
        };
        (end, routed + self.params.latency)
    }

    /// When the wire would be free if `packet` started at `start`, and when the packet would be delivered.
    pub(super) fn expected_times(
        &self,
        cx: &LinkContext<'_>,
        side: Side,
        packet: PacketId,
        start: Time,
    ) -> (Time, Time) {
        let tlp = cx.packets.length(packet) as u64 + self.framing_bytes();
        let bytes = WireBytes { tlp, padding: cx.packets.hop(packet).padding.into() };
        self.times_on_wire(side, bytes, start)
    }

    /// Puts a TLP on the wire, first transmission or replay. Returns when it is delivered.
    #[inline(always)]
    pub(super) fn put_on_wire(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        now: Time,
        packet: PacketId,
        sequence: u16,
        bytes: WireBytes,
    ) -> Time {
        let start = self.transmitters[side as usize].wire.begin(now);
        let (end, arrival) = self.times_on_wire(side, bytes, start);
        self.transmitters[side as usize].wire.occupy_until(end);
        self.counters[side as usize].busy += end - start;
        if self.injector.is_some() || self.tap.is_some() {
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
