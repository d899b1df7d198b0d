//! Generic receive offload (GRO): coalesces consecutive segments of a flow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::rc::Rc;

use platform::net::{Checksum, Packet};
use wire::ip::{TcpFlags, TcpHeader, ecn};

use super::super::buffers::Piece;
use super::super::input::Headers;
use super::super::means::Means;
use super::super::upward::{Came, Ends, Ring, Upward};

/// Most flows held per queue (Linux: `MAX_GRO_SKBS`).
const FLOWS: usize = 8;
/// Most bytes of a coalesced packet (IPv4's total length).
const MOST: u32 = 65_535 - 120;

/// A segment that later ones can be joined to.
struct HeldSegment {
    ends: Ends,
    /// Header of the first segment, with the flags of the last.
    header: TcpHeader,
    packet: Packet,
    /// Offset of the data.
    skip: u32,
    length: u32,
    /// Data length of the first segment; a shorter one ends the packet.
    each: u32,
    came: Came,
}

/// Segments held by each RX queue during a poll, oldest first.
pub struct Coalescing {
    means: Rc<Means>,
    queues: RefCell<BTreeMap<Ring, Vec<HeldSegment>>>,
}

impl HeldSegment {
    /// Whether `next` directly follows.
    fn takes(&self, next: &Self) -> bool {
        let owner = |held: &Self| held.packet.owner.as_ref().map(Rc::as_ptr).map(|p| p.cast::<()>());
        next.header.sequence == self.header.sequence.wrapping_add(self.length)
            && next.header.acknowledgement == self.header.acknowledgement
            && next.header.options == self.header.options
            && next.length <= self.each
            && next.came.marked == self.came.marked
            && self.length + next.length <= MOST
            && owner(next) == owner(self)
    }

    fn join(&mut self, mut next: Self) {
        // Skip headers and padding; the owner gets whole buffers back.
        let (mut skip, mut left) = (next.skip, next.length);
        for fragment in &mut next.packet.fragments {
            let from = skip.min(fragment.length);
            skip -= from;
            fragment.at = fragment.at + u64::from(from);
            fragment.length = (fragment.length - from).min(left);
            left -= fragment.length;
        }
        self.packet.fragments.append(&mut next.packet.fragments);
        // Its buffers now belong to the other packet.
        next.packet.owner = None;
        self.header.flags = self.header.flags.with(next.header.flags);
        self.header.window = next.header.window;
        self.length += next.length;
        self.came.segments += 1;
    }

    fn upward(self) -> Upward {
        let Self { ends, header, came, .. } = self;
        Upward::Tcp { ends, header, piece: Piece::of(self.packet, self.skip, self.length), came }
    }
}

impl Coalescing {
    pub fn new(means: Rc<Means>) -> Self {
        Self { means, queues: RefCell::default() }
    }

    pub fn clear(&self) {
        self.queues.borrow_mut().clear();
    }

    /// Holds a segment, joins it to an earlier one, or passes it on. Returns what has to go on now, in order.
    /// Loopback segments are never held.
    pub fn take(
        &self,
        queue: Option<Ring>,
        packet: Packet,
        headers: &Headers,
        header: TcpHeader,
        own: usize,
    ) -> [Option<Upward>; 2] {
        let ends = Ends {
            local: SocketAddrV4::new(headers.ip.destination, header.destination),
            peer: SocketAddrV4::new(headers.ip.source, header.source),
        };
        let skip = (headers.transport + own) as u32;
        let length = headers.above_len().saturating_sub(own as u32);
        let came = Came { segments: 1, marked: headers.ip.traffic_class & ecn::MASK == ecn::CONGESTED };
        let plain = header.flags.without(TcpFlags::PSH) == TcpFlags::ACK;
        let may = plain && length > 0 && packet.checksum == Checksum::Good;
        let mut new = HeldSegment { ends, header, packet, skip, length, each: length, came };
        let Some(queue) = queue else { return [Some(new.upward()), None] };
        let mut queues = self.queues.borrow_mut();
        let held = queues.entry(queue).or_default();
        let place = held.iter().position(|held| held.ends == ends);
        let pushed = header.flags.contains(TcpFlags::PSH);
        if let Some(place) = place
            && may
            && held[place].takes(&new)
        {
            let last = pushed || length < held[place].each;
            held[place].join(new);
            self.means.count(|c| c.coalesced += 1);
            return [last.then(|| held.remove(place).upward()), None];
        }
        let before = place.map(|place| held.remove(place).upward());
        if may && !pushed {
            cut_padding(&mut new.packet, skip + length);
            let oldest = (held.len() >= FLOWS).then(|| held.remove(0).upward());
            held.push(new);
            [oldest, before]
        } else {
            [before, Some(new.upward())]
        }
    }

    /// A poll of a queue ends: passes on all held segments.
    pub fn flush(&self, queue: Ring) -> impl Iterator<Item = Upward> {
        let held = self.queues.borrow_mut().get_mut(&queue).map(core::mem::take);
        held.into_iter().flatten().map(HeldSegment::upward)
    }
}

/// Removes padding behind the first `length` bytes, so that more can be joined.
fn cut_padding(packet: &mut Packet, length: u32) {
    let mut left = length;
    for fragment in &mut packet.fragments {
        fragment.length = fragment.length.min(left);
        left -= fragment.length;
    }
}
