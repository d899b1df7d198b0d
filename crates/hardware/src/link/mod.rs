//! A PCIe link: two directions, each with a transmitter, a wire and a receiver.
//!
//! A TLP that can be sent is scheduled on the wire at once, and one event delivers it; intermediate stages need no
//! events. Acks and credit updates are not events either: they, and the wire time that they take, are computed lazily,
//! when the acknowledged sequence number or the credits are next needed. Only a transmitter that waits for one of them
//! schedules an event, at the earliest time at which it can have arrived.
//!
//! The path of a TLP that neither waits nor meets errors is inlined into one function; rare cases are out of line.
//!
//! [`Link`] does what concerns both directions: it carries the DLLPs of a direction's receiver on the opposite wire,
//! sends planned TLPs in time order, trains, and loses everything when it goes down. The rest is a [`Direction`]'s,
//! whose parts have private state:
//!
//! | file | subject |
//! |---|---|
//! | `direction` | a TLP's way from the transmitter to the receiver |
//! | `queues`, `account` | TLPs that wait, and credits |
//! | `plans` | TLPs that leave later |
//! | `replay` | sequence numbers, unacknowledged TLPs |
//! | `on_wire` | transmission times and occupancy |
//! | `receiver` | sequence check, buffer space, DLLPs to be sent |
//! | `initialisation` | flow control initialisation |
//! | `instruments`, `errors`, `tap` | error injector and analyser |
//! | `ends`, `params`, `counters` | names, parameters, counters |

mod account;
mod counters;
mod direction;
mod due;
mod ends;
mod errors;
mod initialisation;
mod instruments;
mod on_wire;
mod params;
mod plans;
mod queues;
mod receiver;
mod replay;
mod tap;

#[cfg(test)]
mod tests;

use engine::{Epoch, Scheduler, Trace};
use units::{Duration, Time};
use wire::pcie::{FlowClass, Generation, Width};

pub use counters::{DirectionCounters, Lacked};
use direction::Direction;
pub use ends::{LinkEnd, LinkId, ReceiveSpace, Side};
pub use errors::ErrorInjector;
use instruments::Instruments;
pub use params::{CreditLimits, Credits, LinkParams, ReceiverParams};
pub(crate) use plans::Planned;
use receiver::Dllp;
use tap::Tap;
pub use tap::{Packet, Passed};

use crate::detected::Detected;
use crate::event::Event;
use crate::packet::PacketId;
use crate::packet::PacketPool;

/// Whether a link carries TLPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It carries TLPs.
    Up,
    /// Down: TLPs sent are lost.
    Down,
}

/// The parts of the simulation that a link uses.
pub struct LinkContext<'a> {
    /// The TLPs in flight.
    pub packets: &'a mut PacketPool,
    /// The clock and the event queue.
    pub scheduler: &'a mut Scheduler<Event>,
    /// Receive buffers elsewhere, held by TLPs that this link has forwarded or lost, to be released.
    pub released: &'a mut Vec<ReceiveSpace>,
}

/// A link between two ports.
pub struct Link {
    params: LinkParams,
    state: LinkState,
    /// By transmitting side.
    directions: [Direction; 2],
    instruments: Instruments,
}

impl Link {
    /// Creates a trained link with all credits initialised.
    ///
    /// Credits that the generation's flow control cannot express are not advertised.
    pub fn new(id: LinkId, mut params: LinkParams) -> Self {
        for receiver in &mut params.receivers {
            receiver.credits = receiver.credits.expressible(params.generation);
        }
        let directions = Side::BOTH.map(|side| Direction::new(LinkEnd { link: id, side }, &params));
        Self { params, state: LinkState::Up, directions, instruments: None }
    }

    /// Parameters of the link.
    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    /// Whether the link carries TLPs.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Current epoch. Buffer space of another epoch was discarded when the link went down.
    pub fn epoch(&self) -> Epoch {
        self.sent_by(Side::Upstream).epoch()
    }

    /// Counts of TLPs and DLLPs sent by `side`, without times.
    pub fn counters(&self, side: Side) -> &DirectionCounters {
        self.sent_by(side).counters()
    }

    /// As [`counters`](Self::counters), with times up to `now`.
    pub fn counters_until(&self, side: Side, now: Time) -> DirectionCounters {
        self.sent_by(side).counters_until(now)
    }

