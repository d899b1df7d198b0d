//! The NIC's programming interface: registers, descriptors, completions, RSS hash.
//!
//! All numbers are little-endian. A ring has a power of two of entries. Its indices are free-running 16-bit counters,
//! so that a full ring differs from an empty one; index `count` refers to entry `count % entries`.
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
pub mod event_entry;
pub mod registers;
pub mod toeplitz;

/// PCI vendor ID of the NIC, not assigned to any vendor.
pub const VENDOR: u16 = 0x4e46;
/// PCI device ID of the NIC.
pub const DEVICE: u16 = 0x0001;
/// PCI device ID of its virtual functions.
pub const VIRTUAL_DEVICE: u16 = 0x0002;
/// Class code: Ethernet controller.
pub const CLASS: u32 = 0x02_0000;

pub use completion::Completion;
pub use descriptor::{RxDescriptor, TxDescriptor};
pub use event_entry::EventEntry;
pub use toeplitz::Toeplitz;
