//! A learning store-and-forward switch (IEEE 802.1D). Several ports can form one channel to a link partner (link
//! aggregation: IEEE 802.3ad, now 802.1AX); all frames of a flow use the same port.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use units::{Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, FCS_LEN, MacAddr, fcs, fcs_is_right};
use wire::ip::{Dissection, ecn};

use super::event::CableEnd;

/// What an Ethernet switch is like: size, latency, queues, link aggregation.
#[derive(Clone, Debug)]
pub struct EthernetSwitchParams {
    /// Number of ports.
    pub ports: u8,
    /// From a frame's last bit in to its first bit out, without queueing.
    pub latency: Duration,
    /// Capacity of an egress queue in bytes.
    pub queue_bytes: u32,
    /// Queue length in bytes from which packets are marked (RFC 3168, section 5), if ECN-capable.
    pub mark_bytes: Option<u32>,
    /// Capacity of the address table.
    pub addresses: u32,
    /// Aging time of addresses (802.1D's default: 300 s).
    pub aging: Duration,
    /// Port groups that form a channel each. A port is in at most one.
    pub channels: Vec<Vec<u8>>,
}

impl EthernetSwitchParams {
    /// A data-centre switch: cut-through latencies start at 300 ns, and storing adds the frame's own time; 12 MB of
    /// shared buffer over 32 ports; 802.1D's aging.
    pub fn generic(ports: u8) -> Self {
        Self {
            ports,
            latency: Duration::from_ns(300),
            queue_bytes: 384 << 10,
            mark_bytes: None,
            addresses: 64 << 10,
            aging: Duration::from_ms(300_000),
            channels: Vec::new(),
        }
    }
}

/// What an Ethernet switch counts, from the beginning on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EthernetSwitchCounters {
    /// Frames that arrived.
    pub received: u64,
    /// Frames sent, counting copies.
    pub sent: u64,
    /// Frames flooded to all ports.
    pub flooded: u64,
    /// Frames with a wrong check sequence or without a valid header.
    pub damaged: u64,
    /// Copies dropped because their egress queue was full.
    pub overflowed: u64,
    /// Copies marked because of the length of their egress queue.
    pub marked: u64,
    /// Frames whose destination is at their ingress port, or whose egress port has no link.
    pub filtered: u64,
    /// Addresses not learned because the table was full.
    pub not_learned: u64,
}

#[derive(Default)]
struct Port {
    cable: Option<CableEnd>,
    /// The channel that it belongs to.
    channel: Option<usize>,
    /// Queued frames: when each will have left, and its length.
    waiting: VecDeque<(Time, u32)>,
    waiting_bytes: u32,
}

/// A switch and its address table.
pub struct EthernetSwitch {
    params: EthernetSwitchParams,
    ports: Vec<Port>,
    /// Only looked up, never iterated over.
    addresses: FxHashMap<MacAddr, (u8, Time)>,
    counters: EthernetSwitchCounters,
}

impl EthernetSwitch {
    pub fn new(params: EthernetSwitchParams) -> Self {
        let channel = |port| params.channels.iter().position(|channel| channel.contains(&port));
        let ports =
            (0..params.ports).map(|port| Port { channel: channel(port), ..Port::default() }).collect();
        Self { params, ports, addresses: FxHashMap::default(), counters: EthernetSwitchCounters::default() }
    }

    pub fn plug_mut(&mut self, port: u8) -> &mut Option<CableEnd> {
        &mut self.ports[usize::from(port)].cable
    }

    pub fn counters(&self) -> &EthernetSwitchCounters {
        &self.counters
    }

    /// Forwards a frame that arrived at `from`; `send` puts it on a cable.
    pub fn forward(
        &mut self,
        now: Time,
        from: u8,
        frame: &mut [u8],
        mut send: impl FnMut(CableEnd, Time, &[u8]) -> Option<Time>,
    ) {
        self.counters.received += 1;
        let header = EthernetHeader::parse(frame).ok().filter(|_| fcs_is_right(frame));
        let Some((header, _)) = header else {
            self.counters.damaged += 1;
            return;
        };
        let from = self.first_of(from);
        self.learn(now, from, header.source);
        if header.ether_type == EtherType::CONTROL {
            // Link-local: for the port itself, which has no flow control.
            self.counters.filtered += 1;
            return;
        }
        let ready = now + self.params.latency;
        match self.port_of(now, header.destination) {
            Some(port) if port == from => self.counters.filtered += 1,
            Some(port) => self.send_by_any(now, port, frame, ready, &mut send),
            None => {
                self.counters.flooded += 1;
                for port in (0..self.params.ports).filter(|&port| port != from) {
                    if self.first_of(port) == port && self.links_of(port).any(|link| self.has_cable(link)) {
                        self.send_by_any(now, port, frame, ready, &mut send);
                    }
                }
            }
        }
    }

