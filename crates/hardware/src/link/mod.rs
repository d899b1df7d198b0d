//! A PCIe link: two directions, each with a wire, credits, Acks and a replay buffer.
//!
//! A TLP that can be sent is given its place on the wire at once, and one event
//! delivers it; no event is spent on the stages between. Acks and credit
//! updates are not events either: they are worked out, with the bytes that they
//! take on the wire, when somebody next asks what has been acknowledged or how
//! many credits there are. Only a transmitter that waits for one of them asks
//! for an event at the time at which it can have arrived.
//!
//! The way of a TLP that neither waits nor is tampered with is inlined into one function; what is rare is not.

mod counters;
mod errors;
mod params;
mod receiver;
mod tap;
mod transmitter;

#[cfg(test)]
mod tests;

use engine::{Scheduler, Trace};
use units::{Bytes, Duration, Time};
use wire::pcie::{self, FlowClass, Sequence};

pub use counters::DirectionCounters;
pub use errors::ErrorInjector;
pub use params::{CreditLimits, Credits, LinkParams, ReceiverParams};
use receiver::Receiver;
pub use receiver::{Acceptance, Dllp};
use tap::Tap;
pub use tap::{Packet, Passed};
use transmitter::{CLASSES, Replayable, Transmitter};

use crate::detected::Detected;
use crate::event::Event;
use crate::packet::{PacketId, PacketPool, Summary};

/// A link of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// Which of a link's two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The end nearer the root: a root port or a switch's downstream port.
    Upstream = 0,
    /// The end farther from the root: a device or a switch's upstream port.
    Downstream = 1,
}

impl Side {
    /// The other end.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Upstream => Self::Downstream,
            Self::Downstream => Self::Upstream,
        }
    }
}

/// One end of one link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkEnd {
    /// The link.
    pub link: LinkId,
    /// Its end.
    pub side: Side,
}

/// Receive buffer space that a TLP takes at the end where it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Where.
    pub end: LinkEnd,
    /// Of which class.
    pub class: FlowClass,
    /// How much.
    pub credits: Credits,
    /// Which time the link was up: nothing of before is held once it has gone down.
    pub epoch: u32,
}

/// Whether a link carries TLPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It does.
    Up,
    /// It does not, and what is sent is lost.
    Down,
}

/// What a link needs of the simulation around it.
pub struct LinkContext<'a> {
    /// The TLPs in flight.
    pub packets: &'a mut PacketPool,
    /// The clock and the event queue.
    pub scheduler: &'a mut Scheduler<Event>,
}

/// TLPs that were freed because nobody can be sent them any more, and the receive buffers they held.
pub type Released = Vec<Held>;

/// A link between two ports.
pub struct Link {
    id: LinkId,
    params: LinkParams,
    state: LinkState,
    epoch: u32,
    /// Indexed by the side that sends.
    transmitters: [Transmitter; 2],
    /// Indexed by the side that receives.
    receivers: [Receiver; 2],
    /// Indexed by the side that sends.
    counters: [DirectionCounters; 2],
    injector: Option<Box<ErrorInjector>>,
    tap: Option<Box<Tap>>,
    /// Picoseconds per byte on the wire, times 2^16: exact enough for any TLP, and no division per TLP.
    ps_per_byte_q16: u64,
    /// Time between SKP ordered sets and the time that one takes.
    skip: (Duration, Duration),
}

/// Bytes of a DLLP on the wire, framing included.
const DLLP_BYTES: u64 = 8;

impl Link {
    /// A trained link with all credits initialised.
    pub fn new(id: LinkId, params: LinkParams) -> Self {
        let rate = wire::pcie::link::data_rate(params.generation, params.width);
        let ps_per_byte_q16 = ((8_000_000_000_000u128 << 16) / u128::from(rate.bits_per_s())) as u64;
        let skip = wire::pcie::link::skip_interval(params.generation, params.width);
        let transmitters = [Side::Upstream, Side::Downstream]
            .map(|side| Transmitter::new(&params.receivers[side.opposite() as usize].credits));
        let receivers = [Side::Upstream, Side::Downstream]
            .map(|side| Receiver::new(params.receivers[side as usize].clone()));
        Self {
            id,
            params,
            state: LinkState::Up,
            epoch: 0,
            transmitters,
            receivers,
            counters: Default::default(),
            injector: None,
            tap: None,
            ps_per_byte_q16,
            skip,
        }
    }

