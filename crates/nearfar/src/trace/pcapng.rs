//! The packets' bytes as a capture file, one interface per link.

use std::io;

use hardware::link::{Packet, Side};
use units::Time;
use wire::pcap::{Contents, Direction, PcapngWriter, pcie_header};
use wire::pcie::link::data_rate;

use super::{Capture, Decoded, Row};

/// Writes the selected packets, with times relative to T0.
///
/// # Errors
/// Never fails: it writes to memory.
pub fn capture(capture: &Capture, comment: &str) -> io::Result<Vec<u8>> {
    let mut writer = PcapngWriter::new(Vec::new(), comment)?;
    let mut interfaces = Vec::new();
    for link in &capture.links {
        let rate = data_rate(link.generation, link.width).bits_per_s();
        interfaces.push((
            link.id,
            link.generation as u8,
            writer.interface(&link.name, rate, Contents::Pcie)?,
        ));
    }
    let origin = capture.origin();
    for (number, passed) in capture.shown() {
        let Some(&(_, generation, interface)) = interfaces.iter().find(|(id, ..)| *id == passed.link) else {
            continue;
        };
        let row = Row::of(capture, number, passed, origin);
        let is_up = passed.from == Side::Downstream;
        let is_bad = matches!(row.decoded, Decoded::Tlp { intact: false, .. });
        let (is_dllp, sequence) = match &passed.packet {
            Packet::Tlp { sequence, .. } => (false, sequence.get()),
            Packet::Dllp(_) => (true, 0),
        };
        let header = pcie_header(is_dllp, is_up, is_bad, generation, sequence);
        // Direction as seen from the root.
        let direction = if is_up { Direction::In } else { Direction::Out };
        let time = Time::ZERO + row.since_t0;
        writer.packet(interface, time, direction, &[&header, row.bytes].concat())?;
    }
    writer.finish()
}
