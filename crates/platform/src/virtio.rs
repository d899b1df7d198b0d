//! A virtio device, as its driver in a guest reaches it: by rings in memory and two calls.
//!
//! The way to it is by calls of the hypervisor, as virtio's channel I/O has it (Virtual I/O Device Version 1.2, 4.3), not by
//! registers.

use wire::virtio::Ring;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::irq::IrqHandler;
use crate::net::MacAddr;

/// The way to a virtual disk.
pub trait VirtualDisk {
    /// Sectors that it has.
    fn sectors(&self) -> u64;

    /// Bytes of a block: the smallest that can be read or written.
    fn block_bytes(&self) -> u32;

    /// Gives the hypervisor the ring of requests, and begins.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not lie in the guest's memory.
    fn start<'a>(&'a self, cpu: &'a Cpu, ring: Ring) -> Async<'a, Result<(), Error>>;

    /// There are requests in the ring. The guest is left for that.
    fn notify(&self, cpu: &Cpu);

    /// What its interrupt calls, on the core of `cpu`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the core has no vector left.
    fn request_irq(&self, cpu: &Cpu, handler: IrqHandler) -> Result<(), Error>;
}

/// The way to a virtual NIC.
pub trait VirtualNic {
    /// Its Ethernet address.
    fn mac(&self) -> MacAddr;

    /// Gives the hypervisor the rings of receiving and of sending, and begins.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the guest's memory.
    fn start<'a>(&'a self, cpu: &'a Cpu, receive: Ring, send: Ring) -> Async<'a, Result<(), Error>>;

    /// Ends. The hypervisor has no buffer any more when this is done.
    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// There is something in the ring of sending. The guest is left for that.
    fn notify(&self, cpu: &Cpu);

    /// What its interrupt calls, on the core of `cpu`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the core has no vector left.
    fn request_irq(&self, cpu: &Cpu, handler: IrqHandler) -> Result<(), Error>;
}
