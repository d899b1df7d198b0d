//! Addresses of memory, as programs and as tables have them.

use platform::memory::PhysAddr;
use units::HostPhysical;

pub(crate) const fn physical(at: PhysAddr) -> HostPhysical {
    HostPhysical::new(at.0)
}

pub(crate) const fn address(at: HostPhysical) -> PhysAddr {
    PhysAddr(at.get())
}
