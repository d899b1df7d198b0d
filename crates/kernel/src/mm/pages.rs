//! Page allocator with nodes and per-core free lists.

use platform::Error;
use platform::cpu::{CpuId, Node};
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use units::{Bytes, HostPhysical};

use super::buddy::Buddy;
use crate::ground::Inventory;
use wire::vtd::tables::FrameAllocator;

/// Pages moved between a core's list and its node at a time (Linux: `pcp` batches).
const BATCH: usize = 63;
/// Lower memory is reserved for firmware.
const FIRST_USABLE: u64 = 1 << 20;

/// How much memory a node has, and how much of it is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeMemory {
    /// The node that the memory belongs to.
    pub node: Node,
    /// Usable memory installed.
    pub total: Bytes,
    /// Memory that nobody has allocated.
    pub free: Bytes,
}

/// All pages of a host.
pub(super) struct PageAllocator {
    nodes: Vec<Buddy>,
    totals: Vec<u64>,
    /// First and last page of each range, with its node.
    ranges: Vec<(u64, u64, Node)>,
    /// Free pages of each core's own node, the most recently used last.
    lists: Vec<Vec<u64>>,
    homes: Vec<Node>,
    next: usize,
    fallbacks: u64,
}

impl PageAllocator {
    pub fn new(inventory: &Inventory) -> Self {
        let homes = inventory.cores.clone();
        let mut nodes: Vec<Buddy> = Vec::new();
        let mut ranges = Vec::new();
        for (n, memory) in inventory.memory.iter().enumerate() {
            let mut buddy = Buddy::default();
            for &(base, bytes) in memory {
                let first = base.0.max(FIRST_USABLE).div_ceil(PAGE);
                let end = (base.0 + bytes) / PAGE;
                if first < end {
                    buddy.add(first, end);
                    ranges.push((first, end, Node(n as u8)));
                }
            }
            nodes.push(buddy);
        }
        Self {
            totals: nodes.iter().map(Buddy::free_pages).collect(),
            lists: vec![Vec::new(); homes.len()],
            nodes,
            ranges,
            homes,
            next: 0,
            fallbacks: 0,
        }
    }

    /// The node of an address.
    pub fn node_of(&self, at: PhysAddr) -> Option<Node> {
        let page = at.0 / PAGE;
        self.ranges.iter().find(|(first, end, _)| (*first..*end).contains(&page)).map(|r| r.2)
    }

    /// Allocations from another node than the policy prefers.
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks
    }

    pub fn usage(&self) -> Vec<NodeMemory> {
        let held = |node: Node| -> u64 {
            let mine = self.lists.iter().zip(&self.homes).filter(|(_, home)| **home == node);
            mine.map(|(list, _)| list.len() as u64).sum()
        };
        (0u8..)
            .zip(self.nodes.iter().zip(&self.totals))
            .map(|(n, (buddy, total))| NodeMemory {
                node: Node(n),
                total: Bytes::new(total * PAGE),
                free: Bytes::new((buddy.free_pages() + held(Node(n))) * PAGE),
            })
            .collect()
    }

    /// Allocates pages for a program on `cpu`. The flag says whether they came from the core's list.
    pub fn take(&mut self, cpu: CpuId, order: u8, policy: Policy) -> Result<(Pages, bool), Error> {
        let home = self.homes[usize::from(cpu.0)];
        let (first, strict) = match policy {
            // The caller has already resolved a task's policy.
            Policy::Local | Policy::Task => (home, false),
            Policy::Preferred(node) => (node, false),
            Policy::Bind(node) => (node, true),
            Policy::Interleave => {
                self.next = (self.next + 1) % self.nodes.len();
                (Node(self.next as u8), false)
            }
        };
        if usize::from(first.0) >= self.nodes.len() {
            return Err(Error::Invalid);
        }
        if order == 0 && first == home {
            if let Some(page) = self.take_listed(cpu, home) {
                return Ok((Pages { start: PhysAddr(page), order }, true));
            }
        } else if let Some(start) = self.nodes[usize::from(first.0)].take(order) {
            return Ok((Pages { start: PhysAddr(start), order }, false));
        }
        if strict {
            return Err(Error::NoMemory);
        }
        // Fall back to the other nodes by number: distances are equal on most machines.
        let count = self.nodes.len();
        let others = (1..count).map(|step| (usize::from(first.0) + step) % count);
        let found = others.into_iter().find_map(|n| self.nodes[n].take(order));
        let start = found.ok_or(Error::NoMemory)?;
        self.fallbacks += 1;
        Ok((Pages { start: PhysAddr(start), order }, false))
    }

    /// Allocates pages below an address, of any node.
    pub fn take_below(&mut self, order: u8, end: u64) -> Result<Pages, Error> {
        let start = self.nodes.iter_mut().find_map(|node| node.take_below(order, end));
        Ok(Pages { start: PhysAddr(start.ok_or(Error::NoMemory)?), order })
    }

    fn take_listed(&mut self, cpu: CpuId, home: Node) -> Option<u64> {
        let list = &mut self.lists[usize::from(cpu.0)];
        if list.is_empty() {
            let node = &mut self.nodes[usize::from(home.0)];
            list.extend((0..BATCH).map_while(|_| node.take(0)));
            list.reverse();
        }
        list.pop()
    }

    /// Frees pages.
    pub fn give(&mut self, cpu: CpuId, pages: Pages) {
        let Some(node) = self.node_of(pages.start) else { return };
        let list = &mut self.lists[usize::from(cpu.0)];
        if pages.order == 0 && node == self.homes[usize::from(cpu.0)] {
            list.push(pages.start.0);
            if list.len() > 2 * BATCH {
                for page in list.drain(..BATCH) {
                    self.nodes[usize::from(node.0)].give(page, 0);
                }
            }
        } else {
            self.nodes[usize::from(node.0)].give(pages.start.0, pages.order);
        }
    }

    /// Allocator of single frames of a node, for tables.
    pub fn frames(&mut self, node: Node) -> Frames<'_> {
        Frames { pages: self, node }
    }

    /// Returns a frame to its node.
    pub fn free_frame(&mut self, frame: HostPhysical) {
        if let Some(node) = self.node_of(PhysAddr(frame.get())) {
            self.nodes[usize::from(node.0)].give(frame.get(), 0);
        }
    }
}

/// Allocates frames for tables that hardware walks.
pub(crate) struct Frames<'a> {
    pages: &'a mut PageAllocator,
    node: Node,
}

impl FrameAllocator for Frames<'_> {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        self.allocate_frames(0)
    }

    fn allocate_frames(&mut self, order: u8) -> Option<HostPhysical> {
        let preferred = usize::from(self.node.0);
        let nodes = &mut self.pages.nodes;
        let frame = nodes[preferred].take(order).or_else(|| nodes.iter_mut().find_map(|n| n.take(order)));
        frame.map(HostPhysical::new)
    }
}
