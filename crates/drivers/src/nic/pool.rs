//! RX buffers: pages that stay mapped and return to the pool when their packets are freed.
//!
//! A page is cut into buffers and reused when all of them are back, if it is on the polling core's node. Pages of
//! another node, as after the interrupt has moved, are freed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::dma::{Direction, DmaOps};
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::net::{Fragment, Packet, PacketOwner};
use units::Iova;

/// A buffer for the device to fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RxBuffer {
    pub at: PhysAddr,
    pub bus: Iova,
}

struct Page {
    start: PhysAddr,
    /// Bus address of the page, which is unmapped when the pool is closed.
    bus: Iova,
    node: Node,
    /// Buffers in use.
    out: u16,
}

/// The buffers of an RX queue.
pub(super) struct Pool {
    kernel: Rc<dyn Kernel>,
    dma: Rc<dyn DmaOps>,
    size: u16,
    cost: u64,
    /// In order of address: most hosts of a large cluster hold thousands, and never need them.
    pages: RefCell<Vec<Page>>,
    /// Pages with no buffer in use; the most recently used is last.
    free: RefCell<Vec<PhysAddr>>,
    /// Most free pages to keep.
    most_free: usize,
    /// The rest of the page that is being cut.
    rest: Cell<Option<(PhysAddr, u16)>>,
    closed: Cell<bool>,
    /// Empty fragment lists of consumed packets, for reuse.
    lists: RefCell<Vec<Vec<Fragment>>>,
}

impl Pool {
    pub fn new(
        kernel: Rc<dyn Kernel>,
        dma: Rc<dyn DmaOps>,
        size: u16,
        most_free: usize,
        cost: u64,
    ) -> Rc<Self> {
        Rc::new(Self {
            kernel,
            dma,
            size,
            cost,
            pages: RefCell::default(),
            free: RefCell::default(),
            most_free,
            rest: Cell::new(None),
            closed: Cell::new(false),
            lists: RefCell::default(),
        })
    }

    /// Size of a buffer (bytes).
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Takes a buffer, if possible on the node of the core that polls the queue.
    ///
    /// # Errors
    /// [`Error::NoMemory`], or why a page cannot be mapped.
    pub fn take(&self, cpu: &Cpu, node: Node) -> Result<RxBuffer, Error> {
        cpu.work(self.cost);
        let (page, offset) = match self.rest.take() {
            Some(rest) => rest,
            None => (self.take_page(cpu, node)?, 0),
        };
        let bus = self.with(page, |page| {
            page.out += 1;
            page.bus
        });
        let bus = bus.ok_or(Error::Invalid)?;
        let next = offset + self.size;
        if u64::from(next) + u64::from(self.size) <= PAGE {
            self.rest.set(Some((page, next)));
        }
        Ok(RxBuffer { at: page + u64::from(offset), bus: Iova::new(bus.get() + u64::from(offset)) })
    }

    fn take_page(&self, cpu: &Cpu, node: Node) -> Result<PhysAddr, Error> {
        if self.closed.get() {
            return Err(Error::NoDevice);
        }
        if let Some(page) = self.free.borrow_mut().pop() {
            return Ok(page);
        }
        let pages = self.kernel.alloc_pages(cpu, 0, Policy::Preferred(node))?;
        let bus = self.dma.map(cpu, pages.start, PAGE, Direction::FromDevice).inspect_err(|_| {
            self.kernel.free_pages(cpu, pages);
        })?;
        let page = Page { start: pages.start, bus, node, out: 0 };
        let at = self.place(pages.start).unwrap_or_else(|at| at);
        self.pages.borrow_mut().insert(at, page);
        Ok(pages.start)
    }

    /// Where the page at `start` is in the list, or belongs.
    fn place(&self, start: PhysAddr) -> Result<usize, usize> {
        self.pages.borrow().binary_search_by_key(&start, |page| page.start)
    }

    /// Calls `f` with the page at `start`, if it is of the pool.
    fn with<R>(&self, start: PhysAddr, f: impl FnOnce(&mut Page) -> R) -> Option<R> {
        let at = self.place(start).ok()?;
        Some(f(&mut self.pages.borrow_mut()[at]))
    }

    /// Returns a buffer.
    pub fn give(&self, cpu: &Cpu, at: PhysAddr) {
        cpu.work(self.cost);
        let start = at.align_down(PAGE);
        let given = self.with(start, |page| {
            page.out = page.out.saturating_sub(1);
            (page.out == 0, page.node == cpu.node())
        });
        let Some((is_back, is_here)) = given else { return };
        if !is_back || self.rest.get().is_some_and(|(rest, _)| rest == start) {
            return;
        }
        if self.closed.get() || !is_here || self.free.borrow().len() >= self.most_free {
            self.drop_page(cpu, start);
        } else {
            self.free.borrow_mut().push(start);
        }
    }

    fn unmap(&self, cpu: &Cpu, bus: Iova) {
        self.dma.unmap(cpu, bus, PAGE, Direction::FromDevice);
    }

    fn drop_page(&self, cpu: &Cpu, start: PhysAddr) {
        let Ok(at) = self.place(start) else { return };
        let page = self.pages.borrow_mut().remove(at);
        if !self.closed.get() {
            self.unmap(cpu, page.bus);
        }
        self.kernel.free_pages(cpu, Pages { start, order: 0 });
    }

    /// Unmaps all pages after the device has stopped. Pages of packets still in use are freed with those packets.
    pub fn close(&self, cpu: &Cpu) {
        self.closed.set(true);
        self.rest.set(None);
        self.free.borrow_mut().clear();
        let mut pages = self.pages.take();
        pages.retain(|page| {
            self.unmap(cpu, page.bus);
            if page.out == 0 {
                self.kernel.free_pages(cpu, Pages { start: page.start, order: 0 });
            }
            page.out > 0
        });
        self.pages.replace(pages);
    }

    /// An empty fragment list.
    pub fn list(&self) -> Vec<Fragment> {
        self.lists.borrow_mut().pop().unwrap_or_default()
    }
}

impl PacketOwner for Pool {
    fn released(&self, cpu: &Cpu, packet: &mut Packet) {
        let mut list = core::mem::take(&mut packet.fragments);
        for fragment in list.drain(..) {
            self.give(cpu, fragment.at);
        }
        let mut lists = self.lists.borrow_mut();
        if lists.len() < 64 {
            lists.push(list);
        }
    }
}
