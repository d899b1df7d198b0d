//! The two interfaces of the platform, as traits.
//!
//! [`device`] is the interface of device models: configuration space, BAR accesses, DMA, interrupts, reset and time.
//! A model written against it runs unchanged on the simulated fabric and on a back-end without timing.
//!
//! The other modules are the interface of drivers and programs. They contain no simulator and no hardware, so a
//! driver cannot tell whose function it drives. Start with [`pci::PciDriver`]. A driver charges its CPU costs to the
//! [`cpu::Cpu`] that it is called with.

pub mod block;
pub mod card;
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
