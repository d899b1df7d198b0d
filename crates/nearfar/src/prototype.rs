//! A device prototype in a slot of a host, and a driver that its author controls: a core reads and writes registers,
//! core and device share memory, the device sends interrupts.
//!
//! The device is anything that implements [`platform::device::Device`]. A card's part file gives it a PCIe core with
//! tags and a link; root complex, caches and IOMMU are the machine's.
//!
//! A card with one register and 64 bytes of memory, which it fills from host memory by DMA:
//!
//! ```
//! use nearfar::platform::device::{
//!     BarAccess, Device, DeviceBus, Dma, DmaAttributes, DmaError, Function, FunctionIndex, PortIndex, Reset, Token,
//! };
//! use nearfar::prototype::{Prototype, PrototypeError, Socket};
//! use nearfar::units::{Duration, Iova};
//! use nearfar::wire::pcie::config::{ConfigSpace, PcieParams};
//! use nearfar::wire::pcie::{Generation, Width};
//! use nearfar::Library;
//!
//! struct Scratch([u8; 64]);
//!
//! impl Device for Scratch {
//!     fn functions(&self) -> Vec<Function> {
//!         let link = PcieParams::endpoint(Generation::Gen3, Width::X8);
//!         let config = ConfigSpace::endpoint(0x1d1d, 1, 0x05_80_00).bar64(0, 4096, false).msi(1).pcie(link);
//!         vec![Function { port: PortIndex(0), config: config.build().expect("one region and one interrupt fit") }]
//!     }
//!
//!     fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {
//!         self.0 = [0; 64];
//!     }
//!
//!     fn bar_read(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
//!         let from = at.offset.get() as usize % self.0.len();
//!         let length = data.len().min(self.0.len() - from);
//!         data[..length].copy_from_slice(&self.0[from..][..length]);
//!         Duration::from_ns(50)
//!     }
//!
//!     fn bar_write(&mut self, bus: &mut dyn DeviceBus, _: BarAccess, data: &[u8]) {
//!         let Ok(address) = data.try_into().map(u64::from_le_bytes) else { return };
//!         bus.read(Dma {
//!             function: FunctionIndex(0),
//!             address: Iova::new(address),
//!             length: 64,
//!             token: Token(0),
//!             attributes: DmaAttributes::default(),
//!         });
//!     }
//!
//!     fn read_done(&mut self, bus: &mut dyn DeviceBus, _: Token, outcome: Result<&[u8], DmaError>) {
//!         if let Ok(data) = outcome {
//!             self.0.copy_from_slice(data);
//!             bus.interrupt(FunctionIndex(0), 0);
//!         }
//!     }
//! }
//!
//! let socket = Socket { machine: "dell-t430", card: "nfp6000", iommu: "strict", seed: 1 };
//! let host = Prototype::new(&Library::built_in(), &socket, Box::new(Scratch([0; 64])), Default::default())?;
//! let memory = host.allocate(64)?;
//! host.store(memory.cpu, vec![7; 64])?;
//! host.write(0, 0, memory.bus.get().to_le_bytes().to_vec())?;
//! assert!(host.wait_for_interrupt(0, 0, Duration::from_us(10))?);
//! let (data, took) = host.read(0, 8, 4)?;
//! assert!(data == [7; 4] && took > Duration::from_ns(300), "{data:?} after {took}");
//! # Ok::<(), PrototypeError>(())
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use machine::{ComputerScenario, ComputerSetup, Diagnostics, Doc, Library, Part};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::device::{Device, DmaAttributes, Reset};
use platform::dma::Coherent;
use platform::irq::{Affinity, IrqReturn};
use platform::kernel::TaskParams;
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Completion;
use units::{Duration, Time};

use crate::computer::{ComputerError, Computers};
use crate::topology;