    /// What the link is made of.
    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    /// Whether it carries TLPs.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// What `side` has sent so far.
    pub fn counters(&self, side: Side) -> &DirectionCounters {
        &self.counters[side as usize]
    }

    /// Makes the link lose and damage what it carries, or stops doing so.
    pub fn inject_errors(&mut self, injector: Option<ErrorInjector>) {
        self.injector = injector.map(Box::new);
    }

    /// Records everything that passes the wire from now on.
    ///
    /// Acks and credit updates are recorded when somebody asks what they said, so not in order of time: sort by
    /// [`Passed::at`], and call [`Self::report_dllps`] at the end.
    pub fn tap(&mut self, trace: Trace<Passed>) {
        let limits = [&self.params.receivers[0].credits, &self.params.receivers[1].credits];
        self.tap = trace.is_on().then(|| Box::new(Tap::new(trace, self.id, limits)));
    }

    /// Works out the DLLPs that both ends have sent by now, so that they are recorded.
    pub fn report_dllps(&mut self, cx: &mut LinkContext<'_>) {
        let now = cx.scheduler.now();
        self.settle(cx, Side::Upstream, now);
        self.settle(cx, Side::Downstream, now);
    }

    /// TLPs of `side` that wait for credits or for older ones.
    pub fn waiting(&self, side: Side) -> usize {
        self.transmitters[side as usize].waiting()
    }

    /// TLPs of one class of `side` that wait for credits or for older ones.
    pub fn waiting_of(&self, side: Side, class: FlowClass) -> usize {
        self.transmitters[side as usize].waiting_of(class)
    }

    /// When `side` will have sent all TLPs that have their turn on the wire.
    pub fn wire_free(&self, side: Side) -> Time {
        self.transmitters[side as usize].wire_free
    }

    /// Credits of `class` that `side` may use, that are on their way to it, or that its receiver
    /// holds or has freed: always the limit advertised. `None` is infinite.
    pub fn credits_in_all_places(&self, side: Side, class: FlowClass) -> Option<Credits> {
        let sender = self.transmitters[side as usize].account_of(class).outstanding()?;
        let receiver = &self.receivers[side.opposite() as usize];
        let (held, freed) = (receiver.occupied[class as usize], receiver.unannounced(class));
        Some(Credits {
            header: sender.header + held.header + freed.header,
            data: sender.data + held.data + freed.data,
        })
    }

    /// Sends a TLP from `side`: at once if credits, replay space and the ordering rules allow it.
    ///
    /// Receive buffers freed because of it (its own, where a switch passes it on) are appended to `released`.
    #[inline]
    pub fn send(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, released: &mut Released) {
        if self.state == LinkState::Down {
            self.lose(cx, packet, released);
            return;
        }
        let Summary { class, credits, relaxed } = cx.packets.summary(packet);
        let now = cx.scheduler.now();
        self.settle(cx, side, now);
        // With nothing waiting there is no order to keep: the usual case.
        if self.has_replay_space(side) && self.transmitters[side as usize].pay_at_once(now, class, credits) {
            self.launch(cx, side, class, packet, credits, released);
            return;
        }
        self.transmitters[side as usize].enqueue(class, packet, credits, relaxed);
        self.drain(cx, side, released);
    }

    #[inline]
    fn has_replay_space(&self, side: Side) -> bool {
        self.transmitters[side as usize].unacknowledged()
            < self.receivers[side.opposite() as usize].params.replay_tlps
    }

