//! A TCP source: connects, sends for a while as fast as peer and cable allow, and closes the connection.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use engine::Seed;
use inet::tcp::{Connection, Failure, State, TcpParams};
use platform::device::{Device, DeviceBus, Function, Reset, Token};
use platform::ethernet::{EthernetPort, EthernetPortInfo};
use platform::sync::Completion;
use units::{BitRate, Bytes, Duration, Time};
use wire::ethernet::{BETWEEN_FRAMES, FCS_LEN, HEADER_LEN, MacAddr};
use wire::ip::TcpHeader;

use crate::port::{Arrived, Port};

/// Maximum number of full frames queued for the cable, like a NIC's ring and the queues above it.
const QUEUE: u64 = 16;
/// Length of the repeated random data; a prime, so that nearby segments differ.
const DATA: usize = 65_537;
/// Bytes that the stream's buffer is ahead of what has been sent.
const AHEAD: u64 = 256 << 10;
/// ARP retransmission interval and number of attempts (Linux: neigh/default/retrans_time_ms, mcast_solicit).
const ASK_AGAIN: Duration = Duration::from_ms(1000);
const QUESTIONS: u8 = 3;
/// Source port: the first of Linux's ip_local_port_range.
const OWN_PORT: u16 = 32_768;

/// Configuration of a source.
#[derive(Clone, Debug)]
pub struct SourceParams {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its IP address.
    pub address: Ipv4Addr,
    /// The receiver.
    pub to: SocketAddrV4,
    /// Duration of sending, from its start.
    pub time: Duration,
    /// Speed of its port.
    pub rate: BitRate,
    /// MTU: without Ethernet header and check sequence.
    pub mtu: u16,
    /// Seed of its data and its initial sequence number.
    pub seed: Seed,
}

/// Totals, once the peer has acknowledged everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Bytes of the stream.
    pub bytes: u64,
    /// From the start to the last acknowledgement.
    pub took: Duration,
    /// Retransmitted segments.
    pub again: u64,
}

/// Totals, or the reason of a failure.
pub type Ending = Result<Sent, &'static str>;

/// Handle on a source that is plugged in.
#[derive(Clone)]
pub struct SourceHandle(Rc<Completion<Ending>>);

impl SourceHandle {
    /// Waits until the source has ended.
    pub async fn ended(&self) -> Ending {
        self.0.wait().await
    }
}

/// Timer tokens: start, end of sending, protocol deadline, room in the queue.
const START: Token = Token(0);
const STOP: Token = Token(1);
const DEADLINE: Token = Token(2);
const ROOM: Token = Token(3);

/// The source device.
pub struct Source {
    params: SourceParams,
    port: Port,
    data: Vec<u8>,
    connection: Connection<Vec<u8>>,
    handle: SourceHandle,
    peer: Option<MacAddr>,
    questions: u8,
    began: Time,
    over: bool,
    /// When the last queued frame will have left.
    sent_until: Time,
    /// Pending timers for a deadline and for room. Deadlines move, so they are checked again when the timer fires.
    deadline: Option<Time>,
    room: Option<Time>,
}

impl Source {
    /// Creates a source that waits for [`start`](Self::start), and its handle.
    pub fn new(params: SourceParams) -> (Self, SourceHandle) {
        let mut rng = params.seed.component("source");
        let handle = SourceHandle(Rc::new(Completion::new()));
        let ports = (OWN_PORT, params.to.port());
        let source = Self {
            port: Port::new(params.mac, params.address),
            connection: Connection::connect(TcpParams::linux(params.mtu), ports, rng.u64() as u32),
            data: (0..DATA).map(|_| rng.u64() as u8).collect(),
            handle: handle.clone(),
            peer: None,
            questions: 0,
            began: Time::ZERO,
            over: false,
            sent_until: Time::ZERO,
            deadline: None,
            room: None,
            params,
        };
        (source, handle)
    }

    /// Starts the source at this port of a device at `when`.
    pub fn start(bus: &mut dyn DeviceBus, when: Time) {
        bus.wake_at(when, START);
    }

    /// Fills a buffer with the stream's bytes from `offset`.
    fn fill(data: &[u8], offset: u64, mut into: &mut [u8]) {
        let mut at = (offset % DATA as u64) as usize;
        while !into.is_empty() {
            let (now, later) = into.split_at_mut(into.len().min(DATA - at));
            now.copy_from_slice(&data[at..at + now.len()]);
            (into, at) = (later, 0);
        }
    }

    fn ask(&mut self, bus: &mut dyn DeviceBus) {
        if self.questions == QUESTIONS {
            self.end(Err("nobody has the address that it sends to"));
            return;
        }
        self.questions += 1;
        send(bus, self.port.question(*self.params.to.ip()));
        let again = bus.now() + ASK_AGAIN;
        arm(&mut self.deadline, bus, again, DEADLINE);
    }

