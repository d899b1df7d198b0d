//! Captures in the pcapng format (draft-ietf-opsawg-pcapng), written block by block.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Options that are the same in every block.
const END_OF_OPTIONS: u16 = 0;
/// Any block: a comment.
const COMMENT: u16 = 1;
/// Section header: program that wrote it.
const USER_APPLICATION: u16 = 4;
/// Interface: its name.
const IF_NAME: u16 = 2;
/// Interface: its speed in bit/s.
const IF_SPEED: u16 = 8;
/// Interface: unit of its timestamps.
const IF_RESOLUTION: u16 = 9;
/// Interface: bytes of check sequence in each frame.
const IF_FCS_LEN: u16 = 13;
/// Packet: direction and length of its check sequence.
const EPB_FLAGS: u16 = 2;

/// Link type Ethernet.
const ETHERNET: u16 = 1;
/// Timestamps count nanoseconds.
const NANOSECONDS: u8 = 9;

/// Which way a frame went, seen from the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// An interface of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceId(u32);

/// Writes a capture of Ethernet frames.
pub struct PcapngWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a capture; `comment` says what it is of, if it is not empty.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(out: W, comment: &str) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::new(), interfaces: 0 };
        writer.block.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        // The section's length is not known before its end.
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        if !comment.is_empty() {
            writer.option(COMMENT, comment.as_bytes());
        }
        writer.option(USER_APPLICATION, b"nearfar");
        writer.option(END_OF_OPTIONS, &[]);
        writer.finish_block(SECTION_HEADER)?;
        Ok(writer)
    }

    /// Adds an interface of `bits_per_s`, whose frames are recorded with their check sequences.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn interface(&mut self, name: &str, bits_per_s: u64) -> io::Result<InterfaceId> {
        self.block.extend_from_slice(&u32::from(ETHERNET).to_le_bytes());
        // No limit to the length of what is recorded of a frame.
        self.block.extend_from_slice(&0u32.to_le_bytes());
        self.option(IF_NAME, name.as_bytes());
        self.option(IF_SPEED, &bits_per_s.to_le_bytes());
        self.option(IF_RESOLUTION, &[NANOSECONDS]);
        self.option(IF_FCS_LEN, &[crate::ethernet::FCS_LEN as u8]);
        self.option(END_OF_OPTIONS, &[]);
        self.finish_block(INTERFACE_DESCRIPTION)?;
        self.interfaces += 1;
        Ok(InterfaceId(self.interfaces - 1))
    }

    /// Records a frame with its check sequence, as it was seen at `ns` nanoseconds.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn frame(&mut self, at: InterfaceId, ns: u64, direction: Direction, frame: &[u8]) -> io::Result<()> {
        let length = frame.len() as u32;
        for word in [at.0, (ns >> 32) as u32, ns as u32, length, length] {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        self.block.extend_from_slice(frame);
        self.pad();
        let way = match direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        // Bits 8 to 5: length of the check sequence.
        let flags: u32 = (crate::ethernet::FCS_LEN as u32) << 5 | way;
        self.option(EPB_FLAGS, &flags.to_le_bytes());
        self.option(END_OF_OPTIONS, &[]);
        self.finish_block(ENHANCED_PACKET)
    }

    /// Writes everything out and gives the output back.
    ///
    /// # Errors
    /// If the output cannot be written.
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
        let port = capture.interface("nic0", 10_000_000_000).unwrap();
        capture.frame(port, 1 << 33, Direction::Out, &[0xab; 65]).unwrap();
        let bytes = capture.finish().unwrap();
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