/// The slot of a prototype.
#[derive(Clone, Debug)]
pub struct Socket<'a> {
    /// Name or path of the machine.
    pub machine: &'a str,
    /// Name or path of the card that provides link and PCIe core.
    pub card: &'a str,
    /// IOMMU mode: `off`, `strict` or `lazy`, as `host.iommu` of a scenario.
    pub iommu: &'a str,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Why a prototype cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrototypeError {
    /// The file of the machine or the card is invalid.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// The host does not boot.
    #[error(transparent)]
    Computer(#[from] ComputerError),
    /// The kernel did not find the device.
    #[error("the host's kernel does not find the device: does it say a vendor and a device number?")]
    NotFound,
    /// The device has no such BAR.
    #[error("the device has no BAR {0}")]
    NoBar(u8),
    /// An access beyond the end of a BAR.
    #[error("{length} bytes at {offset:#x} are beyond the end of BAR {bar}, which has {size}")]
    Beyond {
        /// Number of the BAR.
        bar: u8,
        /// Offset of the access.
        offset: u64,
        /// Length of the access.
        length: u64,
        /// Size of the BAR.
        size: u64,
    },
    /// The device has no such vector.
    #[error("the device has interrupt vectors 0 to {most}, none with the number {vector}")]
    NoVector {
        /// The requested vector.
        vector: u16,
        /// The last vector.
        most: i32,
    },
    /// The kernel returned an error.
    #[error("the kernel refuses: {0}")]
    Kernel(Error),
    /// The event that the core waits for does not happen.
    #[error("nothing came of it: {0} of simulated time passed, or nothing is left to happen")]
    Hangs(Duration),
}

/// A booted host with the prototype in a slot.
pub struct Prototype {
    computers: Computers,
    bound: Rc<Bound>,
    has_failed: Rc<Cell<bool>>,
}

/// State of the bound driver.
#[derive(Default)]
struct Bound {
    device: RefCell<Option<PciDevice>>,
    bars: RefCell<Vec<Option<Mmio>>>,
    interrupts: RefCell<Vec<u64>>,
}

struct Driver {
    ids: [PciMatch; 1],
    bound: Rc<Bound>,
}

impl PciBinding for Bound {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let device = self.device.borrow_mut().take();
            if let Some(device) = device {
                device.free_irqs(cpu).await;
            }
        })
    }
}

impl PciDriver for Driver {
    fn name(&self) -> &'static str {
        "prototype"
    }

    fn ids(&self) -> &[PciMatch] {
        &self.ids
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let map = |bar| device.ioremap_bar(bar, MemoryType::Uncached).ok();
            *self.bound.bars.borrow_mut() = (0..6).map(map).collect();
            device.set_master(cpu, true).await;
            device.dma().set_mask(64)?;
            // Interrupts are optional.
            let irqs = device.alloc_irqs(cpu, 1, 32, Affinity::Spread).await.unwrap_or_default();
            *self.bound.interrupts.borrow_mut() = vec![0; irqs.len()];
            for (vector, irq) in irqs.into_iter().enumerate() {
                let bound = Rc::clone(&self.bound);
                let handler = Rc::new(move |_: &Cpu| {
                    bound.interrupts.borrow_mut()[vector] += 1;
                    IrqReturn::Handled
                });
                device.request_irq(irq, "prototype", handler, None)?;
            }
            *self.bound.device.borrow_mut() = Some(device);
            Ok(Rc::clone(&self.bound) as Rc<dyn PciBinding>)
        })
    }
}

