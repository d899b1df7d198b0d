//! Packets larger than a frame: cut on their way down, put together on their way up.

use std::cell::RefCell;
use std::ops::Range;

use inet::fragments::{Fate, FragmentKey};
use inet::tcp::Payload;
use platform::Error;
use platform::cpu::Cpu;
use platform::net::{Checksum, Fragment, Packet, PacketOwner};
use std::rc::Rc;
use wire::ip::Ipv4Header;
use wire::ip::ipv4::HEADER_LEN as IPV4;

use super::Stack;
use super::buffers::{Hold, Piece};
use super::input::{HEADERS, Headers};
use super::interfaces::Way;
use super::output::{Outgoing, Wrapped};
use super::steering::Ring;
use super::timers::FRAGMENTS;

/// Received packets that came to be one.
struct Joined {
    parts: RefCell<Vec<Piece>>,
}

impl PacketOwner for Joined {
    fn released(&self, cpu: &Cpu, _: &mut Packet) {
        self.parts.borrow_mut().drain(..).for_each(|part| part.release(cpu));
    }
}

/// The part `range` of what lies in several pieces.
fn part(pieces: &[Fragment], range: Range<u32>) -> Vec<Fragment> {
    let mut at = 0;
    let mut found = Vec::new();
    for piece in pieces {
        let (from, to) = (range.start.max(at), range.end.min(at + piece.length));
        if from < to {
            let begin = piece.at + u64::from(from - at);
            found.push(Fragment { pages: None, at: begin, length: to - from });
        }
        at += piece.length;
    }
    found
}

impl Stack {
    /// A fragment arrived, its payload behind `skip` bytes of a packet.
    pub(super) fn fragment_input(
        &self,
        cpu: &Cpu,
        ring: Option<Ring>,
        packet: Packet,
        skip: u32,
        ip: &Ipv4Header,
    ) {
        cpu.work(self.costs().ip_fragment);
        self.count(|c| c.fragments_in += 1);
        let piece = Piece::of(packet, skip, ip.payload_len() as u32);
        let (offset, more) = (u32::from(ip.fragment_offset) * 8, ip.more_fragments);
        let key = FragmentKey {
            source: ip.source,
            destination: ip.destination,
            protocol: ip.protocol,
            identification: ip.identification,
        };
        let fate = self.fragments.borrow_mut().take(cpu.now(), key, offset, more, piece);
        self.discard_fragments(cpu);
        match fate {
            Fate::Waits => self.arm(cpu, FRAGMENTS),
            Fate::Repeated => {}
            Fate::Refused => self.count(|c| c.reassembly_failed += 1),
            Fate::NoRoom => self.count(|c| c.no_memory += 1),
            Fate::Whole(parts) => {
                self.count(|c| c.reassembled += 1);
                self.whole_input(cpu, ring, parts, ip);
            }
        }
    }

    /// All fragments of a packet are there.
    fn whole_input(&self, cpu: &Cpu, ring: Option<Ring>, parts: Vec<Piece>, ip: &Ipv4Header) {
        let total: u32 = parts.iter().map(Payload::len).sum();
        let fragments = parts.iter().flat_map(Piece::runs).collect();
        let owner = Some(Rc::new(Joined { parts: RefCell::new(parts) }) as Rc<dyn PacketOwner>);
        let packet = Packet { fragments, owner, ..Packet::default() };
        let ip = Ipv4Header {
            total_len: (ip.len() as u32 + total) as u16,
            more_fragments: false,
            fragment_offset: 0,
            ..*ip
        };
        let mut bytes = [0; HEADERS];
        let count = packet.load(cpu, &mut bytes);
        let (packet, result) =
            self.transport_input(cpu, ring, packet, Headers { bytes, count, transport: 0, ip });
        self.taken(cpu, packet, result);
    }

    /// Some fragments have waited for too long.
    pub(super) fn fragment_timer(&self, cpu: &Cpu) {
        let given_up = self.fragments.borrow_mut().timer(cpu.now());
        self.count(|c| c.reassembly_failed += given_up);
        self.discard_fragments(cpu);
        self.arm(cpu, FRAGMENTS);
    }

    fn discard_fragments(&self, cpu: &Cpu) {
        let discarded: Vec<Piece> = self.fragments.borrow_mut().discarded().collect();
        discarded.into_iter().for_each(|piece| piece.release(cpu));
    }

    /// Sends a packet in as many parts as it takes, each no larger than `mtu`.
    ///
    /// # Errors
    /// The first part's that cannot be sent; the others are not sent then.
    pub(super) fn send_fragments(
        &self,
        cpu: &Cpu,
        way: Way,
        ip: Ipv4Header,
        transport: &[u8],
        what: Outgoing<'_>,
        mtu: usize,
    ) -> Result<(), Error> {
        let total = ip.payload_len() as u32;
        let each = ((mtu - IPV4) / 8 * 8) as u32;
        let mut result = Ok(());
        let mut start = 0;
        while start < total && result.is_ok() {
            let end = (start + each).min(total);
            let own = transport.len() as u32;
            let header = &transport[start.min(own) as usize..end.min(own) as usize];
            let payload = part(&what.payload, start.saturating_sub(own)..end.saturating_sub(own));
            let ip = Ipv4Header {
                total_len: (IPV4 as u32 + end - start) as u16,
                dont_fragment: false,
                more_fragments: end < total,
                fragment_offset: (start / 8) as u16,
                ..ip
            };
            self.count(|c| c.fragments_out += 1);
            let wrapped = Wrapped {
                to: what.to,
                ip,
                transport: header,
                payload,
                holds: what.holds.clone(),
                checksum: Checksum::None,
                segment: 0,
                flow: what.flow,
                socket: what.socket.clone(),
                more: what.more || end < total,
            };
            result = self.send_packet(cpu, way, wrapped);
            start = end;
        }
        what.holds.into_iter().for_each(|hold: Hold| hold.let_go(cpu));
        result
    }
}
