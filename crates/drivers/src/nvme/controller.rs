//! An NVMe controller: its state, and how it is started and stopped.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::dma::DmaOps;
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::kernel::Kernel;
use platform::memory::PAGE;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::PciDevice;
use platform::sync::Semaphore;
use platform::tags::TagSet;
use units::Duration;
use wire::nvme::registers::{self as regs, MemoryBufferControl, MemoryBufferLocation, MemoryBufferSize};
use wire::nvme::{AdminQueues, Capabilities, Configuration, ControllerStatus};

use super::multipath::Heads;
use super::namespace::Namespace;
use super::queue::{Entries, Queue};
use super::{NvmeCounters, NvmeOptions};

/// Entries of the admin queue (Linux: `NVME_AQ_DEPTH`).
const ADMIN_ENTRIES: u16 = 32;
/// Poll interval for CSTS while the controller starts or stops (Linux: 1 to 2 ms; real controllers need tens of
/// milliseconds, and nothing else depends on it).
const LOOK: Duration = Duration::from_us(100);

/// State of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerState {
    /// First initialisation.
    Starting,
    /// Accepts commands.
    Live,
    /// In reset; requests wait.
    Resetting,
    /// Gone or given up; requests fail.
    Dead,
}

/// Capabilities that the controller reports.
#[derive(Clone, Debug, Default)]
pub(super) struct Abilities {
    pub max_bytes: u32,
    pub write_cache: bool,
    pub discard: bool,
    pub write_zeroes: bool,
    pub sgl: bool,
    pub namespaces: u32,
    /// Name of the subsystem that it belongs to.
    pub subsystem: String,
}

/// Part of the controller memory buffer (CMB) used for submission queues.
#[derive(Clone)]
struct ControllerMemoryBuffer {
    /// Location: BAR, offset and length (bytes).
    bar: u8,
    offset: u64,
    length: u64,
    bus: u64,
    used: u64,
}

/// An NVMe controller.
pub struct Controller {
    pub(super) me: Weak<Controller>,
    /// Index among the driver's controllers.
    pub(super) instance: u32,
    pub(super) device: PciDevice,
    pub(super) dma: Rc<dyn DmaOps>,
    pub(super) kernel: Rc<dyn Kernel>,
    pub(super) registers: Mmio,
    pub(super) options: NvmeOptions,
    capabilities: Capabilities,
    pub(super) abilities: RefCell<Abilities>,
    pub(super) state: Cell<ControllerState>,
    /// Serialises reset and removal.
    pub(super) change: Semaphore,
    /// A bus error occurred: the function is about to be reset.
    pub(super) frozen: Cell<bool>,
    pub(super) admin: Rc<Queue>,
    pub(super) queues: RefCell<Vec<Rc<Queue>>>,
    /// Tags for the slots of all I/O queues, shared by all namespaces.
    tags: OnceCell<Rc<TagSet>>,
    buffer: RefCell<Option<ControllerMemoryBuffer>>,
    irqs: RefCell<Vec<Irq>>,
    pub(super) namespaces: RefCell<BTreeMap<u32, Rc<Namespace>>>,
    /// Multipath heads of namespaces that other controllers may reach too.
    pub(super) heads: Rc<Heads>,
    pub(super) counters: Cell<NvmeCounters>,
}

