//! Commands of the NVM command set (section 6), typed.

use super::bytes::{put, u32_at, u64_at};
use super::command::Command;

/// Opcodes ("Opcodes for NVM Commands").
pub mod opcode {
    /// Flush (6.8).
    pub const FLUSH: u8 = 0x00;
    /// Write (6.15).
    pub const WRITE: u8 = 0x01;
    /// Read (6.9).
    pub const READ: u8 = 0x02;
    /// Compare (6.6).
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes (6.17).
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management (6.7).
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Range of logical blocks of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// First block (SLBA).
    pub start: u64,
    /// Number of blocks, minus one (NLB).
    pub count: u16,
    /// Write to non-volatile media before the command completes (FUA).
    pub force_unit_access: bool,
    /// Protection information to check or to insert, 4 bits (PRINFO).
    pub protection: u8,
}

impl Blocks {
    /// `count` blocks from `start` on, at least one.
    pub const fn new(start: u64, count: u32) -> Self {
        Self { start, count: count.saturating_sub(1) as u16, force_unit_access: false, protection: 0 }
    }

    /// Number of blocks.
    pub const fn len(&self) -> u64 {
        self.count as u64 + 1
    }

    /// Always false: a command addresses at least one block.
    pub const fn is_empty(&self) -> bool {
        false
    }

    const fn parse(command: &Command) -> Self {
        let last = command.word(12);
        Self {
            start: command.word(10) as u64 | (command.word(11) as u64) << 32,
            count: last as u16,
            force_unit_access: last >> 30 & 1 == 1,
            protection: (last >> 26) as u8 & 0xf,
        }
    }

    const fn words(&self) -> [u32; 6] {
        let last =
            self.count as u32 | (self.force_unit_access as u32) << 30 | (self.protection as u32 & 0xf) << 26;
        [self.start as u32, (self.start >> 32) as u32, last, 0, 0, 0]
    }
}

/// A command of the NVM command set without identifier and data pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoCommand {
    /// Makes completed writes durable (6.8).
    Flush,
    /// Writes blocks (6.15).
    Write(Blocks),
    /// Reads blocks (6.9).
    Read(Blocks),
    /// Compares blocks with the host's data (6.6).
    Compare(Blocks),
    /// Zeroes blocks (6.17).
    WriteZeroes {
        /// Blocks to zero.
        blocks: Blocks,
        /// The blocks may be deallocated (DEAC).
        deallocate: bool,
    },
    /// Provides hints about ranges of blocks (6.7).
    DatasetManagement {
        /// Number of ranges, minus one.
        ranges: u8,
        /// The ranges may be deallocated (AD).
        deallocate: bool,
    },
}

impl IoCommand {
    /// Decodes a queue entry; `None` if the opcode is not supported.
    pub const fn parse(command: &Command) -> Option<Self> {
        Some(match command.opcode {
            opcode::FLUSH => Self::Flush,
            opcode::WRITE => Self::Write(Blocks::parse(command)),
            opcode::READ => Self::Read(Blocks::parse(command)),
            opcode::COMPARE => Self::Compare(Blocks::parse(command)),
            opcode::WRITE_ZEROES => Self::WriteZeroes {
                blocks: Blocks::parse(command),
                deallocate: command.word(12) >> 25 & 1 == 1,
            },
            opcode::DATASET_MANAGEMENT => Self::DatasetManagement {
                ranges: command.word(10) as u8,
                deallocate: command.word(11) >> 2 & 1 == 1,
            },
            _ => return None,
        })
    }

    /// The value of [`opcode`] in its doubleword 0.
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::Flush => opcode::FLUSH,
            Self::Write(_) => opcode::WRITE,
            Self::Read(_) => opcode::READ,
            Self::Compare(_) => opcode::COMPARE,
            Self::WriteZeroes { .. } => opcode::WRITE_ZEROES,
            Self::DatasetManagement { .. } => opcode::DATASET_MANAGEMENT,
        }
    }

    /// First block of the command, if it addresses blocks directly.
    pub const fn first_block(&self) -> Option<u64> {
        match self {
            Self::Write(blocks) | Self::Read(blocks) | Self::Compare(blocks) => Some(blocks.start),
            Self::WriteZeroes { blocks, .. } => Some(blocks.start),
            Self::Flush | Self::DatasetManagement { .. } => None,
        }
    }

    /// A queue entry without data pointer.
    pub fn command(&self, id: u16, namespace: u32) -> Command {
        let words = match self {
            Self::Flush => [0; 6],
            Self::Write(blocks) | Self::Read(blocks) | Self::Compare(blocks) => blocks.words(),
            Self::WriteZeroes { blocks, deallocate } => {
                let mut words = blocks.words();
                words[2] |= u32::from(*deallocate) << 25;
                words
            }
            Self::DatasetManagement { ranges, deallocate } => {
                [u32::from(*ranges), u32::from(*deallocate) << 2, 0, 0, 0, 0]
            }
        };
        Command::new(self.opcode(), id, namespace, words)
    }
}

/// Bytes of a range of Dataset Management.
pub const RANGE_LEN: usize = 16;

/// A range of Dataset Management ("Range Definition").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatasetRange {
    /// Usage hints.
    pub attributes: u32,
    /// Number of blocks; may be zero.
    pub length: u32,
    /// First block.
    pub start: u64,
}

impl DatasetRange {
    /// Reads a range.
    pub fn parse(bytes: &[u8; RANGE_LEN]) -> Self {
        Self { attributes: u32_at(bytes, 0), length: u32_at(bytes, 4), start: u64_at(bytes, 8) }
    }

    /// Writes a range.
    pub fn emit(&self) -> [u8; RANGE_LEN] {
        let mut bytes = [0; RANGE_LEN];
        put(&mut bytes, 0, &self.attributes.to_le_bytes());
        put(&mut bytes, 4, &self.length.to_le_bytes());
        put(&mut bytes, 8, &self.start.to_le_bytes());
        bytes
    }
}