impl Prototype {
    /// Boots a host with the device in its first slot. If `has_failed` returns true, all waits end.
    ///
    /// # Errors
    /// If a file is invalid or the host does not find the device.
    pub fn new(
        library: &Library,
        socket: &Socket<'_>,
        device: Box<dyn Device>,
        has_failed: Rc<Cell<bool>>,
    ) -> Result<Self, PrototypeError> {
        let Socket { machine, card, iommu, seed } = socket;
        let text = format!(
            "name = \"prototype\"\nsummary = \"A prototype of a device\"\nseed = {seed}\n\
             [[host]]\nname = \"a\"\nmachine = {machine:?}\niommu = {iommu:?}\n\
             [[host.device]]\ncard = {card:?}\n"
        );
        let doc = Doc::<ComputerScenario>::from_text(library, "prototype", &text);
        let setup = ComputerSetup::load(library, &doc)?;
        let part: Part = Doc::load(library, card)?.read()?;
        let identity = device.functions().first().map(|function| {
            let word = function.config.dword(0);
            PciMatch::device(word as u16, (word >> 16) as u16)
        });
        let bound = Rc::new(Bound::default());
        let ids = [identity.ok_or(PrototypeError::NotFound)?];
        let driver = Rc::new(Driver { ids, bound: Rc::clone(&bound) });
        let computers = Computers::with_drivers(&setup, |_| vec![Rc::clone(&driver) as Rc<dyn PciDriver>])?;
        let card = computers.hosts()[0].devices[0];
        computers.simulation().with(|fabric: &mut Fabric, scheduler| {
            // The device itself says what each request carries.
            let core =
                EndpointParams { attributes: DmaAttributes::PAYLOAD, ..topology::endpoint_params(&part) };
            let spare = fabric.add_spare(core, device);
            fabric.running(scheduler).exchange_device(card, spare);
            fabric.running(scheduler).reset_device(spare, Reset::Fundamental);
        });
        computers.boot()?;
        let prototype = Self { computers, bound, has_failed };
        match prototype.bound.device.borrow().is_some() || prototype.has_failed.get() {
            true => Ok(prototype),
            false => Err(PrototypeError::NotFound),
        }
    }

    /// The simulated time.
    pub fn now(&self) -> Time {
        self.computers.simulation().now()
    }

    /// Number of events simulated so far.
    pub fn events(&self) -> u64 {
        self.computers.simulation().processed()
    }

    /// Simulates for `time`.
    pub fn run_for(&self, time: Duration) {
        let until = self.now() + time;
        self.go_on(until, || false);
    }

    /// Simulates until `is_over`, until the device has failed, or until `until`. Returns whether it is over.
    fn go_on(&self, until: Time, is_over: impl Fn() -> bool) -> bool {
        let simulation = self.computers.simulation();
        simulation.run_while(|_| !is_over() && !self.has_failed.get() && simulation.now() < until);
        is_over()
    }

    /// Runs a closure on the first core. Returns its result and how long it took.
    fn on_core<T: 'static>(
        &self,
        work: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> Result<(T, Duration), PrototypeError> {
        /// Longer than any completion timeout.
        const PATIENCE: Duration = Duration::from_ms(100);
        let done = Completion::new();
        let (told, taken) = (done.clone(), RefCell::new(None));
        self.computers.hosts()[0].kernel.spawn(TaskParams::named("prototype").on(CpuId(0)), move |cpu| {
            Box::pin(async move {
                let began = cpu.now();
                let outcome = work(cpu.clone()).await;
                cpu.sync().await;
                told.complete((outcome, cpu.now().since(began)));
            })
        });
        self.go_on(self.now() + PATIENCE, || {
            let mut taken = taken.borrow_mut();
            if taken.is_none() {
                *taken = done.try_take();
            }
            taken.is_some()
        });
        taken.into_inner().ok_or(PrototypeError::Hangs(PATIENCE))
    }

    fn bar(&self, bar: u8, offset: u64, length: u64) -> Result<Mmio, PrototypeError> {
        let bars = self.bound.bars.borrow();
        let found = bars.get(usize::from(bar)).cloned().flatten().ok_or(PrototypeError::NoBar(bar))?;
        match offset.checked_add(length).is_some_and(|end| end <= found.length()) {
            true => Ok(found),
            false => Err(PrototypeError::Beyond { bar, offset, length, size: found.length() }),
        }
    }

    /// Reads registers. Returns the data and how long the core waited.
    ///
    /// # Errors
    /// If the registers do not exist or the device does not answer.
    pub fn read(&self, bar: u8, offset: u64, length: u32) -> Result<(Vec<u8>, Duration), PrototypeError> {
        let registers = self.bar(bar, offset, length.into())?;
        self.on_core(move |cpu| {
            Box::pin(async move {
                let mut data = vec![0; length as usize];
                registers.read(&cpu, offset, &mut data).await;
                data
            })
        })
    }

