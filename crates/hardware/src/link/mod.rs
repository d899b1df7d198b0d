//! A PCIe link: each direction has a wire, credits, Acks and a replay buffer.
//!
//! A TLP that can be sent is scheduled on the wire at once, and one event delivers it; intermediate stages need no
//! events. Acks and credit updates are not events either: they, and the wire time that they take, are computed lazily,
//! when the acknowledged sequence number or the credits are next needed. Only a transmitter that waits for one of them
//! schedules an event, at the earliest time at which it can have arrived.
//!
//! The path of a TLP that neither waits nor meets errors is inlined into one function; rare cases are out of line.

mod counters;
mod dllps;
mod due;
mod errors;
mod initialisation;
mod on_wire;
mod params;
mod planned;
mod receive;
mod receiver;
mod recovery;
mod replay;
mod send;
mod tap;
mod transmitter;

#[cfg(test)]
mod tests;

use engine::{Scheduler, Trace};
use units::{Duration, Time};
use wire::pcie::{self, FlowClass};

pub use counters::DirectionCounters;
pub use errors::ErrorInjector;
use on_wire::Wire;
pub use params::{CreditLimits, Credits, LinkParams, ReceiverParams};
use receiver::Receiver;
pub use receiver::{Acceptance, Dllp};
use tap::Tap;
pub use tap::{Packet, Passed};
use transmitter::{CLASSES, Transmitter};

use crate::event::Event;
use crate::packet::PacketPool;

/// Number of a link in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// One of a link's two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The end nearer the root: a root port or a switch's downstream port.
    Upstream = 0,
    /// The end farther from the root: a device or a switch's upstream port.
    Downstream = 1,
}

impl Side {
    /// The opposite end.
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

/// Receive buffer space that a TLP holds at the end where it arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveSpace {
    /// The receiving end.
    pub end: LinkEnd,
    /// Flow class.
    pub class: FlowClass,
    /// Credits held.
    pub credits: Credits,
    /// Link epoch: space of an earlier epoch was discarded when the link went down.
    pub epoch: u32,
}

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
}

/// Receive buffers held by TLPs that were freed because they can no longer be sent.
pub type Released = Vec<ReceiveSpace>;

/// A link between two ports.
pub struct Link {
    id: LinkId,
    params: LinkParams,
    state: LinkState,
    epoch: u32,
    /// By transmitting side.
    transmitters: [Transmitter; 2],
    /// By receiving side.
    receivers: [Receiver; 2],
    /// By transmitting side.
    counters: [DirectionCounters; 2],
    injector: Option<Box<ErrorInjector>>,
    tap: Option<Box<Tap>>,
    /// Whether the link is up, without an injector or a tap.
    is_plain: bool,
    /// When the first planned TLP of either end is to leave.
    next_planned: Time,
    /// Whether TLPs get an ECRC, by transmitting side.
    protected: [bool; 2],
}

/// Bytes of a DLLP on the wire, framing included.
const DLLP_BYTES: u64 = 8;

