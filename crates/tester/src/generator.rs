//! A UDP packet generator that also checks the packets it gets back: complete, in order, and how late.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use platform::device::{Device, DeviceBus, Function, Reset, Token};
use platform::ethernet::{EthernetPort, EthernetPortInfo};
use units::{BitRate, Bytes, Duration, Time};
use wire::ethernet::{self, BETWEEN_FRAMES, EtherType, EthernetHeader, FCS_LEN, MacAddr};
use wire::ip::{Ipv4Header, UdpHeader, protocol};

use crate::port::{Arrived, Port};

/// The discard port, source and destination of packets.
const PORT: u16 = 9;
/// Length of all headers.
const HEADERS: usize = ethernet::HEADER_LEN + 20 + 8;
/// Start of the payload: number, time in picoseconds, receiver.
const MARK: usize = 18;
/// Polling interval of an idle generator for a new load.
const LOOK: Duration = Duration::from_us(10);

/// Configuration of a generator.
#[derive(Clone, Debug)]
pub struct GeneratorParams {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its IP address.
    pub address: Ipv4Addr,
    /// Receivers in turn: MAC and IP addresses.
    pub to: Vec<(MacAddr, Ipv4Addr)>,
    /// Frame size including check sequence, bytes.
    pub frame: u16,
    /// Speed of its port.
    pub rate: BitRate,
}

/// Counters of the packets to one receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// Packets sent.
    pub sent: u64,
    /// Packets that came back.
    pub returned: u64,
    /// Packets that came back after a later one, or twice.
    pub reordered: u64,
    /// Packets that came back with changed content.
    pub damaged: u64,
    /// Sum of the times from the first bit sent to the last bit received back.
    pub time: Duration,
    /// The longest of these times.
    pub longest: Duration,
    /// Expected number of the next packet.
    next: u64,
}

/// Handle on a generator that is plugged in.
#[derive(Clone, Default)]
pub struct GeneratorHandle(Rc<State>);

#[derive(Default)]
struct State {
    /// Load as a share of the port's speed, in millionths.
    load: Cell<u32>,
    flows: RefCell<Vec<Flow>>,
}

impl GeneratorHandle {
    /// Sets the load as a share of the port's speed; 0 stops sending.
    pub fn set_load(&self, share: f64) {
        self.0.load.set((share.clamp(0.0, 1.0) * 1e6) as u32);
    }

    /// Counters so far, by receiver.
    pub fn flows(&self) -> Vec<Flow> {
        self.0.flows.borrow().clone()
    }
}

/// The generator device.
pub struct Generator {
    params: GeneratorParams,
    handle: GeneratorHandle,
    turn: usize,
    frame: Vec<u8>,
    /// Answers ARP requests for its address.
    port: Port,
}

impl Generator {
    /// Creates an idle generator and its handle.
    pub fn new(params: GeneratorParams) -> (Self, GeneratorHandle) {
        let handle = GeneratorHandle::default();
        *handle.0.flows.borrow_mut() = vec![Flow::default(); params.to.len()];
        let port = Port::new(params.mac, params.address);
        (Self { params, handle: handle.clone(), turn: 0, frame: Vec::new(), port }, handle)
    }

    /// Starts the generator at this port of a device; the handle controls its load.
    pub fn start(bus: &mut dyn DeviceBus) {
        let now = bus.now();
        bus.wake_at(now, Token(0));
    }

