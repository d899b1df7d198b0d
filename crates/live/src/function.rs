//! A function of a live host, as its guest sees it.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use kernel::Kernel;
use nearfar::computer::Session;
use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::kernel::TaskParams;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::PciDevice;
use vfio_user::request::CONFIG_REGION;
use vfio_user::{DmaMap, ServedFunction, VfioRefusal};
use wire::pcie::config::caps::id;
use wire::pcie::config::header;
use wire::pcie::{Bdf, IntxLine};

use crate::config::{CapabilityPlaces, ConfigWish, GuestConfig, RequesterIds, VirtualIdentity};
use crate::interrupts::{GuestInterrupts, LINE, MSI, MSIX, MaskedBy};
use crate::memory::{GuestBar, LiveMemory, is_shared};
use crate::recording::{FunctionRecorder, ManagementAct, RecordedStep};

/// Bytes of configuration space.
const CONFIG_BYTES: u64 = 4096;
/// Bytes of an MSI-X table's entry (base spec 7.7.2).
const TABLE_ENTRY: u64 = 16;

/// A function of a live host.
pub struct LiveFunction {
    /// The function, as a driver sees it.
    pub device: PciDevice,
    bars: [Option<Mmio>; 6],
    /// The same, for stores that a core combines.
    combining_bars: [Option<Mmio>; 6],
    /// Bits of the BARs whose stores combine.
    combines: Cell<u8>,
    memory: Rc<LiveMemory>,
    config: RefCell<GuestConfig>,
    /// Configuration space as the guest first found it.
    fresh: GuestConfig,
    requester_ids: RequesterIds,
    /// What its guest is told of.
    pub interrupts: GuestInterrupts,
    /// BAR and bytes of the MSI-X table, which is not the guest's.
    table: Option<(u8, std::ops::Range<u64>)>,
    /// Keeps what the guest does.
    recorder: RefCell<Option<FunctionRecorder>>,
}

impl LiveFunction {
    /// Maps its BARs, and reads what a guest will find.
    ///
    /// # Errors
    /// If a BAR cannot be mapped.
    pub async fn new(cpu: &Cpu, device: PciDevice, memory: Rc<LiveMemory>) -> Result<Self, Error> {
        let map_all = |kind| {
            let map = |bar: u8| device.bar(bar).map(|_| device.ioremap_bar(bar, kind)).transpose();
            Ok::<_, Error>([map(0)?, map(1)?, map(2)?, map(3)?, map(4)?, map(5)?])
        };
        let (bars, combining_bars) = (map_all(MemoryType::Uncached)?, map_all(MemoryType::WriteCombining)?);
        let mut space = Vec::new();
        for at in (0..CONFIG_BYTES as u16).step_by(4) {
            space.push(device.config_read(cpu, at).await);
        }
        let register = |at: u16| space.get(usize::from(at / 4)).copied().unwrap_or(u32::MAX);
        let places = CapabilityPlaces {
            power: device.capability(id::POWER_MANAGEMENT),
            msi: device.capability(id::MSI),
            msix: device.capability(id::MSIX),
            express: device.capability(id::PCI_EXPRESS),
        };
        let messages = match (places.msix, places.msi) {
            (Some(at), _) => (MSIX, (register(at) >> 16 & 0x7ff) + 1),
            (None, Some(at)) => (MSI, 1 << (register(at) >> 17 & 0b111).min(5)),
            (None, None) => (MSIX, 0),
        };
        let table = places.msix.map(|at| {
            let place = register(at + 4);
            let start = u64::from(place & !0b111);
            ((place & 0b111) as u8, start..start + TABLE_ENTRY * u64::from(messages.1))
        });
        let pin = (register(header::INTERRUPT_LINE) >> 8) as u8;
        let interrupts = GuestInterrupts::new(device.clone(), messages, IntxLine::from_pin(pin).is_some());
        let fresh = GuestConfig::new(places, virtual_identity(&device, register(0)), register);
        let requester_ids = RequesterIds::new(register);
        Ok(Self {
            device,
            bars,
            combining_bars,
            combines: Cell::new(0),
            memory,
            config: RefCell::new(fresh.clone()),
            fresh,
            requester_ids,
            interrupts,
            table,
            recorder: RefCell::default(),
        })
    }

