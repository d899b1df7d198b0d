//! One IOMMU: its root table, its invalidation queue, its interrupt table.

use std::cell::Cell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::lock::SpinLock;
use platform::memory::{Pages, PhysAddr, Policy};
use units::Iova;
use wire::pcie::Bdf;

use super::DmaMode;
use super::numbers::Numbers;
use crate::ground::IommuTables;
use crate::ground::convert;
use crate::ground::formats::{
    ContextEntry, ContextScope, ContextTables, Delivery, DeliveryMode, Descriptor, DomainId, Features,
    FrameAllocator, Interrupt, InterruptEntry, InterruptTable, MsiMessage, PostedInterrupt, Scope,
    SourceCheck, TranslationType,
};
use crate::irq::Line;
use crate::kernel::Inner;
use crate::pci::Function;

/// Bytes of the invalidation queue: one page.
const QUEUE_BYTES: u64 = 4096;
/// Bytes of a descriptor or interrupt entry.
const ENTRY: u64 = 16;

/// What software keeps for one IOMMU.
pub(crate) struct Unit {
    pub index: usize,
    pub node: Node,
    pub features: Features,
    contexts: ContextTables,
    /// Queue page and status page.
    queue: Pages,
    status: Pages,
    tail: Cell<u64>,
    ticket: Cell<u32>,
    /// Held by the core whose descriptors are in the queue.
    lock: SpinLock,
    interrupts: Option<Pages>,
    entries: Numbers,
}

impl Unit {
    /// Puts descriptors and a wait into the queue; the core spins until the wait is done.
    pub fn invalidate(&self, kernel: &Inner, cpu: &Cpu, descriptors: &[Descriptor]) {
        // One core at a time: others spin for the lock.
        let _lock = self.lock.lock(cpu);
        let ticket = self.ticket.replace(self.ticket.get().wrapping_add(1)).wrapping_add(1);
        let wait = Descriptor::wait(convert::physical(self.status.start), ticket);
        for descriptor in descriptors.iter().chain([&wait]) {
            let at = self.queue.start + self.tail.get();
            let [low, high] = descriptor.encode();
            let mut bytes = [0; ENTRY as usize];
            bytes[..8].copy_from_slice(&low.to_le_bytes());
            bytes[8..].copy_from_slice(&high.to_le_bytes());
            cpu.store(at, &bytes);
            self.tail.set((self.tail.get() + ENTRY) % QUEUE_BYTES);
        }
        cpu.work(kernel.cores.costs.invalidation);
        match kernel.cores.ground.invalidate(self.index, cpu.now(), self.tail.get()) {
            Some(done) => cpu.stall(done.since(cpu.now())),
            None => kernel.log(format!("iommu {}: the invalidation queue has stopped", self.index)),
        }
        // The line with the status was written by the IOMMU: it is fetched again.
        kernel.cores.ground.poke(self.status.start, &ticket.to_le_bytes());
        cpu.load_u32(self.status.start);
    }

    /// Forgets translations of pages.
    pub fn flush_pages(&self, kernel: &Inner, cpu: &Cpu, domain: DomainId, page: u64, pages: u64) {
        // The smallest aligned block that covers all.
        let mut mask = pages.next_power_of_two().trailing_zeros() as u8;
        while page >> mask != (page + pages - 1) >> mask {
            mask += 1;
        }
        let address = Iova::new(page >> mask << mask << 12);
        self.invalidate(kernel, cpu, &[Descriptor::iotlb(Scope::Pages { domain, address, mask })]);
    }

    /// Forgets all translations of a domain.
    pub fn flush_domain(&self, kernel: &Inner, cpu: &Cpu, domain: DomainId) {
        self.invalidate(kernel, cpu, &[Descriptor::iotlb(Scope::Domain(domain))]);
    }

