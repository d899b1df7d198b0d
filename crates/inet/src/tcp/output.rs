//! Builds segments from the state of the two halves.

use std::ops::Range;

use units::Time;
use wire::ip::{TcpFlags, TcpHeader, TcpOptions};

use super::Payload;
use super::connection::{Connection, State};
use super::ecn;
use super::sender::Span;

/// A segment to send, or several to be segmented by a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its header.
    pub header: TcpHeader,
    /// Its data, as offsets in the stream.
    pub data: Range<u64>,
    /// Maximum payload per segment on the wire.
    pub size: u16,
    /// Whether it is a retransmission.
    pub again: bool,
    /// Whether routers may mark its packets.
    pub ecn: bool,
}

/// The reset that answers a segment for a nonexistent connection (RFC 9293, 3.10.7.1); a reset is not answered.
pub fn reset_for(header: &TcpHeader, payload: u32) -> Option<TcpHeader> {
    let flags = header.flags;
    if flags.contains(TcpFlags::RST) {
        return None;
    }
    let ports = TcpHeader { source: header.destination, destination: header.source, ..TcpHeader::default() };
    if flags.contains(TcpFlags::ACK) {
        return Some(TcpHeader { sequence: header.acknowledgement, flags: TcpFlags::RST, ..ports });
    }
    let taken = payload + u32::from(flags.contains(TcpFlags::SYN)) + u32::from(flags.contains(TcpFlags::FIN));
    Some(TcpHeader {
        acknowledgement: header.sequence.wrapping_add(taken),
        flags: TcpFlags::RST.with(TcpFlags::ACK),
        ..ports
    })
}

impl<P: Payload> Connection<P> {
    /// The next segment to send, with up to `limit` bytes of data, but at least one segment's; `None` if there is
    /// nothing to send now.
    pub fn transmit(&mut self, now: Time, limit: u32) -> Option<Segment> {
        if let Some((sequence, ack)) = self.reset.take() {
            return Some(self.reset_segment(sequence, ack));
        }
        if self.state == State::Closed {
            return None;
        }
        let size = self.segment_room();
        match self.sender.take_span(now, limit, size) {
            Some(span) if span.from == 0 => Some(self.syn(now, span.again)),
            Some(span) => Some(self.segment(now, span, size)),
            None => self.bare(now),
        }
    }

    /// The next segment that must not wait in a queue of data: a reset, a SYN, an acknowledgement or a probe.
    pub fn transmit_control(&mut self, now: Time) -> Option<Segment> {
        if self.reset.is_some() || self.sender.next() == 0 {
            return self.transmit(now, 0);
        }
        if self.state == State::Closed { None } else { self.bare(now) }
    }

    fn header(&self, sequence: u32, flags: TcpFlags) -> TcpHeader {
        TcpHeader { source: self.ports.0, destination: self.ports.1, sequence, flags, ..TcpHeader::default() }
    }

    /// A header including the receiver's information.
    fn header_with_ack(&mut self, now: Time, position: u64, flags: TcpFlags) -> TcpHeader {
        let mut header = self.header(self.sender.number(position), flags);
        self.receiver.acknowledge(&mut header, self.sender.mss(), self.clock(now));
        header
    }

    fn syn(&mut self, now: Time, again: bool) -> Segment {
        let answers = self.state != State::SynSent;
        let agreed = self.receiver.agreed();
        // Only answers what the peer offered.
        let may = |wanted: bool, offered: bool| wanted && (offered || !answers);
        let flags = ecn::syn_flags(self.params.ecn, answers, agreed.ecn, again);
        let mut header = self.header(self.sender.number(0), TcpFlags::SYN.with(flags));
        header.options = TcpOptions {
            mss: Some(self.params.mss),
            window_scale: may(self.params.window_scaling, agreed.scaling).then(|| self.params.window_shift()),
            sack_permitted: may(self.params.sack, agreed.sack),
            ..TcpOptions::default()
        };
        self.receiver.open(&mut header, answers, self.clock(now));
        Segment { header, data: 0..0, size: 0, again, ecn: false }
    }

    fn reset_segment(&self, sequence: u32, ack: Option<u32>) -> Segment {
        let flags = if ack.is_some() { TcpFlags::RST.with(TcpFlags::ACK) } else { TcpFlags::RST };
        let header = TcpHeader { acknowledgement: ack.unwrap_or(0), ..self.header(sequence, flags) };
        Segment { header, data: 0..0, size: 0, again: false, ecn: false }
    }

    /// A span as a segment; its segments on the wire hold at most `size` bytes.
    fn segment(&mut self, now: Time, span: Span, size: u64) -> Segment {
        let Span { from, to, again } = span;
        let end = self.sender.end();
        let data = from..to.min(end).max(from);
        let fresh = !again && !data.is_empty();
        let mut flags = TcpFlags::default();
        // The end of the stream occupies a position.
        if to > end {
            flags = flags.with(TcpFlags::FIN);
        }
        if data.end == end && !data.is_empty() {
            flags = flags.with(TcpFlags::PSH);
        }
        if fresh {
            flags = flags.with(self.sender.take_answer());
            self.receiver.answers_with_data();
        }
        let ecn = self.sender.may_mark(fresh);
        let header = self.header_with_ack(now, from, flags);
        Segment { header, data: data.start - 1..data.end - 1, size: size as u16, again, ecn }
    }

    /// An acknowledgement or a probe, without data.
    fn bare(&mut self, now: Time) -> Option<Segment> {
        let probe = self.sender.take_probe();
        if !probe && (!self.receiver.must_acknowledge() || self.state == State::SynSent) {
            return None;
        }
        // A probe repeats an old position, so the peer answers with its window.
        let position = if probe { self.sender.una() - 1 } else { self.sender.next() };
        let header = self.header_with_ack(now, position, TcpFlags::default());
        Some(Segment { header, data: 0..0, size: 0, again: false, ecn: false })
    }
}
