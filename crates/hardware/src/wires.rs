//! All links of a simulation and the TLPs on them.

use engine::{Scheduler, Trace};
use units::{Duration, Time};
use wire::pcie::Tlp;

use crate::ethernet::Ethernet;
use crate::event::Event;
use crate::link::{Link, LinkContext, LinkEnd, LinkId, LinkParams, Passed, ReceiveSpace};
use crate::packet::{PacketId, PacketPool};

/// The links and what is in flight on them.
#[derive(Default)]
pub struct Wires {
    /// TLPs in flight.
    pub packets: PacketPool,
    /// Ethernet cables and switches.
    pub ethernet: Ethernet,
    links: Vec<Link>,
    /// Reused, so that sending allocates nothing.
    released: Vec<ReceiveSpace>,
}

/// Context of an event: the links with their TLPs, the clock and the event queue.
pub struct Context<'a> {
    /// Links and the TLPs on them.
    pub wires: &'a mut Wires,
    /// The clock and the event queue.
    pub scheduler: &'a mut Scheduler<Event>,
}

impl<'a> Context<'a> {
    /// Creates a context.
    #[inline]
    pub fn new(wires: &'a mut Wires, scheduler: &'a mut Scheduler<Event>) -> Self {
        Self { wires, scheduler }
    }

    /// Current time.
    #[inline]
    pub fn now(&self) -> Time {
        self.scheduler.now()
    }

    /// Computes the DLLPs that all links have sent so far, so that taps record them.
    pub fn report_dllps(&mut self) {
        for number in 0..self.wires.links.len() as u16 {
            self.with(LinkId(number), |link, cx| link.report_dllps(cx));
        }
    }

    /// Sends a TLP from `end`, now or as soon as possible.
    pub fn send(&mut self, end: LinkEnd, packet: PacketId) {
        self.with(end.link, |link, cx| link.send(cx, end.side, packet));
    }

    /// Sends a TLP that was [tied](Wires::tie) to the link at `end`, unless the link has gone down since, as its
    /// receiver or requester is then gone.
    pub fn send_tied(&mut self, end: LinkEnd, packet: PacketId) {
        if self.wires.packets.hop(packet).epoch == self.wires.link(end.link).epoch() {
            self.send(end, packet);
        } else {
            let now = self.now();
            self.consume(packet, now);
        }
    }

    /// Plans a TLP to leave `end` at `at`; `false` if the caller has to [send](Self::send) it at that time, see
    /// [`Link::plan`].
    #[inline(always)]
    pub fn plan(&mut self, end: LinkEnd, packet: PacketId, at: Time) -> bool {
        let (links, mut cx) = self.split();
        links[end.link.0 as usize].plan(&mut cx, end.side, packet, at)
    }

    /// Withdraws TLPs planned to leave `end` later than now.
    pub fn recall(&mut self, end: LinkEnd) {
        self.with(end.link, |link, cx| link.recall(cx, end.side));
    }

    /// Runs `act` on a link, and releases the receive buffers that it freed elsewhere.
    #[inline]
    pub fn with<R>(&mut self, id: LinkId, act: impl FnOnce(&mut Link, &mut LinkContext<'_>) -> R) -> R {
        let (links, mut cx) = self.split();
        let result = act(&mut links[id.0 as usize], &mut cx);
        if !self.wires.released.is_empty() {
            self.give_back();
        }
        result
    }

    /// Releases the receive buffers of forwarded TLPs.
    fn give_back(&mut self) {
        let now = self.now();
        let mut released = std::mem::take(&mut self.wires.released);
        for held in released.drain(..) {
            if self.wires.links[usize::from(held.end.link.0)].give_back(&held, now) {
                self.with(held.end.link, |link, cx| link.arrange_wake(cx, held.end.side));
            }
        }
        self.wires.released = released;
    }

    /// Checks a TLP that arrived; `false` if the link layer dropped it.
    #[inline]
    pub fn receive(&mut self, end: LinkEnd, packet: PacketId) -> bool {
        self.with(end.link, |link, cx| link.receive(cx, end.side, packet))
    }

    /// Frees a TLP consumed where it arrived; its receive buffer is released at `at`.
    #[inline(never)]
    pub fn consume(&mut self, packet: PacketId, at: Time) {
        // Most are completions, for which there is infinite room.
        if self.wires.packets.hop(packet).held.is_some() {
            return self.consume_held(packet, at);
        }
        self.wires.packets.free(packet);
    }

    #[inline(never)]
    fn consume_held(&mut self, packet: PacketId, at: Time) {
        self.consume_credits(packet, at);
        self.wires.packets.free(packet);
    }

    /// Releases the receive buffer of a TLP at `at`, but keeps the TLP.
    #[inline(always)]
    pub fn consume_credits(&mut self, packet: PacketId, at: Time) {
        let Wires { packets, links, .. } = &mut *self.wires;
        let hop = packets.hop_mut(packet);
        if let Some(held) = &hop.held {
            let end = held.end;
            let may_wake = links[usize::from(end.link.0)].give_back(held, at);
            hop.held = None;
            if may_wake {
                self.with(end.link, |link, cx| link.arrange_wake(cx, end.side));
            }
        }
    }

    /// The links, and what they use.
    #[inline(always)]
    fn split(&mut self) -> (&mut [Link], LinkContext<'_>) {
        let Wires { packets, links, released, .. } = &mut *self.wires;
        (links, LinkContext { packets, scheduler: self.scheduler, released })
    }
}

impl Wires {
    /// Adds a trained link.
    pub fn add(&mut self, params: LinkParams) -> LinkId {
        let id = LinkId(self.links.len() as u16);
        self.links.push(Link::new(id, params));
        id
    }

    /// Returns a link.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0 as usize]
    }

    /// Records a link's packets, see [`Link::tap`].
    pub fn tap(&mut self, id: LinkId, trace: Trace<Passed>) {
        self.links[id.0 as usize].tap(trace);
    }

    /// Number of links.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there are no links.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Sets whether the function at `end` adds an ECRC to its TLPs.
    pub fn set_protected(&mut self, end: LinkEnd, protected: bool) {
        self.links[end.link.0 as usize].set_protected(end.side, protected);
    }

    /// Sets whether TLPs arriving at `end` are forwarded before their end has arrived.
    pub(crate) fn set_cut_through(&mut self, end: LinkEnd, on: bool) {
        self.links[end.link.0 as usize].set_cut_through(end.side, on);
    }

    /// Whether a TLP that arrived carries a wrong ECRC.
    #[inline]
    pub fn is_damaged(&self, tlp: &Tlp, packet: PacketId) -> bool {
        tlp.common.digest && !self.packets.ecrc_is_right(packet)
    }

    /// Ties a TLP to be sent from `end` later to the link's current epoch, see [`send_tied`](Context::send_tied).
    #[inline]
    pub fn tie(&mut self, end: LinkEnd, packet: PacketId) {
        self.packets.hop_mut(packet).epoch = self.link(end.link).epoch();
    }

    /// From delivery of a TLP at `end` until its last byte arrives, see [`Link::tail`].
    pub fn tail(&self, end: LinkEnd, packet: PacketId) -> Duration {
        let bytes = self.packets.length(packet) as u64 + u64::from(self.packets.hop(packet).padding);
        self.link(end.link).tail(end.side, bytes)
    }
}
