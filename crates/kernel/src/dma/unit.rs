//! One IOMMU: root table, invalidation queue and interrupt remapping table.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::lock::{SpinLock, SpinLockGuard};
use platform::memory::{Pages, Policy};
use units::{Duration, Iova, Time};
use wire::pcie::Bdf;

use super::base::{DmaBase, DmaMode};
use super::remapping::InterruptEntries;
use super::spent::Spent;
use crate::ground::IommuTables;
use crate::ground::convert;
use wire::iommu::encode_command;
use wire::vtd::tables::ContextTables;
use wire::vtd::{
    ContextEntry, ContextScope, DomainId, Features, InterruptTable, InvalidationDescriptor, Scope,
    TableFormat, TranslationType,
};

/// Bytes of the invalidation queue: one page.
const QUEUE_BYTES: u64 = 4096;
/// Bytes of an invalidation descriptor or a remapping entry.
pub(super) const ENTRY: u64 = 16;

/// The kernel's state for one IOMMU.
pub(super) struct Unit {
    base: Rc<DmaBase>,
    pub index: usize,
    pub node: Node,
    pub features: Features,
    contexts: ContextTables,
    /// Invalidation queue, and the page that its wait descriptors write to.
    queue: Pages,
    status: Pages,
    tail: Cell<u64>,
    ticket: Cell<u32>,
    /// Held while a core's descriptors are in the queue.
    lock: SpinLock,
    /// How long cores have held the queue: one has it from its first descriptor until the IOMMU has answered.
    held: Spent,
    /// When the last holder released the queue.
    released: Cell<Time>,
    /// The interrupt remapping table, if interrupts are remapped.
    pub interrupts: Option<InterruptEntries>,
}

impl Unit {
    /// Builds the tables of an IOMMU and enables it. `None` if there is no memory.
    fn start(cpu: &Cpu, base: &Rc<DmaBase>, index: usize) -> Option<Self> {
        let node = Node(index as u8);
        let DmaBase { cores, memory, params, .. } = &**base;
        let pages = |bytes| memory.take(cpu, Pages::order_for(bytes), Policy::Preferred(node)).ok();
        let (queue, status) = (pages(QUEUE_BYTES)?, pages(ENTRY)?);
        let order = params.interrupt_order.min(15);
        let ground = &cores.ground;
        let features = ground.iommu_features(index);
        // Behind an SMMU, another device translates interrupts (Arm: the ITS), which is not modelled: messages reach the cores that
        // they name.
        let remaps = params.remap_interrupts && features.format != TableFormat::SmmuV3;
        let interrupts = if remaps { Some(pages(ENTRY << (order + 1))?) } else { None };
        let translate = params.mode != DmaMode::Off;
        for pages in [Some(queue), Some(status), interrupts].into_iter().flatten() {
            ground.poke(pages.start, &vec![0; pages.len() as usize]);
        }
        let contexts =
            memory.edit_tables(node, |memory, frames| ContextTables::new(memory, frames, features).ok())?;
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
        base.log.write(format!("iommu {index}: {:?}", params.mode));
        Some(Self {
            base: Rc::clone(base),
            index,
            node,
            features,
            contexts,
            queue,
            status,
            tail: Cell::new(0),
            ticket: Cell::new(0),
            lock: SpinLock::default(),
            held: Spent::default(),
            released: Cell::default(),
            interrupts: interrupts.map(|table| InterruptEntries::new(table, order)),
        })
    }

    /// Queues descriptors followed by a wait descriptor, and spins until that is done. With VT-d, a core keeps the queue as long;
    /// with others, it only holds it while its commands go in (Linux: `arm_smmu_cmdq_issue_cmdlist`, `iommu_completion_wait`).
    pub fn invalidate(&self, cpu: &Cpu, descriptors: &[InvalidationDescriptor]) {
        let asked = cpu.now();
        // One core at a time; others spin on the lock.
        let lock = self.lock.lock(cpu);
        let ticket = self.ticket.replace(self.ticket.get().wrapping_add(1)).wrapping_add(1);
        let wait = InvalidationDescriptor::wait(convert::physical(self.status.start), ticket);
        for descriptor in descriptors.iter().chain([&wait]) {
            let at = self.queue.start + self.tail.get();
            let words = encode_command(*descriptor, self.features.format);
            let [low, high] = words.expect("only an IOMMU that remaps interrupts is told of them");
            let mut bytes = [0; ENTRY as usize];
            bytes[..8].copy_from_slice(&low.to_le_bytes());
            bytes[8..].copy_from_slice(&high.to_le_bytes());
            cpu.store(at, &bytes);
            self.tail.set((self.tail.get() + ENTRY) % QUEUE_BYTES);
        }
        cpu.work(self.base.cores.costs.invalidation);
        let answer = self.base.cores.ground.invalidate(self.index, cpu.now(), self.tail.get());
        let mut lock = Some(lock);
        if self.features.format != TableFormat::VtD {
            self.let_go(cpu, asked, lock.take());
        }
        match answer {
            Some(done) => cpu.stall(done.since(cpu.now())),
            None => self.base.log.warn(format!("iommu {}: the invalidation queue has stopped", self.index)),
        }
        // The IOMMU wrote the status line, so the core has to fetch it again.
        self.base.cores.ground.poke(self.status.start, &ticket.to_le_bytes());
        cpu.load_u32(self.status.start);
        let now = self.base.cores.now();
        let (core, mut waited) = (usize::from(cpu.id().0), self.base.waited.borrow_mut());
        if waited.len() <= core {
            waited.resize_with(core + 1, Spent::default);
        }
        waited[core].add_behind(now, asked, cpu.now().since(asked));
        drop(waited);
        self.let_go(cpu, asked, lock);
    }