    /// Builds the frame for a receiver.
    fn fill(&mut self, to: usize, now: Time) {
        let (mac, address) = self.params.to[to];
        let number = self.handle.0.flows.borrow()[to].sent;
        let bytes = usize::from(self.params.frame).max(ethernet::LEAST_FRAME) - FCS_LEN;
        let data = bytes - HEADERS;
        self.frame.clear();
        self.frame.resize(bytes, 0);
        let mut at = EthernetHeader::new(self.params.mac, mac, EtherType::IPV4).emit(&mut self.frame);
        let ip = Ipv4Header::new(self.params.address, address, protocol::UDP, (8 + data) as u16);
        at += ip.emit(&mut self.frame[at..]);
        let udp = UdpHeader { source: PORT, destination: PORT, len: (8 + data) as u16, checksum: 0 };
        udp.emit(&mut self.frame[at..]);
        let content = &mut self.frame[HEADERS..];
        content[..8].copy_from_slice(&number.to_le_bytes());
        content[8..16].copy_from_slice(&now.since(Time::ZERO).as_ps().to_le_bytes());
        content[16..MARK].copy_from_slice(&(to as u16).to_le_bytes());
        for (n, byte) in content[MARK..].iter_mut().enumerate() {
            *byte = pattern(number, n);
        }
        ethernet::append_fcs(&mut self.frame);
    }

    /// Checks a packet that came back.
    fn read(&self, now: Time, frame: &[u8]) {
        let Ok((header, _)) = EthernetHeader::parse(frame) else { return };
        if header.destination != self.params.mac || !ethernet::fcs_is_right(frame) {
            return;
        }
        let Some(content) = frame[..frame.len() - FCS_LEN].get(HEADERS..) else { return };
        let Some((mark, rest)) = content.split_first_chunk::<MARK>() else { return };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = *mark;
        let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let sent = u64::from_le_bytes([i, j, k, l, m, n, o, p]);
        let mut flows = self.handle.0.flows.borrow_mut();
        let Some(flow) = flows.get_mut(usize::from(u16::from_le_bytes([q, r]))) else { return };
        flow.returned += 1;
        if number < flow.next {
            flow.reordered += 1;
        } else {
            flow.next = number + 1;
        }
        let is_whole = rest.iter().enumerate().all(|(n, &byte)| byte == pattern(number, n));
        flow.damaged += u64::from(!is_whole || number >= flow.sent);
        let took = Duration::from_ps(now.since(Time::ZERO).as_ps().saturating_sub(sent));
        flow.time += took;
        flow.longest = flow.longest.max(took);
    }
}

/// Byte `n` after the mark of packet `number`.
fn pattern(number: u64, n: usize) -> u8 {
    (number as u8).wrapping_mul(31).wrapping_add(n as u8)
}

impl Device for Generator {
    fn functions(&self) -> Vec<Function> {
        Vec::new()
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let now = bus.now();
        let load = u64::from(self.handle.0.load.get());
        if load == 0 || self.params.to.is_empty() {
            return bus.wake_at(now + LOOK, token);
        }
        let to = self.turn;
        self.turn = (to + 1) % self.params.to.len();
        self.fill(to, now);
        let frame = &self.frame;
        let left = bus.ethernet().and_then(|ethernet| ethernet.send(EthernetPort(0), now, frame));
        if left.is_some() {
            self.handle.0.flows.borrow_mut()[to].sent += 1;
        }
        let bytes = Bytes::new((self.frame.len() + BETWEEN_FRAMES) as u64);
        let each = self.params.rate.time_for(bytes).as_ps() * 1_000_000 / load;
        bus.wake_at(now + Duration::from_ps(each), token);
    }

    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        vec![EthernetPortInfo { rate: self.params.rate, receive_latency: Duration::ZERO }]
    }

    fn frame_received(&mut self, bus: &mut dyn DeviceBus, _: EthernetPort, frame: &[u8]) {
        let now = bus.now();
        let Ok((header, _)) = EthernetHeader::parse(frame) else { return };
        if header.ether_type != EtherType::ARP {
            return self.read(now, frame);
        }
        if let Some(Arrived::Arp(arp)) = self.port.read(frame)
            && self.port.is_asked(&arp)
            && let Some(ethernet) = bus.ethernet()
        {
            ethernet.send(EthernetPort(0), now, self.port.answer(&arp));
        }
    }
}