    /// Reads a region.
    pub async fn region_read(
        &self,
        cpu: &Cpu,
        region: u32,
        offset: u64,
        count: usize,
        above: Option<Bdf>,
    ) -> Vec<u8> {
        match self.bars.get(region as usize) {
            Some(Some(bar)) => {
                let mut bytes = vec![0; count];
                bar.read(cpu, offset, &mut bytes).await;
                bytes
            }
            _ => self.config_read(cpu, (offset, count), above).await,
        }
    }

    /// Writes a region.
    pub async fn region_write(&self, cpu: &Cpu, region: u32, offset: u64, data: &[u8]) {
        match region {
            CONFIG_REGION => self.config_write(cpu, offset, data).await,
            bar => self.bar_write(cpu, bar, offset, data),
        }
    }

    async fn config_read(&self, cpu: &Cpu, (offset, count): (u64, usize), above: Option<Bdf>) -> Vec<u8> {
        let ids = [self.device.address().bdf, above.unwrap_or_default()].map(Bdf::bits);
        let mut bytes = Vec::with_capacity(count + 4);
        let first = offset & !3;
        while bytes.len() < count + (offset - first) as usize {
            let at = first as u16 + bytes.len() as u16;
            let value = self.device.config_read(cpu, at).await;
            let value = self.requester_ids.read(at, value, ids);
            bytes.extend(self.config.borrow().read(at, value).to_le_bytes());
        }
        bytes.drain(..(offset - first) as usize);
        bytes.truncate(count);
        bytes
    }

    async fn config_write(&self, cpu: &Cpu, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for register in (offset & !3..end).step_by(4) {
            let (mut value, mut mask) = ([0; 4], [0; 4]);
            for n in 0..4 {
                let at = register + n as u64;
                if (offset..end).contains(&at) {
                    (value[n], mask[n]) = (data[(at - offset) as usize], 0xff);
                }
            }
            let [value, mask] = [value, mask].map(u32::from_le_bytes);
            let wishes = self.config.borrow_mut().write(register as u16, value, mask);
            for wish in wishes {
                match wish {
                    ConfigWish::Master(on) => self.device.set_master(cpu, on).await,
                    ConfigWish::MaskLine(masked) => self.interrupts.mask(cpu, MaskedBy::Guest, masked).await,
                    ConfigWish::Reset => self.reset_device(cpu).await,
                }
            }
        }
        self.place_bars();
    }

    /// Other functions reach BARs where the guest has put them.
    fn place_bars(&self) {
        let bdf = self.device.address().bdf;
        for number in 0..6 {
            let place = self.config.borrow().bar(number).zip(self.device.bar(number));
            let bar = place.map(|(guest, bar)| GuestBar { guest, host: bar.start.0, length: bar.length });
            self.memory.place_bar(bdf, number, bar);
        }
    }

    fn bar_write(&self, cpu: &Cpu, bar: u32, offset: u64, data: &[u8]) {
        let is_table = self.table.as_ref().is_some_and(|(of, table)| {
            u32::from(*of) == bar && offset < table.end && offset + data.len() as u64 > table.start
        });
        let combines = bar < 6 && self.combines.get() >> bar & 1 == 1;
        let bars = if combines { &self.combining_bars } else { &self.bars };
        if let Some(Some(bar)) = bars.get(bar as usize).filter(|_| !is_table) {
            bar.write(cpu, offset, data);
        }
    }

    /// From now on, what the guest does is kept.
    pub fn record(&self, recorder: &FunctionRecorder) {
        let own = recorder.clone();
        self.interrupts.hear(Rc::new(move |vector, at| own.interrupted(vector, at)));
        *self.recorder.borrow_mut() = Some(recorder.clone());
    }

    fn keep(&self, step: impl FnOnce(u16) -> RecordedStep) {
        if let Some(recorder) = &*self.recorder.borrow() {
            recorder.keep(step);
        }
    }

