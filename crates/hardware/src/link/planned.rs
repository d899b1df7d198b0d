//! TLPs planned for later: their delivery is scheduled ahead, which saves the event of their departure.
//!
//! A completion whose data is in flight, or a write in a device's pipeline, leaves at a known future time. Other wire
//! traffic until then is unknown, so its delivery is scheduled for the earliest possible time. Any later use of the
//! link first sends the planned TLPs that are due, each at its own time, and postpones the deliveries that turn out to
//! be later.

use std::collections::VecDeque;

use engine::EventKey;
use units::Time;
use wire::pcie::FlowClass;

use super::params::Credits;
use super::send::Crossing;
use super::{Link, LinkContext, Released, Side};
use crate::event::Event;
use crate::packet::{PacketId, Summary};

/// A TLP that will leave later. Its credits have been consumed.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// When it leaves.
    at: Time,
    packet: PacketId,
    class: FlowClass,
    credits: Credits,
    /// Its way over the link if nothing else comes before it.
    expected: Crossing,
    /// Event of its delivery in that case.
    delivery: EventKey,
}

/// Planned TLPs of a transmitter, in time order.
#[derive(Debug)]
pub struct Plans {
    queue: VecDeque<Planned>,
    /// When the first one leaves; [`Time::NEVER`] if there is none.
    first: Time,
    /// When the last one leaves, and when the wire is free after it.
    last: (Time, Time),
    /// When the last TLP leaves that could not be planned.
    refused_until: Time,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            first: Time::NEVER,
            last: (Time::ZERO, Time::ZERO),
            refused_until: Time::ZERO,
        }
    }
}

impl Plans {
    /// Whether another TLP can be planned for `at` behind the last one. Refused TLPs come first, also for credits.
    #[inline]
    fn accept(&self, now: Time, at: Time) -> bool {
        self.refused_until < now && (self.queue.is_empty() || self.last.0 <= at)
    }

    #[inline]
    fn push(&mut self, planned: Planned) {
        if self.queue.is_empty() {
            self.first = planned.at;
        }
        self.last = (planned.at, planned.expected.end);
        self.queue.push_back(planned);
    }

    /// Removes the first one.
    #[inline]
    fn drop_first(&mut self) {
        self.queue.pop_front();
        self.first = self.queue.front().map_or(Time::NEVER, |planned| planned.at);
    }

    /// A TLP for `at` could not be planned.
    fn refuse(&mut self, at: Time) {
        self.refused_until = self.refused_until.max(at);
    }

    /// Credits of `class` consumed by planned TLPs.
    pub fn credits(&self, class: FlowClass) -> Credits {
        let of_class = self.queue.iter().filter(|planned| planned.class == class);
        of_class.map(|planned| planned.credits).sum()
    }
}

impl Link {
    /// Plans a TLP to leave `side` at `at`, now or later; `false` if this has to be decided at that time.
    ///
    /// The TLP must originate here, so that it holds no receive buffer elsewhere. TLPs of a class leave in call order,
    /// provided that refused ones are [sent](Self::send) at their times.
    #[inline(always)]
    pub fn plan(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, at: Time) -> bool {
        if self.protected[side as usize] {
            cx.packets.protect(packet);
        }
        let Summary { class, credits } = cx.packets.summary(packet);
        let transmitter = &mut self.transmitters[side as usize];
        let now = cx.scheduler.now();
        let can_plan = self.is_plain
            && transmitter.planned.accept(now, at)
            && transmitter.replay.has_room(transmitter.planned.queue.len())
            && transmitter.pay_at_once(now, class, credits);
        if !can_plan {
            transmitter.planned.refuse(at);
            return false;
        }
        let planned = &transmitter.planned;
        let before = if planned.queue.is_empty() { transmitter.wire.free() } else { planned.last.1 };
        let expected = self.expected_crossing(cx, side, packet, at.max(before));
        let event = Event::Deliver { end: self.end(side.opposite()), packet };
        let delivery = cx.scheduler.at_cancellable(expected.arrival, event);
        let planned = Planned { at, packet, class, credits, expected, delivery };
        self.transmitters[side as usize].planned.push(planned);
        self.next_planned = self.next_planned.min(at);
        true
    }

    /// Sends the planned TLPs of both ends that are due by `now`, each at its own time.
    #[inline(never)]
    pub(super) fn launch_planned(&mut self, cx: &mut LinkContext<'_>, now: Time, released: &mut Released) {
        while self.next_planned <= now {
            let [up, down] = &self.transmitters;
            let up_first = up.planned.first <= down.planned.first;
            let side = if up_first { Side::Upstream } else { Side::Downstream };
            let planned = &mut self.transmitters[side as usize].planned;
            let Some(&first) = planned.queue.front() else { return };
            planned.drop_first();
            self.find_next_planned();
            self.launch_one(cx, side, first, released);
        }
    }

    #[inline(always)]
    fn launch_one(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        Planned { at, packet, class, credits, expected, delivery }: Planned,
        released: &mut Released,
    ) {
        self.hear(cx, side, at);
        let transmitter = &mut self.transmitters[side as usize];
        if transmitter.is_waiting() || !transmitter.replay.has_room(0) {
            // Others wait by now, so it has to queue behind them.
            put_off(cx, packet, delivery);
            transmitter.refund(class, credits);
            self.queue(cx, side, at, packet, released);
            return;
        }
        let arrival = self.launch(cx, side, at, packet, (class, credits), Some(expected), released);
        if arrival != expected.arrival {
            put_off(cx, packet, delivery);
            self.deliver_at(cx, side, packet, arrival);
        }
    }

    /// Withdraws the planned TLPs of `side` that have not been sent by now.
    pub fn recall(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        self.settle(cx, side, cx.scheduler.now(), released);
        let transmitter = &mut self.transmitters[side as usize];
        while let Some(&planned) = transmitter.planned.queue.front() {
            transmitter.planned.drop_first();
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
        for planned in &mut queue {
            let packet = planned.packet;
            planned.expected = self.expected_crossing(cx, side, packet, planned.at.max(before));
            cx.scheduler.cancel(planned.delivery);
            let event = Event::Deliver { end: self.end(side.opposite()), packet };
            planned.delivery = cx.scheduler.at_cancellable(planned.expected.arrival, event);
            before = planned.expected.end;
        }
        let planned = &mut self.transmitters[side as usize].planned;
        (planned.queue, planned.last.1) = (queue, before);
    }

    fn find_next_planned(&mut self) {
        let [up, down] = &self.transmitters;
        self.next_planned = up.planned.first.min(down.planned.first);
    }
}

/// Prevents the scheduled delivery of a planned TLP.
#[cold]
fn put_off(cx: &mut LinkContext<'_>, packet: PacketId, delivery: EventKey) {
    if cx.scheduler.cancel(delivery).is_none() {
        // The event is being handled.
        cx.packets.hop_mut(packet).put_off = true;
    }
}
