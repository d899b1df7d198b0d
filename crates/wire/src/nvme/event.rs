//! Asynchronous events: doubleword 0 of the completion of an Asynchronous Event Request (section 5.2).

/// Something that the host should know of, reported once until its log page is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AsyncEvent {
    /// Type, 3 bits.
    pub kind: u8,
    /// Event information: the event within its type.
    pub information: u8,
    /// Log page with details, whose reading re-enables events of this type.
    pub log: u8,
}

/// Type: error status.
pub const ERROR: u8 = 0;
/// Type: notice.
pub const NOTICE: u8 = 2;

impl AsyncEvent {
    /// Write to the doorbell of a queue that does not exist.
    pub const INVALID_DOORBELL: Self = Self { kind: ERROR, information: 0, log: super::log::ERROR };
    /// Write of an impossible value to a queue's doorbell.
    pub const INVALID_DOORBELL_VALUE: Self = Self { kind: ERROR, information: 1, log: super::log::ERROR };
    /// Persistent internal error.
    pub const PERSISTENT_ERROR: Self = Self { kind: ERROR, information: 3, log: super::log::ERROR };
    /// A namespace was added, removed, or changed.
    pub const NAMESPACE_CHANGED: Self =
        Self { kind: NOTICE, information: 0, log: super::log::CHANGED_NAMESPACES };

    /// From doubleword 0.
    pub const fn from_bits(value: u32) -> Self {
        Self { kind: value as u8 & 7, information: (value >> 8) as u8, log: (value >> 16) as u8 }
    }

    /// Doubleword 0.
    pub const fn to_bits(self) -> u32 {
        (self.kind as u32 & 7) | (self.information as u32) << 8 | (self.log as u32) << 16
    }
}
