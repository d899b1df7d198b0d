//! One direction of a link: from handing a TLP to its transmitter until the receiver has freed its buffer.

use engine::{Busy, Epoch, WaitTime};
use units::{Duration, Time};
use wire::pcie::{FlowClass, Generation, Width};

use super::counters::DirectionCounters;
use super::errors;
use super::instruments::{self, Instruments};
use super::on_wire::{Wire, WireBytes, WireTimes};
use super::params::{Credits, LinkParams};
use super::plans::{Planned, Plans};
use super::queues::Queues;
use super::receiver::{Acceptance, Dllp, Receiver};
use super::replay::{ReplayBuffer, Replayable};
use super::{LinkContext, LinkEnd, ReceiveSpace};
use crate::detected::Detected;
use crate::event::Event;
use crate::packet::{Hop, OnLink, PacketId, PacketPool, Summary};

/// Transmitter, wire and receiver of one direction of a link.
pub struct Direction {
    /// The sending and the receiving end.
    from: LinkEnd,
    to: LinkEnd,
    /// Counts losses and trainings of the link. TLPs and buffer space of an earlier epoch are lost.
    epoch: Epoch,
    /// TLPs that wait, and credits.
    queues: Queues,
    /// TLPs to be sent later.
    pub(super) plans: Plans,
    /// Unacknowledged TLPs.
    pub(super) replay: ReplayBuffer,
    /// Time during which a TLP that was sent again has been under way.
    repairing: WaitTime,
    pub(super) wire: Wire,
    pub(super) receiver: Receiver,
    counters: DirectionCounters,
    /// Time of TLPs and DLLPs on the wire.
    busy: Busy,
    /// Whether TLPs get an ECRC.
    protected: bool,
}

impl Direction {
    /// Creates the direction sent by `from`, trained and with all credits initialised.
    pub fn new(from: LinkEnd, params: &LinkParams) -> Self {
        let receiver = &params.receivers[from.side.opposite() as usize];
        let (speed, beat) = ((params.generation, params.width), params.beats[from.side as usize]);
        Self {
            from,
            to: from.opposite(),
            epoch: Epoch::default(),
            queues: Queues::new(&receiver.credits),
            plans: Plans::default(),
            replay: ReplayBuffer::new(receiver.replay_tlps),
            repairing: WaitTime::default(),
            wire: Wire::new(speed, beat, params.latency, receiver.cut_through),
            receiver: Receiver::new(receiver),
            counters: DirectionCounters::default(),
            busy: Busy::default(),
            protected: false,
        }
    }

    /// The sending end.
    pub fn from(&self) -> LinkEnd {
        self.from
    }

    /// What carries its symbols.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// TLPs that wait for credits or behind older TLPs.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Counts of TLPs and DLLPs, without times: [`counters_until`](Self::counters_until) has them.
    pub fn counters(&self) -> &DirectionCounters {
        &self.counters
    }

    /// Counters with times up to `now`.
    pub fn counters_until(&self, now: Time) -> DirectionCounters {
        DirectionCounters {
            busy: self.busy.until(now),
            stalled: self.queues.starved(now),
            lacked: self.queues.lacked(now),
            repairing: self.repairing.until(now),
            ..self.counters.clone()
        }
    }

    /// Current epoch; both directions of a link have the same.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Sets whether TLPs get an ECRC.
    pub fn set_protected(&mut self, protected: bool) {
        self.protected = protected;
    }

    /// Adds an ECRC to a TLP if it has to.
    #[inline(always)]
    pub fn protect(&self, cx: &mut LinkContext<'_>, packet: PacketId) {
        if self.protected {
            cx.packets.protect(packet);
        }
    }

    /// Sends a TLP, at once if credits, replay space and the ordering rules allow it.
    #[inline(always)]
    pub fn send(&mut self, cx: &mut LinkContext<'_>, instruments: &mut Instruments, packet: PacketId) {
        let now = cx.scheduler.now();
        let tlp = cx.packets.on_link(packet);
        // Fast path: nothing waits, so there is no order to keep.
        if self.replay.has_room(0) && self.queues.pay_at_once(now, tlp.needs) {
            let (sequence, bytes) = self.number(tlp, cx.released);
            let crossing = self.wire.carry(now, bytes, None);
            let arrival = self.sent(cx, instruments, packet, sequence, crossing, true);
            self.deliver_at(cx, packet, arrival);
        } else {
            self.wait(cx, instruments, now, packet);
        }
    }