    /// Puts a function that is in none into a domain.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is in one, [`Error::NoMemory`].
    pub fn attach(&self, kernel: &Inner, cpu: &Cpu, function: Bdf, entry: ContextEntry) -> Result<(), Error> {
        let set = kernel.cores.ground.edit(|memory| {
            if self.contexts.get(memory, function).ok().flatten().is_some() {
                return Err(Error::Busy);
            }
            let mut pages = kernel.pages.borrow_mut();
            let set = self.contexts.set(memory, &mut pages.frames(self.node), function, entry);
            set.map_err(|_| Error::NoMemory)
        });
        cpu.work(kernel.cores.costs.page_table_edit);
        if let Err(error) = set {
            kernel.log(format!("iommu {}: {function} gets no domain: {error}", self.index));
        }
        set
    }

    /// Takes a function out of its domain: its requests lead nowhere.
    pub fn block(&self, kernel: &Inner, cpu: &Cpu, function: Bdf) {
        let blocked = kernel.cores.ground.edit(|memory| self.contexts.block(memory, function));
        let old = blocked.ok().flatten();
        cpu.work(kernel.cores.costs.page_table_edit);
        if let Some(old) = old {
            let scope = ContextScope::Device { domain: old.domain, source: function, function_mask: 0 };
            let flush = [Descriptor::Context(scope), Descriptor::iotlb(Scope::Domain(old.domain))];
            self.invalidate(kernel, cpu, &flush);
        }
    }

    /// Writes an interrupt entry, taking a free one if the line has none.
    fn set_interrupt(
        &self,
        kernel: &Inner,
        cpu: &Cpu,
        table: Pages,
        (line, source): (&Line, Bdf),
    ) -> Result<u16, Error> {
        let index = match line.remapped.get() {
            Some(index) => index,
            None => self.entries.take()?,
        };
        let delivery = match line.posted.get() {
            Some((descriptor, vector)) => Delivery::Posted(PostedInterrupt {
                descriptor: convert::physical(descriptor),
                vector,
                urgent: false,
            }),
            None => Delivery::Core(Interrupt {
                destination: u32::from(line.cpu.get().0),
                delivery: DeliveryMode::Fixed,
                vector: line.vector.get(),
                ..Interrupt::default()
            }),
        };
        let entry = InterruptEntry {
            delivery,
            source: SourceCheck::Function { source, ignored: 0 },
            fault_processing_disabled: false,
        };
        self.write_entry(kernel, cpu, table, index, entry.encode(true));
        Ok(index)
    }

    fn write_entry(&self, kernel: &Inner, cpu: &Cpu, table: Pages, index: u16, [low, high]: [u64; 2]) {
        let at = table.start + u64::from(index) * ENTRY;
        cpu.store_u64(at + 8, high);
        cpu.store_u64(at, low);
        let flush = Descriptor::InterruptEntry { index: Some((index, 0)) };
        self.invalidate(kernel, cpu, &[flush]);
    }

    fn free_interrupt(&self, kernel: &Inner, cpu: &Cpu, index: u16) {
        if let Some(table) = self.interrupts {
            self.write_entry(kernel, cpu, table, index, InterruptEntry::ABSENT);
            self.entries.give(index);
        }
    }
}

impl Inner {
    /// Builds the tables of all IOMMUs and turns them on.
    pub fn start_iommus(&self, cpu: &Cpu) {
        let (params, count) = (self.dma.params, self.cores.ground.iommus());
        if params.mode == DmaMode::Off && !params.remap_interrupts {
            (0..count).for_each(|index| self.cores.ground.set_iommu(index, false, None));
            return;
        }
        let _part = cpu.book(Part::Dma);
        for index in 0..count {
            match self.start_iommu(cpu, index) {
                Some(unit) => self.dma.units.borrow_mut().push(Rc::new(unit)),
                None => self.log(format!("iommu {index}: no memory for its tables")),
            }
        }
    }

