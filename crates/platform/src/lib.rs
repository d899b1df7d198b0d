//! The two faces of the platform, as traits.
//!
//! [`device`] is what a device model sees: its configuration space, accesses to
//! its BARs, DMA, interrupts, reset and time. A model written against it runs
//! unchanged on the simulated fabric and on a back-end without timing.
//!
//! The other modules are what a driver and a program see. They name no
//! simulator and no hardware: a driver written against them cannot tell whose
//! function it drives. A driver begins with [`pci::PciDriver`]; what its work
//! costs it says to the [`cpu::Cpu`] that it is called with.

pub mod block;
pub mod costs;
pub mod cpu;
pub mod device;
pub mod dma;
pub mod error;
pub mod ethernet;
pub mod gpu;
pub mod irq;
pub mod kernel;
pub mod lock;
pub mod memory;
pub mod mmio;
pub mod mover;
pub mod net;
pub mod packet;
pub mod pci;
pub mod socket;
pub mod storage;
pub mod sync;
pub mod tags;
pub mod testing;
pub mod virtio;

pub use error::Error;