    /// Lets a TLP wait behind others, or for credits or replay space.
    #[inline(never)]
    fn wait(&mut self, cx: &mut LinkContext<'_>, instruments: &mut Instruments, now: Time, packet: PacketId) {
        self.queues.enqueue(packet, cx.packets.summary(packet), cx.packets.ordering(packet));
        self.drain(cx, instruments, now);
    }

    /// Retries sending what waits.
    pub fn wake(&mut self, cx: &mut LinkContext<'_>, instruments: &mut Instruments) {
        let now = cx.scheduler.now();
        self.queues.woken(now);
        self.drain(cx, instruments, now);
    }

    /// Sends waiting TLPs as far as credits and replay space allow.
    fn drain(&mut self, cx: &mut LinkContext<'_>, instruments: &mut Instruments, now: Time) {
        while self.replay.has_room(0)
            && let Some(packet) = self.queues.take_next(now)
        {
            let (sequence, bytes) = self.number(cx.packets.on_link(packet), cx.released);
            let crossing = self.wire.carry(now, bytes, None);
            let arrival = self.sent(cx, instruments, packet, sequence, crossing, true);
            self.deliver_at(cx, packet, arrival);
        }
        let starved = self.queues.is_waiting();
        self.queues.note_starvation(now, starved);
        if starved {
            self.arrange_wake(cx, now);
        }
    }

    /// Schedules a retry for when a waiting TLP may be sent.
    pub fn arrange_wake(&mut self, cx: &mut LinkContext<'_>, now: Time) {
        let heard = [self.queues.next_credit(now), self.replay.next_ack(now)];
        let due = self.receiver.next_due().map(|due| due.max(now) + self.dllp_flight());
        let Some(at) = heard.into_iter().flatten().chain(due).min() else { return };
        if self.queues.wants_wake(now, at) {
            cx.scheduler.at(at.max(cx.scheduler.now()), Event::LinkWake(self.from));
        }
    }

    /// From sending a DLLP until the other end has it.
    fn dllp_flight(&self) -> Duration {
        self.wire.dllp_time() + self.wire.latency()
    }

    /// Gives a TLP that leaves, whose credits have been consumed, its sequence number and receive buffer space. Returns
    /// the number and its bytes on the wire.
    #[inline(always)]
    fn number(&mut self, tlp: OnLink<'_>, released: &mut Vec<ReceiveSpace>) -> (u16, WireBytes) {
        let OnLink { needs: Summary { class, credits }, length, hop } = tlp;
        let sequence = self.replay.number();
        (hop.sequence, hop.epoch) = (sequence, self.epoch);
        if hop.held.is_some() {
            released.extend(hop.held);
        }
        hop.held = match self.receiver.occupy(class, credits) {
            true => Some(ReceiveSpace { end: self.to, class, credits, epoch: self.epoch }),
            false => None,
        };
        let bytes = self.wire.bytes(length, hop.padding);
        self.counters.count_tlp(class, bytes.tlp);
        (sequence, bytes)
    }

    /// A TLP crosses the link, for the first time or as a replay. Returns when it is delivered.
    #[inline(always)]
    fn sent(
        &mut self,
        cx: &mut LinkContext<'_>,
        instruments: &mut Instruments,
        packet: PacketId,
        sequence: u16,
        WireTimes { start, end, arrival }: WireTimes,
        is_first: bool,
    ) -> Time {
        self.busy.add(cx.scheduler.now(), end - start);
        if instruments.is_some() {
            self.interfere(cx, instruments, (packet, sequence, is_first), start, end);
        }
        arrival
    }

    /// Applies error injection to a TLP that is on the wire from `start` until `end`, of which it keeps a copy if it
    /// `is_first`, and records it at the tap.
    #[cold]
    fn interfere(
        &mut self,
        cx: &mut LinkContext<'_>,
        instruments: &mut Instruments,
        (packet, sequence, is_first): (PacketId, u16, bool),
        start: Time,
        end: Time,
    ) {
        if let Some(injector) = instruments::injector(instruments) {
            if is_first {
                let wire_bytes = self.wire.bytes(cx.packets.length(packet), 0).tlp as u32;
                let copy = cx.packets.duplicate(packet);
                self.replay.keep(Replayable { sequence, copy, wire_bytes, sent: end });
            }
            injector.damage(cx.packets, packet, sequence);
            let deadline = end + injector.replay_timeout;
            if self.replay.start_timer(deadline) {
                cx.scheduler.at(deadline, Event::ReplayTimer(self.from));
            }
        }
        if let Some(tap) = instruments::tap(instruments) {
            let lcrc = cx.packets.hop(packet).lcrc;
            tap.tlp(self.from.side, (start, end), sequence, cx.packets.bytes(packet), lcrc);
        }
    }

