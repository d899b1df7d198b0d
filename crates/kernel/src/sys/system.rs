//! NUMA nodes: cores, memory, distances.

use platform::cpu::Node;

use super::{SysNode, cpu_list};
use crate::kernel::Inner;

/// Default distances if firmware gives none (Linux's `LOCAL_DISTANCE` and `REMOTE_DISTANCE`).
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

pub(super) fn tree(kernel: &Inner) -> SysNode {
    let memory = kernel.memory.usage();
    let nodes = memory.iter().map(|node| {
        let cores = kernel.cores.all.iter().filter(|core| core.node == node.node);
        let distance = |other: Node| if other == node.node { LOCAL } else { REMOTE };
        let distances: Vec<String> = memory.iter().map(|other| distance(other.node).to_string()).collect();
        SysNode::new(format!("node{}", node.node.0))
            .with("cpulist", cpu_list(cores.map(|core| core.id)))
            .with("distance", distances.join(" "))
            .with("memory_total", format!("{} kB", node.total.get() >> 10))
            .with("memory_free", format!("{} kB", node.free.get() >> 10))
    });
    let nodes = nodes.collect();
    SysNode::new("system").with_folder("node", nodes)
}
