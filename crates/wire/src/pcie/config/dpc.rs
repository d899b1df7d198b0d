//! Downstream port containment (base spec 7.9.14), of root ports and downstream ports of switches. Offsets are relative to its
//! header. Extensions for root ports (RP PIO) are optional and absent.

use super::image::Image;

/// Capability: interrupt number 0, software trigger.
pub const CAPABILITY: u16 = 0x04;
/// Control: what triggers, and what is then done.
pub const CONTROL: u16 = 0x06;
/// Status: whether the port contains what is below, and why.
pub const STATUS: u16 = 0x08;
/// Requester ID of the message that triggered.
pub const SOURCE: u16 = 0x0a;
/// Bytes of the capability.
pub const LEN: u16 = 0x0c;

/// Capability: software can trigger.
pub const SOFTWARE_TRIGGERING: u16 = 1 << 7;

/// Control: which errors trigger, [`TriggerEnable`].
pub const CONTROL_TRIGGER: u16 = 0b11;
/// Control: requests to below are completed as unsupported, not as aborted.
pub const CONTROL_UNSUPPORTED: u16 = 1 << 2;
/// Control: interrupt when it triggers.
pub const CONTROL_INTERRUPT: u16 = 1 << 3;
/// Control: triggers when 1 is written, if triggers are enabled; reads as 0.
pub const CONTROL_SOFTWARE: u16 = 1 << 6;

/// Status: it has triggered, and the link stays disabled until software clears this.
pub const STATUS_TRIGGERED: u16 = 1 << 0;
/// Status: the interrupt's cause.
pub const STATUS_INTERRUPT: u16 = 1 << 3;
/// Status: trigger reason and its extension.
const STATUS_REASON: u16 = 0b11 << 1 | 0b11 << 5;

/// Which errors trigger: values of [`CONTROL_TRIGGER`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TriggerEnable {
    /// None.
    #[default]
    Off = 0,
    /// Fatal ones.
    Fatal = 1,
    /// All uncorrectable ones.
    NonFatal = 2,
}

impl TriggerEnable {
    /// Decodes control; the reserved value counts as none.
    pub const fn from_control(control: u16) -> Self {
        match control & CONTROL_TRIGGER {
            1 => Self::Fatal,
            2 => Self::NonFatal,
            _ => Self::Off,
        }
    }
}

/// Why it triggered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The port itself detected an uncorrectable error.
    Detected,
    /// A function below sent ERR_NONFATAL.
    NonFatal,
    /// A function below sent ERR_FATAL.
    Fatal,
    /// Software wrote [`CONTROL_SOFTWARE`].
    Software,
    /// Another, which no port here has.
    Other,
}

impl Reason {
    /// Its bits of the status register.
    pub const fn bits(self) -> u16 {
        match self {
            Self::Detected => 0,
            Self::NonFatal => 1 << 1,
            Self::Fatal => 2 << 1,
            Self::Software => 3 << 1 | 1 << 5,
            Self::Other => 3 << 1 | 2 << 5,
        }
    }

    /// Decodes status.
    pub const fn from_status(status: u16) -> Self {
        match (status >> 1 & 3, status >> 5 & 3) {
            (0, _) => Self::Detected,
            (1, _) => Self::NonFatal,
            (2, _) => Self::Fatal,
            (_, 1) => Self::Software,
            _ => Self::Other,
        }
    }
}

/// Mask of the bits that a trigger sets anew.
pub const STATUS_NEW: u16 = STATUS_TRIGGERED | STATUS_INTERRUPT | STATUS_REASON;

pub(super) fn emit(image: &mut Image, at: u16) {
    image
        .value16(at + CAPABILITY, SOFTWARE_TRIGGERING)
        .rw16(at + CONTROL, CONTROL_TRIGGER | CONTROL_UNSUPPORTED | CONTROL_INTERRUPT)
        .trigger16(at + CONTROL, CONTROL_SOFTWARE)
        .rw1c16(at + STATUS, STATUS_TRIGGERED | STATUS_INTERRUPT)
        .sticky32(at + STATUS, u32::MAX);
}
