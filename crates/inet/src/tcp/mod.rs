//! TCP (RFC 9293) as a state machine.
//!
//! A [`Connection`] is told what arrived ([`Connection::receive`]) and what time it is ([`Connection::timer`]), and
//! asked what is to be sent ([`Connection::transmit`]) and when it wants to be asked again
//! ([`Connection::deadline`]). It does not hold what is sent: it speaks of offsets in the stream, and its owner keeps
//! the bytes until [`Connection::acknowledged`] has passed them. Received data is whatever the owner says it is
//! ([`Payload`]), kept in order and handed back.
//!
//! In it: window scaling and timestamps (RFC 7323), selective acknowledgements (RFC 2018) and with them loss detection by
//! time and probes of the tail (RACK-TLP, RFC 8985), fast recovery without (RFC 6582), retransmission timeouts (RFC 6298),
//! undoing a reduction that the peer's reports of duplicates show to have been needless (RFC 2883, RFC 3708),
//! delayed acknowledgements, a window that counts the memory that received data keeps, Nagle's algorithm as Minshall changed
//! it, zero-window probes, keep-alive (RFC 1122, 4.2.3.6), explicit congestion notification (RFC 3168), defences against
//! blind resets (RFC 5961), Reno and CUBIC. Not in it: pacing, which Linux does only for BBR, for the fq queueing discipline
//! or where a program has set `SO_MAX_PACING_RATE`, none of which is here.
//!
//! | file | subject |
//! |---|---|
//! | `connection` | opening, closing, reading, writing; its two halves |
//! | `input`, `output` | segments taken apart, and put together |
//! | `sender` | what is sent, acknowledged, lost and sent next |
//! | `flight`, `rack`, `tail`, `undo`, `rtt`, `congestion` | its parts: what is under way, what counts as lost, when silence is broken, what was not lost after all, how long to wait, how much to send |
//! | `receiver` | what is received, and when it is acknowledged |
//! | `buffer` | its data, in order and too early, and the offered window |
//! | `ecn` | what routers say, for both |

mod buffer;
pub mod congestion;
mod connection;
mod ecn;
mod flight;
mod input;
mod output;
mod params;
mod rack;
mod receiver;
mod rtt;
mod sender;
mod seq;
mod tail;
mod undo;

pub use connection::{Connection, Counters, Failure, State};
pub use output::{Segment, reset_for};
pub use params::{KeepAlive, TcpParams};
pub use settings::EcnMode;

/// A piece of received data, wherever its bytes are.
pub trait Payload {
    /// One without bytes.
    fn empty() -> Self;
    /// Bytes.
    fn len(&self) -> u32;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Forgets the first `bytes`.
    fn drop_front(&mut self, bytes: u32);
    /// Forgets all but the first `bytes`.
    fn truncate(&mut self, bytes: u32);
    /// Bytes of memory that it keeps, however few of them it shows. If nobody knows better: twice what it shows, as Linux
    /// reckons that half of a receive buffer is payload (`net.ipv4.tcp_adv_win_scale` = 1).
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