    /// The core's write-combining buffers collect what the guest stores to these BARs, each a bit.
    pub fn combine(&self, bars: u8) {
        self.combines.set(bars);
    }

    /// Whether the guest lets it access memory, and a client shares that with it; `None` as long as the guest does not.
    pub fn has_shared_memory(&self, client: BorrowedFd<'_>) -> Option<bool> {
        let is_master = self.config.borrow().is_master();
        is_master.then(|| self.memory.of(self.device.address().bdf, |memory| is_shared(memory, client)))
    }

    /// Does what a guest asks of the host.
    ///
    /// # Errors
    /// If the host has no interrupts left.
    pub async fn manage(&self, cpu: &Cpu, act: ManagementAct) -> Result<(), Error> {
        match act {
            ManagementAct::Connect => self.interrupts.connect_messages(cpu).await?,
            ManagementAct::ConnectLine => self.interrupts.connect_line(cpu).await,
            ManagementAct::Disconnect => self.interrupts.disconnect(cpu).await,
            ManagementAct::MaskLine(masked) => self.interrupts.mask(cpu, MaskedBy::Client, masked).await,
            ManagementAct::Reset => self.reset(cpu).await,
        }
        Ok(())
    }

    /// Resets it, with the bits that are the guest's.
    async fn reset(&self, cpu: &Cpu) {
        *self.config.borrow_mut() = self.fresh.clone();
        self.place_bars();
        self.interrupts.forget_guest();
        self.reset_device(cpu).await;
    }

    /// The host's kernel turns on what its own drivers need, once a function is reset; here the guest decides that.
    async fn reset_device(&self, cpu: &Cpu) {
        let _ = self.device.reset(cpu).await;
        let is_master = self.config.borrow().is_master();
        self.device.set_master(cpu, is_master).await;
        self.interrupts.apply_mask(cpu).await;
    }

    /// As before the guest came: without interrupts, mappings and bus mastering, and reset.
    async fn leave(&self, cpu: &Cpu) {
        self.interrupts.disconnect(cpu).await;
        self.reset(cpu).await;
        self.memory.forget(self.device.address().bdf);
    }
}

/// What a virtual function, whose own IDs are all ones, is and has.
fn virtual_identity(device: &PciDevice, ids: u32) -> Option<VirtualIdentity> {
    const PREFETCHABLE: u32 = 1 << 3;
    const IS_64_BIT: u32 = 1 << 2;
    let own = device.identity();
    let kind = |number: u8| {
        let has_upper = number < 5 && device.bar(number + 1).is_none();
        device
            .bar(number)
            .map(|bar| (u32::from(bar.prefetchable) * PREFETCHABLE) | (u32::from(has_upper) * IS_64_BIT))
    };
    let ids_of_physical = u32::from(own.device) << 16 | u32::from(own.vendor);
    (ids == u32::MAX).then(|| VirtualIdentity { ids: ids_of_physical, bars: [0, 1, 2, 3, 4, 5].map(kind) })
}

/// A function while the simulation runs: what its client asks is done by the host's kernel.
pub struct Attended<'a, 's> {
    /// The function.
    pub function: &'a Rc<LiveFunction>,
    /// The kernel that found it.
    pub kernel: &'a Rc<Kernel>,
    /// The simulation.
    pub session: &'a Session<'s>,
}

impl Attended<'_, '_> {
    /// Does what the guest asks of the host, and keeps it and when it is done.
    fn manage(&self, act: ManagementAct) -> Option<Result<(), Error>> {
        self.kept(act, || self.run(async move |function, cpu| function.manage(&cpu, act).await))
    }

    /// Keeps what the guest does, and when it is done.
    fn kept<T>(&self, act: ManagementAct, done: impl FnOnce() -> T) -> T {
        let now = || self.session.simulation().now().as_ps();
        let at = now();
        self.function.keep(|function| RecordedStep::Managed { function, act, at });
        let result = done();
        let (bytes, at) = (Vec::new(), now());
        self.function.keep(|function| RecordedStep::Returned { function, bytes, at });
        result
    }

