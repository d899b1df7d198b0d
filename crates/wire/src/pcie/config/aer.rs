//! Advanced error reporting (base spec 7.8.4). Offsets are relative to its header.

use super::image::Image;

/// Uncorrectable error status.
pub const UNCORRECTABLE_STATUS: u16 = 0x04;
/// Uncorrectable error mask.
pub const UNCORRECTABLE_MASK: u16 = 0x08;
/// Uncorrectable error severity: 1 is fatal.
pub const UNCORRECTABLE_SEVERITY: u16 = 0x0c;
/// Correctable error status.
pub const CORRECTABLE_STATUS: u16 = 0x10;
/// Correctable error mask.
pub const CORRECTABLE_MASK: u16 = 0x14;
/// Capabilities and control: first error pointer, ECRC.
pub const CONTROL: u16 = 0x18;
/// Control: ECRC generation capable.
pub const ECRC_GENERATION_CAPABLE: u32 = 1 << 5;
/// Control: ECRC generation enable.
pub const ECRC_GENERATION_ENABLE: u32 = 1 << 6;
/// Control: ECRC check capable.
pub const ECRC_CHECK_CAPABLE: u32 = 1 << 7;
/// Control: ECRC check enable.
pub const ECRC_CHECK_ENABLE: u32 = 1 << 8;
/// Header of the first TLP with an error, 16 bytes.
pub const HEADER_LOG: u16 = 0x1c;
/// Root error command (root ports).
pub const ROOT_COMMAND: u16 = 0x2c;
/// Root error status (root ports).
pub const ROOT_STATUS: u16 = 0x30;
/// Requester IDs of the first correctable and the first uncorrectable error (root ports).
pub const ROOT_SOURCE: u16 = 0x34;
/// Bytes of the capability, including the root ports' registers.
pub const LEN: u16 = 0x38;

/// Uncorrectable errors, as bits of the status register.
pub mod uncorrectable {
    /// Data link protocol error.
    pub const DATA_LINK_PROTOCOL: u32 = 1 << 4;
    /// The link went down unexpectedly.
    pub const SURPRISE_DOWN: u32 = 1 << 5;
    /// Poisoned TLP received.
    pub const POISONED: u32 = 1 << 12;
    /// Flow control protocol error.
    pub const FLOW_CONTROL: u32 = 1 << 13;
    /// A request of this function got no completion in time.
    pub const COMPLETION_TIMEOUT: u32 = 1 << 14;
    /// A completion matches no outstanding request.
    pub const UNEXPECTED_COMPLETION: u32 = 1 << 16;
    /// Receiver overflow: the transmitter exceeded its credits.
    pub const RECEIVER_OVERFLOW: u32 = 1 << 17;
    /// Malformed TLP.
    pub const MALFORMED: u32 = 1 << 18;
    /// ECRC error.
    pub const ECRC: u32 = 1 << 19;
    /// A request was received that nothing here handles.
    pub const UNSUPPORTED_REQUEST: u32 = 1 << 20;
    /// Access control services blocked a request.
    pub const ACS_VIOLATION: u32 = 1 << 21;
    /// Internal error.
    pub const INTERNAL: u32 = 1 << 22;
    /// All of the above.
    pub const ALL: u32 = 0x007f_f030;
    /// Errors that are fatal unless software changes the severity register.
    pub const FATAL_BY_DEFAULT: u32 =
        DATA_LINK_PROTOCOL | SURPRISE_DOWN | FLOW_CONTROL | RECEIVER_OVERFLOW | MALFORMED | INTERNAL;

    /// The errors of a status register in words.
    pub fn words(status: u32) -> String {
        let names = [
            (DATA_LINK_PROTOCOL, "data link protocol"),
            (SURPRISE_DOWN, "surprise down"),
            (POISONED, "poisoned TLP"),
            (FLOW_CONTROL, "flow control protocol"),
            (COMPLETION_TIMEOUT, "completion time-out"),
            (1 << 15, "completer abort"),
            (UNEXPECTED_COMPLETION, "unexpected completion"),
            (RECEIVER_OVERFLOW, "receiver overflow"),
            (MALFORMED, "malformed TLP"),
            (ECRC, "ECRC"),
            (UNSUPPORTED_REQUEST, "unsupported request"),
            (ACS_VIOLATION, "ACS violation"),
            (INTERNAL, "internal"),
        ];
        let set = names.iter().filter(|(bit, _)| status & bit != 0).map(|(_, name)| *name);
        set.collect::<Vec<_>>().join(", ")
    }
}

