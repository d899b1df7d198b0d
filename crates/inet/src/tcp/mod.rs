//! TCP (RFC 9293) as a state machine.
//!
//! The owner passes arrived segments ([`Connection::receive`]) and the time ([`Connection::timer`]) to a
//! [`Connection`], and asks it for segments to send ([`Connection::transmit`]) and for its next deadline
//! ([`Connection::deadline`]). A connection does not store sent data: it uses offsets in the stream, and the owner
//! keeps the bytes until [`Connection::acknowledged`] has passed them. The owner defines the type of received data
//! ([`Payload`]), which is kept in order and returned.
//!
//! Implemented: window scaling and timestamps (RFC 7323), selective acknowledgements (RFC 2018) with time-based loss
//! detection and tail loss probes (RACK-TLP, RFC 8985), fast recovery without SACK (RFC 6582), retransmission
//! timeouts (RFC 6298), undoing of reductions that the peer's duplicate reports show to be needless (RFC 2883, RFC
//! 3708), delayed acknowledgements, a receive window that accounts for memory, Minshall's variant of Nagle's
//! algorithm, zero-window probes, keep-alive (RFC 1122, 4.2.3.6), explicit congestion notification (RFC 3168),
//! defences against blind resets (RFC 5961), Reno and CUBIC.
//!
//! Not implemented: pacing, which Linux does only for BBR, for the fq queueing discipline, or if a program sets
//! `SO_MAX_PACING_RATE`.
//!
//! | file | subject |
//! |---|---|
//! | `connection` | opening, closing, reading, writing, segments in and out; its two halves |
//! | `segment` | segments to send |
//! | `sender` | data sent, acknowledged, lost, and to be sent next |
//! | `flight`, `rack`, `tail`, `undo`, `rtt`, `congestion` | its parts: data in flight, loss detection, tail loss
//! probes, undoing of reductions, timeouts, congestion window |
//! | `receiver` | received data, and acknowledgements |
//! | `buffer` | its data, in and out of order, and the offered window |
//! | `ecn` | explicit congestion notification, both parts |

mod buffer;
pub mod congestion;
mod connection;
mod counters;
mod ecn;
mod flight;
mod params;
mod rack;
mod receiver;
mod rtt;
mod segment;
mod sender;
mod seq;
mod tail;
mod undo;

pub use connection::{Connection, Failure, State};
pub use counters::Counters;
pub use params::{KeepAlive, TcpParams};
pub use segment::{Segment, reset_for};
pub use settings::EcnMode;

/// A piece of received data, wherever it is stored.
pub trait Payload {
    /// An empty piece.
    fn empty() -> Self;
    /// Length in bytes.
    fn len(&self) -> u32;
    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Removes the first `bytes`.
    fn drop_front(&mut self, bytes: u32);
    /// Removes all but the first `bytes`.
    fn truncate(&mut self, bytes: u32);
    /// Memory that it uses, in bytes, however little it shows. By default twice its length: Linux assumes that half
    /// of a receive buffer is payload (`net.ipv4.tcp_adv_win_scale` = 1).
    fn true_size(&self) -> u32 {
        2 * self.len()
    }
}

impl Payload for Vec<u8> {
    fn empty() -> Self {
        Self::new()
    }
    fn len(&self) -> u32 {
        Vec::len(self) as u32
    }
    fn drop_front(&mut self, bytes: u32) {
        self.drain(..bytes as usize);
    }
    fn truncate(&mut self, bytes: u32) {
        Vec::truncate(self, bytes as usize);
    }
}
