//! Faults: reasons, fault recording registers, and counters by requester.

use super::ids::Access;
use std::collections::BTreeMap;
use std::fmt;
use units::Time;
use wire::pcie::Bdf;

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
    pub(super) const fn not_permitted(access: Access) -> Self {
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

/// A refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When the fault was detected.
    pub time: Time,
    /// The requester.
    pub requester: Bdf,
    /// The requested address; for an interrupt request its index, shifted as in the register (bits 63:48).
    pub address: u64,
    /// The attempted access.
    pub access: Access,
    /// Why it was refused.
    pub reason: FaultReason,
}

impl Fault {
    /// Encodes the fault recording register, low half first (VT-d specification, section 10.4.14).
    ///
    /// ```text
    /// low   63:12 fault information (page or interrupt index)
    /// high  63 F, 62 T1 (1 = read), 39:32 reason, 15:0 source
    /// ```
    pub const fn encode(self) -> [u64; 2] {
        let read = matches!(self.access, Access::Read) as u64;
        let reason = (self.reason as u64) << 32;
        [self.address & !0xfff, 1 << 63 | read << 62 | reason | self.requester.bits() as u64]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.access == Access::Read { "read of" } else { "write to" };
        let Self { time, requester, address, reason, .. } = self;
        write!(f, "{time}: {requester} {verb} {address:#x} refused: {reason}")
    }
}

/// Why a request is refused, and whether that is recorded or only counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub reason: FaultReason,
    pub is_recorded: bool,
}

impl From<FaultReason> for Refusal {
    fn from(reason: FaultReason) -> Self {
        Self { reason, is_recorded: true }
    }
}

/// Fault recording registers, and counters that no register holds.
#[derive(Debug, Clone)]
pub struct FaultLog {
    records: Vec<Fault>,
    capacity: usize,
    counts: BTreeMap<(Bdf, FaultReason), u64>,
    total: u64,
}

impl FaultLog {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { records: Vec::new(), capacity, counts: BTreeMap::new(), total: 0 }
    }

    /// Counts the fault of a refused request, and records it if it is to be and a register is free.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        time: Time,
        requester: Bdf,
        address: u64,
        access: Access,
        Refusal { reason, is_recorded }: Refusal,
    ) -> Fault {
        let fault = Fault { time, requester, address, access, reason };
        *self.counts.entry((requester, reason)).or_default() += 1;
        self.total += 1;
        if is_recorded && self.records.len() < self.capacity {
            self.records.push(fault);
        }
        fault
    }

    /// Recorded faults, oldest first. Once the registers are full, faults are only counted.
    pub fn records(&self) -> &[Fault] {
        &self.records
    }
    /// Faults of `requester` for `reason` since the beginning.
    pub fn count(&self, requester: Bdf, reason: FaultReason) -> u64 {
        self.counts.get(&(requester, reason)).copied().unwrap_or(0)
    }
    /// All counts, by requester and reason.
    pub fn counts(&self) -> impl Iterator<Item = (Bdf, FaultReason, u64)> + '_ {
        self.counts.iter().map(|(&(requester, reason), &n)| (requester, reason, n))
    }
    /// All faults since the beginning.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(log: &mut FaultLog, n: u64) -> Fault {
        let refusal = FaultReason::ReadNotPermitted.into();
        log.refuse(Time::from_ps(n), Bdf::from_bits(0x0308), n << 12, Access::Read, refusal)
    }

    #[test]
    fn the_oldest_faults_are_kept_and_all_are_counted() {
        let mut log = FaultLog::new(2);
        for n in 0..5 {
            refuse(&mut log, n);
        }
        assert_eq!(log.records().iter().map(|f| f.address >> 12).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(log.count(Bdf::from_bits(0x0308), FaultReason::ReadNotPermitted), 5);
    }

    #[test]
    fn a_record_has_the_registers_layout() {
        let [low, high] = refuse(&mut FaultLog::new(0), 0x1234).encode();
        assert_eq!(low, 0x0123_4000);
        assert_eq!(high, 0xc000_0006_0000_0308);
        assert_eq!(
            refuse(&mut FaultLog::new(0), 1).to_string(),
            "1 ps: 03:01.0 read of 0x1000 refused: page absent or not readable"
        );
    }
}
