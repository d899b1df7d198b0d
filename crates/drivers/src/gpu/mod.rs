//! GPU driver: gives programs memory, windows and channels. Programs then submit work to the GPU without the driver
//! ([`platform::gpu`]).
//!
//! | file | subject |
//! |---|---|
//! | `mod` | probe, removal, interrupts |
//! | `context` | the resources of one program |
//! | `ranges` | allocator for GPU memory |

mod context;
mod ranges;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::dma::DmaOps;
use platform::gpu::{GpuContext, GpuFile, GpuInfo};
use platform::irq::{Affinity, IrqReturn};
use platform::kernel::Kernel;
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};
use wire::gpu::{self as regs, MEMORY_BAR, REGISTER_BAR};

use context::Context;
use ranges::Ranges;

/// Cycles of a driver call that allocates or frees (assumed: some microseconds; programs do this before they start
/// work).
const CALL: u64 = 5_000;
/// PCI vendor ID of the GPUs.
const VENDOR: u16 = 0x10de;
/// PCI class: VGA-compatible display controller.
const CLASS: u32 = 0x03_0000;

/// One driver for all GPUs of a host.
#[derive(Default)]
pub struct GpuDriver;

struct Gpu {
    me: Weak<Self>,
    device: PciDevice,
    dma: Rc<dyn DmaOps>,
    kernel: Rc<dyn Kernel>,
    registers: Mmio,
    /// Host-physical address at which cores see the GPU's memory.
    aperture: PhysAddr,
    info: GpuInfo,
    memory: RefCell<Ranges>,
    contexts: RefCell<Vec<Option<Rc<Context>>>>,
    /// Channels in use.
    channels: RefCell<Vec<bool>>,
    name: RefCell<String>,
    gone: Cell<bool>,
}

impl PciDriver for GpuDriver {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] =
            [PciMatch { vendor: Some(VENDOR), device: None, class: Some((CLASS, 0xff_ffff)) }];
        &IDS
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let registers = device.ioremap_bar(REGISTER_BAR, MemoryType::Uncached)?;
            // Peers get the address at which cores find the BAR, whatever bridges are in between.
            let aperture = device.ioremap_bar(MEMORY_BAR, MemoryType::WriteCombining)?;
            device.set_master(cpu, true).await;
            let dma = device.dma();
            dma.set_mask(64)?;
            let copy_engines = registers.read_u32(cpu, regs::COPY_ENGINES).await;
            let memory = u64::from(registers.read_u32(cpu, regs::MEMORY_MIB).await) << 20;
            let channels = registers.read_u32(cpu, regs::CHANNEL_COUNT).await;
            if copy_engines == u32::MAX {
                return Err(Error::NoDevice);
            }
            let info =
                GpuInfo { memory, aperture: aperture.length().min(memory), copy_engines: copy_engines as u8 };
            let gpu = Rc::new_cyclic(|me| Gpu {
                me: me.clone(),
                kernel: device.kernel(),
                device,
                dma,
                registers,
                aperture: aperture.address(),
                info,
                memory: RefCell::new(Ranges::new(memory)),
                contexts: RefCell::new(vec![None; regs::CONTEXTS.into()]),
                channels: RefCell::new(vec![false; channels.min(regs::CHANNELS.into()) as usize]),
                name: RefCell::default(),
                gone: Cell::new(false),
            });
            let irqs = gpu.device.alloc_irqs(cpu, 1, 1, Affinity::Spread).await?;
            let me = gpu.me.clone();
            let handler =
                Rc::new(move |cpu: &Cpu| me.upgrade().map_or(IrqReturn::None, |gpu| gpu.interrupt(cpu)));
            gpu.device.request_irq(irqs[0], "gpu", handler, None)?;
            let file: Rc<dyn GpuFile> = Rc::clone(&gpu) as _;
            // Programs get the file back as the concrete type `Rc<dyn GpuFile>`.
            *gpu.name.borrow_mut() = gpu.kernel.register_file("gpu", Rc::new(file));
            Ok(gpu as Rc<dyn PciBinding>)
        })
    }
}

impl Gpu {
    fn contexts(&self) -> Vec<Rc<Context>> {
        self.contexts.borrow().iter().flatten().cloned().collect()
    }

    /// Interrupt: a channel has stopped.
    fn interrupt(&self, cpu: &Cpu) -> IrqReturn {
        let found: usize = self.contexts().iter().map(|context| context.look(cpu)).sum();
        if found == 0 { IrqReturn::None } else { IrqReturn::Handled }
    }

    /// The device is gone: stop all accesses.
    fn leave(&self) {
        if !self.gone.replace(true) {
            self.kernel.unregister_file(&self.name.borrow());
        }
    }
}

impl GpuFile for Gpu {
    fn info(&self) -> GpuInfo {
        self.info
    }

    fn open(&self, cpu: &Cpu) -> Result<Rc<dyn GpuContext>, Error> {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        let me = self.me.upgrade().filter(|gpu| !gpu.gone.get()).ok_or(Error::NoDevice)?;
        let mut contexts = self.contexts.borrow_mut();
        let number = contexts.iter().position(Option::is_none).ok_or(Error::NoSpace)?;
        let context = Rc::new(Context::new(me, number as u16));
        contexts[number] = Some(Rc::clone(&context));
        Ok(context)
    }
}

impl PciBinding for Gpu {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.leave();
            self.contexts().iter().for_each(|context| context.close(cpu));
            self.device.free_irqs(cpu).await;
        })
    }

    fn error_detected(&self, _: &Cpu, state: ChannelState) -> Recovery {
        match state {
            ChannelState::Normal => Recovery::CanRecover,
            // The contents of GPU memory are lost, so programs have to start over.
            ChannelState::Frozen | ChannelState::Gone => {
                self.leave();
                Recovery::Disconnect
            }
        }
    }
}
