//! PCI drivers, and functions as they see them.
//!
//! Example: a driver for a device that writes a word to host memory and raises an interrupt on request:
//!
//! ```
//! use std::rc::Rc;
//! use platform::cpu::{Async, Cpu};
//! use platform::dma::{Coherent, DmaOps};
//! use platform::irq::{Affinity, IrqReturn};
//! use platform::mmio::{MemoryType, Mmio};
//! use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
//! use platform::{Error, sync::Completion};
//!
//! struct Doorbell;
//! struct Bound { device: PciDevice, dma: Rc<dyn DmaOps>, registers: Mmio, word: Coherent, done: Completion<()> }
//!
//! impl PciDriver for Doorbell {
//!     fn name(&self) -> &'static str { "doorbell" }
//!     fn ids(&self) -> &[PciMatch] { const { &[PciMatch::device(0x1af4, 0x00c0)] } }
//!     fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
//!         Box::pin(async move {
//!             let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
//!             device.set_master(cpu, true).await;
//!             let dma = device.dma();
//!             dma.set_mask(64)?;
//!             let word = dma.alloc_coherent(cpu, 8, None)?;
//!             let irqs = device.alloc_irqs(cpu, 1, 1, Affinity::Spread).await?;
//!             let done = Completion::new();
//!             let told = done.clone();
//!             let handler = Rc::new(move |cpu: &Cpu| {
//!                 cpu.work(50); // What the handler computes; its loads and stores cost by themselves.
//!                 told.complete(());
//!                 IrqReturn::Handled
//!             });
//!             device.request_irq(irqs[0], "doorbell", handler, None)?;
//!             Ok(Rc::new(Bound { device, dma, registers, word, done }) as Rc<dyn PciBinding>)
//!         })
//!     }
//! }
//!
//! impl Bound {
//!     /// What a program calls.
//!     async fn ring(&self, cpu: &Cpu) -> u64 {
//!         self.registers.write_u64(cpu, 0x8, self.word.bus.get()); // posted
//!         self.registers.write_u32(cpu, 0x0, 1);
//!         self.done.wait().await; // gives the core away
//!         cpu.load_u64(self.word.cpu) // through the simulated caches
//!     }
//! }
//!
//! impl PciBinding for Bound {
//!     fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
//!         Box::pin(async move {
//!             self.device.free_irqs(cpu).await;
//!             self.dma.free_coherent(cpu, self.word);
//!         })
//!     }
//! }
//! ```

use std::any::Any;
use std::rc::Rc;

use wire::pcie::config::header;
use wire::pcie::{Bdf, FunctionAddress};

use crate::cpu::{Async, Cpu, CpuId, Node};
use crate::dma::DmaOps;
use crate::error::Error;
use crate::irq::{Affinity, Irq, IrqHandler, IrqMoved, IrqThread};
use crate::kernel::Kernel;
use crate::memory::PhysAddr;
use crate::mmio::{MemoryType, Mmio};

/// Identity of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Class, subclass, programming interface: 24 bits.
    pub class: u32,
    /// Revision ID.
    pub revision: u8,
}

impl Identity {
    /// From configuration registers (PCI base spec 7.5.1.1): vendor and device ID at 0, revision and class at 8, and
    /// subsystem IDs at 0x2c (0 for bridges, which have none).
    pub const fn from_registers(ids: u32, class: u32, subsystem: u32) -> Self {
        Self {
            vendor: ids as u16,
            device: (ids >> 16) as u16,
            subsystem_vendor: subsystem as u16,
            subsystem: (subsystem >> 16) as u16,
            class: class >> 8,
            revision: class as u8,
        }
    }
}

/// Selects the functions of a driver. `None` matches anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PciMatch {
    /// Vendor ID.
    pub vendor: Option<u16>,
    /// Device ID.
    pub device: Option<u16>,
    /// Class and mask.
    pub class: Option<(u32, u32)>,
}

impl PciMatch {
    /// All functions.
    pub const ANY: Self = Self { vendor: None, device: None, class: None };

    /// Functions with these vendor and device IDs, of any class.
    pub const fn device(vendor: u16, device: u16) -> Self {
        Self { vendor: Some(vendor), device: Some(device), class: None }
    }