    /// Lets others have the queue, which this core wanted at `asked`, if it still holds it.
    fn let_go(&self, cpu: &Cpu, asked: Time, lock: Option<SpinLockGuard<'_>>) {
        if lock.is_some() {
            // The way of the lock from its last holder is part of what the next one takes.
            let taken = asked.max(self.released.replace(cpu.now()));
            self.held.add(self.base.cores.now(), taken.min(cpu.now()), cpu.now());
        }
    }

    /// Invalidates the translations of a range of pages.
    pub fn flush_pages(&self, cpu: &Cpu, domain: DomainId, page: u64, pages: u64) {
        // The smallest aligned power of two that covers the range.
        let mut mask = pages.next_power_of_two().trailing_zeros() as u8;
        while page >> mask != (page + pages - 1) >> mask {
            mask += 1;
        }
        let address = Iova::new(page >> mask << mask << 12);
        self.invalidate(cpu, &[InvalidationDescriptor::iotlb(Scope::Pages { domain, address, mask })]);
    }

    /// Invalidates all translations of a domain.
    pub fn flush_domain(&self, cpu: &Cpu, domain: DomainId) {
        self.invalidate(cpu, &[InvalidationDescriptor::iotlb(Scope::Domain(domain))]);
    }

    /// Attaches an unattached function to a domain.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is attached, [`Error::NoMemory`].
    pub fn attach(&self, cpu: &Cpu, function: Bdf, entry: ContextEntry) -> Result<(), Error> {
        let set = self.base.memory.edit_tables(self.node, |memory, frames| {
            if self.contexts.get(memory, function).ok().flatten().is_some() {
                return Err(Error::Busy);
            }
            self.contexts.set(memory, frames, function, entry).map_err(|_| Error::NoMemory)
        });
        cpu.work(self.base.cores.costs.page_table_edit);
        if let Err(error) = set {
            self.base
                .log
                .write(format!("iommu {}: cannot attach {function} to a domain: {error}", self.index));
        }
        set
    }

    /// Detaches a function: its requests are blocked.
    pub fn block(&self, cpu: &Cpu, function: Bdf) {
        let blocked = self.base.cores.ground.edit(|memory| self.contexts.block(memory, function));
        let old = blocked.ok().flatten();
        cpu.work(self.base.cores.costs.page_table_edit);
        if let Some(old) = old {
            let scope = ContextScope::Device { domain: old.domain, source: function, function_mask: 0 };
            let flush = [
                InvalidationDescriptor::Context(scope),
                InvalidationDescriptor::iotlb(Scope::Domain(old.domain)),
            ];
            self.invalidate(cpu, &flush);
        }
    }
}

/// The IOMMUs of a host by node; none until started, and where they are off.
#[derive(Default)]
pub(super) struct Units(RefCell<Vec<Rc<Unit>>>);

impl Units {
    /// The IOMMU for functions below a port of `node`.
    pub fn of(&self, node: Node) -> Option<Rc<Unit>> {
        self.get(usize::from(node.0))
    }

    /// An IOMMU by its index.
    pub fn get(&self, index: usize) -> Option<Rc<Unit>> {
        self.0.borrow().get(index).cloned()
    }

    /// How long cores have held the invalidation queue of each.
    pub fn queues_held(&self) -> Vec<Duration> {
        self.0.borrow().iter().map(|unit| unit.held.until(unit.base.cores.now())).collect()
    }

    /// Builds the tables of all IOMMUs and enables them.
    pub fn start(&self, cpu: &Cpu, base: &Rc<DmaBase>) {
        let ground = &base.cores.ground;
        let (params, count) = (base.params, ground.iommus());
        if params.mode == DmaMode::Off && !params.remap_interrupts {
            (0..count).for_each(|index| ground.set_iommu(index, false, None));
            return;
        }
        let _part = cpu.book(Part::Dma);
        for index in 0..count {
            match Unit::start(cpu, base, index) {
                Some(unit) => self.0.borrow_mut().push(Rc::new(unit)),
                None => base.log.warn(format!("iommu {index}: out of memory for its tables")),
            }
        }
    }
}

/// A context entry that passes addresses untranslated.
pub(super) fn pass_through(domain: DomainId, features: Features) -> ContextEntry {
    ContextEntry {
        domain,
        translation: TranslationType::PassThrough,
        levels: if features.five_level { 5 } else { 4 },
        page_table: units::HostPhysical::new(0),
        fault_processing_disabled: false,
    }
}
