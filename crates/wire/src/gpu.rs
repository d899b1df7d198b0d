//! Registers, windows, rings and commands of the GPU.
//!
//! BAR 0 holds registers and, from [`DOORBELLS`] on, a page for each channel with its doorbell, so that a program may be given
//! its own. BAR 2 is an aperture into the GPU's memory, for cores and peers.
//!
//! A *channel* is a ring of [`Entry`]s in host memory, each of which names a piece of a buffer with [`GpuCommand`]s in it: two
//! reads until the GPU knows what to do. Commands name memory by *window* and offset. A window is a range of the GPU's own
//! memory or of bus addresses, set by the driver for one context, so that a program that writes its commands itself reaches
//! nothing else. (A real GPU has page tables there, whose walks are left out.)

/// Bytes of BAR 0.
pub const REGISTER_BYTES: u64 = 16 << 20;
/// BAR with the registers.
pub const REGISTER_BAR: u8 = 0;
/// BAR with the aperture into memory.
pub const MEMORY_BAR: u8 = 2;

/// Copy engines, read only.
pub const COPY_ENGINES: u64 = 0x04;
/// MiB of memory, read only.
pub const MEMORY_MIB: u64 = 0x08;
/// MiB of memory that the aperture shows, from the beginning of memory, read only.
pub const APERTURE_MIB: u64 = 0x0c;
/// Channels that there are, read only.
pub const CHANNEL_COUNT: u64 = 0x10;
/// Context and number of the window that the next registers are about: context << 16 | window.
pub const WINDOW_SELECT: u64 = 0x20;
/// What kind of window it becomes, written last: one of [`WindowKind`]'s numbers.
pub const WINDOW_KIND: u64 = 0x24;
/// Its first address, 64 bits.
pub const WINDOW_BASE: u64 = 0x28;
/// Its bytes, 64 bits.
pub const WINDOW_LENGTH: u64 = 0x30;
/// The channel that the next registers are about.
pub const CHANNEL_SELECT: u64 = 0x40;
/// 1 to begin with an empty ring, 0 to forget it; written last.
pub const CHANNEL_ENABLE: u64 = 0x44;
/// Bus address of its ring, 64 bits.
pub const CHANNEL_RING: u64 = 0x48;
/// Entries of its ring, a power of two.
pub const CHANNEL_ENTRIES: u64 = 0x50;
/// Its engine: 0 computes, others copy.
pub const CHANNEL_ENGINE: u64 = 0x54;
/// Its context.
pub const CHANNEL_CONTEXT: u64 = 0x58;
/// Bus address of eight bytes to which [`Fault`] is written when a command cannot be done, 64 bits.
pub const CHANNEL_NOTIFIER: u64 = 0x60;
/// The number of a channel of which its driver has seen that it has stopped. The legacy interrupt is due as long as one has not been
/// seen.
pub const FAULT_SEEN: u64 = 0x68;
/// Where the doorbells begin.
pub const DOORBELLS: u64 = 1 << 20;
/// From one doorbell to the next: a page, that a program may be given alone.
pub const DOORBELL_STRIDE: u64 = 4096;
/// Most channels.
pub const CHANNELS: u16 = 64;
/// Most contexts.
pub const CONTEXTS: u16 = 16;
/// Most windows of a context.
pub const WINDOWS: u16 = 256;

/// Where the doorbell of a channel is. What is written there is how many entries have been put into its ring so far.
pub const fn doorbell(channel: u16) -> u64 {
    DOORBELLS + channel as u64 * DOORBELL_STRIDE
}

/// What a window shows.
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

/// A place in a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// The window's number in its context.
    pub window: u16,
    /// Bytes from its beginning.
    pub offset: u64,
}

impl Place {
    /// So many bytes further on.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// An entry of a channel's ring: where commands are, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The window.
    pub window: u16,
    /// How many commands.
    pub count: u16,
    /// Bytes from the beginning of the window.
    pub offset: u32,
}

impl Entry {
    /// Bytes of an entry.
    pub const BYTES: usize = 8;

    /// As it stands in the ring.
    pub fn emit(self) -> [u8; Self::BYTES] {
        (u64::from(self.window) | u64::from(self.count) << 16 | u64::from(self.offset) << 32).to_le_bytes()
    }

    /// From a ring.
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        let bits = u64::from_le_bytes(bytes);
        Self { window: bits as u16, count: (bits >> 16) as u16, offset: (bits >> 32) as u32 }
    }
}

/// Bits of a released semaphore: a payload of eight bytes and, eight bytes on, the GPU's time in nanoseconds.
pub const SEMAPHORE_BYTES: u64 = 16;

/// Something that a channel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpuCommand {
    /// Copies bytes.
    Copy {
        /// From where.
        from: Place,
        /// To where.
        to: Place,
        /// How many.
        bytes: u64,
    },
    /// Waits until a semaphore's payload is at least so much.
    Acquire {
        /// The semaphore.
        at: Place,
        /// Its least payload.
        value: u64,
    },
    /// When all before it is done, writes a semaphore: payload and time.
    Release {
        /// The semaphore.
        at: Place,
        /// Its payload.
        value: u64,
    },
    /// Runs one of the GPU's programs.
    Launch(Launch),
}

/// A program with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Which.
    pub program: Program,
    /// Where it looks for counts that arrive.
    pub polled: Place,
    /// Where it writes its own.
    pub written: Place,
    /// Where it leaves the nanoseconds that it has taken.
    pub result: Place,
    /// Rounds; of [`Program::Busy`], nanoseconds.
    pub count: u32,
}

/// What is compiled for the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Program {
    /// Computes for so many nanoseconds. For none it is the empty kernel.
    Busy = 0,
    /// Writes 1, waits until it has come back, writes 2, and so on.
    Ping = 1,
    /// Waits for each next number and writes it back.
    Pong = 2,
}

impl Program {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Busy,
            1 => Self::Ping,
            2 => Self::Pong,
            _ => return None,
        })
    }
}

impl GpuCommand {
    /// Bytes of a command.
    pub const BYTES: usize = 64;

    /// As it stands in memory:
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

    /// From memory; `None` if it is no command.
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

/// Why a channel has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Fault {
    /// A command or an entry is none.
    Malformed = 1,
    /// A place is in no window, or behind its end.
    Address = 2,
    /// A read brought no data.
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