    /// All functions of a class (24 bits).
    pub const fn class(class: u32) -> Self {
        Self { vendor: None, device: None, class: Some((class, 0xff_ffff)) }
    }

    /// Whether a function matches.
    pub fn matches(&self, identity: &Identity) -> bool {
        self.vendor.is_none_or(|v| v == identity.vendor)
            && self.device.is_none_or(|d| d == identity.device)
            && self.class.is_none_or(|(class, mask)| (class ^ identity.class) & mask == 0)
    }
}

/// Location of a BAR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarRange {
    /// Start address.
    pub start: PhysAddr,
    /// Bytes.
    pub length: u64,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
}

/// Severity of an error for a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelState {
    /// It still answers.
    Normal,
    /// Accesses are blocked until a reset.
    Frozen,
    /// Permanently gone.
    Gone,
}

/// A driver's response to an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Recovery {
    /// Can continue.
    CanRecover,
    /// Can continue after a reset.
    NeedReset,
    /// Gives up.
    Disconnect,
}

/// A driver of PCI functions, which kernels offer each new function that its [`ids`](Self::ids) match.
pub trait PciDriver: Any {
    /// Name as shown by `lspci -k`.
    fn name(&self) -> &'static str;
    /// The functions that it supports.
    fn ids(&self) -> &[PciMatch];
    /// Initialises a function. The returned binding is called when the function goes away.
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>>;
}

/// A driver bound to a function.
pub trait PciBinding {
    /// Releases the function: ends all activity, unmaps and frees everything. The function may be gone already.
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Changes the number of virtual functions (a write to `sriov_numvfs`). A driver that supports them calls
    /// [`enable_sriov`](PciOps::enable_sriov) and [`disable_sriov`](PciOps::disable_sriov).
    ///
    /// # Errors
    /// [`Error::NotSupported`], or the kernel's error.
    fn configure_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>> {
        let _ = (cpu, count);
        Box::pin(async { Err(Error::NotSupported) })
    }

    /// An uncorrectable error was reported.
    fn error_detected(&self, cpu: &Cpu, state: ChannelState) -> Recovery {
        let _ = cpu;
        if state == ChannelState::Normal { Recovery::CanRecover } else { Recovery::Disconnect }
    }

    /// The function was reset after an error; its registers have power-on values.
    fn slot_reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Recovery> {
        let _ = cpu;
        Box::pin(async { Recovery::Disconnect })
    }

    /// All affected functions have recovered.
    fn resume(&self, cpu: &Cpu) {
        let _ = cpu;
    }
}

