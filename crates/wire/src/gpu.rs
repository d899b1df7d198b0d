//! Registers, windows, rings and commands of the GPU.
//!
//! BAR 0 holds registers and, from [`DOORBELLS`] on, one page per channel with its doorbell, which can be mapped into a
//! program. BAR 2 is an aperture into GPU memory for cores and peers.
//!
//! A *channel* is a ring of [`Entry`]s in host memory, each of which points to [`GpuCommand`]s in a buffer, so the GPU
//! needs two reads to get a command. Commands address memory by *window* and offset. A window is a range of GPU memory
//! or of bus addresses, set by the driver for one context, so a program that writes its own commands cannot reach
//! anything else. (A real GPU has page tables instead, whose walks are not modelled.)

/// Bytes of BAR 0.
pub const REGISTER_BYTES: u64 = 16 << 20;
/// Number of the BAR that holds the registers.
pub const REGISTER_BAR: u8 = 0;
/// BAR with the aperture into memory.
pub const MEMORY_BAR: u8 = 2;

/// Number of copy engines, read only.
pub const COPY_ENGINES: u64 = 0x04;
/// MiB of memory, read only.
pub const MEMORY_MIB: u64 = 0x08;
/// Number of channels, read only.
pub const CHANNEL_COUNT: u64 = 0x10;
/// Selects the window for the next registers: context << 16 | window.
pub const WINDOW_SELECT: u64 = 0x20;
/// Kind of the window, one of [`WindowKind`]'s numbers. Has to be written last.
pub const WINDOW_KIND: u64 = 0x24;
/// Start address of the window, 64 bits.
pub const WINDOW_BASE: u64 = 0x28;
/// Size of the window in bytes, 64 bits.
pub const WINDOW_LENGTH: u64 = 0x30;
/// Selects the channel for the next registers.
pub const CHANNEL_SELECT: u64 = 0x40;
/// 1 starts the channel with an empty ring, 0 stops it. Has to be written last.
pub const CHANNEL_ENABLE: u64 = 0x44;
/// Bus address of the channel's ring, 64 bits.
pub const CHANNEL_RING: u64 = 0x48;
/// Entries of the ring, a power of two.
pub const CHANNEL_ENTRIES: u64 = 0x50;
/// Engine of the channel: 0 computes, others copy.
pub const CHANNEL_ENGINE: u64 = 0x54;
/// Context of the channel: its commands reach only this context's windows.
pub const CHANNEL_CONTEXT: u64 = 0x58;
/// Bus address of eight bytes to which a [`Fault`] is written when a command fails, 64 bits.
pub const CHANNEL_NOTIFIER: u64 = 0x60;
/// Acknowledges a stopped channel by its number. The legacy interrupt stays asserted while a stopped channel is not
/// acknowledged.
pub const FAULT_SEEN: u64 = 0x68;
/// Offset of the doorbells.
pub const DOORBELLS: u64 = 1 << 20;
/// Distance of doorbells: a page, which can be mapped into a program by itself.
pub const DOORBELL_STRIDE: u64 = 4096;
/// Maximum number of channels.
pub const CHANNELS: u16 = 64;
/// Maximum number of contexts.
pub const CONTEXTS: u16 = 16;
/// Maximum number of windows per context.
pub const WINDOWS: u16 = 256;

/// Offset of a channel's doorbell, which takes the total of entries put into the ring so far.
pub const fn doorbell(channel: u16) -> u64 {
    DOORBELLS + channel as u64 * DOORBELL_STRIDE
}

/// What a window maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum WindowKind {
    /// Nothing.
    None = 0,
    /// The GPU's own memory.
    Local = 1,
    /// Bus addresses: host memory, or another device.
    Bus = 2,
}

impl WindowKind {
    /// The kind with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Local,
            2 => Self::Bus,
            _ => return None,
        })
    }
}

/// A location in a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// The window's number in its context.
    pub window: u16,
    /// Offset in bytes.
    pub offset: u64,
}

impl Place {
    /// The location `bytes` further on.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// A ring entry: location and number of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Window that holds the commands.
    pub window: u16,
    /// Number of commands.
    pub count: u16,
    /// Offset in the window in bytes.
    pub offset: u32,
}

impl Entry {
    /// Bytes of an entry.
    pub const BYTES: usize = 8;

    /// Encodes the entry for the ring.
    pub fn emit(self) -> [u8; Self::BYTES] {
        (u64::from(self.window) | u64::from(self.count) << 16 | u64::from(self.offset) << 32).to_le_bytes()
    }

    /// Decodes an entry.
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        let bits = u64::from_le_bytes(bytes);
        Self { window: bits as u16, count: (bits >> 16) as u16, offset: (bits >> 32) as u32 }
    }
}

/// Bytes of a released semaphore: a payload of eight bytes, followed by the GPU's time in nanoseconds.
pub const SEMAPHORE_BYTES: u64 = 16;

