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

/// Cores of a node that are left beside the I/O thread.
const BESIDE: usize = 5;

impl Layout {
    /// The scheduler at light load: one thread at the device's node, machines there as long as cores are left; others stay where load
    /// has put them.
    pub fn light(nodes: u8, vms: usize) -> Self {
        let home = |vm: usize| if vm < BESIDE { NEAR } else { 1 + (vm - BESIDE) as u8 % (nodes - 1).max(1) };
        Self { nodes, threads: vec![NEAR], vms: (0..vms).map(|vm| (home(vm), 0)).collect() }
    }

    /// The scheduler at heavy load: machines balanced over nodes, each served by the thread of its home.
    pub fn heavy(nodes: u8, vms: usize) -> Self {
        let home = |vm: usize| (vm % usize::from(nodes)) as u8;
        let vms = (0..vms).map(|vm| (home(vm), home(vm).into())).collect();
        Self { nodes, threads: (0..nodes).collect(), vms }.sorted()
    }

    /// The bound: everything at the device's node, with so many threads.
    pub fn near(nodes: u8, vms: usize, threads: usize) -> Self {
        Self { nodes, threads: vec![NEAR; threads], vms: (0..vms).map(|vm| (NEAR, vm % threads)).collect() }
            .sorted()
    }

    /// A placement of the baseline: threads at nodes drawn by a seed; machines balanced over nodes from one that is drawn on, given
    /// to threads in turn in an order that is drawn.
    pub fn blind(nodes: u8, vms: usize, threads: usize, seed: u64) -> Self {
        let mut rng = Seed::new(seed).component("placement");
        let threads: Vec<u8> = (0..threads).map(|_| rng.below(nodes.into()) as u8).collect();
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

/// Placements of the baseline by `count` seeds, and how many of them are each.
pub fn baseline(nodes: u8, vms: usize, threads: usize, count: u64) -> BTreeMap<Layout, usize> {
    let mut found = BTreeMap::new();
    for seed in 1..=count {
        *found.entry(Layout::blind(nodes, vms, threads, seed)).or_insert(0) += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_what_they_are_called() {
        assert_eq!(Layout::light(2, 4).name(), "0-4x0by0");
        assert_eq!(Layout::heavy(2, 4).name(), "01-2x0by0+2x1by1");
        assert_eq!(Layout::light(2, 8).vms.iter().filter(|(home, _)| *home == 1).count(), 3);
        let all = baseline(2, 1, 1, 30);
        assert_eq!((all.len(), all.values().sum::<usize>()), (4, 30), "near or far, each of two");
    }
}