    /// Writes registers. Returns how long the core was busy. The write is posted: it may still be in flight.
    ///
    /// # Errors
    /// If the registers do not exist.
    pub fn write(&self, bar: u8, offset: u64, data: Vec<u8>) -> Result<Duration, PrototypeError> {
        let registers = self.bar(bar, offset, data.len() as u64)?;
        let work = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move { registers.write(&cpu, offset, &data) })
        };
        self.on_core(work).map(|((), took)| took)
    }

    /// Allocates memory for both core and device.
    ///
    /// # Errors
    /// If none is left.
    pub fn allocate(&self, length: u64) -> Result<Coherent, PrototypeError> {
        let device = self.bound.device.borrow().clone().ok_or(PrototypeError::NotFound)?;
        let work = move |cpu: Cpu| -> Async<'static, Result<Coherent, Error>> {
            Box::pin(async move { device.dma().alloc_coherent(&cpu, length, None) })
        };
        self.on_core(work)?.0.map_err(PrototypeError::Kernel)
    }

    /// Loads from memory. Returns the data and how long the core took.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn load(&self, at: PhysAddr, length: u32) -> Result<(Vec<u8>, Duration), PrototypeError> {
        self.on_core(move |cpu| {
            Box::pin(async move {
                let mut data = vec![0; length as usize];
                cpu.load_long(at, &mut data).await;
                data
            })
        })
    }

    /// Stores to memory. Returns how long the core took.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn store(&self, at: PhysAddr, data: Vec<u8>) -> Result<Duration, PrototypeError> {
        let work = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move { cpu.store_long(at, &data).await })
        };
        self.on_core(work).map(|((), took)| took)
    }

    /// Number of interrupts of a vector so far.
    ///
    /// # Errors
    /// If the vector does not exist.
    pub fn interrupts(&self, vector: u16) -> Result<u64, PrototypeError> {
        let all = self.bound.interrupts.borrow();
        let most = all.len() as i32 - 1;
        all.get(usize::from(vector)).copied().ok_or(PrototypeError::NoVector { vector, most })
    }

    /// Waits until a vector has had more than `seen` interrupts, up to a time limit. Returns whether it has.
    ///
    /// # Errors
    /// If the vector does not exist.
    pub fn wait_for_interrupt(
        &self,
        vector: u16,
        seen: u64,
        longest: Duration,
    ) -> Result<bool, PrototypeError> {
        self.interrupts(vector)?;
        Ok(self.go_on(self.now() + longest, || self.bound.interrupts.borrow()[usize::from(vector)] > seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use devices::dma_engine::DmaEngine;
    use engine::Seed;

    /// Any device can be plugged in: here a card's own model, whose registers answer.
    #[test]
    fn a_device_is_found_and_its_registers_answer() {
        let library = Library::built_in();
        let part: Part = Doc::load(&library, "ideal").unwrap().read().unwrap();
        let agreed = (wire::pcie::Generation::Gen3, wire::pcie::Width::X8);
        let (_, params) = topology::card_params(&part, agreed, 127.0, 0);
        let (device, _) = DmaEngine::new(params, Seed::new(1).component("card")).unwrap();
        let socket = Socket { machine: "dell-t430", card: "ideal", iommu: "off", seed: 1 };
        let prototype = Prototype::new(&library, &socket, Box::new(device), Rc::default()).unwrap();
        let memory = prototype.allocate(4096).unwrap();
        prototype.store(memory.cpu, vec![7; 64]).unwrap();
        assert_eq!(prototype.load(memory.cpu, 64).unwrap().0, [7; 64]);
        let (data, took) = prototype.read(0, 0, 4).unwrap();
        assert_eq!(data.len(), 4);
        assert!(took > Duration::from_ns(300) && took < Duration::from_us(3), "{took}");
        assert!(matches!(prototype.read(5, 0, 4), Err(PrototypeError::NoBar(5))));
        assert!(matches!(prototype.read(0, u64::MAX, 4), Err(PrototypeError::Beyond { .. })));
        assert!(prototype.interrupts(99).is_err() && prototype.events() > 0);
        let before = prototype.now();
        prototype.run_for(Duration::from_us(5));
        assert!(prototype.now() >= before + Duration::from_us(5));
    }
}
