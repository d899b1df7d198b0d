//! The internal switch (MPFS): selects the functions behind a port that receive a frame, whether from the wire or from
//! another function.
//!
//! Functions that share an address are one station reached over several links (IOctopus, 3.3): a rule names the
//! function for a flow, or, with one table of rules for the card, a queue, which a second table maps to its function
//! (4.1). Flows without a rule go to the function that has been running longest, so that one that comes back does not
//! take them from another, which may still have frames of theirs. Each function has its own part of the rule table, so
//! it does not depend on the others being present.
//!
//! **Order.** Writes stay ordered on one link, but not across two. When a flow moves to another function, that function
//! takes over at the first frame for which none is queued at the old one. Before the new function writes anything
//! behind that frame, the old one's pending completions are written and a zero-length read through it has returned:
//! read completions push earlier writes (PCIe Base 5.0, 2.4.1), so all of the old function's writes are in memory by
//! then.

use std::collections::VecDeque;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::{Duration, Time};
use wire::ethernet::{EthernetHeader, FCS_LEN, MacAddr};
use wire::ip::{Dissection, Flow};
use wire::nic::registers::{counter, feature};

use super::function::NicFunction;
use super::params::NicParams;
use super::rx::Receiver;
use super::spare::Spare;
use super::steering::{Match, Order, Placement, SwitchRules};
use super::token::{Kind, Note};

/// Marks timers for frames between functions.
pub const INSIDE: u16 = 1;

/// The internal switch: flow rules, and frames in flight between functions.
pub struct Switch {
    pub rules: SwitchRules,
    /// Latency from transmit to receive side: the sum of what both add to a frame on the wire.
    latency: Duration,
    /// Frames between functions: arrival time, sender and data.
    inside: VecDeque<(Time, u8, Vec<u8>)>,
    spare: Spare,
}

/// What a rule says of a flow.
struct Named {
    /// Where its last frame went.
    last: Option<Placement>,
    /// The rule and the function's queue, if rules name queues.
    steered: Option<(u16, u16)>,
}

impl Switch {
    pub fn new(params: &NicParams, functions: usize) -> Self {
        let has_one_table = params.features & feature::GLOBAL_RULES != 0;
        let queues = if has_one_table { params.functions.len() * usize::from(params.rx_queues) } else { 0 };
        Self {
            rules: SwitchRules::new(params.switch_rules, params.functions.len(), functions, queues),
            latency: params.tx.latency + params.rx.latency,
            inside: VecDeque::new(),
            spare: Spare::default(),
        }
    }

    /// Drops the frames in flight.
    pub fn forget_frames(&mut self) {
        self.inside.clear();
    }

    /// The function behind a port to which a frame is addressed and, if a rule names its flow, what it says.
    fn owner_of(
        &mut self,
        now: Time,
        functions: &[NicFunction],
        port: EthernetPort,
        to: MacAddr,
        flow: Option<&Flow>,
    ) -> Option<(usize, Option<Named>)> {
        if to.is_multicast() {
            return None;
        }
        let ours = |f: &NicFunction| f.port() == port && f.is_addressed(to) && f.is_known();
        let found = flow.and_then(|flow| self.rules.table.find(now, flow));
        let found = found.map(|Match { number, target, last }| (number, target, *last));
        let named = found.and_then(|(number, target, last)| {
            let (function, queue) = self.rules.place_of(target)?;
            Some((function, Some(Named { last, steered: queue.map(|queue| (number, queue)) })))
        });
        // A rule for a function that is gone is ignored.
        let runs = |f: usize| functions.get(f).is_some_and(|f| ours(f) && f.enabled);
        named.filter(|(function, _)| runs(*function)).or_else(|| {
            let usual = default_of(functions, ours).or_else(|| functions.iter().position(ours));
            usual.map(|function| (function, None))
        })
    }

    /// Delivers a frame, without check sequence, to all functions behind a port that should receive it.
    pub fn distribute(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        receiver: &mut Receiver,
        port: EthernetPort,
        frame: &[u8],
        from: Option<u8>,
    ) {
        let Ok((header, _)) = EthernetHeader::parse(frame) else { return };
        let parts = Dissection::of(frame);
        let to = header.destination;
        let flow = parts.as_ref().map(|parts| &parts.flow);
        let (mut owner, mut order, mut named, mut steered) = (None, Order::Any, false, None);
        if let Some((function, rule)) = self.owner_of(bus.now(), functions, port, to, flow) {
            owner = Some(function);
            if let (Some(rule), Some(flow)) = (rule, flow) {
                let (function, behind) = in_order(functions, function, rule.last, flow);
                (owner, order, named, steered) = (Some(function), behind, true, rule.steered);
            }
        }
        let mut found = false;
        for function in 0..functions.len() {
            if wants(functions, function, port, to, owner, from) {
                found = true;
                let (order, steered) =
                    if owner == Some(function) { (order, steered) } else { (Order::Any, None) };
                let place = receiver.deliver(bus, functions, function as u8, (frame, parts), order, steered);
                if let (true, Some(flow), Some(place)) = (named && owner == Some(function), flow, place) {
                    self.rules.table.went(flow, place);
                }
            }
        }
        if !found && from.is_none() {
            let first = functions.iter().position(|f| f.port() == port).unwrap_or(0);
            functions[first].count(counter::RX_FILTERED, 1);
        }
    }

