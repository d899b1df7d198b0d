//! A two-socket host with a device that copies memory, and its driver.
#![allow(dead_code)]

pub mod behind;
pub mod sink;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::{HostId, RootPortParams};
use kernel::{CoreParams, DmaMode, Kernel, KernelParams};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::device::{
    BarAccess, Device, DeviceBus, Dma, DmaError, Function, FunctionIndex, PortIndex, Reset, Token,
};
use platform::dma::{Coherent, DmaOps};
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::kernel::TaskParams;
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};
use platform::sync::Completion;
use units::{Duration, Frequency, Iova};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::tlp::MessageCode;
use wire::pcie::{Bdf, Generation, Width};

pub const VENDOR: u16 = 0x1af4;
pub const DEVICE: u16 = 0x00c0;
pub const MAGIC: u32 = 0x600d_c0de;

pub mod reg {
    pub const MAGIC: u64 = 0x00;
    pub const SOURCE: u64 = 0x08;
    pub const TARGET: u64 = 0x10;
    pub const LENGTH: u64 = 0x18;
    pub const START: u64 = 0x20;
    /// Lets it do nothing more until it is reset.
    pub const HANG: u64 = 0x28;
}

thread_local! {
    /// Copiers that exist.
    pub static ALIVE: Cell<i32> = const { Cell::new(0) };
}

/// Counts those that live.
pub struct Alive;

impl Default for Alive {
    fn default() -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

/// What a copier is.
#[derive(Clone, Copy)]
pub struct Model {
    pub device: u16,
    pub functions: u8,
    /// Bytes of its second BAR.
    pub bar: u64,
    /// What it can be resized to.
    pub most_bar: Option<u64>,
    /// Latency that it tolerates.
    pub tolerance: Option<Duration>,
    pub generation: Generation,
    pub ten_bit_tags: bool,
    pub vectors: u16,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            device: DEVICE,
            functions: 1,
            bar: 1 << 20,
            most_bar: None,
            tolerance: None,
            generation: Generation::Gen3,
            ten_bit_tags: false,
            vectors: 8,
        }
    }
}

/// Copies host memory and says so by interrupt; the start register's value is the vector.
#[derive(Default)]
pub struct Copier {
    alive: Alive,
    pub model: Model,
    registers: [u64; 4],
    vector: u16,
    hangs: bool,
    /// Behind its second BAR.
    memory: Vec<u8>,
}

impl Device for Copier {
    fn functions(&self) -> Vec<Function> {
        let space = ConfigSpace::endpoint(VENDOR, self.model.device, 0x08_8000);
        let space = if self.model.functions > 1 { space.multi_function() } else { space };
        let config = space
            .bar64(0, 16 << 10, false)
            .bar64(2, self.model.bar, true)
            .pcie(PcieParams {
                ten_bit_tags: self.model.ten_bit_tags,
                latency_tolerance: self.model.tolerance,
                ..PcieParams::endpoint(self.model.generation, Width::X8)
            })
            .msix(MsixLayout {
                vectors: self.model.vectors,
                table_bar: 0,
                table_offset: 0x2000,
                pending_bar: 0,
                pending_offset: 0x3000,
            })
            .aer();
        let config = match self.model.most_bar {
            Some(most) => config.resizable_bar(2, most),
            None => config,
        };
        let config = config.build().unwrap();
        let functions = 0..self.model.functions;
        functions.map(|_| Function { port: PortIndex(0), config: config.clone() }).collect()
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {
        *self = Self { model: self.model, ..Self::default() };
    }
    fn bar_read(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        data.fill(0);
        let start = at.offset.get() as usize;
        if at.bar == 2
            && let Some(bytes) = self.memory.get(start..start + data.len())
        {
            data.copy_from_slice(bytes);
        }
        if at.bar == 0 && at.offset.get() == reg::MAGIC && data.len() >= 4 {
            data[..4].copy_from_slice(&MAGIC.to_le_bytes());
        }
        Duration::from_ns(50)
    }
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        if at.bar == 2 {
            let start = at.offset.get() as usize;
            self.memory.resize(self.memory.len().max(start + data.len()), 0);
            self.memory[start..start + data.len()].copy_from_slice(data);
            return;
        }
        let mut value = [0; 8];
        value[..data.len().min(8)].copy_from_slice(&data[..data.len().min(8)]);
        let value = u64::from_le_bytes(value);
        match at.offset.get() {
            reg::HANG => self.hangs = true,
            _ if self.hangs => {}
            reg::START => {
                self.vector = value as u16;
                bus.read(self.dma(self.registers[1]));
            }
            offset if offset < 0x20 => self.registers[(offset / 8) as usize] = value,
            _ => {}
        }
    }
    fn read_done(&mut self, bus: &mut dyn DeviceBus, _: Token, outcome: Result<&[u8], DmaError>) {
        match outcome {
            _ if self.hangs => {}
            Ok(data) => bus.write(self.dma(self.registers[2]), data),
            Err(_) => bus.interrupt(FunctionIndex(0), 7),
        }
    }
    fn write_done(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        if !self.hangs {
            bus.interrupt(FunctionIndex(0), self.vector);
        }
    }
}

