//! A packet decoded from its bytes.

use hardware::link::{Packet, Passed, Side};
use units::{Duration, Time};
use wire::pcie::tlp::DIGEST_LEN;
use wire::pcie::{Dllp, Framing, Sequence, Tlp, TlpKind};

use super::capture::Capture;
use super::filter::mnemonic;

/// A packet as the analyser shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    /// Its number among all packets since the start of recording.
    pub number: usize,
    /// The link's name.
    pub link: &'a str,
    /// The sender's end; the upstream end sends downstream.
    pub from: Side,
    /// Start of its first symbol, relative to T0.
    pub since_t0: Duration,
    /// How long it occupied the wire.
    pub duration: Duration,
    /// Bytes on the lanes, framing included.
    pub wire_bytes: u64,
    /// Its bytes: a TLP's header, data and digest, without sequence number and LCRC; a DLLP's six bytes.
    pub bytes: &'a [u8],
    /// Its contents.
    pub decoded: Decoded<'a>,
    /// The doorbell that it writes, with the value.
    pub doorbell: Option<String>,
}

/// Decoded contents.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// A transaction layer packet.
    Tlp {
        /// Its sequence number.
        sequence: Sequence,
        /// Its header.
        tlp: Tlp,
        /// Its data.
        payload: &'a [u8],
        /// Its ECRC, if present.
        digest: &'a [u8],
        /// Whether its LCRC was correct.
        intact: bool,
    },
    /// A data link layer packet.
    Dllp(Dllp),
    /// Undecodable bytes.
    Malformed {
        /// The problem.
        why: String,
        /// The packet as it was on the wire.
        bytes: &'a [u8],
    },
}

impl<'a> Row<'a> {
    /// Decodes a packet of `capture`.
    pub fn of(capture: &'a Capture, number: usize, passed: &'a Passed, origin: Time) -> Self {
        let link = capture.link(passed.link);
        let framing = link.generation.framing();
        let decoded = Decoded::of(&passed.packet);
        let doorbell = match &decoded {
            Decoded::Tlp { tlp: Tlp { kind: TlpKind::MemoryWrite(request), .. }, payload, .. }
                if passed.from == Side::Upstream =>
            {
                let own = capture.doorbells.iter().filter(|(of, _)| *of == passed.link);
                own.into_iter().find_map(|(_, bar)| bar.told(request.address, payload))
            }
            _ => None,
        };
        Self {
            number,
            link: &link.name,
            from: passed.from,
            since_t0: passed.at.since(origin),
            duration: passed.until.since(passed.at),
            wire_bytes: wire_bytes(passed, framing),
            bytes: match &passed.packet {
                Packet::Tlp { bytes, .. } => bytes,
                Packet::Dllp(bytes) => bytes,
            },
            decoded,
            doorbell,
        }
    }

    /// All packets of a capture to show.
    pub fn all(capture: &'a Capture) -> impl Iterator<Item = Self> {
        let origin = capture.origin();
        capture.shown().map(move |(number, passed)| Self::of(capture, number, passed, origin))
    }

    /// `down` (away from the root) or `up`.
    pub fn direction(&self) -> &'static str {
        direction(self.from)
    }

    /// The packet's type, as `MWr(64)`, `CplD`, `Ack` or `UpdateFC-P`.
    pub fn kind(&self) -> String {
        match &self.decoded {
            Decoded::Tlp { tlp, .. } => mnemonic(tlp).to_owned(),
            Decoded::Dllp(dllp) => dllp.to_string().split(' ').next().unwrap_or_default().to_owned(),
            Decoded::Malformed { .. } => "malformed".to_owned(),
        }
    }
}

impl<'a> Decoded<'a> {
    /// Decodes a packet's bytes.
    pub fn of(packet: &'a Packet) -> Self {
        match packet {
            Packet::Dllp(bytes) => match Dllp::parse(bytes) {
                Ok(dllp) => Self::Dllp(dllp),
                Err(error) => Self::Malformed { why: error.to_string(), bytes },
            },
            Packet::Tlp { sequence, bytes, lcrc } => {
                let intact = lcrc.is_none_or(|lcrc| lcrc == wire::pcie::crc::lcrc(sequence.get(), bytes));
                match Tlp::parse(bytes) {
                    Ok((tlp, header)) if tlp.packet_len() == bytes.len() => {
                        let digest = if tlp.common.digest { DIGEST_LEN } else { 0 };
                        let (payload, digest) = bytes[header..].split_at(bytes.len() - header - digest);
                        Self::Tlp { sequence: *sequence, tlp, payload, digest, intact }
                    }
                    Ok((tlp, _)) => {
                        let why = format!("{} bytes where its header says {}", bytes.len(), tlp.packet_len());
                        Self::Malformed { why, bytes }
                    }
                    Err(error) => Self::Malformed { why: error.to_string(), bytes },
                }
            }
        }
    }
}

/// `down` (away from the root) or `up`.
pub(super) fn direction(from: Side) -> &'static str {
    match from {
        Side::Upstream => "down",
        Side::Downstream => "up",
    }
}

/// Bytes on the lanes: framing, sequence number and LCRC included.
pub(super) fn wire_bytes(passed: &Passed, framing: Framing) -> u64 {
    match &passed.packet {
        Packet::Tlp { bytes, .. } => (bytes.len() + framing.tlp_overhead()) as u64,
        Packet::Dllp(_) => framing.dllp_len() as u64,
    }
}
