//! Acks and credit updates, computed lazily.

use units::{Bytes, Time};
use wire::pcie::{self, Sequence};

use super::receiver::Dllp;
use super::{DLLP_BYTES, Link, LinkContext, LinkEnd, Released, Side};
use crate::detected::Detected;
use crate::event::Event;

impl Link {
    /// Sends the planned TLPs due by `now`, and processes the DLLPs that the transmitter of `side` has received.
    #[inline]
    pub(super) fn settle(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        now: Time,
        released: &mut Released,
    ) {
        if self.next_planned <= now {
            self.launch_planned(cx, now, released);
        }
        self.hear(cx, side, now);
    }

    /// Processes the DLLPs that the transmitter of `side` has received by `now`.
    #[inline]
    pub(super) fn hear(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        // The other end's DLLPs use the opposite wire. DLLPs of this end's own receiver use this one, and go before the
        // next TLP.
        if self.receivers[side as usize].is_due(now) {
            self.send_due_dllps(cx, side, now);
        }
        if self.receivers[side.opposite() as usize].is_due(now) {
            self.send_due_dllps(cx, side.opposite(), now);
        }
        if self.transmitters[side as usize].replay.has_heard(now) {
            self.retire(cx, side, now);
        }
    }

    /// Removes TLPs acknowledged by `now` from the replay buffer of `side`.
    fn retire(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        let packets = &mut *cx.packets;
        let replay = &mut self.transmitters[side as usize].replay;
        if replay.retire(now, |copy| packets.free(copy))
            && let Some(injector) = &self.injector
        {
            if let Some(deadline) = replay.restart_timer(now, injector.replay_timeout) {
                cx.scheduler.at(deadline, Event::ReplayTimer(LinkEnd { link: self.id, side }));
            }
            self.note_acknowledged(side);
        }
    }

    /// Puts the DLLPs of `side`'s receiver that are due by `now` on `side`'s wire.
    fn send_due_dllps(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        while let Some((due, dllp)) = self.receivers[side as usize].take_due(now) {
            let wire = &mut self.transmitters[side as usize].wire;
            let on_wire = wire.time_for(DLLP_BYTES);
            // A DLLP is inserted between two TLPs: it delays later ones by its own length and waits for none.
            let begin = wire.begin(due);
            wire.occupy_until(begin + on_wire);
            let counters = &mut self.counters[side as usize];
            counters.dllps += 1;
            counters.dllp_bytes += Bytes::new(DLLP_BYTES);
            counters.busy += on_wire;
            let span = (due, due + on_wire);
            if self.injector.as_mut().is_some_and(|injector| injector.loses_dllp()) {
                counters.dllps_lost += 1;
                // The DLLPs of an idle link are computed when it is next used.
                let found = (due + on_wire + self.params.latency).max(cx.scheduler.now());
                let other = LinkEnd { link: self.id, side: side.opposite() };
                cx.scheduler.at(found, Event::LinkError(other, Detected::BadDllp));
                if let Dllp::UpdateCredits(class, credits) = dllp {
                    self.receivers[side as usize].repeat(due, class, credits);
                }
                continue;
            }
            let heard = due + on_wire + self.params.latency;
            let sender = &mut self.transmitters[side.opposite() as usize];
            match dllp {
                Dllp::Ack(sequence) => {
                    sender.replay.acknowledge(heard, sequence);
                    if let Some(tap) = &mut self.tap {
                        tap.dllp(side, span, pcie::Dllp::Ack(Sequence::new(sequence)));
                    }
                }
                Dllp::Nak(sequence) => {
                    sender.replay.acknowledge(heard, sequence);
                    counters.naks += 1;
                    if let Some(tap) = &mut self.tap {
                        tap.dllp(side, span, pcie::Dllp::Nak(Sequence::new(sequence)));
                    }
                    // As above: an idle link is settled late.
                    let at = heard.max(cx.scheduler.now());
                    cx.scheduler.at(at, Event::Replay(LinkEnd { link: self.id, side: side.opposite() }));
                }
                Dllp::UpdateCredits(class, credits) => {
                    sender.receive(class, heard, credits);
                    if let Some(tap) = &mut self.tap {
                        let update = tap.update(side, class, credits);
                        tap.dllp(side, span, update);
                    }
                }
            }
        }
    }

    /// Schedules a retry for when a TLP waiting at `side` may be sent.
    pub(super) fn arrange_wake(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        let transmitter = &self.transmitters[side as usize];
        let flight = transmitter.wire.time_for(DLLP_BYTES) + self.params.latency;
        let heard = [transmitter.next_credit(now), transmitter.replay.next_ack(now)];
        let due = self.receivers[side.opposite() as usize].next_due().map(|due| due.max(now) + flight);
        let Some(at) = heard.into_iter().flatten().chain(due).min() else { return };
        if self.transmitters[side as usize].wants_wake(now, at) {
            cx.scheduler.at(at.max(cx.scheduler.now()), Event::LinkWake(LinkEnd { link: self.id, side }));
        }
    }

    /// Retries sending what waits at `side`.
    pub fn on_wake(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        let now = cx.scheduler.now();
        self.settle(cx, side, now, released);
        self.transmitters[side as usize].woken(now);
        self.drain(cx, side, now, released);
    }
}