impl Copier {
    pub fn of(model: Model) -> Self {
        Self { model, ..Self::default() }
    }

    fn dma(&self, address: u64) -> Dma {
        Dma {
            function: FunctionIndex(0),
            address: Iova::new(address),
            length: self.registers[3] as u32,
            token: Token(0),
            attributes: Default::default(),
        }
    }
}

/// What the driver has for each copier.
pub struct CopierBinding {
    pub device: PciDevice,
    pub dma: Rc<dyn DmaOps>,
    pub registers: Mmio,
    pub memory: Coherent,
    pub irqs: Vec<Irq>,
    pub done: Completion<(u16, CpuId)>,
    pub gone: Cell<bool>,
    pub removed: Cell<bool>,
    pub recovers: Cell<bool>,
    /// Errors and resets that it was told of.
    pub troubles: Cell<u32>,
}

impl CopierBinding {
    /// Lets the device begin to copy.
    pub fn start(&self, cpu: &Cpu, from: Iova, to: Iova, length: u64, vector: u16) {
        self.registers.write_u64(cpu, reg::SOURCE, from.get());
        self.registers.write_u64(cpu, reg::TARGET, to.get());
        self.registers.write_u64(cpu, reg::LENGTH, length);
        self.registers.write_u64(cpu, reg::START, vector.into());
    }

    /// Copies through the device and waits for its interrupt; gives the core that it came to.
    pub async fn copy(
        &self,
        cpu: &Cpu,
        from: Iova,
        to: Iova,
        length: u64,
        vector: u16,
    ) -> Result<CpuId, Error> {
        self.start(cpu, from, to, length, vector);
        match self.done.wait().await {
            (7, _) => Err(Error::Io),
            (_, core) => Ok(core),
        }
    }

    pub async fn magic(&self, cpu: &Cpu) -> u32 {
        self.registers.read_u32(cpu, reg::MAGIC).await
    }
}

impl PciBinding for CopierBinding {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.removed.set(true);
            for &irq in &self.irqs {
                self.device.free_irq(irq);
            }
            self.device.free_irqs(cpu).await;
            self.dma.free_coherent(cpu, self.memory);
            self.done.complete((7, cpu.id()));
        })
    }
    fn error_detected(&self, _: &Cpu, state: ChannelState) -> Recovery {
        self.gone.set(state == ChannelState::Gone);
        self.troubles.set(self.troubles.get() + 1);
        match state {
            ChannelState::Normal => Recovery::CanRecover,
            ChannelState::Frozen if self.recovers.get() => Recovery::NeedReset,
            _ => Recovery::Disconnect,
        }
    }
    fn slot_reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Recovery> {
        self.troubles.set(self.troubles.get() + 1);
        Box::pin(async move {
            match self.magic(cpu).await {
                MAGIC => Recovery::CanRecover,
                _ => Recovery::Disconnect,
            }
        })
    }
}

#[derive(Default)]
pub struct CopierDriver {
    pub affinity: RefCell<Affinity>,
    /// Interrupts without which it does not work; one in any case.
    pub least: Cell<u16>,
    /// Interrupts that it asks for; eight in any case.
    pub most: Cell<u16>,
    pub bound: RefCell<Vec<Rc<CopierBinding>>>,
}

impl PciDriver for CopierDriver {
    fn name(&self) -> &'static str {
        "copier"
    }
    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] = [PciMatch::device(VENDOR, DEVICE)];
        &IDS
    }
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            if registers.read_u32(cpu, reg::MAGIC).await != MAGIC {
                return Err(Error::NoDevice);
            }
            device.set_master(cpu, true).await;
            let dma = device.dma();
            dma.set_mask(64)?;
            let memory = dma.alloc_coherent(cpu, 8192, None)?;
            let affinity = self.affinity.borrow().clone();
            let irqs =
                device.alloc_irqs(cpu, self.least.get().max(1), self.most.get().max(8), affinity).await?;
            let done = Completion::new();
            for (n, &irq) in (0u16..).zip(&irqs) {
                let done = done.clone();
                let handler = Rc::new(move |cpu: &Cpu| {
                    done.complete((n, cpu.id()));
                    IrqReturn::Handled
                });
                device.request_irq(irq, "copier", handler, None)?;
            }
            let binding = Rc::new(CopierBinding {
                device,
                dma,
                registers,
                memory,
                irqs,
                done,
                gone: Cell::new(false),
                removed: Cell::new(false),
                recovers: Cell::new(true),
                troubles: Cell::new(0),
            });
            self.bound.borrow_mut().push(Rc::clone(&binding));
            Ok(binding as Rc<dyn PciBinding>)
        })
    }
}