    fn start_iommu(&self, cpu: &Cpu, index: usize) -> Option<Unit> {
        let node = Node(index as u8);
        let params = self.dma.params;
        let pages = |bytes| self.take_pages(cpu, Pages::order_for(bytes), Policy::Preferred(node)).ok();
        let (queue, status) = (pages(QUEUE_BYTES)?, pages(ENTRY)?);
        let order = params.interrupt_order.min(15);
        let interrupts = if params.remap_interrupts { Some(pages(ENTRY << (order + 1))?) } else { None };
        let translate = params.mode != DmaMode::Off;
        let ground = &self.cores.ground;
        for pages in [Some(queue), Some(status), interrupts].into_iter().flatten() {
            ground.poke(pages.start, &vec![0; pages.len() as usize]);
        }
        let contexts = ground.edit(|memory| {
            let mut pages = self.pages.borrow_mut();
            ContextTables::new(memory, &mut pages.frames(node) as &mut dyn FrameAllocator).ok()
        })?;
        let interrupt_table = interrupts.map(|table| InterruptTable {
            base: convert::physical(table.start),
            order,
            x2apic: true,
            allow_compatibility: false,
        });
        let tables = IommuTables {
            root: convert::address(contexts.root()),
            queue: queue.start,
            interrupts: interrupt_table,
        };
        ground.set_iommu(index, translate, Some(tables));
        let features = ground.iommu_features(index);
        self.log(format!("iommu {index}: {:?}", params.mode));
        Some(Unit {
            index,
            node,
            features,
            contexts,
            queue,
            status,
            tail: Cell::new(0),
            ticket: Cell::new(0),
            lock: SpinLock::default(),
            interrupts,
            entries: Numbers::new(0..=u16::MAX >> (15 - order)),
        })
    }

    /// The IOMMU that a function below a port of `node` is behind.
    pub fn unit_of(&self, node: Node) -> Option<Rc<Unit>> {
        self.dma.units.borrow().get(usize::from(node.0)).cloned()
    }

    /// Points a line's remapping entry at its core and vector, if interrupts are remapped.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it has none yet and all are taken.
    pub fn remap_line(&self, cpu: &Cpu, line: &Line, function: &Function) -> Result<(), Error> {
        let unit = self.unit_of(function.node);
        let Some((unit, table)) = unit.and_then(|unit| unit.interrupts.map(|table| (unit, table))) else {
            return Ok(());
        };
        let _part = cpu.book(Part::Irq);
        let index = unit.set_interrupt(self, cpu, table, (line, function.backend.requester()))?;
        line.remapped.set(Some(index));
        line.unit.set(unit.index);
        Ok(())
    }

    /// Lets a line's interrupt be noted for a guest's core from now on, in its descriptor under its vector, or arrive at the host
    /// again without one.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it is not remapped by an IOMMU that can do so.
    pub fn post_line(
        &self,
        cpu: &Cpu,
        line: &Line,
        function: &Function,
        to: Option<(PhysAddr, u8)>,
    ) -> Result<(), Error> {
        let posts = self.unit_of(function.node).is_some_and(|unit| unit.features.posts_interrupts);
        if !posts || line.remapped.get().is_none() {
            return Err(Error::NotSupported);
        }
        if line.posted.replace(to) == to {
            return Ok(());
        }
        self.remap_line(cpu, line, function)
    }

    /// Takes a line's remapping entry away.
    pub fn unmap_line(&self, cpu: &Cpu, line: &Line) {
        if let Some(index) = line.remapped.take() {
            let unit = self.dma.units.borrow().get(line.unit.get()).cloned();
            if let Some(unit) = unit {
                unit.free_interrupt(self, cpu, index);
            }
        }
    }

    /// What a function has to send for a line: address and data.
    pub fn message_for(&self, line: &Line) -> (u64, u32) {
        match line.remapped.get() {
            Some(index) => {
                let message = MsiMessage::remappable(index, false);
                (message.address, message.data)
            }
            None => (0xfee0_0000 | u64::from(line.cpu.get().0) << 12, u32::from(line.vector.get())),
        }
    }
}

/// A function that passes with its addresses as they are.
pub(super) fn pass_through(domain: DomainId, features: Features) -> ContextEntry {
    ContextEntry {
        domain,
        translation: TranslationType::PassThrough,
        levels: if features.five_level { 5 } else { 4 },
        page_table: units::HostPhysical::new(0),
        fault_processing_disabled: false,
    }
}