    /// Lets the kernel do something, and waits. All is done by one core, so that it stays in order.
    fn run<T: 'static>(&self, act: impl AsyncFnOnce(Rc<LiveFunction>, Cpu) -> T + 'static) -> Option<T> {
        let function = Rc::clone(self.function);
        let kernel = self.kernel.face();
        let is_near = |&cpu: &CpuId| kernel.node_of(cpu) == function.device.node();
        let core = (0..kernel.cpus()).map(CpuId).find(is_near).unwrap_or_default();
        let params = TaskParams::named("guest").on(core);
        let done = kernel.run(params, async move |cpu| act(function, cpu).await);
        self.session.complete(async move { done.wait().await })
    }

    /// The client is gone.
    pub fn leave(&self) {
        self.kept(ManagementAct::Reset, || self.run(async |function, cpu| function.leave(&cpu).await));
    }
}

impl ServedFunction for Attended<'_, '_> {
    fn region_size(&self, region: u32) -> u64 {
        match region {
            CONFIG_REGION => CONFIG_BYTES,
            bar @ 0..=5 => self.function.device.bar(bar as u8).map_or(0, |bar| bar.length),
            _ => 0,
        }
    }

    fn vectors(&self, kind: u32) -> u32 {
        self.function.interrupts.count(kind)
    }

    fn read(&mut self, region: u32, offset: u64, into: &mut [u8]) {
        let count = into.len();
        let above = self.kernel.root_port_of(self.function.device.address());
        let now = || self.session.simulation().now().as_ps();
        let (length, at) = (count as u32, now());
        self.function.keep(|function| RecordedStep::Read { function, region, offset, length, at });
        let read = self
            .run(async move |function, cpu| function.region_read(&cpu, region, offset, count, above).await);
        match read {
            Some(bytes) => into.copy_from_slice(&bytes),
            None => into.fill(0xff),
        }
        self.function.keep(|function| RecordedStep::Returned { function, bytes: into.to_vec(), at: now() });
    }

    fn write(&mut self, region: u32, offset: u64, from: &[u8]) {
        let at = self.session.simulation().now().as_ps();
        let from = from.to_vec();
        self.function.keep(|function| {
            let bytes = from.clone();
            RecordedStep::Write { function, region, offset, bytes, at }
        });
        self.run(async move |function, cpu| function.region_write(&cpu, region, offset, &from).await);
    }

    fn connect(&mut self, kind: u32, start: u32, files: Vec<Option<File>>) -> Result<(), VfioRefusal> {
        let interrupts = &self.function.interrupts;
        let act = match kind {
            kind if !interrupts.are_told(kind) => return Ok(()),
            LINE => ManagementAct::ConnectLine,
            _ => ManagementAct::Connect,
        };
        self.manage(act).and_then(Result::ok).ok_or(VfioRefusal::Failed)?;
        interrupts.tell_files(start, files);
        if kind == LINE {
            self.mask(false);
        }
        Ok(())
    }

    fn disconnect(&mut self, kind: u32) {
        if self.function.interrupts.is_connected(kind) {
            self.manage(ManagementAct::Disconnect);
        }
    }

    fn raise(&mut self, kind: u32, vectors: std::ops::Range<u32>) {
        self.function.interrupts.raise(kind, vectors, self.session.simulation().now());
    }

    fn mask(&mut self, masked: bool) {
        self.manage(ManagementAct::MaskLine(masked));
    }

    fn map(&mut self, address: u64, map: DmaMap) -> Result<(), VfioRefusal> {
        let bdf = self.function.device.address().bdf;
        self.function.memory.of(bdf, |memory| memory.map(address, map))
    }

    fn unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), VfioRefusal> {
        let bdf = self.function.device.address().bdf;
        self.function.memory.of(bdf, |memory| match range {
            Some((address, size)) => memory.unmap(address, size),
            None => {
                memory.clear();
                Ok(())
            }
        })
    }

    fn reset(&mut self) {
        self.manage(ManagementAct::Reset);
    }
}