pub struct Machine {
    // Dropped first: tasks hold what the kernel holds.
    pub simulation: Simulation<Fabric>,
    pub kernel: Kernel,
    pub driver: Rc<CopierDriver>,
    pub copiers: Vec<EndpointId>,
    pub host: HostId,
}

pub fn params(mode: DmaMode) -> KernelParams {
    KernelParams::linux(CoreParams::haswell(Frequency::mhz(2_500)), mode)
}

fn port(node: u8) -> RootPortParams {
    RootPortParams { node: NodeId(node), ..RootPortParams::ideal() }
}

pub fn link() -> LinkParams {
    LinkParams::example(Generation::Gen3, Width::X8)
}

/// A machine with one copier on each node, not booted.
pub fn machine_with(params: KernelParams) -> Machine {
    machine_of(params, Model::default())
}

pub fn machine_of(params: KernelParams, model: Model) -> Machine {
    let memory = MemorySystem::new(&MemoryParams::example());
    let iommus = match params.dma.mode {
        DmaMode::Off => Vec::new(),
        _ => (0..2).map(|n| Iommu::new(IommuParams::default(), NodeId(n), Seed::new(7)).unwrap()).collect(),
    };
    let mut fabric = Fabric::new();
    let host = fabric.add_host(memory, iommus);
    let copiers = (0..2u8)
        .map(|node| {
            let link = LinkParams::example(model.generation, Width::X8);
            let link = fabric.add_root_port(host, port(node), link, 0..=0);
            let copier = Copier { model, ..Copier::default() };
            fabric.add_endpoint(EndpointParams::ideal(1024), &[link], Box::new(copier))
        })
        .collect();
    let simulation = Simulation::new(fabric);
    let kernel = Kernel::new(&simulation.handle(), host, params);
    let driver = Rc::new(CopierDriver::default());
    kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    Machine { simulation, kernel, driver, copiers, host }
}

pub fn machine(mode: DmaMode) -> Machine {
    machine_with(params(mode))
}

impl Machine {
    pub fn booted(mode: DmaMode) -> Self {
        let machine = machine(mode);
        machine.boot();
        machine
    }

    pub fn boot(&self) {
        self.simulation.block_on(self.kernel.boot()).expect("the kernel boots");
    }

    /// Runs a program on a core to its end.
    pub fn run<T: 'static>(&self, on: u16, program: impl FnOnce(Cpu) -> Async<'static, T> + 'static) -> T {
        let result = Completion::new();
        let end = result.clone();
        self.kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
            Box::pin(async move {
                let value = program(cpu).await;
                end.complete(value);
            })
        });
        self.simulation.block_on(async move { result.wait().await }).expect("the program ends")
    }

    pub fn copier(&self, n: usize) -> Rc<CopierBinding> {
        Rc::clone(&self.driver.bound.borrow()[n])
    }

    pub fn bytes(&self, at: PhysAddr, length: usize) -> Vec<u8> {
        self.simulation.with(|fabric, _| {
            let mut bytes = vec![0; length];
            fabric.host(self.host).memory.bytes().read(units::HostPhysical::new(at.0), &mut bytes).unwrap();
            bytes
        })
    }
}

impl Machine {
    /// Takes all copiers out without notice and lets the kernel find out.
    pub fn unplug_all(&self) {
        for &copier in &self.copiers {
            self.unplug(copier);
        }
    }

    /// Takes a device out without notice and lets the kernel find out.
    pub fn unplug(&self, copier: EndpointId) {
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(copier));
        self.simulation.run();
    }

    /// Puts a device back and lets the kernel find out.
    pub fn plug(&self, copier: EndpointId) {
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).insert_device(copier));
        self.simulation.run();
    }

    /// Puts another device into a slot in place of the one there, before the kernel can look.
    pub fn exchange(&self, out: EndpointId, into: EndpointId) {
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).exchange_device(out, into));
        self.simulation.run();
    }

    /// A device that is in no slot.
    pub fn spare(&self, model: Model) -> EndpointId {
        let copier = Copier { model, ..Copier::default() };
        self.simulation.with(|fabric, _| fabric.add_spare(EndpointParams::ideal(32), Box::new(copier)))
    }

    /// Free memory of a machine whose devices nobody drives.
    pub fn memory_before_drivers(&self, mode: DmaMode) -> Vec<units::Bytes> {
        let machine = machine(mode);
        machine.boot();
        machine.unplug_all();
        machine.kernel.memory().iter().map(|node| node.free).collect()
    }
}

/// The first copier's hardware reports an error.
pub fn report(machine: &Machine, register: u16, bits: u32, code: MessageCode) {
    let device = machine.copiers[0];
    machine.simulation.with(|fabric, scheduler| {
        let config = fabric.endpoint_mut(device).core.registers.config_mut(FunctionIndex(0));
        let at = config.aer_offset().unwrap();
        config.update(at + register, 0, bits);
        let (host, mut cx) = fabric.host_in(machine.host, scheduler);
        host.port_mut(0).report(&mut cx, Bdf::new(1, 0, 0), code);
    });
    machine.simulation.run();
}
