//! A learning switch that stores and forwards (IEEE 802.1D).

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use units::{Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, FCS_LEN, MacAddr, fcs, fcs_is_right};
use wire::ip::ecn;

use super::CableEnd;

/// A switch.
#[derive(Clone, Debug)]
pub struct EthernetSwitchParams {
    /// Its ports.
    pub ports: u8,
    /// From a frame's last bit in to its first bit out, when nothing is in its way.
    pub latency: Duration,
    /// Bytes that may wait at an egress port.
    pub queue_bytes: u32,
    /// Bytes that wait there from which on packets are marked (RFC 3168, section 5), if their senders understand it.
    pub mark_bytes: Option<u32>,
    /// Addresses that it can remember.
    pub addresses: u32,
    /// How long it remembers one that it does not hear of (802.1D's default: 300 s).
    pub aging: Duration,
}

impl EthernetSwitchParams {
    /// A data-centre switch: cut-through latencies begin at 300 ns, storing adds the frame's own time;
    /// 12 MB of shared buffer over 32 ports; 802.1D's aging.
    pub const fn generic(ports: u8) -> Self {
        Self {
            ports,
            latency: Duration::from_ns(300),
            queue_bytes: 384 << 10,
            mark_bytes: None,
            addresses: 64 << 10,
            aging: Duration::from_ms(300_000),
        }
    }
}

/// What a switch has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Frames that arrived.
    pub received: u64,
    /// Frames sent, copies counted.
    pub sent: u64,
    /// Frames that went to all ports.
    pub flooded: u64,
    /// Frames with a wrong check sequence or no header.
    pub damaged: u64,
    /// Copies dropped because their egress queue was full.
    pub overflowed: u64,
    /// Copies marked because much waited at their egress port.
    pub marked: u64,
    /// Frames whose destination is where they came from, or whose port has no link.
    pub filtered: u64,
    /// Addresses that found no room.
    pub not_learned: u64,
}

#[derive(Default)]
struct Port {
    cable: Option<CableEnd>,
    /// Frames that have not left, and when they will have.
    waiting: VecDeque<(Time, u32)>,
    waiting_bytes: u32,
}

/// A switch and what it has learned.
pub struct Switch {
    params: EthernetSwitchParams,
    ports: Vec<Port>,
    /// Only looked up, never walked.
    addresses: FxHashMap<MacAddr, (u8, Time)>,
    counters: SwitchCounters,
}

impl Switch {
    pub fn new(params: EthernetSwitchParams) -> Self {
        let ports = (0..params.ports).map(|_| Port::default()).collect();
        Self { params, ports, addresses: FxHashMap::default(), counters: SwitchCounters::default() }
    }

    pub fn plug_mut(&mut self, port: u8) -> &mut Option<CableEnd> {
        &mut self.ports[usize::from(port)].cable
    }

    pub fn counters(&self) -> &SwitchCounters {
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
        self.learn(now, from, header.source);
        let ready = now + self.params.latency;
        match self.port_of(now, header.destination) {
            Some(port) if port == from => self.counters.filtered += 1,
            Some(port) => self.send(now, port, frame, ready, &mut send),
            None => {
                self.counters.flooded += 1;
                for port in (0..self.params.ports).filter(|&port| port != from) {
                    if self.ports[usize::from(port)].cable.is_some() {
                        self.send(now, port, frame, ready, &mut send);
                    }
                }
            }
        }
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

    fn send(
        &mut self,
        now: Time,
        port: u8,
        frame: &mut [u8],
        ready: Time,
        send: &mut impl FnMut(CableEnd, Time, &[u8]) -> Option<Time>,
    ) {
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
            return;
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
            }
            None => self.counters.filtered += 1,
        }
    }
}

/// Marks the packet in a frame, if it may be; its checksums stay right.
fn mark(frame: &mut [u8]) -> bool {
    let Ok((header, at)) = EthernetHeader::parse(frame) else { return false };
    let (content, check) = frame.split_at_mut(frame.len() - FCS_LEN);
    if header.ether_type != EtherType::IPV4 || !ecn::mark(&mut content[at..]) {
        return false;
    }
    check.copy_from_slice(&fcs(content).to_le_bytes());
    true
}
