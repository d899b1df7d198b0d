//! Error recovery: replays, retraining, link down.

use wire::pcie::{Generation, Width};

use super::replay::Replayable;
use super::send::WireBytes;
use super::{Link, LinkContext, LinkState, Released, Side};
use crate::detected::Detected;
use crate::event::Event;
use crate::packet::Summary;

impl Link {
    /// Replay timer of `side`: replays what has not been acknowledged in time.
    pub fn on_replay_timer(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        let now = cx.scheduler.now();
        self.settle(cx, side, now, released);
        if self.transmitters[side as usize].replay.has_timed_out(now) {
            self.counters[side as usize].replay_timeouts += 1;
            cx.scheduler.at(now, Event::LinkError(self.end(side), Detected::ReplayTimeout));
            self.replay(cx, side, released);
        }
    }

    /// Replays all unacknowledged TLPs of `side`, in order.
    pub fn replay(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        let now = cx.scheduler.now();
        self.settle(cx, side, now, released);
        if self.transmitters[side as usize].replay.begin_replay() {
            // REPLAY_NUM rolled over: the physical layer retrains before the next attempt.
            self.counters[side as usize].retrains += 1;
            cx.scheduler.at(now, Event::LinkError(self.end(side), Detected::ReplayRollover));
            for transmitter in &mut self.transmitters {
                transmitter.wire.pause(now, self.params.retrain_time);
            }
        }
        self.counters[side as usize].replays += 1;
        // A TLP without a copy cannot be corrupted: it is still in flight.
        for index in 0..self.transmitters[side as usize].replay.copies().len() {
            let Replayable { sequence, copy, wire_bytes } =
                self.transmitters[side as usize].replay.copies()[index];
            let again = cx.packets.duplicate(copy);
            let Summary { class, credits, .. } = cx.packets.summary(again);
            let bytes = WireBytes { tlp: wire_bytes.into(), padding: 0 };
            let held = self.receive_space(side.opposite(), class, credits);
            let hop = cx.packets.hop_mut(again);
            (hop.sequence, hop.epoch, hop.held) = (sequence, self.epoch, held);
            let arrival = self.put_on_wire(cx, side, now, again, sequence, bytes, None);
            self.deliver_at(cx, side, again, arrival);
        }
    }

    /// Takes the link down: everything in flight and waiting is lost.
    pub fn take_down(&mut self, cx: &mut LinkContext<'_>, released: &mut Released) {
        for side in [Side::Upstream, Side::Downstream] {
            self.recall(cx, side, released);
        }
        self.state = LinkState::Down;
        self.find_whether_plain();
        self.epoch += 1;
        for side in [Side::Upstream, Side::Downstream] {
            let limits = self.params.receivers[side.opposite() as usize].credits;
            let packets = &mut *cx.packets;
            self.transmitters[side as usize].clear(&limits, |packet| {
                released.extend(packets.hop(packet).held);
                packets.free(packet);
            });
            self.receivers[side as usize].clear();
        }
        if self.injector.as_ref().is_some_and(|injector| injector.has_ended()) {
            self.forget_injector();
        }
    }

    /// Trains the link. It carries TLPs once both ends have exchanged their credits.
    pub fn bring_up(&mut self, cx: &mut LinkContext<'_>) {
        self.state = LinkState::Up;
        self.find_whether_plain();
        self.epoch += 1;
        let ready = self.initialise_flow_control(cx.scheduler.now() + self.params.retrain_time);
        for transmitter in &mut self.transmitters {
            transmitter.wire.start(ready);
        }
    }

    /// Retrains a link that stays up: nothing is lost, everything waits.
    pub fn retrain(&mut self, cx: &mut LinkContext<'_>, released: &mut Released) {
        self.retrain_to(cx, self.params.generation, self.params.width, released);
    }

    /// Retrains a link to another speed or width. TLPs already scheduled on the wire are sent before, unchanged.
    pub fn retrain_to(
        &mut self,
        cx: &mut LinkContext<'_>,
        generation: Generation,
        width: Width,
        released: &mut Released,
    ) {
        let now = cx.scheduler.now();
        self.settle(cx, Side::Upstream, now, released);
        (self.params.generation, self.params.width) = (generation, width);
        for (transmitter, counters) in self.transmitters.iter_mut().zip(&mut self.counters) {
            transmitter.wire.set_speed((generation, width));
            transmitter.wire.pause(now, self.params.retrain_time);
            counters.retrains += 1;
        }
        for side in [Side::Upstream, Side::Downstream] {
            self.expect_planned(cx, side);
        }
    }
}
