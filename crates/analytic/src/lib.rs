//! pcie-bench's closed-form model: what a PCIe link can carry at best.
//!
//! Counts the bytes that a transfer puts on each direction of the link and
//! divides what the link carries by them. Nothing waits: no latency, no tags,
//! no credits. The simulator must approach these numbers from below where
//! nothing else limits it.
//!
//! Source: Neugebauer et al., "Understanding PCIe performance for end host
//! networking", SIGCOMM 2018, section 3, and the constants of the PCIe Base
//! Specification named at each of them.

mod ethernet;
mod link;
mod memory;
mod nic;

pub use ethernet::Ethernet;
pub use link::{Generation, Link, LinkError};
pub use memory::Direction;
pub use nic::{Driver, Nic, Omission, Part, Traffic};
