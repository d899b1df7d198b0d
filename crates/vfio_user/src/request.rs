//! Requests of a client. Whatever the bytes, reading them ends in a request whose lengths are right, or in a refusal.

use thiserror::Error;

/// Bytes of a message's header.
pub const HEADER: usize = 16;
/// Largest number of bytes that an access of a region may have; the client is told.
pub const MOST_DATA: usize = 1 << 20;
/// Largest number of file descriptors of a message; the client is told.
pub const MOST_FILES: usize = 16;
/// Largest body of a message: an access with its parameters.
pub const MOST_BODY: usize = MOST_DATA + 64;
/// Largest number of vectors that a request may name: those of MSI-X (base spec 7.7.2).
pub const MOST_VECTORS: u32 = 2048;

/// Number of the region that is configuration space.
pub const CONFIG_REGION: u32 = 7;
/// Number of regions: six BARs, the expansion ROM, configuration space, VGA.
pub const REGIONS: u32 = 9;
/// Number of kinds of interrupts: INTx, MSI, MSI-X, errors, requests to let go of the device.
pub const IRQ_KINDS: u32 = 5;

/// Why a request is refused: the error number that its answer carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum VfioRefusal {
    /// `EINVAL`: a length, a number or a flag is out of bounds.
    #[error("the request is invalid")]
    Invalid,
    /// `ENOTSUP`: there is no such command.
    #[error("the command is not supported")]
    Unsupported,
    /// `EEXIST`: part of the range is mapped already.
    #[error("part of the range is mapped already")]
    Mapped,
    /// `ENOSPC`: there are too many mappings.
    #[error("there are too many mappings")]
    Full,
    /// `EIO`: the device did not do it.
    #[error("the device failed")]
    Failed,
}

impl VfioRefusal {
    /// The number of the error, as Linux has it.
    pub const fn number(self) -> u32 {
        match self {
            Self::Invalid => 22,
            Self::Unsupported => 95,
            Self::Mapped => 17,
            Self::Full => 28,
            Self::Failed => 5,
        }
    }
}

/// A message's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VfioHeader {
    /// Number of the request, which its answer repeats.
    pub id: u16,
    /// What is asked.
    pub command: u16,
    /// Bytes of the message with this header.
    pub size: u32,
    /// Kind of message, and whether an answer is wanted.
    pub flags: u32,
    /// Error of an answer.
    pub error: u32,
}

/// Kind of message in a header's flags: 0 a request, 1 an answer.
const KIND: u32 = 0xf;
const ANSWER: u32 = 1;
/// No answer is wanted.
const NO_ANSWER: u32 = 1 << 4;
/// The answer has an error.
const ERROR: u32 = 1 << 5;

impl VfioHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// If it is neither request nor answer, or its length is out of bounds: the stream cannot be followed any further.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Self, VfioRefusal> {
        let ids = word(bytes, 0);
        let own = Self {
            id: ids as u16,
            command: (ids >> 16) as u16,
            size: word(bytes, 4),
            flags: word(bytes, 8),
            error: word(bytes, 12),
        };
        let sizes = HEADER..=HEADER + MOST_BODY;
        let is_known = own.flags & KIND <= ANSWER;
        (is_known && sizes.contains(&(own.size as usize))).then_some(own).ok_or(VfioRefusal::Invalid)
    }

    /// Whether it is an answer to a question of the server's.
    pub const fn is_answer(&self) -> bool {
        self.flags & KIND == ANSWER
    }

    /// The bytes of a question that every client answers, by a refusal: a read of its memory that names none.
    pub fn question() -> Vec<u8> {
        const READ_MEMORY: u32 = 11;
        [READ_MEMORY << 16, HEADER as u32, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// Whether the client waits for an answer.
    pub const fn wants_answer(&self) -> bool {
        self.flags & NO_ANSWER == 0
    }

    /// The answer's bytes: header and body.
    pub fn answer(&self, outcome: &Result<Vec<u8>, VfioRefusal>) -> Vec<u8> {
        let (body, flags, error) = match outcome {
            Ok(body) => (&body[..], ANSWER, 0),
            Err(refusal) => (&[][..], ANSWER | ERROR, refusal.number()),
        };
        let size = (HEADER + body.len()) as u32;
        let ids = u32::from(self.id) | u32::from(self.command) << 16;
        let head = [ids, size, flags, error].into_iter().flat_map(u32::to_le_bytes);
        head.chain(body.iter().copied()).collect()
    }
}

/// What an eventfd of a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqAction {
    /// Each vector gets a file of the message, or loses its file.
    Connect,
    /// The vectors lose their files.
    Disconnect,
    /// The vectors are raised, as a test.
    Raise,
    /// The interrupt is masked or unmasked.
    Mask(bool),
}

/// A request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VfioRequest<'a> {
    /// The first message: the protocol's version.
    Version {
        /// Incompatible changes.
        major: u16,
        /// Compatible changes.
        minor: u16,
    },
    /// The function may access a range of the client's memory.
    Map {
        /// Address that the function uses.
        address: u64,
        /// Bytes.
        size: u64,
        /// Start in the message's file.
        offset: u64,
        /// The function may read it.
        reads: bool,
        /// The function may write it.
        writes: bool,
    },
    /// The function may no longer access a range, or anything.
    Unmap {
        /// First address.
        address: u64,
        /// Bytes.
        size: u64,
        /// All mappings.
        all: bool,
    },
    /// What kind of device it is.
    DeviceInfo,
    /// A region's size and flags.
    RegionInfo {
        /// The region.
        region: u32,
    },
    /// How many vectors there are.
    IrqInfo {
        /// The kind: 0 INTx, 1 MSI, 2 MSI-X.
        kind: u32,
    },
    /// Files for vectors.
    SetIrqs {
        /// The kind.
        kind: u32,
        /// First vector.
        start: u32,
        /// Number of vectors.
        count: u32,
        /// What to do with them.
        action: IrqAction,
    },
    /// Reads a region.
    Read {
        /// The region.
        region: u32,
        /// First byte.
        offset: u64,
        /// Bytes, at most [`MOST_DATA`].
        count: u32,
    },
    /// Writes a region.
    Write {
        /// The region.
        region: u32,
        /// First byte.
        offset: u64,
        /// What is written.
        data: &'a [u8],
    },
    /// Small writes, one after the other.
    WriteMany(Vec<SmallWrite>),
    /// Resets the function.
    Reset,
}

