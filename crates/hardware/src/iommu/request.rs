//! Memory requests of functions.

use units::Iova;
use wire::pcie::Bdf;
use wire::vtd::Access;

/// A memory request of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaRequest {
    /// The function.
    pub requester: Bdf,
    /// The requested address.
    pub address: Iova,
    /// Read or write.
    pub access: Access,
    /// The function has translated the address itself with ATS (AT = 10).
    pub is_translated: bool,
    /// Pieces of the same page in which the root complex serves it (at least 1). Each takes a place in the pipeline.
    pub pieces: u32,
}

impl DmaRequest {
    /// A request in one piece whose address is not translated.
    pub const fn new(requester: Bdf, address: Iova, access: Access) -> Self {
        Self { requester, address, access, is_translated: false, pieces: 1 }
    }
}
