//! Memory outside of the simulation: that of a virtual machine whose devices are simulated.

use units::{HostPhysical, Iova};
use wire::pcie::Bdf;

use crate::memory::{LINE, PhysicalMemory};

/// What a host's devices access instead of its own memory. Addresses are those that functions use, translated by whoever
/// owns this.
pub trait OutsideMemory {
    /// A number for the first byte of a range, the same for all addresses of this byte; `None` if the function may not
    /// access all of the range.
    fn place(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<u64>;

    /// Reads for a function.
    fn read(&self, requester: Bdf, address: Iova, into: &mut [u8]);

    /// Writes for a function.
    fn write(&self, requester: Bdf, address: Iova, from: &[u8]);

    /// The host's address of another function's BAR, which `requester` has at `address`; `None` if no BAR has all of the range, or the
    /// access is not allowed.
    fn device(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<HostPhysical>;
}

/// Most bytes of a request (base spec 2.2.2).
const MOST: u64 = 4096;

/// The address of the host's own memory whose caches and DRAM take the time of an access to a place outside: the host's
/// first range, again and again. `None` if it is shorter than a request.
pub(super) fn timed_as(memory: &PhysicalMemory, place: u64) -> Option<HostPhysical> {
    let range = memory.ranges().next()?;
    let room = (range.end - range.start).checked_sub(MOST)? / LINE * LINE;
    (room > 0).then(|| HostPhysical::new(range.start + place % room))
}
