//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them, the receiver echoes
//! the mark, and the sender reduces its window as after a loss.

use settings::EcnMode;
use wire::ip::TcpFlags;

/// ECN flags of a SYN (6.1.1). `answers` and `agreed` apply to a SYN-ACK. A retransmitted SYN does not request ECN,
/// since the request may be what got it dropped.
pub(super) fn syn_flags(mode: EcnMode, answers: bool, agreed: bool, again: bool) -> TcpFlags {
    match answers {
        true if agreed => TcpFlags::ECE,
        false if !again && mode == EcnMode::Ask => TcpFlags::ECE.with(TcpFlags::CWR),
        _ => TcpFlags::default(),
    }
}

/// Whether both ends agree, by the flags of the peer's SYN.
pub(super) fn agrees(mode: EcnMode, syn: TcpFlags) -> bool {
    let asked = syn.contains(TcpFlags::ECE.with(TcpFlags::CWR));
    match syn.contains(TcpFlags::ACK) {
        // A peer that answers with both flags only reflects them without understanding.
        true => mode == EcnMode::Ask && syn.contains(TcpFlags::ECE) && !asked,
        false => mode != EcnMode::Off && asked,
    }
}

/// The receiver's part (6.1.3): echoes marks until the sender has responded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echo {
    on: bool,
    /// The next arriving segment was marked.
    marked: bool,
    telling: bool,
}

/// A segment's ECN information.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// Whether it was marked.
    pub marked: bool,
    /// Whether this mark has not been echoed yet.
    pub is_news: bool,
}

impl Echo {
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// A router has marked the next arriving segment.
    pub fn mark(&mut self) {
        self.marked = true;
    }

    /// That segment has arrived.
    pub fn take(&mut self, flags: TcpFlags) -> Heard {
        let marked = std::mem::take(&mut self.marked) && self.on;
        if flags.contains(TcpFlags::CWR) {
            self.telling = false;
        }
        let is_news = marked && !self.telling;
        self.telling |= marked;
        Heard { marked, is_news }
    }

    /// The echo flag of the next segment.
    pub fn flag(&self) -> TcpFlags {
        if self.telling { TcpFlags::ECE } else { TcpFlags::default() }
    }
}

/// The sender's part (6.1.2): reduces the window once per window of data, and tells the peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowReduction {
    on: bool,
    /// The peer must be told that the window was reduced.
    due: bool,
    /// Echoes for data before this position have been responded to.
    reduced: u64,
}

impl WindowReduction {
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Whether an acknowledgement echoes marks that were not responded to yet.
    pub fn is_asked(&self, flags: TcpFlags, ack: u64) -> bool {
        self.on && flags.contains(TcpFlags::ECE) && ack > self.reduced
    }

    /// The congestion window was reduced, for any reason; everything before `next` had been sent.
    pub fn reduced(&mut self, next: u64) {
        if self.on {
            (self.reduced, self.due) = (next, true);
        }
    }

    /// The CWR flag of a segment with new data.
    pub fn take_flag(&mut self) -> TcpFlags {
        if std::mem::take(&mut self.due) { TcpFlags::CWR } else { TcpFlags::default() }
    }

    /// Whether routers may mark a segment: only new data (6.1.4, 6.1.5).
    pub fn may_mark(&self, fresh: bool) -> bool {
        self.on && fresh
    }
}
