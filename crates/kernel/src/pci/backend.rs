//! Access to a function: over the host's own fabric, or, for a borrowed one, through the borrowing service.
//!
//! A borrowed function has an address in a [segment](Segment) of its own. Its configuration accesses are forwarded,
//! its BARs are mapped in a window of this host, its requests come with a bridge's requester ID, and its messages
//! arrive through a window at this host's interrupt controller. Everything above, including the driver, sees an
//! ordinary function.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::DmaOps;
use platform::pci::BarRange;
use wire::pcie::{Bdf, Segment};

use crate::cpu::Cores;

/// Segment of the functions found by enumeration.
pub(crate) const OWN_SEGMENT: Segment = Segment(0);

/// A memory write that this kernel's interrupt controller takes for an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Address to write to.
    pub address: u64,
    /// Value to write.
    pub data: u32,
}

/// Access to a function.
pub trait Backend {
    /// Reads a doubleword of configuration space; all ones if nothing answers.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32>;

    /// Writes the bytes of a doubleword selected by `enables`.
    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()>;

    /// The range in which cores find a BAR whose register says `range`. Valid from a driver's first mapping until
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// If there is no free window.
    fn map_bar(&self, bar: u8, range: BarRange) -> Result<BarRange, Error>;

    /// Requester ID that this host's IOMMU sees.
    fn requester(&self) -> Bdf;

    /// The function whose IOMMU domain it shares: the bridge that forwards its requests, if that has one domain for
    /// all. `None` if it has its own.
    fn shares_domain_of(&self) -> Option<Bdf> {
        None
    }

    /// The root port of this host that its requests arrive at. Determines its node and its IOMMU.
    fn root_port(&self) -> Bdf;

    /// Access to one of its virtual functions; `None` if they are not supported here.
    fn virtual_function(&self, at: Bdf) -> Option<Rc<dyn Backend>>;

    /// The DMA API for its driver: this kernel's own, or a wrapper that also maps memory into a window and returns
    /// the addresses that the function has to use.
    fn dma(&self, own: Rc<dyn DmaOps>) -> Rc<dyn DmaOps>;

    /// What the function has to send so that its `n`-th message arrives here as `message`.
    ///
    /// # Errors
    /// If there is no free window.
    fn message(&self, n: u16, message: Message) -> Result<Message, Error>;

    /// Frees all windows: the function has no driver any more and may access nothing.
    fn close(&self);
}

impl dyn Backend + '_ {
    /// Reads a 16-bit configuration register.
    pub(super) async fn read_u16(&self, cpu: &Cpu, register: u16) -> u16 {
        (self.config_read(cpu, register & !3).await >> (u32::from(register & 2) * 8)) as u16
    }

    /// Writes a 16-bit configuration register.
    pub(super) async fn write_u16(&self, cpu: &Cpu, register: u16, value: u16) {
        let shift = u32::from(register & 2) * 8;
        self.config_write(cpu, register & !3, u32::from(value) << shift, 3 << (register & 2)).await;
    }
}

/// A function of the host's own fabric, accessed directly.
pub(super) struct Own {
    pub cores: Rc<Cores>,
    pub bdf: Bdf,
    /// The root port above it, or itself.
    pub root: Bdf,
}

impl Backend for Own {
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32> {
        Box::pin(async move {
            cpu.work(self.cores.costs.mmio_write);
            cpu.sync().await;
            let answer = self.cores.ground.config_read(cpu.id(), self.bdf, register & !3);
            let data = self.cores.stall_on_device(cpu, answer).await.unwrap_or_default();
            data.first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
        })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            cpu.work(self.cores.costs.mmio_write);
            cpu.sync().await;
            let answer = self.cores.ground.config_write(cpu.id(), self.bdf, register & !3, value, enables);
            // Configuration writes are non-posted: the core waits for their completion.
            let _ = self.cores.stall_on_device(cpu, answer).await;
        })
    }

    fn map_bar(&self, _: u8, range: BarRange) -> Result<BarRange, Error> {
        Ok(range)
    }

    fn requester(&self) -> Bdf {
        self.bdf
    }

    fn root_port(&self) -> Bdf {
        self.root
    }

    fn virtual_function(&self, at: Bdf) -> Option<Rc<dyn Backend>> {
        Some(Rc::new(Self { cores: Rc::clone(&self.cores), bdf: at, root: self.root }))
    }

    fn dma(&self, own: Rc<dyn DmaOps>) -> Rc<dyn DmaOps> {
        own
    }

    fn message(&self, _: u16, message: Message) -> Result<Message, Error> {
        Ok(message)
    }

    fn close(&self) {}
}
