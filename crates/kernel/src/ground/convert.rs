//! Conversions between the platform's and the hardware's types.

use hardware::memory::{CoreId, NodeId};
use platform::cpu::{CpuId, Node};
use platform::memory::PhysAddr;
use units::HostPhysical;

pub(crate) const fn core(cpu: CpuId) -> CoreId {
    CoreId(cpu.0)
}

pub(crate) const fn node(node: NodeId) -> Node {
    Node(node.0)
}

pub(crate) const fn physical(at: PhysAddr) -> HostPhysical {
    HostPhysical::new(at.0)
}

pub(crate) const fn address(at: HostPhysical) -> PhysAddr {
    PhysAddr(at.get())
}