    /// Sends a TLP whose credits have been paid.
    #[inline(always)]
    fn launch(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        class: FlowClass,
        packet: PacketId,
        credits: Credits,
        released: &mut Released,
    ) {
        let held = Held { end: self.end(side.opposite()), class, credits, epoch: self.epoch };
        if let Some(before) = cx.packets.hop_mut(packet).held.replace(held) {
            released.push(before);
        }
        self.transmit(cx, side, class, packet, credits);
    }

    fn lose(&mut self, cx: &mut LinkContext<'_>, packet: PacketId, released: &mut Released) {
        released.extend(cx.packets.hop(packet).held);
        cx.packets.free(packet);
    }

    /// Sends what can be sent from `side` and arranges to look again if something cannot.
    pub fn drain(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        let now = cx.scheduler.now();
        self.settle(cx, side, now);
        loop {
            let next = if self.has_replay_space(side) {
                self.transmitters[side as usize].take_next(now)
            } else {
                None
            };
            let Some((class, waiting)) = next else { break };
            self.launch(cx, side, class, waiting.packet, waiting.credits, released);
        }
        let starved = self.transmitters[side as usize].is_waiting();
        let stalled = self.transmitters[side as usize].note_starvation(now, starved);
        self.counters[side as usize].stalled += stalled;
        if starved {
            self.arrange_wake(cx, side);
        }
    }

    /// Bytes that framing, sequence number and LCRC add to a TLP.
    pub fn framing_bytes(&self) -> u64 {
        wire::pcie::link::framing_bytes(self.params.generation)
    }

    /// Time that a TLP of `bytes`, framing included, takes on the wire when `side` sends it.
    pub fn wire_time(&self, side: Side, bytes: u64) -> Duration {
        // Bytes of a TLP fit into 32 bits, which divide faster.
        self.time_for((bytes as u32).next_multiple_of(self.params.beats[side as usize].max(1)).into())
    }

    /// Picoseconds that a byte takes on the wire.
    pub fn wire_time_per_byte_ps(&self) -> f64 {
        self.ps_per_byte_q16 as f64 / 65536.0
    }

    fn end(&self, side: Side) -> LinkEnd {
        LinkEnd { link: self.id, side }
    }

    fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_ps((bytes * self.ps_per_byte_q16) >> 16)
    }

    /// Gives a TLP its place on the wire and schedules its delivery.
    #[inline(always)]
    fn transmit(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        class: FlowClass,
        packet: PacketId,
        credits: Credits,
    ) {
        let wire_bytes =
            cx.packets.length(packet) as u64 + wire::pcie::link::framing_bytes(self.params.generation);
        let transmitter = &mut self.transmitters[side as usize];
        let sequence = transmitter.number();
        if self.injector.is_some() {
            let copy = cx.packets.duplicate(packet);
            transmitter.replayable.push_back(Replayable { sequence, copy, wire_bytes: wire_bytes as u32 });
        }
        self.receivers[side.opposite() as usize].occupy(class, credits);
        let counters = &mut self.counters[side as usize];
        counters.tlps[class as usize] += 1;
        counters.tlp_bytes[class as usize] += Bytes::new(wire_bytes);
        self.put_on_wire(cx, side, packet, sequence, wire_bytes);
    }

    /// Puts a TLP's bytes on the wire, the first time or again.
    #[inline(always)]
    fn put_on_wire(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        packet: PacketId,
        sequence: u16,
        wire_bytes: u64,
    ) {
        let now = cx.scheduler.now();
        let on_wire = self.wire_time(side, wire_bytes + u64::from(cx.packets.hop(packet).padding));
        let to_route = self.time_for(HEADER_BYTES_TO_ROUTE.min(wire_bytes));
        let transmitter = &mut self.transmitters[side as usize];
        let mut start = now.max(transmitter.wire_free);
        if start >= transmitter.next_skip {
            start = transmitter.after_skip(start, self.skip);
        }
        let end = start + on_wire;
        transmitter.wire_free = end;
        self.counters[side as usize].busy += on_wire;
        let hop = cx.packets.hop_mut(packet);
        hop.sequence = sequence;
        hop.epoch = self.epoch;
        hop.tail = end + self.params.latency;
        let arrival = if self.receivers[side.opposite() as usize].params.cut_through {
            start + to_route + self.params.latency
        } else {
            hop.tail
        };
        if self.injector.is_some() || self.tap.is_some() {
            self.interfere(cx, side, packet, sequence, (start, end));
        }
        cx.scheduler.at(arrival, Event::Deliver { end: self.end(side.opposite()), packet });
    }

    /// Lets the injector and the tap see a TLP that is on the wire from `span.0` until `span.1`.
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
            if transmitter.replay_deadline.is_none() {
                cx.scheduler.at(deadline, Event::ReplayTimer(LinkEnd { link: self.id, side }));
            }
            transmitter.replay_deadline.get_or_insert(deadline);
        }
        if let Some(tap) = &mut self.tap {
            let lcrc = cx.packets.hop(packet).lcrc;
            tap.tlp(side, span, sequence, cx.packets.bytes(packet), lcrc);
        }
    }

    /// Judges a TLP that arrived at `side`. `false` means that it was dropped and is freed.
    #[inline]
    pub fn receive(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId) -> bool {
        let now = cx.scheduler.now();
        let hop = cx.packets.hop(packet);
        if hop.epoch != self.epoch || self.state == LinkState::Down {
            cx.packets.free(packet);
            return false;
        }
        let intact = hop.lcrc.is_none_or(|lcrc| lcrc == errors::lcrc(hop.sequence, cx.packets.bytes(packet)));
        let sequence = hop.sequence;
        match self.receivers[side as usize].accept(now, sequence, intact) {
            Acceptance::Accepted => {
                // Its Ack may be what a TLP waits for that found the replay buffer full.
                if self.transmitters[side.opposite() as usize].is_waiting() {
                    self.arrange_wake(cx, side.opposite());
                }
                if let Some(injector) = &mut self.injector {
                    let Summary { class, credits, .. } = cx.packets.summary(packet);
                    if injector.loses(class) {
                        cx.packets.free(packet);
                        self.release(cx, side, class, credits, now);
                        return false;
                    }
                }
                true
            }
            Acceptance::Duplicate => {
                self.counters[side.opposite() as usize].duplicates += 1;
                self.drop_and_answer(cx, side, packet)
            }
            Acceptance::Rejected => {
                self.counters[side.opposite() as usize].rejected += 1;
                cx.scheduler.at(now, Event::LinkError(self.end(side), Detected::BadTlp));
                self.drop_and_answer(cx, side, packet)
            }
        }
    }

    /// Frees a TLP that is not wanted and makes sure that the sender hears of it.
    fn drop_and_answer(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId) -> bool {
        cx.packets.free(packet);
        let due = self.receivers[side as usize].next_due().unwrap_or(cx.scheduler.now());
        let heard = due.max(cx.scheduler.now()) + self.time_for(DLLP_BYTES) + self.params.latency;
        cx.scheduler.at(heard, Event::LinkWake(self.end(side.opposite())));
        false
    }

    /// Frees the receive buffer that a TLP held at time `at`.
    #[inline]
    pub fn give_back(&mut self, cx: &mut LinkContext<'_>, held: Held, at: Time) {
        if held.epoch == self.epoch {
            self.release(cx, held.end.side, held.class, held.credits, at);
        }
    }

    #[inline]
    fn release(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        class: FlowClass,
        credits: Credits,
        at: Time,
    ) {
        self.receivers[side as usize].release(at, class, credits);
        let sender = side.opposite();
        if self.transmitters[sender as usize].is_waiting() {
            self.arrange_wake(cx, sender);
        }
    }

    /// Works out what `side`, as a sender, has heard from the other end by `now`.
    #[inline]
    fn settle(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        // What the other end sends back uses the opposite direction's wire; what this end's own
        // receiver sends uses this one, and goes before the next TLP.
        if self.receivers[side as usize].is_due(now) {
            self.send_due_dllps(cx, side, now);
        }
        if self.receivers[side.opposite() as usize].is_due(now) {
            self.send_due_dllps(cx, side.opposite(), now);
        }
        if self.transmitters[side as usize].has_heard(now) {
            self.retire(cx, side, now);
        }
    }

    /// Drops what has been acknowledged by `now` from the replay buffer of `side`.
    fn retire(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        let packets = &mut *cx.packets;
        let transmitter = &mut self.transmitters[side as usize];
        if transmitter.retire(now, |copy| packets.free(copy))
            && let Some(injector) = &self.injector
        {
            let timeout = injector.replay_timeout;
            transmitter.replay_deadline = (transmitter.unacknowledged() > 0).then_some(now + timeout);
            if let Some(deadline) = transmitter.replay_deadline {
                cx.scheduler.at(deadline, Event::ReplayTimer(LinkEnd { link: self.id, side }));
            }
        }
    }

    /// Puts the DLLPs of `side`'s receiver that are due by `now` on `side`'s wire.
    fn send_due_dllps(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        while let Some((due, dllp)) = self.receivers[side as usize].take_due(now) {
            let on_wire = self.time_for(DLLP_BYTES);
            let transmitter = &mut self.transmitters[side as usize];
            // A DLLP goes between two TLPs: it delays those behind it by its own length and waits for none.
            transmitter.wire_free = transmitter.wire_free.max(due) + on_wire;
            let counters = &mut self.counters[side as usize];
            counters.dllps += 1;
            counters.dllp_bytes += Bytes::new(DLLP_BYTES);
            counters.busy += on_wire;
            let span = (due, due + on_wire);
            if self.injector.as_mut().is_some_and(|injector| injector.loses_dllp()) {
                counters.dllps_lost += 1;
                // What a quiet link sends is worked out when somebody looks.
                let found = (due + on_wire + self.params.latency).max(cx.scheduler.now());
                let other = LinkEnd { link: self.id, side: side.opposite() };
                cx.scheduler.at(found, Event::LinkError(other, Detected::BadDllp));
                // Credits are announced as running totals: a later update makes up for the lost one.
                if let Dllp::UpdateCredits(class, credits) = dllp {
                    self.receivers[side as usize].repeat(due, class, credits);
                }
                continue;
            }
            let heard = due + on_wire + self.params.latency;
            let sender = &mut self.transmitters[side.opposite() as usize];
            match dllp {
                Dllp::Ack(sequence) => {
                    sender.acks.push_back((heard, sequence));
                    if let Some(tap) = &mut self.tap {
                        tap.dllp(side, span, pcie::Dllp::Ack(Sequence::new(sequence)));
                    }
                }
                Dllp::Nak(sequence) => {
                    sender.acks.push_back((heard, sequence));
                    counters.naks += 1;
                    if let Some(tap) = &mut self.tap {
                        tap.dllp(side, span, pcie::Dllp::Nak(Sequence::new(sequence)));
                    }
                    cx.scheduler.at(heard, Event::Replay(LinkEnd { link: self.id, side: side.opposite() }));
                }
                Dllp::UpdateCredits(class, credits) => {
                    sender.account(class).receive(heard, credits);
                    if let Some(tap) = &mut self.tap {
                        let update = tap.update(side, class, credits);
                        tap.dllp(side, span, update);
                    }
                }
            }
        }
    }

    /// Asks for an event when a TLP that waits at `side` may be able to go.
    fn arrange_wake(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        let now = cx.scheduler.now();
        let transmitter = &self.transmitters[side as usize];
        let flight = self.time_for(DLLP_BYTES) + self.params.latency;
        let ack = transmitter.acks.iter().map(|&(at, _)| at).find(|&at| at > now);
        let heard = [transmitter.next_credit(now), ack];
        let due = self.receivers[side.opposite() as usize].next_due().map(|due| due.max(now) + flight);
        let Some(at) = heard.into_iter().flatten().chain(due).min() else { return };
        let transmitter = &mut self.transmitters[side as usize];
        if transmitter.wake.is_none_or(|wake| wake <= now || wake > at) {
            transmitter.wake = Some(at);
            cx.scheduler.at(at, Event::LinkWake(LinkEnd { link: self.id, side }));
        }
    }

    /// Looks again whether `side` can send what waits there.
    pub fn on_wake(&mut self, cx: &mut LinkContext<'_>, side: Side, released: &mut Released) {
        let transmitter = &mut self.transmitters[side as usize];
        if transmitter.wake.is_some_and(|wake| wake <= cx.scheduler.now()) {
            transmitter.wake = None;
        }
        self.drain(cx, side, released);
    }

    /// Replays what `side` sent without an Ack in time.
    pub fn on_replay_timer(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        let now = cx.scheduler.now();
        self.settle(cx, side, now);
        let transmitter = &mut self.transmitters[side as usize];
        if transmitter.replay_deadline.is_some_and(|deadline| deadline <= now) {
            transmitter.replay_deadline = None;
            if transmitter.unacknowledged() > 0 {
                self.counters[side as usize].replay_timeouts += 1;
                cx.scheduler.at(now, Event::LinkError(self.end(side), Detected::ReplayTimeout));
                self.replay(cx, side);
            }
        }
    }

    /// Sends everything unacknowledged of `side` again, in order.
    pub fn replay(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        let now = cx.scheduler.now();
        self.settle(cx, side, now);
        let transmitter = &mut self.transmitters[side as usize];
        transmitter.replays_in_a_row += 1;
        if transmitter.replays_in_a_row >= 4 {
            // REPLAY_NUM rolled over: the physical layer retrains before the next attempt.
            transmitter.replays_in_a_row = 0;
            self.counters[side as usize].retrains += 1;
            cx.scheduler.at(now, Event::LinkError(self.end(side), Detected::ReplayRollover));
            for transmitter in &mut self.transmitters {
                transmitter.wire_free = transmitter.wire_free.max(now) + self.params.retrain_time;
            }
        }
        self.counters[side as usize].replays += 1;
        // A TLP without a copy is one that nothing can have damaged: it is still under way.
        for index in 0..self.transmitters[side as usize].replayable.len() {
            let Replayable { sequence, copy, wire_bytes } =
                self.transmitters[side as usize].replayable[index];
            let again = cx.packets.duplicate(copy);
            let Summary { class, credits, .. } = cx.packets.summary(again);
            cx.packets.hop_mut(again).held =
                Some(Held { end: self.end(side.opposite()), class, credits, epoch: self.epoch });
            self.put_on_wire(cx, side, again, sequence, u64::from(wire_bytes));
        }
    }

    /// Takes the link down: everything in flight and waiting is lost.
    pub fn take_down(&mut self, cx: &mut LinkContext<'_>, released: &mut Released) {
        self.state = LinkState::Down;
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
    }

    /// Trains the link again; it carries TLPs from the end of training on.
    pub fn bring_up(&mut self, cx: &mut LinkContext<'_>) {
        let ready = cx.scheduler.now() + self.params.retrain_time;
        self.state = LinkState::Up;
        self.epoch += 1;
        for transmitter in &mut self.transmitters {
            transmitter.wire_free = ready;
        }
    }

    /// Retrains a link that stays up: nothing is lost, everything waits.
    pub fn retrain(&mut self, cx: &mut LinkContext<'_>) {
        let now = cx.scheduler.now();
        for (transmitter, counters) in self.transmitters.iter_mut().zip(&mut self.counters) {
            transmitter.wire_free = transmitter.wire_free.max(now) + self.params.retrain_time;
            counters.retrains += 1;
        }
    }

    /// Whether `held` still names buffer space: it does not once the link has gone down since.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// Bytes of a TLP that must have arrived before it can be routed: framing and a four-doubleword header.
const HEADER_BYTES_TO_ROUTE: u64 = 20;

/// The classes in the order of `FlowClass as usize`.
pub const fn classes() -> [FlowClass; 3] {
    CLASSES
}
