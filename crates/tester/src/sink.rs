//! A TCP sink: accepts connections on every port and discards their data.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use engine::Rng;
use engine::Seed;
use inet::tcp::{Connection, Payload, State, TcpParams};
use platform::device::{Device, DeviceBus, Function, Reset, Token};
use platform::ethernet::{EthernetPort, EthernetPortInfo};
use units::{BitRate, Duration, Time};
use wire::ethernet::MacAddr;
use wire::ip::{TcpFlags, TcpHeader};

use crate::port::{Arrived, Port};

/// How long consecutive segments are aggregated before the acknowledgement, as by a receiver's interrupt moderation
/// and GRO (assumed: between the two settings of Linux's adaptive moderation for mlx5).
const MODERATION: Duration = Duration::from_us(8);
/// Maximum aggregate size in bytes (IPv4's total length, as in GRO).
const MOST: u32 = 65_535 - 120;

/// Configuration of a sink.
#[derive(Clone, Debug)]
pub struct SinkParams {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its IP address.
    pub address: Ipv4Addr,
    /// Speed of its port.
    pub rate: BitRate,
    /// MTU: without Ethernet header and check sequence.
    pub mtu: u16,
    /// Seed of its initial sequence numbers.
    pub seed: Seed,
}

/// Data of which only the length matters.
struct Length(u32);

impl Payload for Length {
    fn empty() -> Self {
        Self(0)
    }
    fn len(&self) -> u32 {
        self.0
    }
    fn drop_front(&mut self, bytes: u32) {
        self.0 -= bytes;
    }
    fn truncate(&mut self, bytes: u32) {
        self.0 = self.0.min(bytes);
    }
}

/// Aggregated segments.
struct Aggregate {
    header: TcpHeader,
    length: u32,
    segments: u16,
    until: Time,
}

/// A connection and its aggregated segments.
struct Stream {
    connection: Connection<Length>,
    mac: MacAddr,
    held: Option<Aggregate>,
}

/// Identifies a connection: remote address, remote port and local port.
type Peer = (Ipv4Addr, u16, u16);

/// A sink of TCP streams.
pub struct Sink {
    params: SinkParams,
    port: Port,
    rng: Rng,
    streams: BTreeMap<Peer, Stream>,
    /// MAC addresses learned from ARP requests.
    neighbours: BTreeMap<Ipv4Addr, MacAddr>,
    /// Time of the pending timer.
    wake: Option<Time>,
}

impl Sink {
    /// Creates a sink.
    pub fn new(params: SinkParams) -> Self {
        Self {
            port: Port::new(params.mac, params.address),
            rng: params.seed.component("sink"),
            streams: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            wake: None,
            params,
        }
    }

    fn received(&mut self, bus: &mut dyn DeviceBus, from: Ipv4Addr, header: &TcpHeader, length: u32) {
        let now = bus.now();
        let peer = (from, header.source, header.destination);
        let Some(&mac) = self.neighbours.get(&from) else { return };
        if header.flags.contains(TcpFlags::SYN) && !self.streams.contains_key(&peer) {
            let initial = self.rng.u64() as u32;
            let accepted = Connection::accept(TcpParams::linux(self.params.mtu), initial, header);
            let stream = accepted.map(|connection| Stream { connection, mac, held: None });
            self.streams.extend(stream.map(|stream| (peer, stream)));
            return self.go_on(bus, peer);
        }
        let Some(stream) = self.streams.get_mut(&peer) else { return };
        if !stream.joins(header, length) {
            stream.go_up(now);
            let until = now + MODERATION;
            stream.held = Some(Aggregate { header: *header, length, segments: 1, until });
        }
        let plain = header.flags == TcpFlags::ACK && length > 0;
        if !plain || stream.held.as_ref().is_some_and(|held| held.length >= MOST - u32::from(self.params.mtu))
        {
            stream.go_up(now);
        }
        self.go_on(bus, peer);
    }

    /// Sends what a connection has to send; removes it when it has ended.
    fn go_on(&mut self, bus: &mut dyn DeviceBus, peer: Peer) {
        let now = bus.now();
        let Some(stream) = self.streams.get_mut(&peer) else { return };
        while let Some(segment) = stream.connection.transmit(now, 0) {
            let frame = self.port.segment((stream.mac, peer.0), &segment.header, 0, |_| ());
            send(bus, frame);
        }
        if stream.connection.state() == State::Closed {
            self.streams.remove(&peer);
            return;
        }
        let due = stream.held.as_ref().map(|held| held.until);
        let due = due.into_iter().chain(stream.connection.deadline()).min();
        if let Some(due) = due.filter(|due| self.wake.is_none_or(|wake| *due < wake)) {
            self.wake = Some(due);
            bus.wake_at(due, Token(0));
        }
    }
}

impl Stream {
    /// Appends a segment to the aggregate if it directly follows.
    fn joins(&mut self, header: &TcpHeader, length: u32) -> bool {
        let Some(held) = &mut self.held else { return false };
        let joins = length > 0
            && header.sequence == held.header.sequence.wrapping_add(held.length)
            && header.acknowledgement == held.header.acknowledgement
            && held.length + length <= MOST;
        if joins {
            held.header.flags = held.header.flags.with(header.flags);
            (held.header.options, held.header.window) = (header.options, header.window);
            held.length += length;
            held.segments += 1;
        }
        joins
    }

    /// Passes the aggregate to the connection, and discards the received data.
    fn go_up(&mut self, now: Time) {
        let Some(held) = self.held.take() else { return };
        let connection = &mut self.connection;
        connection.receive(now, &held.header, Length(held.length), held.segments);
        while connection.read(now).is_some() {}
        connection.reading_done();
        connection.discarded();
        if connection.at_end() {
            connection.finish();
        }
    }
}

fn send(bus: &mut dyn DeviceBus, frame: &[u8]) {
    let now = bus.now();
    if let Some(ethernet) = bus.ethernet() {
        // Without a carrier it is lost and will be retransmitted.
        ethernet.send(EthernetPort(0), now, frame);
    }
}

impl Device for Sink {
    fn functions(&self) -> Vec<Function> {
        Vec::new()
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    fn timer(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        let now = bus.now();
        self.wake = self.wake.filter(|&wake| wake > now);
        let peers: Vec<Peer> = self.streams.keys().copied().collect();
        for peer in peers {
            let Some(stream) = self.streams.get_mut(&peer) else { continue };
            if stream.held.as_ref().is_some_and(|held| held.until <= now) {
                stream.go_up(now);
            }
            if stream.connection.deadline().is_some_and(|due| due <= now) {
                stream.connection.timer(now);
            }
            self.go_on(bus, peer);
        }
    }

    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        vec![EthernetPortInfo { rate: self.params.rate, receive_latency: Duration::ZERO }]
    }

    fn frame_received(&mut self, bus: &mut dyn DeviceBus, _: EthernetPort, frame: &[u8]) {
        match self.port.read(frame) {
            Some(Arrived::Arp(arp)) => {
                self.neighbours.insert(arp.sender_ip, arp.sender_mac);
                if self.port.is_asked(&arp) {
                    send(bus, self.port.answer(&arp));
                }
            }
            Some(Arrived::Tcp(from, header, data)) => {
                self.received(bus, from, &header, data.len() as u32);
            }
            None => {}
        }
    }
}