    /// TLPs of `side` that wait for credits or behind older TLPs.
    pub fn waiting(&self, side: Side) -> usize {
        self.sent_by(side).queues().waiting()
    }

    /// TLPs of one class of `side` that wait for credits or behind older TLPs.
    pub fn waiting_of(&self, side: Side, class: FlowClass) -> usize {
        self.sent_by(side).queues().waiting_of(class)
    }

    /// When `side` will have sent all TLPs scheduled on the wire.
    pub fn wire_free(&self, side: Side) -> Time {
        self.sent_by(side).wire().free()
    }

    /// Bytes of framing, sequence number and LCRC of a TLP.
    pub fn framing_bytes(&self) -> u64 {
        self.sent_by(Side::Upstream).wire().framing_bytes()
    }

    /// Wire time of a TLP of `bytes`, framing included, sent by `side`.
    #[inline(always)]
    pub fn wire_time(&self, side: Side, bytes: u64) -> Duration {
        self.sent_by(side).wire().tlp_time(bytes)
    }

    /// Wire time of a byte in picoseconds.
    pub fn wire_time_per_byte_ps(&self) -> f64 {
        self.sent_by(Side::Upstream).wire().ps_per_byte()
    }

    /// From delivery of a TLP of `bytes` at `side` until its last byte arrives. A cut-through receiver gets it with its
    /// header, others as a whole.
    pub fn tail(&self, side: Side, bytes: u64) -> Duration {
        self.sent_by(side.opposite()).wire().tail(bytes)
    }

    /// Credits of `class` that `side` has available, that are in flight to it, or that its receiver holds or has freed.
    /// The sum always equals the advertised limit; `None` is infinite.
    pub fn credits_in_all_places(
        &self,
        packets: &PacketPool,
        side: Side,
        class: FlowClass,
    ) -> Option<Credits> {
        self.sent_by(side).credits_in_all_places(packets, class)
    }

    #[inline(always)]
    fn sent_by(&self, side: Side) -> &Direction {
        &self.directions[side as usize]
    }

    #[inline(always)]
    fn sent_by_mut(&mut self, side: Side) -> &mut Direction {
        &mut self.directions[side as usize]
    }

    /// Sets whether `side` adds an ECRC to its TLPs.
    pub fn set_protected(&mut self, side: Side, protected: bool) {
        self.sent_by_mut(side).set_protected(protected);
    }

    /// Sets whether TLPs are delivered to `side` as soon as their headers have arrived.
    pub(crate) fn set_cut_through(&mut self, side: Side, on: bool) {
        self.params.receivers[side as usize].cut_through = on;
        self.sent_by_mut(side.opposite()).wire.set_cut_through(on);
    }

    /// Sends a TLP from `side`, at once if credits, replay space and the ordering rules allow it.
    ///
    /// Receive buffers that this frees (its own, where a switch forwards it) are released.
    #[inline(always)]
    pub fn send(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId) {
        self.sent_by(side).protect(cx, packet);
        if self.state == LinkState::Down {
            lose(cx, packet);
            return;
        }
        self.settle(cx, side);
        self.directions[side as usize].send(cx, &mut self.instruments, packet);
    }

    /// Plans a TLP to leave `side` at `at`, now or later; `false` if this has to be decided at that time.
    ///
    /// The TLP must originate here, so that it holds no receive buffer elsewhere. TLPs of a class leave in call order,
    /// provided that refused ones are [sent](Self::send) at their times.
    #[inline(always)]
    pub fn plan(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, at: Time) -> bool {
        let is_plain = self.state == LinkState::Up && self.instruments.is_none();
        let direction = self.sent_by_mut(side);
        direction.protect(cx, packet);
        direction.plan(cx, packet, at, is_plain)
    }

    /// Withdraws the planned TLPs of `side` that have not been sent by now.
    pub fn recall(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        self.settle(cx, side);
        self.sent_by_mut(side).recall(cx);
    }

    /// Retries sending what waits at `side`.
    pub fn on_wake(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        self.settle(cx, side);
        self.directions[side as usize].wake(cx, &mut self.instruments);
    }

