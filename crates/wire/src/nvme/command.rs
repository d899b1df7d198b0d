//! Submission queue entry: 64 bytes (section 4.2).

use super::bytes::{put, u16_at, u32_at, u64_at};
use super::pointer::DataPointer;
use core::fmt;

/// Bytes of a submission queue entry.
pub const LEN: usize = 64;

/// A submission queue entry, with the fields that all commands share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Command {
    /// Opcode. Bits 1 and 0 are the direction of the data.
    pub opcode: u8,
    /// Fused operation: 0 none, 1 first, 2 second (FUSE).
    pub fused: u8,
    /// Type of the data pointer: 0 PRP, 1 and 2 SGL (PSDT).
    pub pointer_kind: u8,
    /// Identifier of the command within its queue (CID).
    pub id: u16,
    /// Namespace (NSID).
    pub namespace: u32,
    /// Metadata pointer.
    pub metadata: u64,
    /// Data pointer, not decoded.
    pub data: [u8; 16],
    /// Command doublewords 10 to 15.
    pub words: [u32; 6],
}

/// Direction of a command's data (bits 1 and 0 of the opcode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataTransfer {
    /// No data.
    None,
    /// From the host to the controller.
    ToController,
    /// From the controller to the host.
    ToHost,
    /// Both ways.
    Both,
}

impl Command {
    /// A command without data.
    pub const fn new(opcode: u8, id: u16, namespace: u32, words: [u32; 6]) -> Self {
        Self { opcode, fused: 0, pointer_kind: 0, id, namespace, metadata: 0, data: [0; 16], words }
    }

    /// The same with a data pointer.
    #[must_use]
    pub fn with_data(self, pointer: DataPointer) -> Self {
        let (pointer_kind, data) = pointer.emit();
        Self { pointer_kind, data, ..self }
    }

    /// Command doubleword `n`, 10 to 15; 0 for others.
    pub const fn word(&self, n: usize) -> u32 {
        if n >= 10 && n < 16 { self.words[n - 10] } else { 0 }
    }

    /// The data pointer; `None` if PSDT has its reserved value.
    pub fn pointer(&self) -> Option<DataPointer> {
        DataPointer::parse(self.pointer_kind, &self.data)
    }

    /// Direction of the data.
    pub const fn transfer(&self) -> DataTransfer {
        match self.opcode & 3 {
            0 => DataTransfer::None,
            1 => DataTransfer::ToController,
            2 => DataTransfer::ToHost,
            _ => DataTransfer::Both,
        }
    }

    /// Reads an entry.
    pub fn parse(bytes: &[u8; LEN]) -> Self {
        let mut words = [0; 6];
        for (n, word) in words.iter_mut().enumerate() {
            *word = u32_at(bytes, 40 + 4 * n);
        }
        let mut data = [0; 16];
        data.copy_from_slice(&bytes[24..40]);
        Self {
            opcode: bytes[0],
            fused: bytes[1] & 3,
            pointer_kind: bytes[1] >> 6,
            id: u16_at(bytes, 2),
            namespace: u32_at(bytes, 4),
            metadata: u64_at(bytes, 16),
            data,
            words,
        }
    }

    /// Writes an entry.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = self.opcode;
        bytes[1] = self.fused & 3 | self.pointer_kind << 6;
        put(&mut bytes, 2, &self.id.to_le_bytes());
        put(&mut bytes, 4, &self.namespace.to_le_bytes());
        put(&mut bytes, 16, &self.metadata.to_le_bytes());
        put(&mut bytes, 24, &self.data);
        for (n, word) in self.words.iter().enumerate() {
            put(&mut bytes, 40 + 4 * n, &word.to_le_bytes());
        }
        bytes
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opcode {:#04x} cid {} nsid {:#x}", self.opcode, self.id, self.namespace)?;
        self.words.iter().try_for_each(|word| write!(f, " {word:08x}"))
    }
}