impl Controller {
    /// Initialises a controller.
    pub(super) async fn probe(
        cpu: &Cpu,
        device: PciDevice,
        instance: u32,
        options: NvmeOptions,
        heads: &Rc<Heads>,
    ) -> Result<Rc<Self>, Error> {
        let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
        device.set_master(cpu, true).await;
        let dma = device.dma();
        dma.set_mask(64)?;
        let bits = registers.read_u64(cpu, regs::CAP).await;
        if bits == u64::MAX {
            return Err(Error::NoDevice);
        }
        let capabilities = Capabilities::from_bits(bits);
        if !capabilities.nvm_command_set || capabilities.min_page_shift > 0 {
            return Err(Error::NotSupported);
        }
        let entries = ADMIN_ENTRIES.min(capabilities.max_queue_entries.saturating_add(1));
        let admin = Rc::new(new_queue(cpu, &*dma, 0, entries, capabilities.doorbell_stride, None)?);
        let controller = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            instance,
            kernel: device.kernel(),
            device,
            dma,
            registers,
            options,
            capabilities,
            abilities: RefCell::default(),
            state: Cell::new(ControllerState::Starting),
            change: Semaphore::new(1),
            frozen: Cell::new(false),
            admin,
            queues: RefCell::default(),
            tags: OnceCell::new(),
            buffer: RefCell::new(None),
            irqs: RefCell::default(),
            namespaces: RefCell::default(),
            heads: Rc::clone(heads),
            counters: Cell::default(),
        });
        let done = controller.first_start(cpu).await;
        if let Err(error) = done {
            controller.end(cpu, error).await;
            return Err(error);
        }
        Ok(controller)
    }

    async fn first_start(&self, cpu: &Cpu) -> Result<(), Error> {
        let cpus = self.kernel.cpus();
        let wanted = self.options.queues.unwrap_or(cpus).clamp(1, cpus);
        // Interrupts: the admin queue's, then one per I/O queue at the first core of its group.
        let places = std::iter::once(CpuId(0)).chain((0..wanted).map(|n| first_of(n, wanted, cpus)));
        let affinity = Affinity::Cpus(places.collect());
        let irqs = match self.options.legacy_interrupt {
            true => vec![self.device.alloc_intx(cpu, affinity).await?],
            false => self.device.alloc_irqs(cpu, 1, wanted + 1, affinity).await?,
        };
        let least = if irqs.len() == 1 { 1 } else { irqs.len() as u16 - 1 };
        self.irqs.borrow_mut().extend(&irqs);
        for (vector, &irq) in irqs.iter().enumerate() {
            let me = self.me.clone();
            let handler = Rc::new(move |cpu: &Cpu| match me.upgrade() {
                Some(controller) => controller.interrupt(cpu, vector),
                None => IrqReturn::None,
            });
            self.device.request_irq(irq, &format!("nvme-q{vector}"), handler, None)?;
        }
        self.disable(cpu).await?;
        self.enable(cpu).await?;
        self.identify(cpu).await?;
        self.find_buffer(cpu).await;
        let count = self.ask_for_queues(cpu, wanted.min(least)).await?;
        if count < wanted {
            for n in 0..count.min(irqs.len() as u16 - 1) {
                let at = first_of(n, count, cpus);
                self.device.set_irq_affinity(cpu, irqs[usize::from(n) + 1], at).await?;
            }
        }
        for id in 1..=count {
            let entries =
                self.options.queue_entries.min(self.capabilities.max_queue_entries.saturating_add(1));
            let place = self.in_buffer(entries);
            let stride = self.capabilities.doorbell_stride;
            let queue = new_queue(cpu, &*self.dma, id, entries.max(2), stride, place)?;
            self.queues.borrow_mut().push(Rc::new(queue));
        }
        self.create_queues(cpu).await?;
        self.state.set(ControllerState::Live);
        self.listen(cpu).await;
        self.scan(cpu).await
    }

    /// Updates the counters.
    pub(super) fn count(&self, change: impl FnOnce(&mut NvmeCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Event counters.
    pub fn counters(&self) -> NvmeCounters {
        self.counters.get()
    }

    /// Current state.
    pub fn state(&self) -> ControllerState {
        self.state.get()
    }

    /// Number of I/O queue pairs.
    pub fn queues(&self) -> u16 {
        self.queues.borrow().len() as u16
    }

    /// Tag set with one tag for each slot of each I/O queue.
    pub(super) fn tags(&self) -> Rc<TagSet> {
        let made = || {
            let depth = self.queues.borrow().first().map_or(1, |queue| queue.depth());
            Rc::new(TagSet::new(self.queues(), depth))
        };
        Rc::clone(self.tags.get_or_init(made))
    }

    /// Whether its submission queues are in the controller memory buffer.
    pub fn uses_memory_buffer(&self) -> bool {
        self.queues.borrow().iter().any(|queue| matches!(queue.submission, Entries::Buffer(..)))
    }

    /// DMA mappings and allocations of the function.
    pub fn dma_counters(&self) -> platform::dma::DmaCounters {
        self.dma.counters()
    }

    /// The I/O queue of a core.
    pub(super) fn queue_for(&self, cpu: CpuId) -> u16 {
        let count = u32::from(self.queues()).max(1);
        (u32::from(cpu.0) * count / u32::from(self.kernel.cpus())) as u16
    }

    /// Interrupt vector of a queue.
    pub(super) fn vector_of(&self, queue: u16) -> u16 {
        if self.irqs.borrow().len() == 1 { 0 } else { queue }
    }

    fn interrupt(&self, cpu: &Cpu, vector: usize) -> IrqReturn {
        self.count(|c| c.interrupts += 1);
        let shared = self.irqs.borrow().len() == 1;
        let mut found = 0;
        if vector == 0 {
            found += self.reap(cpu, &self.admin);
        }
        let queues = self.queues.borrow().clone();
        for queue in queues.iter().filter(|queue| shared || usize::from(queue.id) == vector) {
            found += self.reap(cpu, queue);
        }
        if found == 0 {
            self.count(|c| c.idle_interrupts += 1);
            return IrqReturn::None;
        }
        IrqReturn::Handled
    }

    /// Timeout for enable and disable.
    fn patience(&self) -> Duration {
        Duration::from_ms(500) * (u64::from(self.capabilities.timeout) + 1)
    }

    /// Waits until CSTS.RDY equals `ready` (section 3.1.5).
    async fn wait_ready(&self, cpu: &Cpu, ready: bool) -> Result<(), Error> {
        let status = self
            .registers
            .poll_u32(cpu, regs::CSTS, LOOK, self.patience(), |bits| {
                let status = ControllerStatus::from_bits(bits);
                status.ready == ready || ready && status.fatal
            })
            .await?;
        let status = ControllerStatus::from_bits(status);
        if ready && status.fatal { Err(Error::Io) } else { Ok(()) }
    }

    /// Disables the controller, which drops all its queues.
    pub(super) async fn disable(&self, cpu: &Cpu) -> Result<(), Error> {
        self.admin.live.set(false);
        self.queues.borrow().iter().for_each(|queue| queue.live.set(false));
        let bits = self.registers.read_u32(cpu, regs::CC).await;
        if bits == u32::MAX {
            return Err(Error::NoDevice);
        }
        let off = Configuration { enable: false, ..Configuration::from_bits(bits) };
        self.registers.write_u32(cpu, regs::CC, off.to_bits());
        self.wait_ready(cpu, false).await
    }

    /// Enables the controller with its admin queue (section 7.6.1).
    pub(super) async fn enable(&self, cpu: &Cpu) -> Result<(), Error> {
        self.admin.rewind(cpu);
        let last = self.admin.entries - 1;
        let sizes = AdminQueues { submission: last, completion: last };
        self.registers.write_u32(cpu, regs::AQA, sizes.to_bits());
        self.registers.write_u64(cpu, regs::ASQ, self.admin.submission.bus());
        self.registers.write_u64(cpu, regs::ACQ, self.admin.completion.bus.get());
        self.registers.write_u32(cpu, regs::CC, Configuration::enabled().to_bits());
        self.wait_ready(cpu, true).await?;
        self.check()?;
        self.admin.live.set(true);
        Ok(())
    }

    /// Shuts the controller down cleanly, so that no data is lost when power is removed (section 7.6.2).
    pub(super) async fn announce_shutdown(&self, cpu: &Cpu) -> Result<(), Error> {
        let normal = Configuration { shutdown: 1, ..Configuration::enabled() };
        self.registers.write_u32(cpu, regs::CC, normal.to_bits());
        let complete = |bits| ControllerStatus::from_bits(bits).shutdown == 2;
        self.registers.poll_u32(cpu, regs::CSTS, LOOK, self.patience(), complete).await.map(|_| ())
    }

    /// Finds room for submission queues in the controller memory buffer (section 4.7).
    async fn find_buffer(&self, cpu: &Cpu) {
        if !self.capabilities.memory_buffer || !self.options.use_memory_buffer {
            return;
        }
        let seen = MemoryBufferControl { registers: true, ..MemoryBufferControl::default() };
        self.registers.write_u64(cpu, regs::CMBMSC, seen.to_bits());
        let size = MemoryBufferSize::from_bits(self.registers.read_u32(cpu, regs::CMBSZ).await);
        let at = MemoryBufferLocation::from_bits(self.registers.read_u32(cpu, regs::CMBLOC).await);
        let Some(bar) = self.device.bar(at.bar).filter(|_| size.submission_queues) else { return };
        let offset = u64::from(at.offset) << (12 + 4 * u32::from(size.unit));
        // The controller tells its buffer from host memory by this address.
        let bus = bar.start.0 + offset;
        let on = MemoryBufferControl { registers: true, memory_space: true, base: bus };
        self.registers.write_u64(cpu, regs::CMBMSC, on.to_bits());
        *self.buffer.borrow_mut() =
            Some(ControllerMemoryBuffer { bar: at.bar, offset, length: size.bytes(), bus, used: 0 });
    }

    /// Programs the address of the memory buffer again after a reset.
    pub(super) fn restore_buffer(&self, cpu: &Cpu) {
        if let Some(buffer) = &*self.buffer.borrow() {
            let on = MemoryBufferControl { registers: true, memory_space: true, base: buffer.bus };
            self.registers.write_u64(cpu, regs::CMBMSC, on.to_bits());
        }
    }

    /// Allocates a submission queue in the memory buffer, if it fits.
    fn in_buffer(&self, entries: u16) -> Option<Entries> {
        let mut slot = self.buffer.borrow_mut();
        let buffer = slot.as_mut()?;
        let bytes = (u64::from(entries) * wire::nvme::command::LEN as u64).next_multiple_of(PAGE);
        if buffer.used + bytes > buffer.length {
            return None;
        }
        let start = buffer.offset + buffer.used;
        let mapping = self.device.ioremap(buffer.bar, start, bytes, MemoryType::WriteCombining).ok()?;
        let entries = Entries::Buffer(mapping, buffer.bus + buffer.used);
        buffer.used += bytes;
        Some(entries)
    }

    /// Frees interrupts and memory.
    pub(super) async fn release(&self, cpu: &Cpu) {
        for irq in self.irqs.take() {
            self.device.free_irq(irq);
        }
        self.device.free_irqs(cpu).await;
        let queues = self.queues.take();
        queues.iter().chain([&self.admin]).for_each(|queue| queue.free_memory(cpu, &*self.dma));
    }
}

/// First core of a group.
fn first_of(group: u16, groups: u16, cpus: u16) -> CpuId {
    CpuId((u32::from(group) * u32::from(cpus)).div_ceil(u32::from(groups)) as u16)
}

fn new_queue(
    cpu: &Cpu,
    dma: &dyn DmaOps,
    id: u16,
    entries: u16,
    stride: u8,
    place: Option<Entries>,
) -> Result<Queue, Error> {
    // Queues must be page-aligned; coherent memory of less than a page may not be.
    let bytes = |entry: usize| (u64::from(entries) * entry as u64).next_multiple_of(PAGE);
    let completion = dma.alloc_coherent(cpu, bytes(wire::nvme::completion::LEN), None)?;
    let submission = match place {
        Some(place) => place,
        None => match dma.alloc_coherent(cpu, bytes(wire::nvme::command::LEN), None) {
            Ok(memory) => Entries::Memory(memory),
            Err(error) => {
                dma.free_coherent(cpu, completion);
                return Err(error);
            }
        },
    };
    let doorbells = [regs::submission_doorbell(id, stride), regs::completion_doorbell(id, stride)];
    Ok(Queue::new(id, entries, submission, completion, doorbells))
}
