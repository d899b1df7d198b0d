//! How a kernel reaches a function: on its own host's fabric, or, when functions are lent, through whoever lends it.
//!
//! A function that stands in for one of another host has an address in a [segment](Segment) of its own, its configuration
//! accesses are forwarded, its BARs lie in a window of this host, its requests come with a bridge's requester ID, and
//! its messages go where a window leads to this host's interrupt controller. Everything above, the driver included,
//! sees one kind of function.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::DmaOps;
use platform::pci::BarRange;
use wire::pcie::{Bdf, Segment};

use crate::cpu::Cores;

/// The segment of the functions that enumeration finds on the own fabric.
pub(crate) const OWN_SEGMENT: Segment = Segment(0);

/// What a function's memory writes are to be so that this kernel's interrupt controller takes them for an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Where to.
    pub address: u64,
    /// The value to be written there.
    pub data: u32,
}

/// The way to a function.
pub trait Backend {
    /// Reads a doubleword of its configuration space; all ones if nothing answers.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32>;

    /// Writes the bytes of a doubleword that `enables` names.
    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()>;

    /// Where cores find a BAR that its register says to be at `range`, from the first time that a driver maps it until
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// If no window is left for it.
    fn map_bar(&self, bar: u8, range: BarRange) -> Result<BarRange, Error>;

    /// What its requests are known by to this host's IOMMU.
    fn requester(&self) -> Bdf;

    /// The function whose IOMMU domain it shares: the bridge's by which its requests come in, where that has one for all that
    /// come by it. None if it has one of its own.
    fn shares_domain_of(&self) -> Option<Bdf> {
        None
    }

    /// The root port of this host by which its requests come in: what is near to it, and which IOMMU it is behind.
    fn root_port(&self) -> Bdf;

    /// The way to one of its virtual functions; none if it cannot have any here.
    fn virtual_function(&self, at: Bdf) -> Option<Rc<dyn Backend>>;

    /// The DMA API for its driver: this kernel's own, or one around it that also maps into a window and gives the
    /// addresses that the function is to use.
    fn dma(&self, own: Rc<dyn DmaOps>) -> Rc<dyn DmaOps>;

    /// What it is to send so that `message` arrives here as its n-th one.
    ///
    /// # Errors
    /// If no window is left for it.
    fn message(&self, n: u16, message: Message) -> Result<Message, Error>;

    /// No driver has it any more, nor is it to reach anything: windows are given back.
    fn close(&self);
}

impl dyn Backend + '_ {
    /// Reads a 16-bit register of its configuration space.
    pub(super) async fn read_u16(&self, cpu: &Cpu, register: u16) -> u16 {
        (self.config_read(cpu, register & !3).await >> (u32::from(register & 2) * 8)) as u16
    }

    /// Writes one.
    pub(super) async fn write_u16(&self, cpu: &Cpu, register: u16, value: u16) {
        let shift = u32::from(register & 2) * 8;
        self.config_write(cpu, register & !3, u32::from(value) << shift, 3 << (register & 2)).await;
    }
}

/// A function of the own fabric: everything is where it says.
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
            let data = cpu.stall_on(answer).await.unwrap_or_default();
            data.first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
        })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            cpu.work(self.cores.costs.mmio_write);
            cpu.sync().await;
            let answer = self.cores.ground.config_write(cpu.id(), self.bdf, register & !3, value, enables);
            // Configuration writes are not posted: the core waits until they have been done.
            let _ = cpu.stall_on(answer).await;
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