    /// Checks a TLP that arrived at `side`. `false` means that it was dropped and freed.
    #[inline]
    pub fn receive(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId) -> bool {
        let now = cx.scheduler.now();
        if self.next_planned() <= now {
            self.launch_planned(cx, now);
        }
        self.directions[side.opposite() as usize].receive(cx, &mut self.instruments, packet)
    }

    /// Releases the receive buffer that a TLP held, at time `at`. Returns whether others may wait for it, so that the
    /// caller has to [arrange](Self::arrange_wake) when they are sent.
    #[inline(always)]
    #[must_use]
    pub fn give_back(&mut self, held: &ReceiveSpace, at: Time) -> bool {
        self.sent_by_mut(held.end.side.opposite()).give_back(held, at)
    }

    /// Schedules a retry for when a TLP that waits to be received at `side` may be sent.
    #[cold]
    pub fn arrange_wake(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        let now = cx.scheduler.now();
        self.sent_by_mut(side.opposite()).arrange_wake(cx, now);
    }

    /// Sends the planned TLPs due by now, and processes the DLLPs that the transmitter of `side` has received.
    #[inline]
    fn settle(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        let now = cx.scheduler.now();
        if self.next_planned() <= now {
            self.launch_planned(cx, now);
        }
        self.hear(cx, side, now);
    }

    /// When the first planned TLP of either end leaves.
    #[inline(always)]
    fn next_planned(&self) -> Time {
        let [up, down] = &self.directions;
        up.plans.first().min(down.plans.first())
    }

    /// Sends the planned TLPs of both ends that are due by `now`, each at its own time.
    #[inline(never)]
    fn launch_planned(&mut self, cx: &mut LinkContext<'_>, now: Time) {
        while self.next_planned() <= now {
            let [up, down] = self.directions.each_ref().map(|direction| direction.plans.first());
            let (side, at) = if up <= down { (Side::Upstream, up) } else { (Side::Downstream, down) };
            self.hear(cx, side, at);
            self.directions[side as usize].launch_planned(cx, &mut self.instruments);
        }
    }

    /// Processes the DLLPs that the transmitter of `side` has received by `now`.
    #[inline]
    fn hear(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        // The other end's DLLPs use the opposite wire. DLLPs of this end's own receiver use this one, and go before the
        // next TLP.
        if self.sent_by(side.opposite()).receiver.is_due(now) {
            self.send_dllps(cx, side, now);
        }
        if self.sent_by(side).receiver.is_due(now) {
            self.send_dllps(cx, side.opposite(), now);
        }
        if self.sent_by(side).replay.has_heard(now) {
            self.retire(cx, side, now);
        }
    }

    /// Puts the DLLPs of `side`'s receiver that are due by `now` on `side`'s wire.
    fn send_dllps(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        let [up, down] = &mut self.directions;
        let (carrier, acknowledged) = if side == Side::Upstream { (up, down) } else { (down, up) };
        while let Some((due, dllp)) = acknowledged.receiver.take_due(now) {
            let sent = carrier.carry_dllp(now, due);
            let heard = sent + carrier.wire().latency();
            // An idle link is settled late.
            let at = heard.max(cx.scheduler.now());
            if instruments::injector(&mut self.instruments).is_some_and(ErrorInjector::loses_dllp) {
                carrier.count_lost_dllp();
                cx.scheduler.at(at, Event::LinkError(acknowledged.from(), Detected::BadDllp));
                acknowledged.repeat_dllp(due, dllp);
                continue;
            }
            acknowledged.hear(heard, dllp);
            if let Some(tap) = instruments::tap(&mut self.instruments) {
                tap.receiver_dllp(side, (due, sent), dllp);
            }
            if let Dllp::Nak(_) = dllp {
                carrier.count_nak();
                cx.scheduler.at(at, Event::Replay(acknowledged.from()));
            }
        }
    }

    /// Removes TLPs acknowledged by `now` from the replay buffer of `side`.
    fn retire(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        let timeout = instruments::injector(&mut self.instruments).map(|injector| injector.replay_timeout);
        if self.sent_by_mut(side).retire(cx, now, timeout) {
            self.note_acknowledged(side);
        }
    }

    /// Computes the DLLPs that both ends have sent so far, so that they are recorded.
    pub fn report_dllps(&mut self, cx: &mut LinkContext<'_>) {
        Side::BOTH.into_iter().for_each(|side| self.settle(cx, side));
    }