    /// Passes a frame that a function sends, with check sequence, to the other functions behind the same port that want
    /// it. Returns whether it also has to go to the wire.
    pub fn send(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &[NicFunction],
        from: u8,
        frame: &[u8],
    ) -> bool {
        let own = &functions[usize::from(from)];
        let (port, frame) = (own.port(), &frame[..frame.len() - FCS_LEN]);
        let behind = |f: &NicFunction| f.port() == port && f.is_known() && !is_same_station(f, own);
        let Ok((header, _)) = EthernetHeader::parse(frame) else { return true };
        if !functions.iter().any(behind) {
            return true;
        }
        let (to, parts) = (header.destination, Dissection::of(frame));
        let flow = parts.as_ref().map(|parts| &parts.flow);
        let owner = self.owner_of(bus.now(), functions, port, to, flow).map(|(function, _)| function);
        if (0..functions.len()).any(|function| wants(functions, function, port, to, owner, Some(from))) {
            self.push_inside(bus, from, frame);
        }
        owner.is_none_or(|owner| from == owner as u8)
    }

    /// Passes a frame, with check sequence, of a function in loopback back to it.
    pub fn send_inside(&mut self, bus: &mut dyn DeviceBus, from: u8, frame: &[u8]) {
        self.push_inside(bus, from, &frame[..frame.len() - FCS_LEN]);
    }

    fn push_inside(&mut self, bus: &mut dyn DeviceBus, from: u8, frame: &[u8]) {
        let arrives = bus.now() + self.latency;
        self.inside.push_back((arrives, from, self.spare.copy(frame)));
        bus.wake_at(arrives, Note::of_device(Kind::Loopback).with(0, INSIDE).token());
    }

    /// A frame between functions may have arrived.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], receiver: &mut Receiver) {
        if self.inside.front().is_some_and(|(at, ..)| *at <= bus.now())
            && let Some((_, from, frame)) = self.inside.pop_front()
        {
            let sender = &functions[usize::from(from)];
            let (port, is_back) = (sender.port(), sender.loops && sender.enabled);
            if is_back {
                let parts = Dissection::of(&frame);
                receiver.deliver(bus, functions, from, (&frame, parts), Order::Any, None);
            } else {
                self.distribute(bus, functions, receiver, port, &frame, Some(from));
            }
            self.spare.put(frame);
        }
    }
}

/// Where to deliver a frame of a flow with a rule: the function, and what it has to stay behind. As long as the function
/// that had the flow has frames of it waiting, it keeps the flow in that queue, even if its own rule is gone.
fn in_order(
    functions: &[NicFunction],
    target: usize,
    last: Option<Placement>,
    flow: &Flow,
) -> (usize, Order) {
    // A flow that had no rule before was delivered to the default function.
    let usual = || {
        let function = default_of(functions, |f| is_same_station(f, &functions[target]))?;
        let queue = functions[function].queue_of(flow);
        let came = functions[function].rx.get(usize::from(queue))?.came();
        Some(Placement { function: function as u8, queue, count: came })
    };
    let known = last.filter(|last| usize::from(last.function) == target);
    let Some(last) = last.or_else(usual).filter(|last| usize::from(last.function) != target) else {
        // The function's own rule may have been removed and added again since.
        return (target, known.map_or(Order::Any, Order::Behind));
    };
    let old = &functions[usize::from(last.function)];
    match old.rx.get(usize::from(last.queue)).filter(|_| old.enabled) {
        Some(queue) if queue.has_waiting(last.count) => (last.function.into(), Order::InQueue(last.queue)),
        Some(_) => (target, Order::Fenced(last)),
        // The old function was reset and has nothing queued.
        None => (target, Order::Any),
    }
}

/// Of some functions the one that has been running longest, if any runs.
fn default_of(functions: &[NicFunction], among: impl Fn(&NicFunction) -> bool) -> Option<usize> {
    let running = (0..).zip(functions).filter(|(_, f)| f.enabled && among(f));
    running.min_by_key(|(_, f)| f.running_since).map(|(function, _)| function)
}

/// Whether two functions have the same address at the same port.
fn is_same_station(one: &NicFunction, other: &NicFunction) -> bool {
    one.port() == other.port() && one.mac == other.mac
}

/// Whether a function wants a frame that arrived at a port, or that `from` sent behind it.
fn wants(
    functions: &[NicFunction],
    function: usize,
    port: EthernetPort,
    to: MacAddr,
    owner: Option<usize>,
    from: Option<u8>,
) -> bool {
    let state = &functions[function];
    // Checked first, as most functions of a card are disabled virtual ones.
    if !state.enabled || state.loops || state.port() != port {
        return false;
    }
    let is_for_many = || to.is_broadcast() || (to.is_multicast() && state.has(feature::ALL_GROUPS));
    // Of functions that share an address, one takes multicast and broadcast frames, as if there were one cable.
    let is_default = || default_of(functions, |other| is_same_station(other, state)) == Some(function);
    let own = || from.is_some_and(|from| is_same_station(&functions[usize::from(from)], state));
    (owner == Some(function) || state.has(feature::PROMISCUOUS) || (is_for_many() && is_default())) && !own()
}
