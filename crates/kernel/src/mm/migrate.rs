//! Moving a task's pages to another node.

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::memory::{Pages, PhysAddr, Policy};

use crate::kernel::Inner;

impl Inner {
    /// Whether memory must stay where it is: a function reaches it, or a request holds it.
    fn must_stay(&self, at: PhysAddr, length: u64) -> bool {
        self.pins.hold(at, length)
            || self.pci.all().iter().any(|function| {
                let dma = function.dma.borrow().clone();
                dma.is_some_and(|dma| dma.reaches(self, at, length))
            })
    }

    /// Copies pages to `to` and gives the old ones back; gives the new ones. What maps and translates them is not
    /// touched: that is the caller's.
    pub fn replace_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error> {
        let fresh = self.take_pages(cpu, pages.order, Policy::Bind(to))?;
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.migrate_page << pages.order);
        cpu.copy(fresh.start, pages.start, pages.len());
        self.give_pages(cpu, pages);
        Ok(fresh)
    }

    /// Moves a task's pages, unless they are there or must stay.
    pub fn move_task_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error> {
        if self.pages.borrow().node_of(pages.start) == Some(to) {
            return Ok(pages);
        }
        if self.must_stay(pages.start, pages.len()) {
            return Err(Error::Busy);
        }
        let moved = self.replace_pages(cpu, pages, to)?;
        // Cores on which the task ran may know where the pages were. What interrupting them costs those is not modelled.
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.tlb_shootdown);
        Ok(moved)
    }
}
