//! Address translation services (PCIe base specification, section 10): what the IOMMU answers to a
//! function that keeps translations in a cache of its own.

use super::Iommu;
use super::fault::{Fault, FaultReason};
use super::format::TranslationType;
use super::ids::{Access, PageSize, Permissions};
use super::memory::WalkMemory;
use super::translate::is_interrupt_address;
use units::{HostPhysical, Iova, Time};
use wire::pcie::Bdf;

/// How a translation completion ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtsStatus {
    /// Successful completion; the entry may still permit nothing.
    Success,
    /// Unsupported request: ATS is not allowed for this function. It should stop asking.
    UnsupportedRequest,
    /// Completer abort: the tables are broken.
    CompleterAbort,
}

/// One translation of a translation completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtsEntry {
    /// The page's host-physical address.
    pub frame: HostPhysical,
    /// Its size.
    pub size: PageSize,
    /// What it permits; nothing if there is no page.
    pub permissions: Permissions,
}

impl AtsEntry {
    /// The 8 bytes of the completion's payload.
    ///
    /// ```text
    /// 63:12 translated address; of a larger page its low bits are 0111...1 up to the size
    /// 11 S larger than 4 KiB, 2 U untranslated access only, 1 W, 0 R
    /// ```
    pub const fn encode(self) -> u64 {
        let permissions = self.permissions.read as u64 | (self.permissions.write as u64) << 1;
        if self.permissions.is_none() {
            return 0;
        }
        let low = match self.size {
            PageSize::Size4KiB => 0,
            // All address bits below the page's highest offset bit are ones, and that bit is zero.
            size => 1 << 11 | (size.get() / 2 - 1) & !0xfff,
        };
        self.frame.get() & !(self.size.get() - 1) | low | permissions
    }

    /// Reads the 8 bytes; sizes that are not a page table's become the next smaller.
    pub const fn decode(word: u64) -> Self {
        let permissions = Permissions { read: word & 1 != 0, write: word & 2 != 0 };
        let ones = (word >> 12).trailing_ones();
        let size = match (word & 1 << 11 != 0, ones) {
            (true, 17..) => PageSize::Size1GiB,
            (true, 8..) => PageSize::Size2MiB,
            _ => PageSize::Size4KiB,
        };
        Self { frame: HostPhysical::new(word & !(size.get() - 1)), size, permissions }
    }
}

/// The answer to a translation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtsReply {
    /// When the completion leaves the IOMMU.
    pub ready: Time,
    /// How it ends.
    pub status: AtsStatus,
    /// Its payload, if successful.
    pub entry: Option<AtsEntry>,
}

impl Iommu {
    /// Answers a translation request (AT = 01) for one page; with `no_write` the function promises to read
    /// only, and is told nothing of write permission.
    ///
    /// An absent page is an answer, not a fault.
    pub fn ats_translate<M: WalkMemory>(
        &mut self,
        now: Time,
        requester: Bdf,
        address: Iova,
        no_write: bool,
        memory: &mut M,
    ) -> AtsReply {
        self.counters.lookups += 1;
        let place = self.pipeline.enter_alone(now, Access::Read);
        let (at, found, record) = self.find_for_ats(place, requester, address, memory);
        let ready = self.pipeline.leave(at, Access::Read);
        let absent = AtsEntry {
            frame: HostPhysical::new(0),
            size: PageSize::Size4KiB,
            permissions: Permissions::default(),
        };
        let success = |entry| AtsReply { ready, status: AtsStatus::Success, entry: Some(entry) };
        match found {
            Ok(entry) => {
                let permissions =
                    Permissions { write: entry.permissions.write && !no_write, ..entry.permissions };
                success(AtsEntry { permissions, ..entry })
            }
            Err(FaultReason::ReadNotPermitted | FaultReason::BeyondAddressWidth) => success(absent),
            Err(reason) => {
                let fault =
                    Fault { time: ready, requester, address: address.get(), access: Access::Read, reason };
                self.report(fault, record);
                let status = match reason {
                    FaultReason::PageTableUnreachable | FaultReason::PageTableReserved => {
                        AtsStatus::CompleterAbort
                    }
                    _ => AtsStatus::UnsupportedRequest,
                };
                AtsReply { ready, status, entry: None }
            }
        }
    }

    fn find_for_ats<M: WalkMemory>(
        &mut self,
        place: Time,
        requester: Bdf,
        address: Iova,
        memory: &mut M,
    ) -> (Time, Result<AtsEntry, FaultReason>, bool) {
        let early = |unit: &mut Self, at, reason, record| {
            unit.counters.refused_early += 1;
            (at, Err(reason), record)
        };
        if !self.enabled {
            return early(self, place, FaultReason::AtsBlocked, true);
        }
        let context = match self.context(place, requester, memory) {
            Ok(context) => context,
            Err((at, reason)) => return early(self, at, reason, true),
        };
        let at = place.max(context.known_from);
        let record = !context.entry.fault_processing_disabled;
        if context.entry.translation != TranslationType::WithAts {
            return early(self, at, FaultReason::AtsBlocked, record);
        }
        if is_interrupt_address(address.get()) || !context.entry.spans(address) {
            return early(self, at, FaultReason::BeyondAddressWidth, record);
        }
        let (at, found) = self.resolve(at, &context.entry, address, None, 1, memory);
        let entry = found.map(|l| AtsEntry { frame: l.frame, size: l.size, permissions: l.permissions });
        (at, entry, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_encoded_in_the_address() {
        for (size, word) in [
            (PageSize::Size4KiB, 0x1_4000_0003),
            (PageSize::Size2MiB, 0x1_400f_f803),
            (PageSize::Size1GiB, 0x1_5fff_f803),
        ] {
            let entry = AtsEntry {
                frame: HostPhysical::new(0x1_4000_0000),
                size,
                permissions: Permissions::READ_WRITE,
            };
            assert_eq!(entry.encode(), word, "{size:?}");
            assert_eq!(AtsEntry::decode(word), entry);
        }
    }
}
