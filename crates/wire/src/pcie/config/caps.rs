//! Capability lookup by register reads (base spec 7.5.3, 7.6).

use super::{EXTENDED, header};

/// IDs of capabilities in the first 256 bytes.
pub mod id {
    /// Power management (7.5.2).
    pub const POWER_MANAGEMENT: u8 = 0x01;
    /// MSI (7.7.1).
    pub const MSI: u8 = 0x05;
    /// Vendor-specific.
    pub const VENDOR: u8 = 0x09;
    /// PCI Express (7.5.3).
    pub const PCI_EXPRESS: u8 = 0x10;
    /// MSI-X (7.7.2).
    pub const MSIX: u8 = 0x11;
}

/// IDs of extended capabilities.
pub mod extended_id {
    /// Advanced error reporting.
    pub const AER: u16 = 0x0001;
    /// Device serial number.
    pub const SERIAL: u16 = 0x0003;
    /// Access control services.
    pub const ACS: u16 = 0x000d;
    /// Alternative routing-ID interpretation.
    pub const ARI: u16 = 0x000e;
    /// Address translation services.
    pub const ATS: u16 = 0x000f;
    /// Single-root I/O virtualisation.
    pub const SRIOV: u16 = 0x0010;
    /// Resizable BARs.
    pub const REBAR: u16 = 0x0015;
    /// Latency tolerance reporting.
    pub const LTR: u16 = 0x0018;
    /// Secondary PCI Express.
    pub const SECONDARY_PCIE: u16 = 0x0019;
    /// Downstream port containment.
    pub const DPC: u16 = 0x001d;
}

/// A capability in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Capability ID; 8 bits except for extended capabilities.
    pub id: u16,
    /// Version of an extended capability; otherwise 0.
    pub version: u8,
    /// Offset of its header.
    pub offset: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Status,
    Pointer,
    Entry(u16),
    Done,
}

/// A walk along a capability list in which the caller does the reads, so that it can wait for each register:
///
/// ```
/// # let read = |_: u16| 0u32;
/// let mut walk = wire::pcie::config::caps::Walk::standard();
/// while let Some(register) = walk.wants() {
///     if let Some(found) = walk.take(read(register)) {
///         println!("capability {:#x} at {:#x}", found.id, found.offset);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Walk {
    step: Step,
    extended: bool,
    /// Maximum number of further entries, so that a malformed list that loops ends.
    left: u16,
}

impl Walk {
    /// Walks the capabilities in the first 256 bytes.
    pub const fn standard() -> Self {
        Self { step: Step::Status, extended: false, left: (256 - 64) / 4 }
    }

    /// Walks the extended capabilities.
    pub const fn extended() -> Self {
        Self { step: Step::Entry(EXTENDED), extended: true, left: (4096 - 256) / 8 - 1 }
    }

    /// Offset of the next doubleword to read; `None` at the end of the list.
    pub const fn wants(&self) -> Option<u16> {
        match self.step {
            Step::Status => Some(header::COMMAND),
            Step::Pointer => Some(header::CAPABILITIES),
            Step::Entry(offset) => Some(offset),
            Step::Done => None,
        }
    }

    /// Processes the doubleword that was read.
    pub fn take(&mut self, value: u32) -> Option<Found> {
        match self.step {
            // All ones: no function responded.
            _ if value == u32::MAX => self.step = Step::Done,
            Step::Status if (value >> 16) as u16 & header::STATUS_CAPABILITIES != 0 => {
                self.step = Step::Pointer
            }
            Step::Status | Step::Done => self.step = Step::Done,
            Step::Pointer => self.go_to(value as u16 & 0xfc),
            Step::Entry(offset) => {
                let found = if self.extended {
                    self.go_to((value >> 20) as u16 & 0xffc);
                    Found { id: value as u16, version: (value >> 16) as u8 & 0xf, offset }
                } else {
                    self.go_to((value >> 8) as u16 & 0xfc);
                    Found { id: value as u16 & 0xff, version: 0, offset }
                };
                // An empty extended list is a single header of zeros.
                return (found.id != 0).then_some(found);
            }
        }
        None
    }

    fn go_to(&mut self, offset: u16) {
        let lowest = if self.extended { EXTENDED } else { 0x40 };
        self.step = if offset >= lowest && self.left > 0 { Step::Entry(offset) } else { Step::Done };
        self.left = self.left.saturating_sub(1);
    }
}

fn search(mut walk: Walk, read: &dyn Fn(u16) -> u32, id: u16) -> Option<u16> {
    while let Some(register) = walk.wants() {
        if let Some(found) = walk.take(read(register)).filter(|f| f.id == id) {
            return Some(found.offset);
        }
    }
    None
}

/// Offset of the first capability with this ID in the first 256 bytes.
pub fn find(read: &dyn Fn(u16) -> u32, id: u8) -> Option<u16> {
    search(Walk::standard(), read, u16::from(id))
}

/// Offset of the first extended capability with this ID.
pub fn find_extended(read: &dyn Fn(u16) -> u32, id: u16) -> Option<u16> {
    search(Walk::extended(), read, id)
}
