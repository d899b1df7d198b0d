//! IP reassembly.

use std::cell::RefCell;
use std::rc::Rc;

use inet::fragments::{Fate, FragmentKey, FragmentParams, Reassembly};
use inet::tcp::Payload;
use platform::cpu::Cpu;
use platform::net::{Packet, PacketOwner};
use wire::ip::Ipv4Header;

use super::buffers::Piece;
use super::means::Means;
use super::timers::{FRAGMENTS, Timers};

/// Received packets combined into one.
struct Joined {
    parts: RefCell<Vec<Piece>>,
}

impl PacketOwner for Joined {
    fn released(&self, cpu: &Cpu, _: &mut Packet) {
        self.parts.borrow_mut().drain(..).for_each(|part| part.release(cpu));
    }
}

/// Reassembles IP fragments.
pub struct Fragments {
    means: Rc<Means>,
    timers: Rc<Timers>,
    waiting: RefCell<Reassembly<Piece>>,
}

impl Fragments {
    pub fn new(means: &Rc<Means>, timers: &Rc<Timers>, params: FragmentParams) -> Rc<Self> {
        let waiting = RefCell::new(Reassembly::new(params));
        Rc::new(Self { means: Rc::clone(means), timers: Rc::clone(timers), waiting })
    }

    pub fn clear(&self) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.clear();
        waiting.discarded().for_each(drop);
    }

    /// Adds a fragment with its payload at offset `skip`. Returns the packet, without its IP header, once it is
    /// complete.
    pub fn input(
        &self,
        cpu: &Cpu,
        packet: Packet,
        skip: u32,
        ip: &Ipv4Header,
    ) -> Option<(Packet, Ipv4Header)> {
        cpu.work(self.means.costs().ip_fragment);
        self.means.count(|c| c.fragments_in += 1);
        let piece = Piece::of(packet, skip, ip.payload_len() as u32);
        let (offset, more) = (u32::from(ip.fragment_offset) * 8, ip.more_fragments);
        let key = FragmentKey {
            source: ip.source,
            destination: ip.destination,
            protocol: ip.protocol,
            identification: ip.identification,
        };
        let fate = self.waiting.borrow_mut().take(cpu.now(), key, offset, more, piece);
        self.discard(cpu);
        match fate {
            Fate::Waits => self.arm(cpu),
            Fate::Repeated => {}
            Fate::Refused => self.means.count(|c| c.reassembly_failed += 1),
            Fate::NoRoom => self.means.count(|c| c.no_memory += 1),
            Fate::Whole(parts) => {
                self.means.count(|c| c.reassembled += 1);
                return Some(whole(parts, ip));
            }
        }
        None
    }

    /// Drops incomplete packets after their timeout.
    pub fn timer(&self, cpu: &Cpu) {
        let given_up = self.waiting.borrow_mut().timer(cpu.now());
        self.means.count(|c| c.reassembly_failed += given_up);
        self.discard(cpu);
        self.arm(cpu);
    }

    fn arm(&self, cpu: &Cpu) {
        let deadline = self.waiting.borrow().deadline();
        self.timers.arm(cpu, FRAGMENTS, deadline);
    }

    fn discard(&self, cpu: &Cpu) {
        let discarded: Vec<Piece> = self.waiting.borrow_mut().discarded().collect();
        discarded.into_iter().for_each(|piece| piece.release(cpu));
    }
}

/// Joins all fragments of a packet.
fn whole(parts: Vec<Piece>, ip: &Ipv4Header) -> (Packet, Ipv4Header) {
    let total: u32 = parts.iter().map(Payload::len).sum();
    let fragments = parts.iter().flat_map(Piece::runs).collect();
    let owner = Some(Rc::new(Joined { parts: RefCell::new(parts) }) as Rc<dyn PacketOwner>);
    let packet = Packet { fragments, owner, ..Packet::default() };
    let total_len = (ip.len() as u32 + total) as u16;
    (packet, Ipv4Header { total_len, more_fragments: false, fragment_offset: 0, ..*ip })
}
