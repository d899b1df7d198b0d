//! Received packets on their way to a socket.

use std::net::SocketAddrV4;

use platform::cpu::Cpu;
use platform::net::FlowKey;
use wire::ip::{TcpHeader, protocol};

use super::buffers::Piece;

/// Both endpoints of a connection, the local one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ends {
    pub local: SocketAddrV4,
    pub peer: SocketAddrV4,
}

/// How a received packet was composed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    /// Segments coalesced into it.
    pub segments: u16,
    /// Whether a router marked any of them (ECN).
    pub marked: bool,
}

/// An RX queue: device number and queue number.
pub type Ring = (u32, u16);

/// A packet, possibly coalesced, on its way to a socket.
pub enum Upward {
    Tcp { ends: Ends, header: TcpHeader, piece: Piece, came: Came },
    Udp { from: SocketAddrV4, to: SocketAddrV4, piece: Piece },
}

impl Upward {
    /// The flow that it belongs to.
    pub fn key(&self) -> FlowKey {
        match self {
            Self::Tcp { ends, .. } => flow_key(protocol::TCP, ends.peer, ends.local),
            Self::Udp { from, to, .. } => flow_key(protocol::UDP, *from, *to),
        }
    }

    /// Drops it.
    pub fn release(self, cpu: &Cpu) {
        let (Self::Tcp { piece, .. } | Self::Udp { piece, .. }) = self;
        piece.release(cpu);
    }
}

/// Key of the flow from one endpoint to another.
pub fn flow_key(protocol: u8, from: SocketAddrV4, to: SocketAddrV4) -> FlowKey {
    FlowKey {
        protocol,
        source: from.ip().octets(),
        destination: to.ip().octets(),
        ports: (from.port(), to.port()),
    }
}

/// What passes packets to sockets.
pub trait Sockets {
    /// Passes a packet to its socket, on the socket's core.
    fn hand_up(&self, cpu: &Cpu, up: Upward);
}
