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
pub struct ReceiveSpace {
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
pub type Released = Vec<ReceiveSpace>;

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
    /// When the first TLP is to leave that was planned at either end.
    next_planned: Time,
    /// Whether TLPs get an ECRC before they leave, by the side that sends.
    protected: [bool; 2],
}

/// Bytes of a DLLP on the wire, framing included.
const DLLP_BYTES: u64 = 8;

impl Link {
    /// A trained link with all credits initialised.
    ///
    /// Credits that flow control of its generation cannot express are not advertised.
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
            next_planned: Time::NEVER,
            protected: [false; 2],
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
    }

    /// Forgets an injector whose errors have ended as soon as nothing needs it any more.
    fn note_acknowledged(&mut self, side: Side) {
        let oldest = self.transmitters[side as usize].replay.oldest();
        if self.injector.as_mut().is_some_and(|injector| injector.acknowledged(side, oldest)) {
            self.forget_injector();
        }
    }

    fn forget_injector(&mut self) {
        self.injector = None;
        // No copies are kept from now on, so none is to be sent again.
        self.transmitters.iter_mut().for_each(|transmitter| transmitter.replay.stop_timer());
    }

    /// Whether what `side` sends gets an ECRC first.
    #[inline]
    pub fn protects(&self, side: Side) -> bool {
        self.protected[side as usize]
    }

    /// Lets what `side` sends get an ECRC first, or not.
    pub fn set_protected(&mut self, side: Side, protected: bool) {
        self.protected[side as usize] = protected;
    }

    /// Whether TLPs are delivered to `side` as soon as their headers are there.
    pub(crate) fn set_cut_through(&mut self, side: Side, on: bool) {
        self.params.receivers[side as usize].cut_through = on;
        self.receivers[side as usize].params.cut_through = on;
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
    pub fn report_dllps(&mut self, cx: &mut LinkContext<'_>, released: &mut Released) {
        let now = cx.scheduler.now();
        self.settle(cx, Side::Upstream, now, released);
        self.settle(cx, Side::Downstream, now, released);
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
        self.wire(side).free()
    }

    /// Credits of `class` that `side` may use, that are on their way to it, or that its receiver
    /// holds or has freed: always the limit advertised. `None` is infinite.
    pub fn credits_in_all_places(&self, side: Side, class: FlowClass) -> Option<Credits> {
        let transmitter = &self.transmitters[side as usize];
        let own = transmitter.account_of(class).outstanding()? + transmitter.planned.credits(class);
        let receiver = &self.receivers[side.opposite() as usize];
        Some(own + receiver.occupied(class) + receiver.unannounced(class))
    }

    /// Bytes that framing, sequence number and LCRC add to a TLP.
    pub fn framing_bytes(&self) -> u64 {
        pcie::link::framing_bytes(self.params.generation)
    }

    /// Time that a TLP of `bytes`, framing included, takes on the wire when `side` sends it.
    pub fn wire_time(&self, side: Side, bytes: u64) -> Duration {
        self.wire(side).tlp_time(bytes)
    }

    /// How long after its delivery at `side` the last byte of a TLP of `bytes` comes: it is delivered when its header is
    /// there where the receiver forwards it then, as a whole elsewhere.
    pub fn tail(&self, side: Side, bytes: u64) -> Duration {
        if !self.receivers[side as usize].params.cut_through {
            return Duration::ZERO;
        }
        let wire_bytes = bytes + self.framing_bytes();
        let header = self.wire(side.opposite()).time_for(send::HEADER_BYTES_TO_ROUTE.min(wire_bytes));
        self.wire_time(side.opposite(), wire_bytes).saturating_sub(header)
    }

    /// Picoseconds that a byte takes on the wire.
    pub fn wire_time_per_byte_ps(&self) -> f64 {
        self.wire(Side::Upstream).ps_per_byte()
    }

    fn end(&self, side: Side) -> LinkEnd {
        LinkEnd { link: self.id, side }
    }

    /// What `side` sends on.
    fn wire(&self, side: Side) -> &Wire {
        &self.transmitters[side as usize].wire
    }

    /// Whether `held` still names buffer space: it does not once the link has gone down since.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// The classes in the order of `FlowClass as usize`.
pub const fn classes() -> [FlowClass; 3] {
    CLASSES
}
