//! Segments of a flow that arrive together go up as one (generic receive offload).

use std::net::SocketAddrV4;
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::net::{Checksum, Packet};
use wire::ip::{TcpFlags, TcpHeader, ecn};

use super::super::Stack;
use super::super::buffers::Piece;
use super::super::input::Headers;
use super::super::steering::{Ring, Upward};
use super::{Came, Ends};

/// Flows of a queue that are held at once (Linux: `MAX_GRO_SKBS`).
const FLOWS: usize = 8;
/// Bytes of a packet (IPv4's total length).
const MOST: u32 = 65_535 - 120;

/// A segment to which others may be joined.
struct Held {
    ends: Ends,
    /// The first segment's header; the last one's flags.
    header: TcpHeader,
    packet: Packet,
    /// Where the data begins.
    skip: u32,
    length: u32,
    /// Data of the first segment: one with less is the last.
    each: u32,
    came: Came,
}

/// What a receiving queue holds during a poll, the oldest first.
#[derive(Default)]
pub struct Coalescing {
    held: Vec<Held>,
}

impl Held {
    /// Whether a segment follows right behind.
    fn takes(&self, header: &TcpHeader, packet: &Packet, length: u32, marked: bool) -> bool {
        let owner = |packet: &Packet| packet.owner.as_ref().map(Rc::as_ptr).map(|p| p.cast::<()>());
        header.sequence == self.header.sequence.wrapping_add(self.length)
            && header.acknowledgement == self.header.acknowledgement
            && header.options == self.header.options
            && length <= self.each
            && marked == self.came.marked
            && self.length + length <= MOST
            && owner(packet) == owner(&self.packet)
    }

    fn join(&mut self, header: &TcpHeader, mut packet: Packet, mut skip: u32, length: u32) {
        // Headers and padding are cut off; the buffers stay whole for their owner.
        let mut left = length;
        for fragment in &mut packet.fragments {
            let from = skip.min(fragment.length);
            skip -= from;
            fragment.at = fragment.at + u64::from(from);
            fragment.length = (fragment.length - from).min(left);
            left -= fragment.length;
        }
        self.packet.fragments.append(&mut packet.fragments);
        // Its buffers are the other packet's now, and its owner has nothing to get back from it.
        packet.owner = None;
        self.header.flags = self.header.flags.with(header.flags);
        self.header.window = header.window;
        self.length += length;
        self.came.segments += 1;
    }
}

impl Stack {
    /// Holds a segment back for others, joins it to one, or passes it on.
    pub(in crate::net::inet) fn coalesce(
        &self,
        cpu: &Cpu,
        queue: Option<Ring>,
        mut packet: Packet,
        headers: &Headers,
        header: TcpHeader,
        own: usize,
    ) {
        let ends = Ends {
            local: SocketAddrV4::new(headers.ip.destination, header.destination),
            peer: SocketAddrV4::new(headers.ip.source, header.source),
        };
        let skip = (headers.transport + own) as u32;
        let length = headers.above_len().saturating_sub(own as u32);
        let came = Came { segments: 1, marked: headers.ip.traffic_class & ecn::MASK == ecn::CONGESTED };
        let plain = header.flags.without(TcpFlags::PSH) == TcpFlags::ACK;
        let may = plain && length > 0 && packet.checksum == Checksum::Good;
        let Some(queue) = queue else {
            let piece = Piece::of(packet, skip, length);
            return self.upward(cpu, None, Upward::Tcp { ends, header, piece, came });
        };
        let mut all = self.tcp.coalescing.borrow_mut();
        let held = &mut all.entry(queue).or_default().held;
        let place = held.iter().position(|held| held.ends == ends);
        let pushed = header.flags.contains(TcpFlags::PSH);
        if let Some(place) = place
            && may
            && held[place].takes(&header, &packet, length, came.marked)
        {
            let last = pushed || length < held[place].each;
            held[place].join(&header, packet, skip, length);
            let whole = last.then(|| held.remove(place));
            drop(all);
            self.count(|c| c.coalesced += 1);
            return whole.into_iter().for_each(|held| self.pass_on(cpu, queue, held));
        }
        let before = place.map(|place| held.remove(place));
        let mut pass = None;
        if may && !pushed {
            cut_padding(&mut packet, skip + length);
            let oldest = (held.len() >= FLOWS).then(|| held.remove(0));
            held.push(Held { ends, header, packet, skip, length, each: length, came });
            drop(all);
            oldest.into_iter().for_each(|held| self.pass_on(cpu, queue, held));
        } else {
            drop(all);
            pass = Some((header, Piece::of(packet, skip, length)));
        }
        before.into_iter().for_each(|held| self.pass_on(cpu, queue, held));
        if let Some((header, piece)) = pass {
            self.upward(cpu, Some(queue), Upward::Tcp { ends, header, piece, came });
        }
    }

    fn pass_on(&self, cpu: &Cpu, queue: Ring, held: Held) {
        let piece = Piece::of(held.packet, held.skip, held.length);
        let (ends, header, came) = (held.ends, held.header, held.came);
        self.upward(cpu, Some(queue), Upward::Tcp { ends, header, piece, came });
    }

    /// A poll of a queue ends: what is held goes on.
    pub(in crate::net::inet) fn flush_coalesced(&self, cpu: &Cpu, queue: Ring) {
        let held = match self.tcp.coalescing.borrow_mut().get_mut(&queue) {
            Some(coalescing) => core::mem::take(&mut coalescing.held),
            None => return,
        };
        held.into_iter().for_each(|held| self.pass_on(cpu, queue, held));
    }
}

/// Cuts off what follows the first `length` bytes, so that more can be joined.
fn cut_padding(packet: &mut Packet, length: u32) {
    let mut left = length;
    for fragment in &mut packet.fragments {
        fragment.length = fragment.length.min(left);
        left -= fragment.length;
    }
}
