//! A host's pages, with the CPU cost of allocation.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::memory::{Pages, PhysAddr, Policy};
use units::HostPhysical;

use super::pages::{Frames, NodeMemory, PageAllocator};
use crate::cpu::Cores;
use crate::ground::Inventory;
use wire::vtd::tables::TableMemory;

/// The pages of a host.
pub(crate) struct Memory {
    cores: Rc<Cores>,
    pages: RefCell<PageAllocator>,
}

impl Memory {
    pub fn new(cores: Rc<Cores>, inventory: &Inventory) -> Self {
        Self { cores, pages: RefCell::new(PageAllocator::new(inventory)) }
    }

    /// Allocates `2^order` contiguous pages.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node, [`Error::NoMemory`].
    pub fn take(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error> {
        let _part = cpu.book(Part::Memory);
        let policy = if policy == Policy::Task { cpu.policy() } else { policy };
        let taken = self.pages.borrow_mut().take(cpu.id(), order, policy);
        let costs = &self.cores.costs;
        match taken {
            Ok((pages, listed)) => {
                cpu.work(if listed { costs.page } else { costs.page_slow });
                Ok(pages)
            }
            Err(error) => {
                cpu.work(costs.page_slow);
                Err(error)
            }
        }
    }

    /// Allocates `2^order` contiguous pages below an address, of any node.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn take_below(&self, cpu: &Cpu, order: u8, end: u64) -> Result<Pages, Error> {
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.page_slow);
        self.pages.borrow_mut().take_below(order, end)
    }

    /// Frees pages.
    pub fn give(&self, cpu: &Cpu, pages: Pages) {
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.page);
        self.pages.borrow_mut().give(cpu.id(), pages);
    }

    /// Moves pages to node `to`: copies them, frees the old ones and returns the new ones. The caller updates
    /// whatever maps them.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn replace(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error> {
        let fresh = self.take(cpu, pages.order, Policy::Bind(to))?;
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.migrate_page << pages.order);
        cpu.copy(fresh.start, pages.start, pages.len());
        self.give(cpu, pages);
        Ok(fresh)
    }

    /// The node of an address.
    pub fn node_of(&self, at: PhysAddr) -> Option<Node> {
        self.pages.borrow().node_of(at)
    }

    /// Memory of each node.
    pub fn usage(&self) -> Vec<NodeMemory> {
        self.pages.borrow().usage()
    }

    /// Allocations from another node than the policy prefers.
    pub fn fallbacks(&self) -> u64 {
        self.pages.borrow().fallbacks()
    }

    /// Edits tables that hardware walks; new table pages come from `node`. The caller accounts for the time.
    pub fn edit_tables<R>(
        &self,
        node: Node,
        edit: impl FnOnce(&mut dyn TableMemory, &mut Frames<'_>) -> R,
    ) -> R {
        self.cores.ground.edit(|memory| edit(memory, &mut self.pages.borrow_mut().frames(node)))
    }

    /// Frees the pages of such tables.
    pub fn free_tables(&self, tables: Vec<HostPhysical>) {
        let mut pages = self.pages.borrow_mut();
        tables.into_iter().for_each(|table| pages.free_frame(table));
    }
}
