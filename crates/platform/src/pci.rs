//! PCI drivers and the functions that they are given.
//!
//! A driver for a device that writes a word into host memory and interrupts when told to:
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

/// What a function says it is.
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
    /// From registers of configuration space (PCI base spec 7.5.1.1): vendor and device ID at 0, revision and class at 8,
    /// and subsystem IDs at 0x2c, which bridges have not (0).
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

/// Which functions a driver is for. What is `None` may be anything.
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
    /// A vendor's device.
    pub const fn device(vendor: u16, device: u16) -> Self {
        Self { vendor: Some(vendor), device: Some(device), class: None }
    }

    /// Every function of a class, all 24 bits.
    pub const fn class(class: u32) -> Self {
        Self { vendor: None, device: None, class: Some((class, 0xff_ffff)) }
    }

    /// Whether a function is meant.
    pub fn matches(&self, identity: &Identity) -> bool {
        self.vendor.is_none_or(|v| v == identity.vendor)
            && self.device.is_none_or(|d| d == identity.device)
            && self.class.is_none_or(|(class, mask)| (class ^ identity.class) & mask == 0)
    }
}

/// Where a function's registers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarRange {
    /// First address.
    pub start: PhysAddr,
    /// Bytes.
    pub length: u64,
    /// Reads have no side effects.
    pub prefetchable: bool,
}

/// How badly a function is struck by an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelState {
    /// It still answers.
    Normal,
    /// Accesses are blocked until it is reset.
    Frozen,
    /// It is gone for good.
    Gone,
}

/// What a driver makes of an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Recovery {
    /// It goes on.
    CanRecover,
    /// It goes on after a reset.
    NeedReset,
    /// It gives up.
    Disconnect,
}

/// A kind of device that a driver serves.
pub trait PciDriver {
    /// As `lspci -k` shows it.
    fn name(&self) -> &'static str;
    /// Which functions it is for.
    fn ids(&self) -> &[PciMatch];
    /// Takes a function on. What it returns is asked when the function goes away.
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>>;
}

/// A driver's hold on one function.
pub trait PciBinding {
    /// Gives the function back: ends what is under way, frees and unmaps everything. The function may be gone.
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Lets the function have `count` virtual functions, none for 0: what somebody wrote to `sriov_numvfs`. A driver that
    /// is prepared for them calls [`enable_sriov`](PciOps::enable_sriov) and [`disable_sriov`](PciOps::disable_sriov).
    ///
    /// # Errors
    /// [`Error::NotSupported`]; what the kernel says.
    fn configure_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>> {
        let _ = (cpu, count);
        Box::pin(async { Err(Error::NotSupported) })
    }

    /// An uncorrectable error was reported.
    fn error_detected(&self, cpu: &Cpu, state: ChannelState) -> Recovery {
        let _ = cpu;
        if state == ChannelState::Normal { Recovery::CanRecover } else { Recovery::Disconnect }
    }

    /// The function has been reset after an error; its registers are as after power-on.
    fn slot_reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Recovery> {
        let _ = cpu;
        Box::pin(async { Recovery::Disconnect })
    }

    /// All functions have recovered.
    fn resume(&self, cpu: &Cpu) {
        let _ = cpu;
    }
}

