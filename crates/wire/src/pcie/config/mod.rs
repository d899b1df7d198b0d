//! Configuration space (base spec chapter 7).
//!
//! The device's side is [`ConfigSpace`]: bytes, masks that say which bits can
//! be written, and a report of what a write set off. [`Builder`] lays it out.
//! The reader's side, for enumeration, is [`caps`] and [`bars`]: they ask for
//! registers and never see a [`ConfigSpace`].

pub mod acs;
pub mod aer;
pub mod ari;
pub mod ats;
pub mod bars;
mod builder;
pub mod caps;
mod effect;
pub mod examples;
pub mod header;
mod image;
pub mod msi;
pub mod msix;
pub mod pcie_cap;
pub mod power_management;
pub mod secondary;
pub mod serial;
pub mod slot;
mod space;
pub mod sriov;

pub use bars::{Bar, BarKind};
pub use builder::{Builder, ConfigError};
pub use effect::ConfigEffect;
pub use pcie_cap::{CompletionTimeout, PcieParams, PortType};
pub use power_management::PowerState;
pub use slot::SlotParams;
pub use space::{ConfigSpace, ResetKind};
pub use sriov::{SriovParams, VirtualFunctions};

/// Bytes of a PCIe function's configuration space.
pub const SIZE: usize = 4096;
/// Where the extended capabilities begin.
pub const EXTENDED: u16 = 0x100;

#[cfg(test)]
mod tests;
