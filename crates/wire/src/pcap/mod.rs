//! Writer for packet captures in the pcapng format (draft-ietf-opsawg-pcapng).

use std::io::{self, Write};

use units::Time;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Any block: end of options.
const END_OF_OPTIONS: u16 = 0;
/// Any block: a comment.
const COMMENT: u16 = 1;
/// Section header: the application that wrote it.
const USER_APPLICATION: u16 = 4;
/// Interface: name.
const IF_NAME: u16 = 2;
/// Interface: speed in bit/s.
const IF_SPEED: u16 = 8;
/// Interface: timestamp resolution.
const IF_RESOLUTION: u16 = 9;
/// Interface: bytes of check sequence per frame.
const IF_FCS_LEN: u16 = 13;
/// Packet: direction, and length of the check sequence.
const EPB_FLAGS: u16 = 2;

/// Type of an interface's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Ethernet frames with check sequence, timestamps in nanoseconds.
    Ethernet,
    /// PCIe link traffic, timestamps in units of 100 ps: a [pseudo-header](pcie_header), then a TLP (header, data,
    /// digest) or a DLLP.
    Pcie,
}

impl Contents {
    /// The pcapng link type. PCIe has none, so it uses the first one for private use.
    const fn link_type(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Pcie => 147,
        }
    }

    /// Timestamp resolution: number of decimal digits of a second. With more than ten, Wireshark 4.0's arithmetic overflows.
    const fn resolution(self) -> u8 {
        match self {
            Self::Ethernet => 9,
            Self::Pcie => 10,
        }
    }

    const fn timestamp(self, time: Time) -> u64 {
        match self {
            Self::Ethernet => time.as_ps() / 1000,
            Self::Pcie => time.as_ps() / 100,
        }
    }

    const fn fcs_len(self) -> u8 {
        match self {
            Self::Ethernet => crate::ethernet::FCS_LEN as u8,
            Self::Pcie => 0,
        }
    }
}

/// Pseudo-header before each packet of a PCIe link, parsed by `tools/pcie.lua`.
///
/// ```text
/// byte 0             byte 1       byte 2, 3
/// bit 0: DLLP        generation   sequence number of a TLP, high byte first
/// bit 1: to the root
/// bit 2: bad LCRC
/// ```
pub const fn pcie_header(is_dllp: bool, is_up: bool, is_bad: bool, generation: u8, sequence: u16) -> [u8; 4] {
    let [high, low] = sequence.to_be_bytes();
    [is_dllp as u8 | (is_up as u8) << 1 | (is_bad as u8) << 2, generation, high, low]
}

/// Direction of a frame relative to the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// An interface of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceId(u32, Contents);

/// Application that writes captures, in the section header.
const APPLICATION: &[u8] = b"nearfar";

/// Whether a file with this beginning was written by a [`PcapngWriter`].
pub fn is_own(begin: &[u8]) -> bool {
    let word = |at: usize| Some(u32::from_le_bytes(begin.get(at..)?.first_chunk().copied()?));
    let half = |at: usize| Some(u16::from_le_bytes(begin.get(at..)?.first_chunk().copied()?));
    let own = || {
        if (word(0)?, word(8)?) != (SECTION_HEADER, BYTE_ORDER) {
            return None;
        }
        // Kind, length, byte order, version and length of the section come before the options.
        let mut at = 24;
        while half(at)? != END_OF_OPTIONS {
            let length = usize::from(half(at + 2)?);
            if half(at)? == USER_APPLICATION {
                return Some(begin.get(at + 4..at + 4 + length)? == APPLICATION);
            }
            at += 4 + length.next_multiple_of(4);
        }
        None
    };
    own().unwrap_or(false)
}

/// Writes a capture.
pub struct PcapngWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a capture; a nonempty `comment` describes it.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn new(out: W, comment: &str) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::new(), interfaces: 0 };
        writer.block.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        // The section's length is unknown until its end.
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        if !comment.is_empty() {
            writer.option(COMMENT, comment.as_bytes());
        }
        writer.option(USER_APPLICATION, APPLICATION);
        writer.option(END_OF_OPTIONS, &[]);
        writer.finish_block(SECTION_HEADER)?;
        Ok(writer)
    }

    /// Adds an interface with a speed of `bits_per_s`.
    ///
    /// # Errors
    /// If writing to the output fails.
    pub fn interface(&mut self, name: &str, bits_per_s: u64, contents: Contents) -> io::Result<InterfaceId> {
        self.block.extend_from_slice(&u32::from(contents.link_type()).to_le_bytes());
        // No snapshot length limit.
        self.block.extend_from_slice(&0u32.to_le_bytes());
        self.option(IF_NAME, name.as_bytes());
        self.option(IF_SPEED, &bits_per_s.to_le_bytes());
        self.option(IF_RESOLUTION, &[contents.resolution()]);
        self.option(IF_FCS_LEN, &[contents.fcs_len()]);
        self.option(END_OF_OPTIONS, &[]);
        self.finish_block(INTERFACE_DESCRIPTION)?;
        self.interfaces += 1;
        Ok(InterfaceId(self.interfaces - 1, contents))
    }

    /// Records a packet with its timestamp.
    ///
    /// # Errors
    /// If writing to the output fails.
    pub fn packet(
        &mut self,
        InterfaceId(number, contents): InterfaceId,
        time: Time,
        direction: Direction,
        packet: &[u8],
    ) -> io::Result<()> {
        let (length, at) = (packet.len() as u32, contents.timestamp(time));
        for word in [number, (at >> 32) as u32, at as u32, length, length] {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        self.block.extend_from_slice(packet);
        self.pad();
        let way = match direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        // Bits 8 to 5: length of the check sequence.
        let flags: u32 = u32::from(contents.fcs_len()) << 5 | way;
        self.option(EPB_FLAGS, &flags.to_le_bytes());
        self.option(END_OF_OPTIONS, &[]);
        self.finish_block(ENHANCED_PACKET)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// If writing to the output fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// If writing to the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&len.to_le_bytes());
        self.block.extend_from_slice(&value[..usize::from(len)]);
        self.pad();
    }

    fn finish_block(&mut self, kind: u32) -> io::Result<()> {
        let len = (self.block.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len)?;
        self.out.write_all(&self.block)?;
        self.out.write_all(&len)?;
        self.block.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_words_and_name_their_length_twice() {
        let mut capture = PcapngWriter::new(Vec::new(), "seed 1").unwrap();
        let port = capture.interface("nic0", 10_000_000_000, Contents::Ethernet).unwrap();
        let time = Time::from_ps(1 << 43);
        capture.packet(port, time, Direction::Out, &[0xab; 65]).unwrap();
        let bytes = capture.finish().unwrap();
        assert!(is_own(&bytes) && (0..64).all(|length| !is_own(&bytes[..length.min(40)])));
        let mut other = bytes.clone();
        let name = bytes.windows(7).position(|part| part == APPLICATION).unwrap();
        other[name] = b'd';
        assert!(!is_own(&other));
        assert!(bytes.windows(6).any(|window| window == b"seed 1"));
        let mut kinds = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let len = word(4) as usize;
            assert_eq!((len % 4, word(len - 4) as usize), (0, len));
            kinds.push(word(0));
            rest = &rest[len..];
        }
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET]);
    }
}
