//! Sizes of TLPs that pass between a lent function and its borrower.

use wire::pcie::config::pcie_cap;

/// Largest max read request size (bytes; base spec 7.5.3.4).
const LARGEST_REQUEST: u16 = 4096;

/// Largest payload and largest read request of a lent function (bytes).
///
/// A bridge does not split TLPs, so all payloads have to fit on both sides. A completer splits by its own side's
/// limit, but never sends more than was requested (Linux limits read requests in the same way if a root port may send
/// larger payloads than a device accepts: `pcie_bus_perf`, commit a1c473aa11e6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    payload: u16,
    request: u16,
}

impl Sizes {
    /// Sizes for the payload limits at the lender and at the borrower.
    pub fn between(lender: u16, borrower: u16) -> Self {
        let request = if borrower > lender { lender } else { LARGEST_REQUEST };
        Self { payload: lender.min(borrower), request }
    }

    /// Largest payload (bytes).
    pub const fn payload(self) -> u16 {
        self.payload
    }

    /// Device Control value (base spec 7.5.3.4) limited to these sizes.
    pub fn limit(self, control: u16) -> u16 {
        let field = |at: u32, most: u16| {
            let largest = pcie_cap::size_code(most.into()).unwrap_or(0);
            (control >> at & 7).min(largest) << at
        };
        control & !(7 << 5 | 7 << 12) | field(5, self.payload) | field(12, self.request)
    }
}
