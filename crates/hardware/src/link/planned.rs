//! TLPs planned for later: their delivery is scheduled ahead, which saves the event of their departure.
//!
//! A completion whose data is in flight, or a write in a device's pipeline, leaves at a known future time. Other wire
//! traffic until then is unknown, so its delivery is scheduled for the earliest possible time. Any later use of the
//! link first sends the planned TLPs that are due, each at its own time, and postpones the deliveries that turn out to
//! be later.

use engine::EventKey;
use units::Time;
use wire::pcie::FlowClass;

use super::due::Due;
use super::params::Credits;
use super::{Link, LinkContext, LinkState, Released, Side};
use crate::event::Event;
use crate::packet::{PacketId, Summary};

/// A TLP that will leave later. Its credits have been consumed.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// The TLP.
    packet: PacketId,
    /// Flow class.
    class: FlowClass,
    /// Consumed credits.
    credits: Credits,
    /// When the wire is free again if nothing else comes before it.
    wire_free: Time,
    /// When it is delivered in that case.
    arrival: Time,
    /// Event of that delivery.
    delivery: EventKey,
}

/// Planned TLPs of a transmitter, in time order.
#[derive(Debug, Default)]
pub struct Plans {
    queue: Due<Planned>,
    /// When the last TLP leaves that could not be planned.
    refused_until: Time,
}

impl Plans {
    /// Whether another TLP can be planned for `at` behind `last`. Refused TLPs come first, also for credits.
    fn accept(&self, now: Time, at: Time, last: Option<&(Time, Planned)>) -> bool {
        self.refused_until < now && last.is_none_or(|(last, _)| *last <= at)
    }

    /// A TLP for `at` could not be planned.
    fn refuse(&mut self, at: Time) {
        self.refused_until = self.refused_until.max(at);
    }

    /// Credits of `class` consumed by planned TLPs.
    pub fn credits(&self, class: FlowClass) -> Credits {
        let planned = self.queue.iter().map(|(_, planned)| planned);
        planned.filter(|planned| planned.class == class).map(|planned| planned.credits).sum()
    }
}

impl Link {
    /// Plans a TLP to leave `side` at `at`, now or later; `false` if this has to be decided at that time.
    ///
    /// The TLP must originate here, so that it holds no receive buffer elsewhere. TLPs of a class leave in call order,
    /// provided that refused ones are [sent](Self::send) at their times.
    #[inline]
    pub fn plan(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, at: Time) -> bool {
        let Summary { class, credits, .. } = cx.packets.summary(packet);
        let is_watched = self.injector.is_some() || self.tap.is_some();
        let transmitter = &mut self.transmitters[side as usize];
        let now = cx.scheduler.now();
        let last = transmitter.planned.queue.last();
        let before = last.map_or(transmitter.wire.free(), |(_, last)| last.wire_free);
        let can_plan = self.state == LinkState::Up
            && !is_watched
            && transmitter.planned.accept(now, at, last)
            && transmitter.replay.has_room(transmitter.planned.queue.len())
            && transmitter.pay_at_once(now, class, credits);
        if !can_plan {
            transmitter.planned.refuse(at);
            return false;
        }
        let start = at.max(before);
        let (wire_free, arrival) = self.expected_times(cx, side, packet, start);
        let event = Event::Deliver { end: self.end(side.opposite()), packet };
        let delivery = cx.scheduler.at_cancellable(arrival, event);
        let planned = Planned { packet, class, credits, wire_free, arrival, delivery };
        self.transmitters[side as usize].planned.queue.push(at, planned);
        self.next_planned = self.next_planned.min(at);
        true
    }

    /// Sends the planned TLPs of both ends that are due by `now`, each at its own time.
    pub(super) fn launch_planned(&mut self, cx: &mut LinkContext<'_>, now: Time, released: &mut Released) {
        while self.next_planned <= now {
            let [up, down] = &self.transmitters;
            let up_first = up.planned.queue.first() <= down.planned.queue.first();
            let side = if up_first { Side::Upstream } else { Side::Downstream };
            let Some((at, planned)) = self.transmitters[side as usize].planned.queue.pop() else { return };
            self.find_next_planned();
            self.launch_one(cx, side, at, &planned, released);
        }
    }

    fn launch_one(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        at: Time,
        planned: &Planned,
        released: &mut Released,
    ) {
        let &Planned { packet, class, credits, .. } = planned;
        self.hear(cx, side, at);
        if self.transmitters[side as usize].is_waiting()
            || !self.transmitters[side as usize].replay.has_room(0)
        {
            // Others wait by now, so it has to queue behind them.
            put_off(cx, planned);
            let key = cx.packets.ordering(packet);
            let transmitter = &mut self.transmitters[side as usize];
            transmitter.refund(class, credits);
            transmitter.enqueue(class, packet, credits, key);
            self.drain(cx, side, at, released);
            return;
        }
        let arrival = self.launch(cx, side, at, class, packet, credits, released);
        if arrival != planned.arrival {
            put_off(cx, planned);
            self.deliver_at(cx, side, packet, arrival);
        }
    }

    /// Withdraws the planned TLPs of `side` that have not been sent by now.
    pub fn recall(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        self.settle(cx, side, cx.scheduler.now(), released);
        let transmitter = &mut self.transmitters[side as usize];
        while let Some((_, planned)) = transmitter.planned.queue.pop() {
            transmitter.refund(planned.class, planned.credits);
            cx.scheduler.cancel(planned.delivery);
            cx.packets.free(planned.packet);
        }
        self.find_next_planned();
    }

    /// Reschedules the deliveries of the planned TLPs of `side` after the wire's speed has changed.
    pub(super) fn expect_planned(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        let mut before = self.transmitters[side as usize].wire.free();
        let mut queue = std::mem::take(&mut self.transmitters[side as usize].planned.queue);
        for (at, planned) in queue.iter_mut() {
            let packet = planned.packet;
            (planned.wire_free, planned.arrival) = self.expected_times(cx, side, packet, at.max(before));
            cx.scheduler.cancel(planned.delivery);
            let event = Event::Deliver { end: self.end(side.opposite()), packet };
            planned.delivery = cx.scheduler.at_cancellable(planned.arrival, event);
            before = planned.wire_free;
        }
        self.transmitters[side as usize].planned.queue = queue;
    }

    fn find_next_planned(&mut self) {
        let [up, down] = &self.transmitters;
        self.next_planned = up.planned.queue.first().min(down.planned.queue.first());
    }
}

/// Prevents the scheduled delivery of a planned TLP.
fn put_off(cx: &mut LinkContext<'_>, planned: &Planned) {
    if cx.scheduler.cancel(planned.delivery).is_none() {
        // The event is being handled.
        cx.packets.hop_mut(planned.packet).put_off = true;
    }
}