impl Link {
    /// Creates a trained link with all credits initialised.
    ///
    /// Credits that the generation's flow control cannot express are not advertised.
    pub fn new(id: LinkId, mut params: LinkParams) -> Self {
        for receiver in &mut params.receivers {
            receiver.credits = receiver.credits.expressible(params.generation);
        }
        let transmitters = [Side::Upstream, Side::Downstream].map(|side| {
            let wire = Wire::new((params.generation, params.width), params.beats[side as usize]);
            Transmitter::new(wire, &params.receivers[side.opposite() as usize])
        });
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
            is_plain: true,
            next_planned: Time::NEVER,
            protected: [false; 2],
        }
    }

    /// Parameters of the link.
    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    /// Whether the link carries TLPs.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Counts of TLPs and DLLPs sent by `side`.
    pub fn counters(&self, side: Side) -> &DirectionCounters {
        &self.counters[side as usize]
    }

    /// Installs an injector of errors, or removes it.
    pub fn inject_errors(&mut self, injector: Option<ErrorInjector>) {
        let next = [0, 1].map(|side| self.transmitters[side].replay.next_sequence());
        match (injector, &mut self.injector) {
            (None, Some(old)) => {
                old.end(next);
                for side in [Side::Upstream, Side::Downstream] {
                    self.note_acknowledged(side);
                }
            }
            (new, own) => *own = new.map(Box::new),
        }
        self.find_whether_plain();
    }

    fn find_whether_plain(&mut self) {
        self.is_plain = self.state == LinkState::Up && self.injector.is_none() && self.tap.is_none();
    }

    /// Drops an injector whose errors have ended, once no replay can need it.
    fn note_acknowledged(&mut self, side: Side) {
        let oldest = self.transmitters[side as usize].replay.oldest();
        if self.injector.as_mut().is_some_and(|injector| injector.acknowledged(side, oldest)) {
            self.forget_injector();
        }
    }

    fn forget_injector(&mut self) {
        self.injector = None;
        // No copies are kept from now on, so nothing can be replayed.
        self.transmitters.iter_mut().for_each(|transmitter| transmitter.replay.stop_timer());
        self.find_whether_plain();
    }

    /// Sets whether `side` adds an ECRC to its TLPs.
    pub fn set_protected(&mut self, side: Side, protected: bool) {
        self.protected[side as usize] = protected;
    }

    /// Sets whether TLPs are delivered to `side` as soon as their headers have arrived.
    pub(crate) fn set_cut_through(&mut self, side: Side, on: bool) {
        self.params.receivers[side as usize].cut_through = on;
        self.receivers[side as usize].params.cut_through = on;
    }

    /// Records everything on the wire from now on.
    ///
    /// Acks and credit updates are recorded when they are computed, so not in time order: sort by [`Passed::at`], and
    /// call [`Self::report_dllps`] at the end.
    pub fn tap(&mut self, trace: Trace<Passed>) {
        let limits = [&self.params.receivers[0].credits, &self.params.receivers[1].credits];
        self.tap = trace.is_on().then(|| Box::new(Tap::new(trace, self.id, limits)));
        self.find_whether_plain();
    }

    /// Computes the DLLPs that both ends have sent so far, so that they are recorded.
    pub fn report_dllps(&mut self, cx: &mut LinkContext<'_>, released: &mut Released) {
        let now = cx.scheduler.now();
        self.settle(cx, Side::Upstream, now, released);
        self.settle(cx, Side::Downstream, now, released);
    }

    /// TLPs of `side` that wait for credits or behind older TLPs.
    pub fn waiting(&self, side: Side) -> usize {
        self.transmitters[side as usize].waiting()
    }

    /// TLPs of one class of `side` that wait for credits or behind older TLPs.
    pub fn waiting_of(&self, side: Side, class: FlowClass) -> usize {
        self.transmitters[side as usize].waiting_of(class)
    }

    /// When `side` will have sent all TLPs scheduled on the wire.
    pub fn wire_free(&self, side: Side) -> Time {
        self.wire(side).free()
    }

    /// Credits of `class` that `side` has available, that are in flight to it, or that its receiver holds or has freed.
    /// The sum always equals the advertised limit; `None` is infinite.
    pub fn credits_in_all_places(&self, side: Side, class: FlowClass) -> Option<Credits> {
        let transmitter = &self.transmitters[side as usize];
        let own = transmitter.account_of(class).outstanding()? + transmitter.planned.credits(class);
        let receiver = &self.receivers[side.opposite() as usize];
        Some(own + receiver.occupied(class) + receiver.unannounced(class))
    }

    /// Bytes of framing, sequence number and LCRC of a TLP.
    pub fn framing_bytes(&self) -> u64 {
        pcie::link::framing_bytes(self.params.generation)
    }

    /// Wire time of a TLP of `bytes`, framing included, sent by `side`.
    #[inline(always)]
    pub fn wire_time(&self, side: Side, bytes: u64) -> Duration {
        self.wire(side).tlp_time(bytes)
    }

    /// From delivery of a TLP of `bytes` at `side` until its last byte arrives. A cut-through receiver gets it with its
    /// header, others as a whole.
    pub fn tail(&self, side: Side, bytes: u64) -> Duration {
        if !self.receivers[side as usize].params.cut_through {
            return Duration::ZERO;
        }
        let wire_bytes = bytes + self.framing_bytes();
        let header = self.wire(side.opposite()).time_for(send::HEADER_BYTES_TO_ROUTE.min(wire_bytes));
        self.wire_time(side.opposite(), wire_bytes).saturating_sub(header)
    }

    /// Wire time of a byte in picoseconds.
    pub fn wire_time_per_byte_ps(&self) -> f64 {
        self.wire(Side::Upstream).ps_per_byte()
    }

    fn end(&self, side: Side) -> LinkEnd {
        LinkEnd { link: self.id, side }
    }

    /// Wire on which `side` transmits.
    fn wire(&self, side: Side) -> &Wire {
        &self.transmitters[side as usize].wire
    }

    /// Current epoch. Buffer space of another epoch was discarded when the link went down.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// Flow classes in the order of `FlowClass as usize`.
pub const fn classes() -> [FlowClass; 3] {
    CLASSES
}
