//! What a guest is made of, beside a board.

use kernel::{DmaMode, Kernel};
use platform::cpu::{CpuId, Node};
use units::Bytes;
use virt::{GuestNode, InterruptSupport, VirtCosts, VmParams};

use super::board::Board;

/// Of each node, what its host keeps for itself.
pub const HOSTS_OWN: Bytes = Bytes::mib(64);

/// A guest of a host: the same cores, and so much memory at each node.
pub fn params(host: &Kernel, board: &Board, interrupts: InterruptSupport) -> VmParams {
    VmParams {
        name: "guest".to_owned(),
        vcpus: (0..host.face().cpus()).map(|core| vec![CpuId(core)]).collect(),
        nodes: (0..2).map(|n| GuestNode { memory: board.memory, host: Node(n) }).collect(),
        slots: 0,
        pin_limit: None,
        interrupts,
        costs: VirtCosts::linux(),
        // It finds no IOMMU.
        kernel: board.kernel_with(DmaMode::Off),
    }
}
