//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them, the receiver says so, the
//! sender slows down as if one had been lost.

use units::Time;
use wire::ip::TcpFlags;

use super::Payload;
use super::connection::{Connection, Recovery, State};

/// Whether connections use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EcnMode {
    /// Never.
    Off,
    /// If the peer asks for it.
    #[default]
    Accept,
    /// Own connections ask for it, too.
    Ask,
}

/// What a connection has agreed on and seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ecn {
    /// Both ends want it.
    on: bool,
    /// The segment that arrives now was marked.
    marked: bool,
    /// The peer is told until it has answered.
    echo: bool,
    /// The peer is to be told that the window was reduced.
    answer: bool,
    /// Up to here what the peer says was answered.
    reduced: u64,
}

impl<P: Payload> Connection<P> {
    /// A router has marked the segment that is [received](Self::receive) next.
    pub fn congestion_experienced(&mut self) {
        self.ecn.marked = true;
    }

    /// The flags of a SYN that ask for it, or agree (6.1.1). One that is sent again does not ask, as it may be that what
    /// asks is what gets lost.
    pub(super) fn ecn_of_syn(&mut self, answers: bool, again: bool) -> TcpFlags {
        let asks = !answers && !again && self.params.ecn == EcnMode::Ask;
        match (asks, answers && self.ecn.on) {
            (true, _) => TcpFlags::ECE.with(TcpFlags::CWR),
            (_, true) => TcpFlags::ECE,
            _ => TcpFlags::default(),
        }
    }

    /// A SYN of the peer's came, in answer to one or not.
    pub(super) fn ecn_from_syn(&mut self, flags: TcpFlags) {
        let asked = flags.contains(TcpFlags::ECE.with(TcpFlags::CWR));
        self.ecn.on = match flags.contains(TcpFlags::ACK) {
            // A peer that answers with both flags reflects what it does not understand.
            true => self.params.ecn == EcnMode::Ask && flags.contains(TcpFlags::ECE) && !asked,
            false => self.params.ecn != EcnMode::Off && asked,
        };
    }

    /// What a segment says: to the receiver (6.1.3), and to the sender (6.1.2).
    pub(super) fn take_ecn(&mut self, now: Time, flags: TcpFlags, ack: u64) {
        let marked = std::mem::take(&mut self.ecn.marked);
        if !self.ecn.on {
            return;
        }
        if flags.contains(TcpFlags::CWR) {
            self.ecn.echo = false;
        }
        if marked {
            self.counters.marked += 1;
            // The peer shall know soon.
            self.ack_now |= !self.ecn.echo;
            self.ecn.echo = true;
        }
        if flags.contains(TcpFlags::ECE) && self.nxt > self.una && ack > self.ecn.reduced {
            self.counters.echoes += 1;
            if self.recovery == Recovery::Open {
                self.congestion.lost(now, self.flight.in_network());
                // Whatever comes again, this was no mistake.
                self.undo.forget();
            }
            self.window_reduced();
        }
    }

    /// The congestion window was reduced, for whatever reason: not again for what is under way, and the peer hears of it.
    pub(super) fn window_reduced(&mut self) {
        if self.ecn.on {
            self.ecn.reduced = self.nxt;
            self.ecn.answer = true;
        }
    }

    /// The flags of a segment with new data, or without.
    pub(super) fn ecn_flags(&mut self, fresh: bool) -> TcpFlags {
        let mut flags = TcpFlags::default();
        if self.ecn.echo && self.state > State::SynReceived {
            flags = flags.with(TcpFlags::ECE);
        }
        if fresh && std::mem::take(&mut self.ecn.answer) {
            flags = flags.with(TcpFlags::CWR);
        }
        flags
    }

    /// Whether routers may mark a segment: new data only (6.1.4, 6.1.5).
    pub(super) fn ecn_capable(&self, fresh: bool) -> bool {
        self.ecn.on && fresh
    }
}
