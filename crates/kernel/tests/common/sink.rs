//! A host with memory behind a BAR that notes what is written to it.

use engine::Simulation;
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::endpoint::EndpointParams;
use hardware::link::{CreditLimits, Credits, LinkParams};
use hardware::memory::{MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use kernel::{DmaMode, Kernel, KernelCosts, KernelParams};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::device::{BarAccess, Device, DeviceBus, Function, FunctionIndex, PortIndex, Reset, Token};
use platform::irq::{Affinity, IrqReturn};
use platform::kernel::TaskParams;
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Completion;
use std::cell::RefCell;
use std::rc::Rc;
use units::{Duration, Time};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::{Generation, Width};

pub const VENDOR: u16 = 0x1af4;
pub const DEVICE: u16 = 0x00c1;

/// A write as the device saw it.
pub type Seen = Rc<RefCell<Vec<(Time, u64, Vec<u8>)>>>;

/// Memory behind BAR 0 that notes each write and keeps it in the receive buffer for a while.
pub struct Sink {
    seen: Seen,
    holds: Duration,
    memory: Vec<u8>,
}

impl Device for Sink {
    fn functions(&self) -> Vec<Function> {
        let config = ConfigSpace::endpoint(VENDOR, DEVICE, 0x05_8000)
            .bar64(0, 64 << 10, true)
            .bar64(2, 16 << 10, false)
            .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
            .msix(MsixLayout {
                vectors: 1,
                table_bar: 2,
                table_offset: 0,
                pending_bar: 2,
                pending_offset: 0x1000,
            })
            .build()
            .unwrap();
        vec![Function { port: PortIndex(0), config }]
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn bar_read(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let start = at.offset.get() as usize;
        data.copy_from_slice(&self.memory[start..start + data.len()]);
        Duration::from_ns(50)
    }
    fn bar_write_holds(&mut self, _: &mut dyn DeviceBus, _: BarAccess, _: u32) -> Duration {
        self.holds
    }
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let start = at.offset.get() as usize;
        if at.bar == 0 {
            self.memory[start..start + data.len()].copy_from_slice(data);
            self.seen.borrow_mut().push((bus.now(), at.offset.get(), data.to_vec()));
        } else {
            bus.wake_at(bus.now() + Duration::from_us(1), Token(0));
        }
    }
    fn timer(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        bus.interrupt(FunctionIndex(0), 0);
    }
}

#[derive(Default)]
pub struct Driver {
    pub bound: RefCell<Option<PciDevice>>,
}

pub struct Bound(PciDevice);

impl PciBinding for Bound {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        self.0.free_irqs(cpu)
    }
}

impl PciDriver for Driver {
    fn name(&self) -> &'static str {
        "sink"
    }
    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] = [PciMatch::device(VENDOR, DEVICE)];
        &IDS
    }
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            device.set_master(cpu, true).await;
            let irqs = device.alloc_irqs(cpu, 1, 1, Affinity::Spread).await?;
            device.request_irq(irqs[0], "sink", Rc::new(|_: &Cpu| IrqReturn::Handled), None)?;
            *self.bound.borrow_mut() = Some(device.clone());
            Ok(Rc::new(Bound(device)) as Rc<dyn PciBinding>)
        })
    }
}

pub struct Machine {
    // Dropped first: tasks hold what the kernel holds.
    pub simulation: Simulation<Fabric>,
    pub kernel: Kernel,
    pub driver: Rc<Driver>,
    pub host: HostId,
    pub seen: Seen,
}

#[derive(Clone)]
pub struct Setup {
    pub stores: StoreParams,
    pub port: RootPortParams,
    pub link: LinkParams,
    pub holds: Duration,
}

/// A root complex that accepts a store in 100 ns, a Gen1 x4 link, a device that takes what comes.
pub fn setup() -> Setup {
    let latency = Duration::from_ns(100);
    let stores = StoreParams { accept_latency: latency, uncached_latency: latency, ..StoreParams::ideal() };
    let port = RootPortParams { outbound_latency: Duration::from_ns(50), ..RootPortParams::ideal() };
    let mut link = super::link();
    (link.generation, link.width) = (Generation::Gen1, Width::X4);
    let credits = Credits { header: 32, data: 128 };
    link.receivers[1].credits = CreditLimits { posted: Some(credits), ..CreditLimits::default() };
    Setup { stores, port, link, holds: Duration::ZERO }
}

impl Machine {
    pub fn new(setup: &Setup) -> Self {
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
        fabric.host_mut(host).set_store_params(&setup.stores);
        let link = fabric.add_root_port(host, setup.port.clone(), setup.link.clone(), 0..=0);
        let seen = Seen::default();
        let sink = Sink { seen: Rc::clone(&seen), holds: setup.holds, memory: vec![0; 64 << 10] };
        fabric.add_endpoint(EndpointParams::ideal(32), &[link], Box::new(sink));
        let simulation = Simulation::new(fabric);
        let params = KernelParams { costs: KernelCosts::none(), ..super::params(DmaMode::Off) };
        let kernel = Kernel::new(&simulation.handle(), host, params);
        let driver = Rc::new(Driver::default());
        kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
        simulation.block_on(kernel.boot()).expect("the kernel boots");
        seen.borrow_mut().clear();
        Self { simulation, kernel, driver, host, seen }
    }

    /// Runs a program on core 0 to its end, and the simulation until nothing happens any more.
    pub fn run<T: 'static>(&self, program: impl AsyncFnOnce(Cpu, PciDevice) -> T + 'static) -> T {
        let result = Completion::new();
        let end = result.clone();
        let device = self.driver.bound.borrow().clone().expect("the device was found");
        self.kernel.spawn(TaskParams::named("test").on(CpuId(0)), move |cpu| {
            Box::pin(async move { end.complete(program(cpu, device).await) })
        });
        let value = self.simulation.block_on(async move { result.wait().await }).expect("the program ends");
        self.simulation.run();
        value
    }

    pub fn lengths(&self) -> Vec<usize> {
        self.seen.borrow().iter().map(|(.., data)| data.len()).collect()
    }

    pub fn counters(&self) -> hardware::core::StoreCounters {
        let core = hardware::memory::CoreId(0);
        self.simulation.with(|fabric, _| *fabric.host(self.host).stores.of(core).counters())
    }
}