    /// Schedules the delivery of a TLP that has been sent.
    #[inline(always)]
    fn deliver_at(&self, cx: &mut LinkContext<'_>, packet: PacketId, arrival: Time) {
        let at = arrival.max(cx.scheduler.now());
        cx.scheduler.at(at, Event::Deliver { end: self.to, packet });
    }

    /// Plans a TLP to leave at `at`; `false` if this has to be decided at that time, as it has to unless the link
    /// `is_plain`.
    #[inline(always)]
    pub fn plan(&mut self, cx: &mut LinkContext<'_>, packet: PacketId, at: Time, is_plain: bool) -> bool {
        let needs = cx.packets.summary(packet);
        let now = cx.scheduler.now();
        let can_plan = is_plain
            && self.plans.accept(now, at)
            && self.replay.has_room(self.plans.len())
            && self.queues.pay_at_once(now, needs);
        if !can_plan {
            self.plans.refuse(at);
            return false;
        }
        self.expect(cx, packet, at);
        true
    }

    /// Schedules the delivery of a TLP planned to leave at `at`, if nothing else comes before it.
    #[inline(always)]
    fn expect(&mut self, cx: &mut LinkContext<'_>, packet: PacketId, at: Time) {
        let OnLink { length, hop, .. } = cx.packets.on_link(packet);
        let start = at.max(self.plans.wire_free(self.wire.free()));
        let expected = self.wire.crossing(self.wire.bytes(length, hop.padding), start);
        let event = Event::Deliver { end: self.to, packet };
        let delivery = cx.scheduler.at_cancellable(expected.arrival, event);
        self.plans.push(cx.packets, packet, Planned { at, expected, delivery });
    }

    /// Sends the first planned TLP, which is due.
    #[inline(always)]
    pub fn launch_planned(&mut self, cx: &mut LinkContext<'_>, instruments: &mut Instruments) {
        let Some((packet, planned)) = self.plans.pop(cx.packets) else { return };
        let Planned { at, expected, delivery } = planned;
        let tlp = cx.packets.on_link(packet);
        if self.queues.is_waiting() || !self.replay.has_room(0) {
            // Others wait by now, so it has to queue behind them.
            self.queues.refund(tlp.needs);
            put_off(cx, packet, delivery);
            self.wait(cx, instruments, at, packet);
            return;
        }
        let (sequence, bytes) = self.number(tlp, cx.released);
        let crossing = self.wire.carry(at, bytes, Some(expected));
        let arrival = self.sent(cx, instruments, packet, sequence, crossing, true);
        if arrival != expected.arrival {
            put_off(cx, packet, delivery);
            self.deliver_at(cx, packet, arrival);
        }
    }

    /// Withdraws the planned TLPs that have not been sent.
    pub fn recall(&mut self, cx: &mut LinkContext<'_>) {
        while let Some((packet, Planned { delivery, .. })) = self.plans.pop(cx.packets) {
            self.queues.refund(cx.packets.summary(packet));
            cx.scheduler.cancel(delivery);
            cx.packets.free(packet);
        }
    }

    /// Carries a DLLP of the opposite direction's receiver that is due at `due`, by `now`. Returns when it has been sent.
    pub fn carry_dllp(&mut self, now: Time, due: Time) -> Time {
        self.counters.count_dllp();
        self.busy.add(now, self.wire.dllp_time());
        self.wire.insert_dllp(due)
    }

    /// Counts a DLLP for flow control initialisation, before which the wire is not used. Returns its wire time.
    pub fn count_initialisation(&mut self, now: Time) -> Duration {
        let time = self.wire.dllp_time();
        self.counters.count_dllp();
        self.busy.add(now, time);
        time
    }

    /// The injector loses a DLLP that this direction carried.
    pub fn count_lost_dllp(&mut self) {
        self.counters.dllps_lost += 1;
    }

    /// This direction carries a Nak.
    pub fn count_nak(&mut self) {
        self.counters.naks += 1;
    }

    /// A DLLP of the receiver, sent at `sent`, is lost.
    pub fn repeat_dllp(&mut self, sent: Time, dllp: Dllp) {
        if let Dllp::UpdateCredits(class, credits) = dllp {
            self.receiver.repeat(sent, class, credits);
        }
    }

