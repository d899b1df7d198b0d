//! The internal switch (MPFS): which functions behind a port a frame is for, whether it came from the wire or one of them.
//!
//! Functions that share an address are one station that is reached by several links (IOctopus, 3.3): a rule says which of
//! them a flow is for, and what no rule names is for the first that runs. Each of them has a part of the table for its own
//! rules, so that none needs another to be there.
//!
//! **Order.** Writes keep their order on a link, but not between two. When a flow moves to another function, that one takes
//! it from the first frame for which none waits at the old one; what the old one has to report is written, and a read of
//! no bytes through it fetched back, before the new one writes anything behind that frame: completions push what was written
//! before them (PCIe Base 5.0, 2.4.1), so all of the old function's writes are in memory by then.

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
use super::steering::{Match, Placement, SwitchRules};
use super::token::{Kind, Note};

/// Marks timers of frames between functions.
pub const INSIDE: u16 = 1;

/// The internal switch: which flows are for which function, and frames from one to another.
pub struct Switch {
    pub rules: SwitchRules,
    /// From the sending half to the receiving one: it takes what both take of a frame on the wire.
    latency: Duration,
    /// Frames between functions: when they arrive, and from which.
    inside: VecDeque<(Time, u8, Vec<u8>)>,
    spare: Spare,
}

impl Switch {
    pub fn new(params: &NicParams, functions: usize) -> Self {
        Self {
            rules: SwitchRules::new(params.switch_rules, params.functions.len(), functions),
            latency: params.tx.latency + params.rx.latency,
            inside: VecDeque::new(),
            spare: Spare::default(),
        }
    }

    /// Forgets the frames on their way.
    pub fn forget_frames(&mut self) {
        self.inside.clear();
    }

    /// The function behind a port to which a frame is addressed, and of a flow that a rule names where its last frame went.
    fn owner_of(
        &mut self,
        now: Time,
        functions: &[NicFunction],
        port: EthernetPort,
        to: MacAddr,
        flow: Option<&Flow>,
    ) -> Option<(usize, Option<Option<Placement>>)> {
        if to.is_multicast() {
            return None;
        }
        let ours = |f: &NicFunction| f.port() == port && f.is_addressed(to) && f.is_known();
        let named = flow.and_then(|flow| self.rules.table.find(now, flow));
        let named = named.map(|Match { target, last, .. }| (usize::from(target), Some(*last)));
        // A rule for a function that has gone is as none.
        let runs = |f: usize| functions.get(f).is_some_and(|f| ours(f) && f.enabled);
        named.filter(|&(function, _)| runs(function)).or_else(|| {
            let all = || functions.iter();
            let usual = all().position(|f| ours(f) && f.enabled).or_else(|| all().position(ours));
            usual.map(|function| (function, None))
        })
    }

    /// Gives a frame, without check sequence, to the functions behind a port that it is for.
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
        let (mut owner, mut fenced, mut named) = (None, None, false);
        if let Some((function, rule)) = self.owner_of(bus.now(), functions, port, to, flow) {
            owner = Some(function);
            if let (Some(last), Some(flow)) = (rule, flow) {
                let (function, fence) = in_order(functions, function, last, flow);
                (owner, fenced, named) = (Some(function), fence, true);
            }
        }
        let mut found = false;
        for function in 0..functions.len() {
            if wants(functions, function, port, to, owner, from) {
                found = true;
                let fenced = fenced.filter(|_| owner == Some(function));
                let place = receiver.deliver(bus, functions, function as u8, frame, parts, fenced);
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

    /// Lets a frame that a function sends, check sequence included, go to others behind the same port that want it. Gives
    /// whether it has to go to the wire as well.
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
            let arrives = bus.now() + self.latency;
            self.inside.push_back((arrives, from, self.spare.copy(frame)));
            bus.wake_at(arrives, Note::new(Kind::Loopback, 0, 0, 0).with(0, INSIDE).token());
        }
        owner.is_none_or(|owner| from == owner as u8)
    }

    /// A frame from one function to others may have passed.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], receiver: &mut Receiver) {
        if self.inside.front().is_some_and(|(at, ..)| *at <= bus.now())
            && let Some((_, from, frame)) = self.inside.pop_front()
        {
            let port = functions[usize::from(from)].port();
            self.distribute(bus, functions, receiver, port, &frame, Some(from));
            self.spare.put(frame);
        }
    }
}

/// Where a frame of a flow goes that a rule names: the function, and the queue of another one that has to be fenced before
/// it does.
fn in_order(
    functions: &[NicFunction],
    target: usize,
    last: Option<Placement>,
    flow: &Flow,
) -> (usize, Option<Placement>) {
    // A flow without a rule went where flows without rules go.
    let usual = || {
        let ours = |f: &NicFunction| is_same_station(f, &functions[target]) && f.enabled;
        let function = functions.iter().position(ours)?;
        let queue = functions[function].queue_of(flow);
        let came = functions[function].rx.get(usize::from(queue))?.came();
        Some(Placement { function: function as u8, queue, count: came })
    };
    let Some(last) = last.or_else(usual).filter(|last| usize::from(last.function) != target) else {
        return (target, None);
    };
    let old = &functions[usize::from(last.function)];
    match old.rx.get(usize::from(last.queue)).filter(|_| old.enabled) {
        Some(queue) if queue.has_waiting(last.count) => (last.function.into(), None),
        Some(_) => (target, Some(last)),
        // It was reset, and has nothing any more.
        None => (target, None),
    }
}

/// Whether two functions are one to the network.
fn is_same_station(one: &NicFunction, other: &NicFunction) -> bool {
    one.port() == other.port() && one.mac == other.mac
}

/// Whether a function wants a frame that came to a port, or was sent behind it by `from`.
fn wants(
    functions: &[NicFunction],
    function: usize,
    port: EthernetPort,
    to: MacAddr,
    owner: Option<usize>,
    from: Option<u8>,
) -> bool {
    let state = &functions[function];
    // First, as most functions of a card are virtual ones that do not run.
    if !state.enabled || state.port() != port {
        return false;
    }
    let is_for_many = || to.is_broadcast() || (to.is_multicast() && state.has(feature::ALL_GROUPS));
    // One of a station takes what is for many, as there is one cable.
    let same = |other: &&NicFunction| other.enabled && is_same_station(other, state);
    let is_first = || functions.iter().find(same).is_some_and(|first| std::ptr::eq(first, state));
    let own = || from.is_some_and(|from| is_same_station(&functions[usize::from(from)], state));
    (owner == Some(function) || state.has(feature::PROMISCUOUS) || (is_for_many() && is_first())) && !own()
}
