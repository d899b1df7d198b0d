//! Segments to send.

use std::ops::Range;

use wire::ip::{TcpFlags, TcpHeader};

/// A segment to send, or several to be segmented by a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Header of the first segment. A device that segments adapts it for the others.
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
