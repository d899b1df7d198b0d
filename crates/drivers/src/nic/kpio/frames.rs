//! The frames of packets.

use std::cell::RefCell;
use std::collections::BTreeMap;

use platform::cpu::Cpu;
use platform::net::{Checksum, Packet};
use wire::ip::Cutter;

/// Most bytes of headers that each segment repeats: Ethernet, IPv4 or IPv6, and TCP, with all options.
const HEADERS: usize = 14 + 60 + 60;

/// What frames go to.
pub trait Sink {
    /// Whether a frame of a channel fits. If not, the channel is woken when it does.
    fn has_room(&self, cpu: &Cpu, channel: u16, length: usize) -> bool;

    /// Writes a frame. The pair says which checksums to fill in: those of the network's and of the transport's header.
    fn send(&self, cpu: &Cpu, frame: &mut [u8], checksums: (bool, bool));
}

/// Makes frames of packets. A packet larger than a frame is segmented here, since its bytes are loaded here anyway
/// (Linux does so for NICs that cannot: net/core/tso.c).
#[derive(Default)]
pub struct Frames {
    /// By channel: the next segment of a packet that did not fit as a whole.
    cut: RefCell<BTreeMap<u16, usize>>,
    /// Payload of a segment, and a frame.
    data: RefCell<Vec<u8>>,
    frame: RefCell<Vec<u8>>,
}

impl Frames {
    /// Whether a channel's packet has been sent in part.
    pub fn is_cutting(&self, channel: u16) -> bool {
        self.cut.borrow().contains_key(&channel)
    }

    /// Sends as much of a channel's packet as there is room for. Returns whether that was all.
    pub fn send(&self, cpu: &Cpu, channel: u16, packet: &Packet, to: &impl Sink) -> bool {
        if packet.segment > 0 {
            return self.send_segments(cpu, channel, packet, to);
        }
        let length = packet.length() as usize;
        if !to.has_room(cpu, channel, length) {
            return false;
        }
        let mut frame = self.frame.borrow_mut();
        frame.clear();
        frame.resize(length, 0);
        packet.load(cpu, &mut frame);
        to.send(cpu, &mut frame, (false, matches!(packet.checksum, Checksum::Offload { .. })));
        true
    }

    fn send_segments(&self, cpu: &Cpu, channel: u16, packet: &Packet, to: &impl Sink) -> bool {
        let mut headers = [0; HEADERS];
        let headers = &mut headers[..usize::from(packet.headers).min(HEADERS)];
        packet.load(cpu, headers);
        let cutter = Cutter::new(headers, packet.segment, packet.length() as usize);
        let Ok(cutter) = cutter else { unreachable!("the stack cuts TCP alone: {headers:02x?}") };
        let mut next = self.cut.borrow_mut().remove(&channel).unwrap_or(0);
        let (mut data, mut frame) = (self.data.borrow_mut(), self.frame.borrow_mut());
        while let Some((begin, end)) = cutter.place(next) {
            if !to.has_room(cpu, channel, headers.len() + end - begin) {
                self.cut.borrow_mut().insert(channel, next);
                return false;
            }
            data.resize(end - begin, 0);
            packet.load_from(cpu, begin, &mut data);
            cutter.cut(headers, &data, next, &mut frame);
            to.send(cpu, &mut frame, (true, true));
            next += 1;
        }
        true
    }
}
