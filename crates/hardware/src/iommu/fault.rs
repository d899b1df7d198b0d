//! Faults: reasons, fault recording registers, and counters by requester.

use std::collections::BTreeMap;
use std::fmt;
use units::Time;
use wire::pcie::Bdf;
use wire::vtd::{Access, FaultReason};

/// A refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When the fault was detected.
    pub time: Time,
    /// ID of the function that asked.
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
