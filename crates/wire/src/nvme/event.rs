//! Asynchronous events: doubleword 0 of the completion of an Asynchronous Event Request (section 5.2).

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AsyncEvent {
    /// Type, 3 bits.
    pub kind: u8,
    /// Which event of its type.
    pub information: u8,
    /// Log page that says more and that, when read, lets further events of the type come.
    pub log: u8,
}

/// Type: error status.
pub const ERROR: u8 = 0;
/// Type: notice.
pub const NOTICE: u8 = 2;

impl AsyncEvent {
    /// A doorbell was written that belongs to no queue.
    pub const INVALID_DOORBELL: Self = Self { kind: ERROR, information: 0, log: super::log::ERROR };
    /// A doorbell was written with a value that its queue cannot have.
    pub const INVALID_DOORBELL_VALUE: Self = Self { kind: ERROR, information: 1, log: super::log::ERROR };
    /// The controller failed for good.
    pub const PERSISTENT_ERROR: Self = Self { kind: ERROR, information: 3, log: super::log::ERROR };
    /// A namespace appeared, went, or changed.
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
