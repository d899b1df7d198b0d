//! Reasons of faults.

use super::ids::Access;
use std::fmt;

/// Why a request was refused, with the codes of the VT-d specification's fault reason table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FaultReason {
    /// The root entry of the requester's bus is absent.
    RootNotPresent = 0x01,
    /// The context entry of the requester is absent: it belongs to no domain, or is blocked.
    ContextNotPresent = 0x02,
    /// The context entry is invalid: an unsupported address width or translation type.
    ContextInvalid = 0x03,
    /// The address is beyond the width of the domain's address space.
    BeyondAddressWidth = 0x04,
    /// A write to a page that is absent or does not permit it.
    WriteNotPermitted = 0x05,
    /// A read of a page that is absent or does not permit it.
    ReadNotPermitted = 0x06,
    /// A page table lies where no memory answers.
    PageTableUnreachable = 0x07,
    /// The root table lies where no memory answers.
    RootTableUnreachable = 0x08,
    /// The context table lies where no memory answers.
    ContextTableUnreachable = 0x09,
    /// A reserved bit of the root entry is set.
    RootReserved = 0x0a,
    /// A reserved bit of the context entry is set.
    ContextReserved = 0x0b,
    /// A reserved bit of a page table entry is set.
    PageTableReserved = 0x0c,
    /// A translated request or a translation request from a function whose context entry does not allow ATS.
    AtsBlocked = 0x0d,
    /// An interrupt request with reserved bits set.
    InterruptReserved = 0x20,
    /// An interrupt index beyond the interrupt remapping table.
    InterruptIndexBeyondTable = 0x21,
    /// The interrupt remapping table entry is absent.
    InterruptNotPresent = 0x22,
    /// The interrupt remapping table lies where no memory answers.
    InterruptTableUnreachable = 0x23,
    /// A reserved bit of the interrupt remapping table entry is set.
    InterruptEntryReserved = 0x24,
    /// A compatibility-format interrupt request while those are blocked.
    CompatibilityInterruptBlocked = 0x25,
    /// The interrupt remapping table entry belongs to another requester.
    InterruptSourceRejected = 0x26,
    /// A request other than an interrupt to the interrupt address range 0xfee0_0000 to 0xfeef_ffff.
    ///
    /// The specification treats it as an unsupported request and gives it no fault code; this one is ours.
    InterruptRange = 0xfe,
}

impl FaultReason {
    /// Encoding in the fault reason field.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// For a page that is absent or does not permit `access`.
    pub const fn not_permitted(access: Access) -> Self {
        match access {
            Access::Read => Self::ReadNotPermitted,
            Access::Write => Self::WriteNotPermitted,
        }
    }
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RootNotPresent => "no root entry for its bus",
            Self::ContextNotPresent => "no context entry: in no domain, or blocked",
            Self::ContextInvalid => "context entry invalid",
            Self::BeyondAddressWidth => "address beyond the domain's width",
            Self::WriteNotPermitted => "page absent or not writable",
            Self::ReadNotPermitted => "page absent or not readable",
            Self::PageTableUnreachable => "page table outside memory",
            Self::RootTableUnreachable => "root table outside memory",
            Self::ContextTableUnreachable => "context table outside memory",
            Self::RootReserved => "reserved bit in the root entry",
            Self::ContextReserved => "reserved bit in the context entry",
            Self::PageTableReserved => "reserved bit in a page table entry",
            Self::AtsBlocked => "ATS not allowed for this function",
            Self::InterruptReserved => "reserved bit in the interrupt request",
            Self::InterruptIndexBeyondTable => "interrupt index beyond the table",
            Self::InterruptNotPresent => "no such interrupt",
            Self::InterruptTableUnreachable => "interrupt table outside memory",
            Self::InterruptEntryReserved => "reserved bit in the interrupt entry",
            Self::CompatibilityInterruptBlocked => "compatibility-format interrupt blocked",
            Self::InterruptSourceRejected => "interrupt of another function",
            Self::InterruptRange => "not an interrupt, but in the interrupt range",
        })
    }
}