/// A function as a kernel implements it for [`PciDevice`].
pub trait PciOps {
    /// Where it is.
    fn address(&self) -> FunctionAddress;
    /// Vendor, device and class, as configuration space says.
    fn identity(&self) -> Identity;
    /// The node that it is near to.
    fn node(&self) -> Node;
    /// The kernel that it belongs to.
    fn kernel(&self) -> Rc<dyn Kernel>;
    /// Its DMA API.
    fn dma(&self) -> Rc<dyn DmaOps>;
    /// Whether it has not been removed.
    fn is_present(&self) -> bool;
    /// Reads a doubleword of configuration space; all ones if nothing answers.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, offset: u16) -> Async<'a, u32>;
    /// Writes the bytes of a doubleword that `enables` names (1 for the lowest, 8 for the highest).
    fn config_write<'a>(&'a self, cpu: &'a Cpu, offset: u16, value: u32, enables: u8) -> Async<'a, ()>;
    /// Where a capability is.
    fn capability(&self, id: u8) -> Option<u16>;
    /// Where an extended capability is.
    fn extended_capability(&self, id: u16) -> Option<u16>;
    /// A BAR, 0 to 5.
    fn bar(&self, bar: u8) -> Option<BarRange>;
    /// Maps `length` bytes of a BAR.
    ///
    /// # Errors
    /// If there is no such BAR or it is shorter.
    fn ioremap(&self, bar: u8, offset: u64, length: u64, kind: MemoryType) -> Result<Mmio, Error>;
    /// Lets the function send requests, or not.
    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()>;
    /// Allocates `least` to `most` interrupts: MSI-X, else MSI, else the legacy one, which others may share.
    ///
    /// # Errors
    /// If there are fewer than `least`.
    fn alloc_irqs<'a>(
        &'a self,
        cpu: &'a Cpu,
        least: u16,
        most: u16,
        affinity: Affinity,
    ) -> Async<'a, Result<Vec<Irq>, Error>>;
    /// Allocates the legacy interrupt, whatever messages there are. It comes again as long as the function has a cause; one whose
    /// handler asks for its thread comes again after that.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the function has none or it leads nowhere, [`Error::Busy`] if the function has interrupts.
    fn alloc_intx<'a>(&'a self, cpu: &'a Cpu, affinity: Affinity) -> Async<'a, Result<Irq, Error>>;
    /// Gives all interrupts back.
    fn free_irqs<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
    /// Calls `handler` for an interrupt, and `thread` when the handler asks for it.
    ///
    /// # Errors
    /// If the interrupt is not the function's or is taken.
    fn request_irq(
        &self,
        irq: Irq,
        name: &str,
        handler: IrqHandler,
        thread: Option<IrqThread>,
    ) -> Result<(), Error>;
    /// Holds an interrupt back in the function, or lets it go; one that came meanwhile comes then.
    fn mask_irq(&self, cpu: &Cpu, irq: Irq, masked: bool);
    /// Lets an interrupt arrive at another core.
    ///
    /// # Errors
    /// If the core does not exist or has no vector left.
    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>>;
    /// Tells when an interrupt was moved to another core, by whomever, until it is freed.
    fn on_irq_moved(&self, irq: Irq, moved: IrqMoved);
    /// Calls the handler no more.
    fn free_irq(&self, irq: Irq);
    /// Resets the function alone (FLR).
    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
    /// Lets requests that come as `requester` reach what the function's own do: a bridge passes on those of others under names
    /// of its own (Linux: `pci_add_dma_alias`).
    ///
    /// # Errors
    /// [`Error::Busy`] if another function's requests come so, [`Error::NotSupported`].
    fn add_dma_alias(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        let _ = (cpu, requester);
        Err(Error::NotSupported)
    }

    /// Ends that.
    fn remove_dma_alias(&self, cpu: &Cpu, requester: Bdf) {
        let _ = (cpu, requester);
    }

    /// Enables virtual functions and lets drivers have them.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the function cannot have any, [`Error::Invalid`] if not so many, [`Error::Busy`] if it
    /// has some, [`Error::NoSpace`] if there is no address space for them.
    fn enable_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>>;
    /// Takes all virtual functions from their drivers and disables them.
    fn disable_sriov<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

/// A function that a driver has been given.
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

    /// Holds the legacy interrupt back if the function has a cause for one, or lets it go if it has none (Linux:
    /// `pci_check_and_mask_intx`, `pci_check_and_unmask_intx`). Says whether it did.
    pub async fn set_intx_masked_if_due(&self, cpu: &Cpu, masked: bool) -> bool {
        let word = self.config_read(cpu, header::COMMAND).await;
        let is_pending = word >> 16 & u32::from(header::STATUS_INTERRUPT) != 0;
        if word == u32::MAX || is_pending != masked {
            return false;
        }
        let disable = u32::from(header::COMMAND_INTX_DISABLE);
        let command = if masked { word | disable } else { word & !disable };
        // The byte of the bit alone: the other one is the driver's.
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
