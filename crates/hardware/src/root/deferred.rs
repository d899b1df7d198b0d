//! Requests of devices that the root complex answers.

use units::HostPhysical;
use wire::pcie::{Tlp, TlpKind};

use crate::packet::PacketId;

/// A translated request, possibly waiting for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferred {
    pub packet: PacketId,
    pub port: u8,
    /// Address of the first byte as the device sees it, and length in bytes.
    pub range: (u64, u32),
    /// Host physical address; `None` if the IOMMU blocked the request.
    pub target: Option<HostPhysical>,
}

/// A completion with the attributes of its request.
pub(super) fn answer_tlp(request: &Tlp, kind: TlpKind) -> Tlp {
    let mut common = request.common;
    common.poisoned = false;
    common.address_type = wire::pcie::tlp::AddressType::Untranslated;
    Tlp { common, kind }
}
