//! Status of a completed command (section 4.6.1).

use core::fmt;

/// Status code type and status code, with the flags that go with them: bits 31 to 17 of the last doubleword.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status {
    /// Status code type, 3 bits.
    pub kind: u8,
    /// Status code.
    pub code: u8,
    /// Command retry delay, 2 bits: which of the controller's retry delays to use.
    pub retry_delay: u8,
    /// The error log has more information.
    pub more: bool,
    /// The same command would fail again if retried.
    pub do_not_retry: bool,
}

/// Status code type: generic codes of any command.
pub const GENERIC: u8 = 0;
/// Status code type: command-specific codes.
pub const COMMAND_SPECIFIC: u8 = 1;
/// Status code type: media and data integrity errors.
pub const MEDIA: u8 = 2;

macro_rules! codes {
    ($( $(#[$attribute:meta])* $name:ident = $kind:ident $code:literal $text:literal, )*) => {
        impl Status {
            $( $(#[$attribute])* pub const $name: Self = Self::new($kind, $code); )*

            /// Name of the code.
            pub const fn name(self) -> &'static str {
                match (self.kind, self.code) {
                    $( ($kind, $code) => $text, )*
                    _ => "unknown status",
                }
            }
        }
    };
}

codes! {
    /// Done, without errors.
    SUCCESS = GENERIC 0x00 "success",
    /// The opcode is not supported.
    INVALID_OPCODE = GENERIC 0x01 "invalid command opcode",
    /// A field has a value that is reserved or not supported.
    INVALID_FIELD = GENERIC 0x02 "invalid field in command",
    /// Another command of the queue has the same identifier.
    ID_CONFLICT = GENERIC 0x03 "command ID conflict",
    /// Data or metadata could not be transferred.
    DATA_TRANSFER_ERROR = GENERIC 0x04 "data transfer error",
    /// Aborted because power is about to be lost.
    POWER_LOSS = GENERIC 0x05 "commands aborted due to power loss notification",
    /// The controller failed.
    INTERNAL_ERROR = GENERIC 0x06 "internal error",
    /// Aborted by an Abort command.
    ABORT_REQUESTED = GENERIC 0x07 "command abort requested",
    /// Aborted because its submission queue was deleted.
    SQ_DELETED = GENERIC 0x08 "command aborted due to SQ deletion",
    /// The other command of a fused pair failed.
    FAILED_FUSED = GENERIC 0x09 "command aborted due to failed fused command",
    /// The other command of a fused pair is missing.
    MISSING_FUSED = GENERIC 0x0a "command aborted due to missing fused command",
    /// No such namespace, or its format does not fit.
    INVALID_NAMESPACE = GENERIC 0x0b "invalid namespace or format",
    /// The command is out of sequence.
    SEQUENCE_ERROR = GENERIC 0x0c "command sequence error",
    /// An SGL segment's descriptor is wrong.
    INVALID_SGL_SEGMENT = GENERIC 0x0d "invalid SGL segment descriptor",
    /// Too many or too few SGL descriptors.
    INVALID_SGL_COUNT = GENERIC 0x0e "invalid number of SGL descriptors",
    /// The SGL is shorter or longer than the data.
    SGL_LENGTH_INVALID = GENERIC 0x0f "data SGL length invalid",
    /// The type of an SGL descriptor is not supported.
    SGL_TYPE_INVALID = GENERIC 0x11 "SGL descriptor type invalid",
    /// The controller memory buffer cannot be used for this.
    INVALID_CMB_USE = GENERIC 0x12 "invalid use of controller memory buffer",
    /// A PRP entry has an offset where none is allowed.
    PRP_OFFSET_INVALID = GENERIC 0x13 "PRP offset invalid",
    /// More than an atomic write unit.
    ATOMIC_UNIT_EXCEEDED = GENERIC 0x14 "atomic write unit exceeded",
    /// The address of an SGL has an offset where none is allowed.
    SGL_OFFSET_INVALID = GENERIC 0x16 "SGL offset invalid",
    /// Beyond the end of the namespace.
    LBA_OUT_OF_RANGE = GENERIC 0x80 "LBA out of range",
    /// Exceeds the namespace's capacity.
    CAPACITY_EXCEEDED = GENERIC 0x81 "capacity exceeded",
    /// The namespace is not ready.
    NAMESPACE_NOT_READY = GENERIC 0x82 "namespace not ready",
    /// The namespace is reserved for another host.
    RESERVATION_CONFLICT = GENERIC 0x83 "reservation conflict",
    /// The namespace is being formatted.
    FORMAT_IN_PROGRESS = GENERIC 0x84 "format in progress",
    /// The completion queue of a submission queue does not exist.
    CQ_INVALID = COMMAND_SPECIFIC 0x00 "completion queue invalid",
    /// A queue identifier is out of range or in use.
    INVALID_QUEUE_ID = COMMAND_SPECIFIC 0x01 "invalid queue identifier",
    /// A queue is too small or too large.
    INVALID_QUEUE_SIZE = COMMAND_SPECIFIC 0x02 "invalid queue size",
    /// Too many concurrent Abort commands.
    ABORT_LIMIT = COMMAND_SPECIFIC 0x03 "abort command limit exceeded",
    /// Too many outstanding Asynchronous Event Requests.
    EVENT_LIMIT = COMMAND_SPECIFIC 0x05 "asynchronous event request limit exceeded",
    /// No such firmware slot.
    INVALID_FIRMWARE_SLOT = COMMAND_SPECIFIC 0x06 "invalid firmware slot",
    /// No such interrupt vector.
    INVALID_VECTOR = COMMAND_SPECIFIC 0x08 "invalid interrupt vector",
    /// No such log page.
    INVALID_LOG_PAGE = COMMAND_SPECIFIC 0x09 "invalid log page",
    /// The LBA format is not supported.
    INVALID_FORMAT = COMMAND_SPECIFIC 0x0a "invalid format",
    /// The completion queue is still in use by submission queues.
    INVALID_QUEUE_DELETION = COMMAND_SPECIFIC 0x0c "invalid queue deletion",
    /// The feature's value cannot be saved.
    NOT_SAVEABLE = COMMAND_SPECIFIC 0x0d "feature identifier not saveable",
    /// The feature's value cannot be changed.
    NOT_CHANGEABLE = COMMAND_SPECIFIC 0x0e "feature not changeable",
    /// The feature is not namespace-specific.
    NOT_NAMESPACE_SPECIFIC = COMMAND_SPECIFIC 0x0f "feature not namespace specific",
    /// Not enough free capacity for the namespace.
    INSUFFICIENT_CAPACITY = COMMAND_SPECIFIC 0x15 "namespace insufficient capacity",
    /// No namespace identifier is free.
    NAMESPACE_ID_UNAVAILABLE = COMMAND_SPECIFIC 0x16 "namespace identifier unavailable",
    /// The namespace is already attached to the controller.
    ALREADY_ATTACHED = COMMAND_SPECIFIC 0x18 "namespace already attached",
    /// The namespace is private and already attached to another controller.
    NAMESPACE_PRIVATE = COMMAND_SPECIFIC 0x19 "namespace is private",
    /// The namespace is not attached to the controller.
    NOT_ATTACHED = COMMAND_SPECIFIC 0x1a "namespace not attached",
    /// Thin provisioning is not supported.
    NO_THIN_PROVISIONING = COMMAND_SPECIFIC 0x1b "thin provisioning not supported",
    /// The controller list is empty or has an invalid controller.
    CONTROLLER_LIST_INVALID = COMMAND_SPECIFIC 0x1c "controller list invalid",
    /// Fields that exclude each other.
    CONFLICTING_ATTRIBUTES = COMMAND_SPECIFIC 0x80 "conflicting attributes",
    /// Protection information that the namespace's format does not have.
    INVALID_PROTECTION = COMMAND_SPECIFIC 0x81 "invalid protection information",
    /// The media could not be written.
    WRITE_FAULT = MEDIA 0x80 "write fault",
    /// The media could not be read.
    READ_ERROR = MEDIA 0x81 "unrecovered read error",
    /// The data compared are not the same.
    COMPARE_FAILURE = MEDIA 0x85 "compare failure",
    /// The block has been deallocated or was never written.
    UNWRITTEN = MEDIA 0x87 "deallocated or unwritten logical block",
}

impl Status {
    /// A status without flags.
    pub const fn new(kind: u8, code: u8) -> Self {
        Self { kind, code, retry_delay: 0, more: false, do_not_retry: false }
    }

    /// The same with Do Not Retry.
    #[must_use]
    pub const fn dnr(self) -> Self {
        Self { do_not_retry: true, ..self }
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.kind == GENERIC && self.code == 0
    }

    /// Whether type and code equal those of `other`, regardless of flags.
    pub const fn is(self, other: Self) -> bool {
        self.kind == other.kind && self.code == other.code
    }

    /// From the status field, 15 bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self {
            code: bits as u8,
            kind: (bits >> 8) as u8 & 7,
            retry_delay: (bits >> 11) as u8 & 3,
            more: bits >> 13 & 1 == 1,
            do_not_retry: bits >> 14 & 1 == 1,
        }
    }

    /// The status field, 15 bits.
    pub const fn to_bits(self) -> u16 {
        self.code as u16
            | (self.kind as u16 & 7) << 8
            | (self.retry_delay as u16 & 3) << 11
            | (self.more as u16) << 13
            | (self.do_not_retry as u16) << 14
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:x}/{:02x})", self.name(), self.kind, self.code)?;
        if self.do_not_retry {
            f.write_str(", do not retry")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
