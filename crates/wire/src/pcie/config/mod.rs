//! Configuration space (base spec chapter 7).
//!
//! The device's side is [`ConfigSpace`]: register values, write masks, and the side effects of each write. [`Builder`]
//! creates it. The software side, for enumeration, is [`caps`] and [`bars`]: they read registers and never access a
//! [`ConfigSpace`].

pub mod acs;
pub mod aer;
pub mod ari;
pub mod ats;
pub mod bars;
mod builder;
pub mod caps;
pub mod dpc;
mod effect;
pub mod examples;
pub mod header;
mod image;
pub mod ltr;
pub mod msi;
pub mod msix;
pub mod pcie_cap;
pub mod power_management;
pub mod rebar;
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

/// Size of a PCIe function's configuration space in bytes.
pub const SIZE: usize = 4096;
/// Offset of the extended capabilities.
pub const EXTENDED: u16 = 0x100;

#[cfg(test)]
mod tests;
