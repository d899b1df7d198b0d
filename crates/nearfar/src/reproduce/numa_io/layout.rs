//! Where I/O threads and virtual machines are: by the scheduler in each of its modes, and by seeds as the baseline puts them.

use std::collections::BTreeMap;

use engine::Seed;

/// The uplink's node.
const NEAR: u8 = 0;

/// A layout: for each I/O thread its node, for each virtual machine its home and the thread that serves it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Layout {
    /// Nodes of the machine.
    pub nodes: u8,
    /// By thread.
    pub threads: Vec<u8>,
    /// By virtual machine.
    pub vms: Vec<(u8, usize)>,
}

/// Cores of a node of both machines.
pub const CORES: u16 = 6;

impl Layout {
    /// The scheduler at light load, where no machine is I/O-intensive: one thread at the device's node, machines balanced over nodes.
    pub fn still(nodes: u8, vms: usize) -> Self {
        Self::at(nodes, (0..vms).map(|vm| (vm % usize::from(nodes)) as u8).collect(), false)
    }

    /// The same where all are: they have moved to the device's node, until as many are there as cores are left beside the thread.
    pub fn light(nodes: u8, vms: usize) -> Self {
        let mut layout = Self::still(nodes, vms);
        let here = layout.vms.iter().filter(|(home, _)| *home == NEAR).count();
        let room = usize::from(CORES - 1).saturating_sub(here);
        layout.vms.iter_mut().filter(|(home, _)| *home != NEAR).take(room).for_each(|(home, _)| *home = NEAR);
        layout.sorted()
    }

    /// The scheduler at heavy load: machines balanced over nodes, each served by the thread of its home.
    pub fn heavy(nodes: u8, vms: usize) -> Self {
        Self::at(nodes, Self::still(nodes, vms).vms.into_iter().map(|(home, _)| home).collect(), true)
    }

    /// The scheduler's, at heavy load or at light, with machines at these homes.
    pub fn at(nodes: u8, homes: Vec<u8>, is_heavy: bool) -> Self {
        let threads = if is_heavy { (0..nodes).collect() } else { vec![NEAR] };
        let vms = homes.into_iter().map(|home| (home, if is_heavy { home.into() } else { 0 }));
        Self { nodes, threads, vms: vms.collect() }.sorted()
    }

    /// The bound: everything at the device's node, if that has a core for each.
    pub fn near(nodes: u8, vms: usize, threads: usize) -> Option<Self> {
        let vms = (0..vms).map(|vm| (NEAR, vm % threads)).collect();
        let layout = Self { nodes, threads: vec![NEAR; threads], vms }.sorted();
        (!layout.is_crowded()).then_some(layout)
    }

    /// A placement of the baseline: each thread at a node that has the fewest, drawn by a seed; machines balanced over nodes from one that
    /// is drawn on, given to threads in turn in an order that is drawn.
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

    /// Which of like machines is where makes no difference.
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

    /// Its name in values: nodes of threads, then for each machine home and thread.
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