    /// A DLLP of the receiver reaches the transmitter at `at`.
    pub fn hear(&mut self, at: Time, dllp: Dllp) {
        match dllp {
            Dllp::Ack(sequence) | Dllp::Nak(sequence) => self.replay.acknowledge(at, sequence),
            Dllp::UpdateCredits(class, credits) => self.queues.receive(class, at, credits),
        }
    }

    /// Removes TLPs acknowledged by `now` from the replay buffer, and restarts the timer that runs if errors are
    /// injected, of `timeout`. Returns whether there were any.
    pub fn retire(&mut self, cx: &mut LinkContext<'_>, now: Time, timeout: Option<Duration>) -> bool {
        let packets = &mut *cx.packets;
        let progress = self.replay.retire(now, |copy| packets.free(copy));
        if progress {
            self.repairing.end(now);
        }
        if progress
            && let Some(timeout) = timeout
            && let Some(deadline) = self.replay.restart_timer(now, timeout)
        {
            cx.scheduler.at(deadline, Event::ReplayTimer(self.from));
        }
        progress
    }

    /// Sequence numbers of the oldest unacknowledged TLP and of the next TLP.
    pub fn sequences(&self) -> (u16, u16) {
        (self.replay.oldest(), self.replay.next_sequence())
    }

    /// Whether the replay timer has expired, which counts as a timeout.
    pub fn has_timed_out(&mut self, cx: &mut LinkContext<'_>) -> bool {
        let now = cx.scheduler.now();
        let has = self.replay.has_timed_out(now);
        if has {
            self.counters.replay_timeouts += 1;
            cx.scheduler.at(now, Event::LinkError(self.from, Detected::ReplayTimeout));
        }
        has
    }

    /// Counts a replay. Returns whether the link has to retrain first, as there were too many without progress.
    pub fn begin_replay(&mut self, cx: &mut LinkContext<'_>) -> bool {
        let rolled_over = self.replay.begin_replay();
        if rolled_over {
            self.counters.retrains += 1;
            cx.scheduler.at(cx.scheduler.now(), Event::LinkError(self.from, Detected::ReplayRollover));
        }
        self.counters.replays += 1;
        if let Some(oldest) = self.replay.copies().front() {
            self.repairing.begin(oldest.sent.min(cx.scheduler.now()));
        }
        rolled_over
    }

    /// Sends all unacknowledged TLPs again, in order. A TLP without a copy cannot be corrupted: it is still in flight.
    pub fn replay(&mut self, cx: &mut LinkContext<'_>, instruments: &mut Instruments) {
        let now = cx.scheduler.now();
        for index in 0..self.replay.copies().len() {
            let Replayable { sequence, copy, wire_bytes, .. } = self.replay.copies()[index];
            let packet = cx.packets.duplicate(copy);
            let OnLink { needs: Summary { class, credits }, hop, .. } = cx.packets.on_link(packet);
            (hop.sequence, hop.epoch) = (sequence, self.epoch);
            // The space was taken when it was sent first.
            let is_limited = self.receiver.is_limited(class);
            let space = ReceiveSpace { end: self.to, class, credits, epoch: self.epoch };
            hop.held = is_limited.then_some(space);
            let bytes = WireBytes { tlp: wire_bytes.into(), padding: 0 };
            let crossing = self.wire.carry(now, bytes, None);
            let arrival = self.sent(cx, instruments, packet, sequence, crossing, false);
            self.deliver_at(cx, packet, arrival);
        }
    }

    /// Checks a TLP that arrived. `false` means that it was dropped and freed.
    #[inline(always)]
    pub fn receive(
        &mut self,
        cx: &mut LinkContext<'_>,
        instruments: &mut Instruments,
        packet: PacketId,
    ) -> bool {
        let now = cx.scheduler.now();
        let OnLink { length, hop, .. } = cx.packets.on_link(packet);
        if hop.put_off {
            hop.put_off = false;
            return false;
        }
        if hop.epoch != self.epoch {
            cx.packets.free(packet);
            return false;
        }
        // An Ack is only sent for a complete TLP.
        let whole = now + self.wire.tail(length as u64 + u64::from(hop.padding));
        if instruments.is_some() || hop.lcrc.is_some() || !self.receiver.expects(hop.sequence) {
            return self.check(cx, instruments, packet, whole);
        }
        self.receiver.accept(whole, hop.sequence);
        self.wake_waiting(cx, now);
        true
    }

