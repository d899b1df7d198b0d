//! Features of Get and Set Features (section 5.21.1): doubleword 11, typed.

/// Arbitration: in which shares commands are taken from the submission queues.
pub const ARBITRATION: u8 = 0x01;
/// Power Management: the power state.
pub const POWER_MANAGEMENT: u8 = 0x02;
/// Temperature Threshold: from which temperature on a warning is due.
pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
/// Error Recovery: time limit of retries, errors of deallocated blocks.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile Write Cache: whether it is on.
pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
/// Number of Queues: how many I/O queues the host may create.
pub const NUMBER_OF_QUEUES: u8 = 0x07;
/// Interrupt Coalescing: how many completions may wait for one interrupt, and how long.
pub const INTERRUPT_COALESCING: u8 = 0x08;
/// Interrupt Vector Configuration.
pub const INTERRUPT_VECTOR: u8 = 0x09;
/// Write Atomicity Normal.
pub const WRITE_ATOMICITY: u8 = 0x0a;
/// Asynchronous Event Configuration.
pub const ASYNC_EVENTS: u8 = 0x0b;

/// A feature's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Arbitration among submission queues ("Command Arbitration").
    Arbitration {
        /// Maximum consecutive commands from one queue: log2, 7 for no limit.
        burst: u8,
        /// Low-priority commands per round, minus one.
        low: u8,
        /// Medium-priority commands per round, minus one.
        medium: u8,
        /// High-priority commands per round, minus one.
        high: u8,
    },
    /// Power state.
    PowerManagement {
        /// Number of the power state.
        state: u8,
        /// Workload hint.
        workload: u8,
    },
    /// Volatile write cache: whether writes may complete before they are durable.
    VolatileWriteCache {
        /// Enables the cache.
        enabled: bool,
    },
    /// Number of I/O queues, each minus one.
    NumberOfQueues {
        /// Submission queues.
        submission: u16,
        /// Completion queues.
        completion: u16,
    },
    /// Interrupt coalescing: an interrupt is due at the threshold, or after the time.
    InterruptCoalescing {
        /// Number of completions, minus one.
        threshold: u8,
        /// Maximum delay in units of 100 µs; 0 for no delay.
        time: u8,
    },
    /// Configuration of one interrupt vector.
    InterruptVector {
        /// Interrupt vector.
        vector: u16,
        /// Disables coalescing for this vector.
        no_coalescing: bool,
    },
    /// Write atomicity: whether only atomicity across power failure is required (DN).
    WriteAtomicity {
        /// Normal atomicity is not required.
        disable_normal: bool,
    },
    /// Enabled asynchronous events.
    AsyncEvents {
        /// Critical warnings of the SMART log, one bit each.
        health: u8,
        /// Namespace attribute changes.
        namespaces: bool,
        /// Firmware activation.
        firmware: bool,
    },
}

impl Feature {
    /// The feature's identifier.
    pub const fn id(&self) -> u8 {
        match self {
            Self::Arbitration { .. } => ARBITRATION,
            Self::PowerManagement { .. } => POWER_MANAGEMENT,
            Self::VolatileWriteCache { .. } => VOLATILE_WRITE_CACHE,
            Self::NumberOfQueues { .. } => NUMBER_OF_QUEUES,
            Self::InterruptCoalescing { .. } => INTERRUPT_COALESCING,
            Self::InterruptVector { .. } => INTERRUPT_VECTOR,
            Self::WriteAtomicity { .. } => WRITE_ATOMICITY,
            Self::AsyncEvents { .. } => ASYNC_EVENTS,
        }
    }

    /// From an identifier and doubleword 11 (or doubleword 0 of a completion).
    pub const fn from_bits(id: u8, value: u32) -> Option<Self> {
        let [a, b, c, d] = value.to_le_bytes();
        Some(match id {
            ARBITRATION => Self::Arbitration { burst: a & 7, low: b, medium: c, high: d },
            POWER_MANAGEMENT => Self::PowerManagement { state: a & 0x1f, workload: a >> 5 },
            VOLATILE_WRITE_CACHE => Self::VolatileWriteCache { enabled: a & 1 == 1 },
            NUMBER_OF_QUEUES => {
                Self::NumberOfQueues { submission: value as u16, completion: (value >> 16) as u16 }
            }
            INTERRUPT_COALESCING => Self::InterruptCoalescing { threshold: a, time: b },
            INTERRUPT_VECTOR => Self::InterruptVector { vector: value as u16, no_coalescing: c & 1 == 1 },
            WRITE_ATOMICITY => Self::WriteAtomicity { disable_normal: a & 1 == 1 },
            ASYNC_EVENTS => {
                Self::AsyncEvents { health: a, namespaces: b & 1 == 1, firmware: b >> 1 & 1 == 1 }
            }
            _ => return None,
        })
    }

    /// Doubleword 11.
    pub const fn to_bits(self) -> u32 {
        match self {
            Self::Arbitration { burst, low, medium, high } => {
                u32::from_le_bytes([burst & 7, low, medium, high])
            }
            Self::PowerManagement { state, workload } => (state & 0x1f | workload << 5) as u32,
            Self::VolatileWriteCache { enabled } => enabled as u32,
            Self::NumberOfQueues { submission, completion } => submission as u32 | (completion as u32) << 16,
            Self::InterruptCoalescing { threshold, time } => threshold as u32 | (time as u32) << 8,
            Self::InterruptVector { vector, no_coalescing } => vector as u32 | (no_coalescing as u32) << 16,
            Self::WriteAtomicity { disable_normal } => disable_normal as u32,
            Self::AsyncEvents { health, namespaces, firmware } => {
                health as u32 | (namespaces as u32) << 8 | (firmware as u32) << 9
            }
        }
    }
}
