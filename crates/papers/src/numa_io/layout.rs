//! Placements of I/O threads and virtual machines: by the NUMA scheduler in each of its modes, and random ones as a
//! baseline.

use std::collections::BTreeMap;

use nearfar::engine::Seed;

/// The uplink's node.
const NEAR: u8 = 0;

/// A layout: the node of each I/O thread, and for each virtual machine its home and its thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Layout {
    /// Number of nodes.
    pub nodes: u8,
    /// Node of each thread.
    pub threads: Vec<u8>,
    /// Home node and thread of each virtual machine.
    pub vms: Vec<(u8, usize)>,
}

/// Cores per node, on both machines.
pub const CORES: u16 = 6;

impl Layout {
    /// The scheduler at light load, no machine I/O-intensive: one thread at the device's node, machines balanced over
    /// nodes.
    pub fn still(nodes: u8, vms: usize) -> Self {
        Self::at(nodes, (0..vms).map(|vm| (vm % usize::from(nodes)) as u8).collect(), false)
    }

    /// As [`still`](Self::still), all machines I/O-intensive: they move to the device's node, as long as cores are
    /// left besides the thread's.
    pub fn light(nodes: u8, vms: usize) -> Self {
        let mut layout = Self::still(nodes, vms);
        let here = layout.vms.iter().filter(|(home, _)| *home == NEAR).count();
        let room = usize::from(CORES - 1).saturating_sub(here);
        layout.vms.iter_mut().filter(|(home, _)| *home != NEAR).take(room).for_each(|(home, _)| *home = NEAR);
        layout.sorted()
    }

    /// The scheduler at heavy load: machines balanced over nodes, each served by its home's thread.
    pub fn heavy(nodes: u8, vms: usize) -> Self {
        Self::at(nodes, Self::still(nodes, vms).vms.into_iter().map(|(home, _)| home).collect(), true)
    }

    /// The scheduler at heavy or light load, with these home nodes.
    pub fn at(nodes: u8, homes: Vec<u8>, is_heavy: bool) -> Self {
        let threads = if is_heavy { (0..nodes).collect() } else { vec![NEAR] };
        let vms = homes.into_iter().map(|home| (home, if is_heavy { home.into() } else { 0 }));
        Self { nodes, threads, vms: vms.collect() }.sorted()
    }

    /// Upper bound: everything at the device's node, if it has enough cores.
    pub fn near(nodes: u8, vms: usize, threads: usize) -> Option<Self> {
        let vms = (0..vms).map(|vm| (NEAR, vm % threads)).collect();
        let layout = Self { nodes, threads: vec![NEAR; threads], vms }.sorted();
        (!layout.is_crowded()).then_some(layout)
    }

    /// A random placement for the baseline: each thread on a random node among those with the fewest threads;
    /// machines balanced over nodes from a random first one, assigned to threads in turn in random order.
    pub fn blind(nodes: u8, vms: usize, threads: usize, seed: u64) -> Self {
        let mut rng = Seed::new(seed).component("placement");
        let mut order: Vec<u8> = (0..nodes).collect();
        rng.shuffle(&mut order);
        let threads: Vec<u8> = order.into_iter().cycle().take(threads).collect();
        let first = rng.below(nodes.into()) as usize;
        let mut turns: Vec<usize> = (0..vms).collect();
        rng.shuffle(&mut turns);
        let home = |vm: usize| ((first + vm) % usize::from(nodes)) as u8;
        let vms = turns.iter().enumerate().map(|(vm, turn)| (home(vm), turn % threads.len())).collect();
        Self { nodes, threads, vms }.sorted()
    }

    /// Sorts the machines: identical machines are interchangeable.
    fn sorted(mut self) -> Self {
        self.vms.sort_unstable();
        self
    }

    /// Whether a node has more machines and I/O threads than cores.
    pub fn is_crowded(&self) -> bool {
        let at = |node: u8| {
            let machines = self.vms.iter().filter(|&&(home, _)| home == node).count();
            machines + self.threads.iter().filter(|&&thread| thread == node).count()
        };
        (0..self.nodes).any(|node| at(node) > usize::from(CORES))
    }

    /// Name in results: nodes of threads, then home and thread of each machine.
    pub fn name(&self) -> String {
        let threads: String = self.threads.iter().map(u8::to_string).collect();
        let mut kinds: BTreeMap<(u8, usize), usize> = BTreeMap::new();
        self.vms.iter().for_each(|&vm| *kinds.entry(vm).or_default() += 1);
        let vms: Vec<String> =
            kinds.into_iter().map(|((home, thread), count)| format!("{count}x{home}by{thread}")).collect();
        format!("{threads}-{}", vms.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn placements_are_what_they_are_called() {
        assert_eq!(Layout::light(2, 4).name(), "0-4x0by0");
        assert_eq!(Layout::heavy(2, 4).name(), "01-2x0by0+2x1by1");
        let away = |layout: &Layout| layout.vms.iter().filter(|(home, _)| *home == 1).count();
        assert_eq!([4, 8, 16].map(|vms| away(&Layout::still(2, vms))), [2, 4, 8]);
        assert_eq!([4, 8, 16].map(|vms| away(&Layout::light(2, vms))), [0, 3, 8]);
        assert!(!Layout::heavy(2, 8).is_crowded() && Layout::heavy(2, 16).is_crowded());
        let all: BTreeSet<Layout> = (1..=30).map(|seed| Layout::blind(2, 1, 1, seed)).collect();
        assert_eq!(all.len(), 4, "near or far, each of two");
        let two = (1..=30).map(|seed| Layout::blind(2, 2, 2, seed).threads);
        assert_eq!(two.collect::<BTreeSet<_>>(), [vec![0, 1], vec![1, 0]].into());
    }
}