    /// Checks sequence number and LCRC of a TLP that is complete at `whole`. `false` means that it was dropped.
    #[cold]
    fn check(
        &mut self,
        cx: &mut LinkContext<'_>,
        instruments: &mut Instruments,
        packet: PacketId,
        whole: Time,
    ) -> bool {
        let now = cx.scheduler.now();
        let &Hop { sequence, lcrc, .. } = cx.packets.hop(packet);
        let intact = lcrc.is_none_or(|lcrc| lcrc == errors::lcrc(sequence, cx.packets.bytes(packet)));
        match self.receiver.judge(whole, sequence, intact) {
            Acceptance::Accepted => {
                self.wake_waiting(cx, now);
                let Summary { class, credits } = cx.packets.summary(packet);
                if instruments::injector(instruments).is_some_and(|injector| injector.loses(class)) {
                    cx.packets.free(packet);
                    self.receiver.release(now, class, credits);
                    self.wake_waiting(cx, now);
                    return false;
                }
                true
            }
            Acceptance::Duplicate => {
                self.counters.duplicates += 1;
                self.drop_and_answer(cx, packet)
            }
            Acceptance::Rejected => {
                self.counters.rejected += 1;
                cx.scheduler.at(now, Event::LinkError(self.to, Detected::BadTlp));
                self.drop_and_answer(cx, packet)
            }
        }
    }

    /// Frees a dropped TLP and makes sure that the sender is notified.
    fn drop_and_answer(&mut self, cx: &mut LinkContext<'_>, packet: PacketId) -> bool {
        cx.packets.free(packet);
        let now = cx.scheduler.now();
        let due = self.receiver.next_due().unwrap_or(now);
        cx.scheduler.at(due.max(now) + self.dllp_flight(), Event::LinkWake(self.from));
        false
    }

    /// Something may wait for a DLLP that the receiver is now going to send.
    #[inline(always)]
    fn wake_waiting(&mut self, cx: &mut LinkContext<'_>, now: Time) {
        if self.queues.is_waiting() {
            self.arrange_wake(cx, now);
        }
    }

    /// Releases the receive buffer that a TLP held, at time `at`. Returns whether others may wait for it.
    #[inline(always)]
    pub fn give_back(&mut self, held: &ReceiveSpace, at: Time) -> bool {
        if held.epoch != self.epoch {
            return false;
        }
        self.receiver.release(at, held.class, held.credits);
        self.queues.is_waiting()
    }

    /// The link goes down: discards everything in flight and waiting.
    pub fn clear(&mut self, cx: &mut LinkContext<'_>) {
        self.epoch.end();
        let now = cx.scheduler.now();
        let LinkContext { packets, released, .. } = cx;
        let mut free = |packet| {
            released.extend(packets.hop(packet).held);
            packets.free(packet);
        };
        self.queues.clear(now, &mut free);
        self.replay.clear(free);
        self.repairing.end(now);
        self.plans = Plans::default();
        self.receiver.clear();
        self.busy.cancel(now);
    }

    /// Carries TLPs from `ready` on, as the link has trained.
    pub fn start(&mut self, ready: Time) {
        self.epoch.end();
        self.wire.start(ready);
    }

    /// Changes the speed for what has not been sent.
    pub fn retrain(&mut self, cx: &mut LinkContext<'_>, speed: (Generation, Width), time: Duration) {
        self.wire.set_speed(speed);
        self.wire.pause(cx.scheduler.now(), time);
        self.counters.retrains += 1;
        // What is planned takes its way at the new speed.
        for (packet, Planned { at, delivery, .. }) in self.plans.take(cx.packets) {
            cx.scheduler.cancel(delivery);
            self.expect(cx, packet, at);
        }
    }

    /// Credits of `class` that the transmitter has available, that are in flight to it, or that the receiver holds or
    /// has freed.
    pub fn credits_in_all_places(&self, packets: &PacketPool, class: FlowClass) -> Option<Credits> {
        let planned = self.plans.packets(packets).map(|packet| packets.summary(packet));
        let planned: Credits = planned.filter(|needs| needs.class == class).map(|needs| needs.credits).sum();
        let own = self.queues.outstanding(class)? + planned;
        Some(own + self.receiver.occupied(class) + self.receiver.unannounced(class))
    }
}

/// Prevents the scheduled delivery of a planned TLP.
#[cold]
fn put_off(cx: &mut LinkContext<'_>, packet: PacketId, delivery: engine::EventKey) {
    if cx.scheduler.cancel(delivery).is_none() {
        // The event is being handled.
        cx.packets.hop_mut(packet).put_off = true;
    }
}