    /// The port that represents a channel: its first. Other ports represent themselves.
    fn first_of(&self, port: u8) -> u8 {
        self.links_of(port).next().unwrap_or(port)
    }

    /// The ports of a port's channel, or the port itself.
    fn links_of(&self, port: u8) -> impl Iterator<Item = u8> + Clone + '_ {
        let channel = self.ports[usize::from(port)].channel.map(|channel| &self.params.channels[channel][..]);
        let alone = channel.is_none().then_some(port);
        channel.unwrap_or_default().iter().copied().chain(alone)
    }

    fn has_cable(&self, port: u8) -> bool {
        self.ports[usize::from(port)].cable.is_some()
    }

    /// Sends a frame through the port of a channel selected by its flow's hash, or the next one that is up.
    fn send_by_any(
        &mut self,
        now: Time,
        port: u8,
        frame: &mut [u8],
        ready: Time,
        send: &mut impl FnMut(CableEnd, Time, &[u8]) -> Option<Time>,
    ) {
        let mut count = self.links_of(port).count();
        let first = if count == 1 { 0 } else { channel_hash(frame) as usize % count };
        let mut next = first;
        while count > 0 {
            let link = self.links_of(port).cycle().nth(next).unwrap_or(port);
            if self.send(now, link, frame, ready, send) {
                return;
            }
            (count, next) = (count - 1, next + 1);
        }
        self.counters.filtered += 1;
    }

    fn learn(&mut self, now: Time, from: u8, source: MacAddr) {
        if source.is_multicast() {
            return;
        }
        let is_full = self.addresses.len() >= self.params.addresses as usize;
        match self.addresses.get_mut(&source) {
            Some(place) => *place = (from, now),
            None if is_full => self.counters.not_learned += 1,
            None => {
                self.addresses.insert(source, (from, now));
            }
        }
    }

    fn port_of(&mut self, now: Time, destination: MacAddr) -> Option<u8> {
        if destination.is_multicast() {
            return None;
        }
        let &(port, seen) = self.addresses.get(&destination)?;
        if now.since(seen) > self.params.aging {
            self.addresses.remove(&destination);
            return None;
        }
        Some(port)
    }

    /// Queues a frame at a port if there is room; `false` if the port has no link.
    fn send(
        &mut self,
        now: Time,
        port: u8,
        frame: &mut [u8],
        ready: Time,
        send: &mut impl FnMut(CableEnd, Time, &[u8]) -> Option<Time>,
    ) -> bool {
        let bytes = frame.len() as u32;
        let port = &mut self.ports[usize::from(port)];
        while let Some(&(left, bytes)) = port.waiting.front()
            && left <= now
        {
            port.waiting_bytes -= bytes;
            port.waiting.pop_front();
        }
        if port.waiting_bytes + bytes > self.params.queue_bytes {
            self.counters.overflowed += 1;
            return true;
        }
        let is_long = self.params.mark_bytes.is_some_and(|most| port.waiting_bytes >= most);
        if is_long && mark(frame) {
            self.counters.marked += 1;
        }
        match port.cable.and_then(|cable| send(cable, ready, frame)) {
            Some(left) => {
                port.waiting_bytes += bytes;
                port.waiting.push_back((left, bytes));
                self.counters.sent += 1;
                true
            }
            None => false,
        }
    }
}

/// Hash that selects a channel's port: over the packet's addresses and ports, or else the MAC addresses.
fn channel_hash(frame: &[u8]) -> u32 {
    let of_stations = || {
        let stations = frame[..12].iter();
        stations.fold(0, |hash: u32, &byte| hash.rotate_left(5) ^ u32::from(byte))
    };
    Dissection::of(&frame[..frame.len() - FCS_LEN]).map_or_else(of_stations, |parts| parts.flow.link_hash())
}

/// Marks the packet in a frame if it is ECN-capable, and updates its checksums.
fn mark(frame: &mut [u8]) -> bool {
    let Ok((header, at)) = EthernetHeader::parse(frame) else { return false };
    let (content, check) = frame.split_at_mut(frame.len() - FCS_LEN);
    if header.ether_type != EtherType::IPV4 || !ecn::mark(&mut content[at..]) {
        return false;
    }
    check.copy_from_slice(&fcs(content).to_le_bytes());
    true
}