    /// Does whatever is due.
    fn go_on(&mut self, bus: &mut dyn DeviceBus) {
        let now = bus.now();
        let Some(mac) = self.peer else { return };
        if self.connection.deadline().is_some_and(|due| due <= now) {
            self.connection.timer(now);
        }
        let until = self.began + self.params.time;
        if now >= until {
            self.connection.finish();
        } else if self.connection.unsent() < AHEAD / 2 {
            self.connection.write(AHEAD - self.connection.unsent());
        }
        let queue = self.frame_time() * QUEUE;
        while self.sent_until < now + queue
            && let Some(segment) = self.connection.transmit(now, 0)
        {
            let length = (segment.data.end - segment.data.start) as usize;
            let fill = |into: &mut [u8]| Self::fill(&self.data, segment.data.start, into);
            let frame = self.port.segment((mac, *self.params.to.ip()), &segment.header, length, fill);
            // Without a carrier it is lost and will be retransmitted.
            self.sent_until = send(bus, frame).unwrap_or(now + queue);
        }
        self.look_for_the_end(now);
        if let Some(deadline) = self.connection.deadline() {
            arm(&mut self.deadline, bus, deadline, DEADLINE);
        }
        if self.sent_until >= now + queue {
            arm(&mut self.room, bus, self.sent_until - queue / 2, ROOM);
        }
    }

    fn frame_time(&self) -> Duration {
        let bytes = usize::from(self.params.mtu) + HEADER_LEN + FCS_LEN + BETWEEN_FRAMES;
        self.params.rate.time_for(Bytes::new(bytes as u64))
    }

    /// Ends it if everything including FIN is acknowledged, or if the connection has failed.
    fn look_for_the_end(&mut self, now: Time) {
        if let Some(failure) = self.connection.failure() {
            return self.end(Err(match failure {
                Failure::Refused => "connection refused",
                Failure::Reset => "connection reset by peer",
                Failure::TimedOut => "connection timed out",
                Failure::Aborted => "connection aborted",
            }));
        }
        if matches!(self.connection.state(), State::FinWait2 | State::TimeWait | State::Closed) {
            let (bytes, again) = (self.connection.acknowledged(), self.connection.counters().retransmissions);
            if self.connection.state() == State::Closed && bytes == 0 {
                // Gave up before getting an answer.
                return self.end(Err("nobody answered"));
            }
            self.end(Ok(Sent { bytes, took: now.since(self.began), again }));
        }
    }

    fn end(&mut self, how: Ending) {
        if !std::mem::replace(&mut self.over, true) {
            self.handle.0.complete(how);
        }
    }

    fn received(&mut self, bus: &mut dyn DeviceBus, header: &TcpHeader, data: &[u8]) {
        let now = bus.now();
        self.connection.receive(now, header, data.to_vec(), 1);
        // Received data are discarded.
        while self.connection.read(now).is_some() {}
        self.connection.reading_done();
        self.connection.discarded();
        self.go_on(bus);
    }
}

/// Makes sure that the source is woken by `when`.
fn arm(at: &mut Option<Time>, bus: &mut dyn DeviceBus, when: Time, token: Token) {
    if at.is_none_or(|at| when < at) {
        *at = Some(when);
        bus.wake_at(when, token);
    }
}

fn send(bus: &mut dyn DeviceBus, frame: &[u8]) -> Option<Time> {
    let now = bus.now();
    bus.ethernet()?.send(EthernetPort(0), now, frame)
}

impl Device for Source {
    fn functions(&self) -> Vec<Function> {
        Vec::new()
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let now = bus.now();
        for at in [&mut self.deadline, &mut self.room] {
            *at = at.filter(|&at| at > now);
        }
        match token {
            START => {
                self.began = now;
                bus.wake_at(now + self.params.time, STOP);
                self.ask(bus);
            }
            DEADLINE if self.peer.is_none() => self.ask(bus),
            _ => self.go_on(bus),
        }
    }

    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        vec![EthernetPortInfo { rate: self.params.rate, receive_latency: Duration::ZERO }]
    }

    fn frame_received(&mut self, bus: &mut dyn DeviceBus, _: EthernetPort, frame: &[u8]) {
        let peer = *self.params.to.ip();
        match self.port.read(frame) {
            Some(Arrived::Arp(arp)) => {
                if self.port.is_asked(&arp) {
                    send(bus, self.port.answer(&arp));
                }
                if arp.sender_ip == peer && self.questions > 0 && self.peer.replace(arp.sender_mac).is_none()
                {
                    self.go_on(bus);
                }
            }
            Some(Arrived::Tcp(from, header, data))
                if from == peer && header.destination == OWN_PORT && self.peer.is_some() =>
            {
                self.received(bus, &header, data);
            }
            _ => {}
        }
    }
}