/// One of several writes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmallWrite {
    /// The region.
    pub region: u32,
    /// First byte.
    pub offset: u64,
    /// The bytes, and how many of them count: at most 8.
    data: ([u8; 8], u8),
}

impl SmallWrite {
    /// What is written.
    pub fn data(&self) -> &[u8] {
        &self.data.0[..usize::from(self.data.1)]
    }
}

/// Flags of a request about vectors.
const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_FILES: u32 = 1 << 2;
const MASK: u32 = 1 << 3;
const UNMASK: u32 = 1 << 4;
const TRIGGER: u32 = 1 << 5;

impl<'a> VfioRequest<'a> {
    /// Reads the body of a request. Checked are lengths, and what needs no knowledge of the function.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(command: u16, body: &'a [u8]) -> Result<Self, VfioRefusal> {
        let need = |bytes: usize| if body.len() >= bytes { Ok(()) } else { Err(VfioRefusal::Invalid) };
        match command {
            1 => {
                need(4)?;
                let versions = word(body, 0);
                Ok(Self::Version { major: versions as u16, minor: (versions >> 16) as u16 })
            }
            2 => {
                need(32)?;
                let flags = word(body, 4);
                let (offset, address, size) = (long(body, 8), long(body, 16), long(body, 24));
                range(address, size)?;
                range(offset, size)?;
                Ok(Self::Map { address, size, offset, reads: flags & 1 != 0, writes: flags & 2 != 0 })
            }
            3 => {
                need(24)?;
                let (flags, address, size) = (word(body, 4), long(body, 8), long(body, 16));
                // Bit 0 asks which pages were written, which nobody counts here.
                if flags & 1 != 0 {
                    return Err(VfioRefusal::Unsupported);
                }
                let all = flags & 2 != 0;
                if !all {
                    range(address, size)?;
                }
                Ok(Self::Unmap { address, size, all })
            }
            4 => Ok(Self::DeviceInfo),
            5 => {
                need(32)?;
                let region = word(body, 8);
                (region < REGIONS).then_some(Self::RegionInfo { region }).ok_or(VfioRefusal::Invalid)
            }
            7 => {
                need(16)?;
                let kind = word(body, 8);
                (kind < IRQ_KINDS).then_some(Self::IrqInfo { kind }).ok_or(VfioRefusal::Invalid)
            }
            8 => {
                need(20)?;
                let [flags, kind, start, count] = [4, 8, 12, 16].map(|at| word(body, at));
                let end = start.checked_add(count).ok_or(VfioRefusal::Invalid)?;
                if kind >= IRQ_KINDS || end > MOST_VECTORS {
                    return Err(VfioRefusal::Invalid);
                }
                let data = flags & (DATA_NONE | DATA_BOOL | DATA_FILES);
                let action = match flags & (MASK | UNMASK | TRIGGER) {
                    TRIGGER if data == DATA_FILES => IrqAction::Connect,
                    TRIGGER if count == 0 => IrqAction::Disconnect,
                    TRIGGER => IrqAction::Raise,
                    MASK => IrqAction::Mask(true),
                    UNMASK => IrqAction::Mask(false),
                    _ => return Err(VfioRefusal::Invalid),
                };
                Ok(Self::SetIrqs { kind, start, count, action })
            }
            9 => {
                need(16)?;
                let (offset, region, count) = (long(body, 0), word(body, 8), word(body, 12));
                if region >= REGIONS || count as usize > MOST_DATA {
                    return Err(VfioRefusal::Invalid);
                }
                Ok(Self::Read { region, offset, count })
            }
            10 => {
                need(16)?;
                let (offset, region, count) = (long(body, 0), word(body, 8), word(body, 12));
                let data = &body[16..];
                if region >= REGIONS || data.len() != count as usize {
                    return Err(VfioRefusal::Invalid);
                }
                Ok(Self::Write { region, offset, data })
            }
            13 => Ok(Self::Reset),
            15 => {
                need(8)?;
                let writes = body[8..].chunks_exact(24);
                if !writes.remainder().is_empty() || writes.len() as u64 != long(body, 0) {
                    return Err(VfioRefusal::Invalid);
                }
                writes.map(small_write).collect::<Result<_, _>>().map(Self::WriteMany)
            }
            _ => Err(VfioRefusal::Unsupported),
        }
    }
}

fn small_write(bytes: &[u8]) -> Result<SmallWrite, VfioRefusal> {
    let (offset, region, count) = (long(bytes, 0), word(bytes, 8), word(bytes, 12));
    let data = bytes[16..].first_chunk().copied().ok_or(VfioRefusal::Invalid)?;
    let is_right = region < REGIONS && count <= 8;
    is_right.then_some(SmallWrite { region, offset, data: (data, count as u8) }).ok_or(VfioRefusal::Invalid)
}

/// A range with bytes in it, all of which have addresses.
fn range(start: u64, size: u64) -> Result<(), VfioRefusal> {
    let last = size.checked_sub(1).and_then(|before| start.checked_add(before));
    last.map(drop).ok_or(VfioRefusal::Invalid)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}