/// Root error command: which errors interrupt (7.8.4.9).
pub mod root_command {
    /// Correctable errors.
    pub const CORRECTABLE: u32 = 1 << 0;
    /// Non-fatal errors.
    pub const NON_FATAL: u32 = 1 << 1;
    /// Fatal errors.
    pub const FATAL: u32 = 1 << 2;
    /// All of the above.
    pub const ALL: u32 = CORRECTABLE | NON_FATAL | FATAL;
}

/// Root error status (7.8.4.10).
pub mod root_status {
    /// A correctable error was reported.
    pub const CORRECTABLE: u32 = 1 << 0;
    /// Further ones, whose source is not recorded.
    pub const MORE_CORRECTABLE: u32 = 1 << 1;
    /// An uncorrectable error was reported.
    pub const UNCORRECTABLE: u32 = 1 << 2;
    /// Further ones, whose source is not recorded.
    pub const MORE_UNCORRECTABLE: u32 = 1 << 3;
    /// The first uncorrectable error was fatal.
    pub const FIRST_FATAL: u32 = 1 << 4;
    /// A non-fatal error was reported.
    pub const NON_FATAL: u32 = 1 << 5;
    /// A fatal error was reported.
    pub const FATAL: u32 = 1 << 6;
    /// All of the above, which are cleared by writing ones.
    pub const ALL: u32 = 0x7f;
}

/// Correctable errors, as bits of the status register.
pub mod correctable {
    /// Receiver error.
    pub const RECEIVER: u32 = 1 << 0;
    /// Bad TLP (LCRC, sequence).
    pub const BAD_TLP: u32 = 1 << 6;
    /// Bad DLLP (CRC).
    pub const BAD_DLLP: u32 = 1 << 7;
    /// REPLAY_NUM rollover: the same TLP was sent four times.
    pub const REPLAY_ROLLOVER: u32 = 1 << 8;
    /// Replay timer timeout.
    pub const REPLAY_TIMEOUT: u32 = 1 << 12;
    /// Advisory non-fatal error: an uncorrectable error whose handling is left to another agent.
    pub const ADVISORY_NON_FATAL: u32 = 1 << 13;
    /// All of the above, plus internal error and header log overflow.
    pub const ALL: u32 = 0x0000_f1c1;
}

pub(super) fn emit(image: &mut Image, at: u16, root_port: bool) {
    image
        .rw1c32(at + UNCORRECTABLE_STATUS, uncorrectable::ALL)
        .sticky32(at + UNCORRECTABLE_STATUS, u32::MAX)
        .value32(at + UNCORRECTABLE_MASK, 1 << 22)
        .rw32(at + UNCORRECTABLE_MASK, uncorrectable::ALL)
        .sticky32(at + UNCORRECTABLE_MASK, u32::MAX)
        .value32(at + UNCORRECTABLE_SEVERITY, uncorrectable::FATAL_BY_DEFAULT)
        .rw32(at + UNCORRECTABLE_SEVERITY, uncorrectable::ALL)
        .sticky32(at + UNCORRECTABLE_SEVERITY, u32::MAX)
        .rw1c32(at + CORRECTABLE_STATUS, correctable::ALL)
        .sticky32(at + CORRECTABLE_STATUS, u32::MAX)
        .value32(at + CORRECTABLE_MASK, correctable::ADVISORY_NON_FATAL | 0xc000)
        .rw32(at + CORRECTABLE_MASK, correctable::ALL)
        .sticky32(at + CORRECTABLE_MASK, u32::MAX)
        // Without `emit_ecrc`, bits 5 to 8 stay zero: ECRC is optional (base spec 7.8.4.7).
        .sticky32(at + CONTROL, u32::MAX);
    for dw in 0..4 {
        image.sticky32(at + HEADER_LOG + 4 * dw, u32::MAX);
    }
    if root_port {
        image
            .rw32(at + ROOT_COMMAND, root_command::ALL)
            .rw1c32(at + ROOT_STATUS, root_status::ALL)
            .sticky32(at + ROOT_STATUS, u32::MAX)
            .sticky32(at + ROOT_SOURCE, u32::MAX);
    }
}

/// Makes ECRC generation and checking available to software.
pub(super) fn emit_ecrc(image: &mut Image, at: u16) {
    image
        .value32(at + CONTROL, ECRC_GENERATION_CAPABLE | ECRC_CHECK_CAPABLE)
        .rw32(at + CONTROL, ECRC_GENERATION_ENABLE | ECRC_CHECK_ENABLE);
}