    /// Records everything on the wire from now on.
    ///
    /// Acks and credit updates are recorded when they are computed, so not in time order: sort by [`Passed::at`], and
    /// call [`Self::report_dllps`] at the end.
    pub fn tap(&mut self, trace: Trace<Passed>) {
        let limits = [&self.params.receivers[0].credits, &self.params.receivers[1].credits];
        let id = self.sent_by(Side::Upstream).from().link;
        let tap = trace.is_on().then(|| Tap::new(trace, id, limits));
        instruments::change(&mut self.instruments, |attached| attached.tap = tap);
    }

    /// Installs an injector of errors, or removes it.
    pub fn inject_errors(&mut self, injector: Option<ErrorInjector>) {
        match (injector, instruments::injector(&mut self.instruments)) {
            (None, Some(old)) => {
                old.end(self.directions.each_ref().map(|direction| direction.sequences().1));
                Side::BOTH.into_iter().for_each(|side| self.note_acknowledged(side));
            }
            (new, _) => instruments::change(&mut self.instruments, |attached| attached.injector = new),
        }
    }

    /// Drops an injector whose errors have ended, once no replay can need it.
    fn note_acknowledged(&mut self, side: Side) {
        let (oldest, _) = self.sent_by(side).sequences();
        let injector = instruments::injector(&mut self.instruments);
        if injector.is_some_and(|injector| injector.acknowledged(side, oldest)) {
            self.forget_injector();
        }
    }

    fn forget_injector(&mut self) {
        instruments::change(&mut self.instruments, |attached| attached.injector = None);
        self.directions.iter_mut().for_each(|direction| direction.replay.stop_timer());
    }

    /// Replay timer of `side`: replays what has not been acknowledged in time.
    pub fn on_replay_timer(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        self.settle(cx, side);
        if self.sent_by_mut(side).has_timed_out(cx) {
            self.replay(cx, side);
        }
    }

    /// Replays all unacknowledged TLPs of `side`, in order.
    pub fn replay(&mut self, cx: &mut LinkContext<'_>, side: Side) {
        self.settle(cx, side);
        if self.sent_by_mut(side).begin_replay(cx) {
            // REPLAY_NUM rolled over: the physical layer retrains before the next attempt.
            let (now, time) = (cx.scheduler.now(), self.params.retrain_time);
            self.directions.iter_mut().for_each(|direction| direction.wire.pause(now, time));
        }
        self.directions[side as usize].replay(cx, &mut self.instruments);
    }

    /// Takes the link down: everything in flight and waiting is lost.
    pub fn take_down(&mut self, cx: &mut LinkContext<'_>) {
        Side::BOTH.into_iter().for_each(|side| self.recall(cx, side));
        self.state = LinkState::Down;
        self.directions.iter_mut().for_each(|direction| direction.clear(cx));
        if instruments::injector(&mut self.instruments).is_some_and(|injector| injector.has_ended()) {
            self.forget_injector();
        }
    }

    /// Trains the link. It carries TLPs once both ends have exchanged their credits.
    pub fn bring_up(&mut self, cx: &mut LinkContext<'_>) {
        self.state = LinkState::Up;
        let trained = cx.scheduler.now() + self.params.retrain_time;
        let tap = instruments::tap(&mut self.instruments);
        let ready = initialisation::exchange(&mut self.directions, tap, trained);
        self.directions.iter_mut().for_each(|direction| direction.start(ready));
    }

    /// Retrains a link that stays up: nothing is lost, everything waits.
    pub fn retrain(&mut self, cx: &mut LinkContext<'_>) {
        self.retrain_to(cx, self.params.generation, self.params.width);
    }

    /// Retrains a link to another speed or width. TLPs already scheduled on the wire are sent before, unchanged.
    pub fn retrain_to(&mut self, cx: &mut LinkContext<'_>, generation: Generation, width: Width) {
        self.settle(cx, Side::Upstream);
        (self.params.generation, self.params.width) = (generation, width);
        let time = self.params.retrain_time;
        self.directions.iter_mut().for_each(|direction| direction.retrain(cx, (generation, width), time));
    }
}

/// Loses a TLP that is sent while the link is down.
#[cold]
fn lose(cx: &mut LinkContext<'_>, packet: PacketId) {
    cx.released.extend(cx.packets.hop(packet).held);
    cx.packets.free(packet);
}