/// Implemented by kernels for [`PciDevice`].
pub trait PciOps {
    /// Segment and BDF.
    fn address(&self) -> FunctionAddress;
    /// Vendor, device and class.
    fn identity(&self) -> Identity;
    /// NUMA node.
    fn node(&self) -> Node;
    /// The kernel that found the function.
    fn kernel(&self) -> Rc<dyn Kernel>;
    /// Its DMA API.
    fn dma(&self) -> Rc<dyn DmaOps>;
    /// Whether it is present.
    fn is_present(&self) -> bool;
    /// Reads a doubleword of configuration space; all ones if nothing answers.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, offset: u16) -> Async<'a, u32>;
    /// Writes the bytes of a doubleword selected by `enables` (1 for the lowest, 8 for the highest).
    fn config_write<'a>(&'a self, cpu: &'a Cpu, offset: u16, value: u32, enables: u8) -> Async<'a, ()>;
    /// Offset of a capability.
    fn capability(&self, id: u8) -> Option<u16>;
    /// Offset of an extended capability.
    fn extended_capability(&self, id: u16) -> Option<u16>;
    /// Where a BAR, 0 to 5, is; `None` if the function does not have it.
    fn bar(&self, bar: u8) -> Option<BarRange>;
    /// Maps `length` bytes of a BAR.
    ///
    /// # Errors
    /// If there is no such BAR, or it is too short.
    fn ioremap(&self, bar: u8, offset: u64, length: u64, kind: MemoryType) -> Result<Mmio, Error>;
    /// Turns bus mastering on or off.
    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()>;
    /// Allocates `least` to `most` interrupts: MSI-X, else MSI, else the legacy one, which may be shared.
    ///
    /// # Errors
    /// If fewer than `least` are available.
    fn alloc_irqs<'a>(
        &'a self,
        cpu: &'a Cpu,
        least: u16,
        most: u16,
        affinity: Affinity,
    ) -> Async<'a, Result<Vec<Irq>, Error>>;
    /// Allocates the legacy interrupt even if messages are available. It repeats as long as the function has a cause;
    /// if its handler asks for the thread, after the thread has run.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the function has none or it is not routed, [`Error::Busy`] if the function has
    /// interrupts.
    fn alloc_intx<'a>(&'a self, cpu: &'a Cpu, affinity: Affinity) -> Async<'a, Result<Irq, Error>>;
    /// Frees all interrupts.
    fn free_irqs<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
    /// Sets the handler of an interrupt, and the thread that the handler can start.
    ///
    /// # Errors
    /// If the interrupt is not the function's, or has a handler.
    fn request_irq(
        &self,
        irq: Irq,
        name: &str,
        handler: IrqHandler,
        thread: Option<IrqThread>,
    ) -> Result<(), Error>;
    /// Masks or unmasks an interrupt in the function. A pending one is delivered when unmasked.
    fn mask_irq(&self, cpu: &Cpu, irq: Irq, masked: bool);
    /// Moves an interrupt to another core.
    ///
    /// # Errors
    /// If the core does not exist or has no free vector.
    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>>;
    /// Calls `moved` whenever the interrupt is moved to another core, until it is freed.
    fn on_irq_moved(&self, irq: Irq, moved: IrqMoved);
    /// Removes the handler.
    fn free_irq(&self, irq: Irq);
    /// Resets the function only (FLR).
    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
    /// Lets requests with ID `requester` access what the function can: a bridge forwards requests of others under its
    /// own IDs (Linux: `pci_add_dma_alias`).
    ///
    /// # Errors
    /// [`Error::Busy`] if another function uses that ID, [`Error::NotSupported`].
    fn add_dma_alias(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        let _ = (cpu, requester);
        Err(Error::NotSupported)
    }

    /// Undoes [`add_dma_alias`](Self::add_dma_alias).
    fn remove_dma_alias(&self, cpu: &Cpu, requester: Bdf) {
        let _ = (cpu, requester);
    }

    /// Enables virtual functions and offers them to drivers.
    ///
    /// # Errors
    /// [`Error::NotSupported`] without SR-IOV, [`Error::Invalid`] if `count` is too large, [`Error::Busy`] if some
    /// are enabled, [`Error::NoSpace`] if there is no address space for them.
    fn enable_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>>;
    /// Unbinds and disables all virtual functions.
    fn disable_sriov<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

/// A function, as its driver sees it.
#[derive(Clone)]
pub struct PciDevice(Rc<dyn PciOps>);

impl PciDevice {
    /// For kernels.
    pub fn new(ops: Rc<dyn PciOps>) -> Self {
        Self(ops)
    }

    /// Maps a whole BAR.
    ///
    /// # Errors
    /// If there is no such BAR.
    pub fn ioremap_bar(&self, bar: u8, kind: MemoryType) -> Result<Mmio, Error> {
        let range = self.bar(bar).ok_or(Error::Invalid)?;
        self.ioremap(bar, 0, range.length, kind)
    }

    /// Masks the legacy interrupt if the function has a cause, or unmasks it if it has none (Linux:
    /// `pci_check_and_mask_intx`, `pci_check_and_unmask_intx`). Returns whether it did.
    pub async fn set_intx_masked_if_due(&self, cpu: &Cpu, masked: bool) -> bool {
        let word = self.config_read(cpu, header::COMMAND).await;
        let is_pending = word >> 16 & u32::from(header::STATUS_INTERRUPT) != 0;
        if word == u32::MAX || is_pending != masked {
            return false;
        }
        let disable = u32::from(header::COMMAND_INTX_DISABLE);
        let command = if masked { word | disable } else { word & !disable };
        // Write this byte only: the other one belongs to the driver.
        self.config_write(cpu, header::COMMAND, command, 2).await;
        true
    }
}

impl core::ops::Deref for PciDevice {
    type Target = dyn PciOps;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