/// A command of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpuCommand {
    /// Copies bytes.
    Copy {
        /// Source.
        from: Place,
        /// Destination.
        to: Place,
        /// Number of bytes.
        bytes: u64,
    },
    /// Waits until a semaphore's payload is at least `value`.
    Acquire {
        /// The semaphore.
        at: Place,
        /// Minimum payload.
        value: u64,
    },
    /// Writes a semaphore, payload and time, when all previous commands are done.
    Release {
        /// The semaphore.
        at: Place,
        /// Payload to write.
        value: u64,
    },
    /// Runs one of the GPU's programs.
    Launch(Launch),
}

/// A program with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Program to run.
    pub program: Program,
    /// Location that it polls for incoming counts, or loads from.
    pub polled: Place,
    /// Location to which it writes its own counts.
    pub written: Place,
    /// Location to which it writes its run time in nanoseconds.
    pub result: Place,
    /// Number of rounds; for [`Program::Busy`], nanoseconds.
    pub count: u32,
}

/// Programs compiled for the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Program {
    /// Computes for `count` nanoseconds; 0 makes it an empty kernel.
    Busy = 0,
    /// Writes 1, waits until it comes back, writes 2, and so on.
    Ping = 1,
    /// Waits for each number in turn and writes it back.
    Pong = 2,
    /// Loads `count` lines of [`CHASE_LINE`] bytes within [`CHASE_BYTES`] from `polled` on, each when the last one has come.
    Chase = 3,
}

/// Bytes that a [`Program::Chase`] goes through, again and again.
pub const CHASE_BYTES: u64 = 64 << 10;
/// Bytes of each of its loads: a word of each thread of a warp.
pub const CHASE_LINE: u64 = 128;

impl Program {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Busy,
            1 => Self::Ping,
            2 => Self::Pong,
            3 => Self::Chase,
            _ => return None,
        })
    }
}

impl GpuCommand {
    /// Bytes of a command.
    pub const BYTES: usize = 64;

    /// Encodes the command:
    ///
    /// | bytes | |
    /// |---|---|
    /// | 0 | 1 copy, 2 acquire, 3 release, 4 launch |
    /// | 1 | program of a launch |
    /// | 2, 4, 6 | windows |
    /// | 8, 16, 24 | offsets in them |
    /// | 32 | bytes, value or count |
    pub fn emit(self) -> [u8; Self::BYTES] {
        let none = Place::default();
        let (op, program, places, value) = match self {
            Self::Copy { from, to, bytes } => (1, 0, [from, to, none], bytes),
            Self::Acquire { at, value } => (2, 0, [at, none, none], value),
            Self::Release { at, value } => (3, 0, [at, none, none], value),
            Self::Launch(launch) => {
                let places = [launch.polled, launch.written, launch.result];
                (4, launch.program as u8, places, launch.count.into())
            }
        };
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (op, program);
        for (n, place) in places.into_iter().enumerate() {
            bytes[2 + 2 * n..][..2].copy_from_slice(&place.window.to_le_bytes());
            bytes[8 + 8 * n..][..8].copy_from_slice(&place.offset.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// Decodes a command; `None` if it is invalid.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let place = |n: usize| Place {
            window: u16::from_le_bytes([bytes[2 + 2 * n], bytes[3 + 2 * n]]),
            offset: word(8 + 8 * n),
        };
        let value = word(32);
        Some(match bytes[0] {
            1 => Self::Copy { from: place(0), to: place(1), bytes: value },
            2 => Self::Acquire { at: place(0), value },
            3 => Self::Release { at: place(0), value },
            4 => Self::Launch(Launch {
                program: Program::from_number(bytes[1])?,
                polled: place(0),
                written: place(1),
                result: place(2),
                count: u32::try_from(value).ok()?,
            }),
            _ => return None,
        })
    }
}

/// Reason why a channel has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Fault {
    /// A command or an entry is invalid.
    Malformed = 1,
    /// A location is outside its window, or the window does not exist.
    Address = 2,
    /// A read failed.
    Bus = 3,
}

impl Fault {
    /// The fault with this number.
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Malformed,
            2 => Self::Address,
            3 => Self::Bus,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_entries_come_back_as_they_went() {
        let [a, b, c] =
            [(1, 0x10), (255, u64::MAX), (7, 1 << 40)].map(|(window, offset)| Place { window, offset });
        let launch = Launch { program: Program::Pong, polled: a, written: b, result: c, count: u32::MAX };
        for command in [
            GpuCommand::Copy { from: a, to: b, bytes: 1 << 33 },
            GpuCommand::Acquire { at: c, value: 5 },
            GpuCommand::Release { at: b, value: u64::MAX },
            GpuCommand::Launch(launch),
        ] {
            assert_eq!(GpuCommand::parse(&command.emit()), Some(command));
        }
        assert_eq!(GpuCommand::parse(&[0; GpuCommand::BYTES]), None);
        let entry = Entry { window: 3, count: 9, offset: 0xdead_beef };
        assert_eq!(Entry::parse(entry.emit()), entry);
        assert!(doorbell(CHANNELS - 1) < REGISTER_BYTES);
    }
}
