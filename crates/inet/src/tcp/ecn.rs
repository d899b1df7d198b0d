//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them, the receiver says so, the
//! sender slows down as if one had been lost.

use settings::EcnMode;
use wire::ip::TcpFlags;

/// The flags of a SYN (6.1.1): one that `answers` has `agreed` or not. One that is sent again does not ask, as it may be
/// that what asks is what gets lost.
pub(super) fn syn_flags(mode: EcnMode, answers: bool, agreed: bool, again: bool) -> TcpFlags {
    match answers {
        true if agreed => TcpFlags::ECE,
        false if !again && mode == EcnMode::Ask => TcpFlags::ECE.with(TcpFlags::CWR),
        _ => TcpFlags::default(),
    }
}

/// Whether both ends want it, by the flags of the peer's SYN.
pub(super) fn agrees(mode: EcnMode, syn: TcpFlags) -> bool {
    let asked = syn.contains(TcpFlags::ECE.with(TcpFlags::CWR));
    match syn.contains(TcpFlags::ACK) {
        // A peer that answers with both flags reflects what it does not understand.
        true => mode == EcnMode::Ask && syn.contains(TcpFlags::ECE) && !asked,
        false => mode != EcnMode::Off && asked,
    }
}

/// The receiver's part (6.1.3): the peer is told of marked segments until it has answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echo {
    on: bool,
    /// The segment that arrives next was marked.
    marked: bool,
    telling: bool,
}

/// What a segment says about marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// It was marked.
    pub marked: bool,
    /// It is the first of which the peer does not know.
    pub is_news: bool,
}

impl Echo {
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// A router has marked the segment that arrives next.
    pub fn mark(&mut self) {
        self.marked = true;
    }

    /// It has arrived.
    pub fn take(&mut self, flags: TcpFlags) -> Heard {
        let marked = std::mem::take(&mut self.marked) && self.on;
        if flags.contains(TcpFlags::CWR) {
            self.telling = false;
        }
        let is_news = marked && !self.telling;
        self.telling |= marked;
        Heard { marked, is_news }
    }

    /// The flag of the next segment.
    pub fn flag(&self) -> TcpFlags {
        if self.telling { TcpFlags::ECE } else { TcpFlags::default() }
    }
}

/// The sender's part (6.1.2): a window is reduced once for what is under way, and the peer hears of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowReduction {
    on: bool,
    /// The peer is to be told that the window was reduced.
    due: bool,
    /// Up to here what the peer says was answered.
    reduced: u64,
}

impl WindowReduction {
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Whether an acknowledgement tells of marks that were not answered yet.
    pub fn is_asked(&self, flags: TcpFlags, ack: u64) -> bool {
        self.on && flags.contains(TcpFlags::ECE) && ack > self.reduced
    }

    /// The congestion window was reduced, for whatever reason, with everything before `next` sent.
    pub fn reduced(&mut self, next: u64) {
        if self.on {
            (self.reduced, self.due) = (next, true);
        }
    }

    /// The flag of a segment with new data.
    pub fn take_flag(&mut self) -> TcpFlags {
        if std::mem::take(&mut self.due) { TcpFlags::CWR } else { TcpFlags::default() }
    }

    /// Whether routers may mark a segment: new data only (6.1.4, 6.1.5).
    pub fn may_mark(&self, fresh: bool) -> bool {
        self.on && fresh
    }
}
