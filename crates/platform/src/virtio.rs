//! Virtio devices, as their guest drivers access them: rings in memory and two calls.
//!
//! Commands are hypercalls, as in virtio's channel I/O (Virtual I/O Device Version 1.2, 4.3), not registers.

use wire::virtio::Ring;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::irq::IrqHandler;
use crate::net::MacAddr;

/// A guest's interface to a virtual disk.
pub trait VirtualDisk {
    /// Size in sectors.
    fn sectors(&self) -> u64;

    /// Block size (bytes), the unit of reads and writes.
    fn block_bytes(&self) -> u32;

    /// Passes the request ring to the hypervisor and starts the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ring is not in the guest's memory.
    fn start<'a>(&'a self, cpu: &'a Cpu, ring: Ring) -> Async<'a, Result<(), Error>>;

    /// Notifies the hypervisor of new requests. Causes an exit.
    fn notify(&self, cpu: &Cpu);

    /// Sets the interrupt handler, on the core of `cpu`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the core has no free vector.
    fn request_irq(&self, cpu: &Cpu, handler: IrqHandler) -> Result<(), Error>;
}

/// A guest's interface to a virtual NIC.
pub trait VirtualNic {
    /// Its Ethernet address.
    fn mac(&self) -> MacAddr;

    /// Passes the RX and TX rings to the hypervisor and starts the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a ring is not in the guest's memory.
    fn start<'a>(&'a self, cpu: &'a Cpu, receive: Ring, send: Ring) -> Async<'a, Result<(), Error>>;

    /// Stops the device. Afterwards the hypervisor holds no buffer.
    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Notifies the hypervisor of packets to send. Causes an exit.
    fn notify(&self, cpu: &Cpu);

    /// Sets the interrupt handler, on the core of `cpu`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the core has no free vector.
    fn request_irq(&self, cpu: &Cpu, handler: IrqHandler) -> Result<(), Error>;
}
