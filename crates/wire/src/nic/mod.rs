//! The NIC's programming interface: registers, descriptors, completions, the receive hash.
//!
//! All numbers are little-endian. A ring has a power of two of entries; its indices are counts that run on to
//! 65535 and then begin again at 0, so that a ring may be full, and entry `count % entries` is meant.
//!
//! ```text
//! driver                                              NIC
//! writes descriptors, then the count to TAIL  ─────▶  fetches descriptors in batches (DMA read)
//!                                                     moves frames (DMA)
//! polls completions (in place or in a ring)   ◀─────  writes completions in batches (DMA write)
//! writes count | ARM when it stops polling    ─────▶  interrupts at the next completion, then is disarmed
//! ```

pub mod completion;
pub mod descriptor;
pub mod registers;
pub mod toeplitz;

/// PCI vendor number of the NIC; nobody's.
pub const VENDOR: u16 = 0x4e46;
/// PCI device number of the NIC.
pub const DEVICE: u16 = 0x0001;
/// PCI device number of its virtual functions.
pub const VIRTUAL_DEVICE: u16 = 0x0002;
/// Class code: Ethernet controller.
pub const CLASS: u32 = 0x02_0000;

pub use completion::Completion;
pub use descriptor::{RxDescriptor, TxDescriptor};
pub use toeplitz::Toeplitz;
