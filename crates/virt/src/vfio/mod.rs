//! Passed-through functions.
//!
//! | file | subject |
//! |---|---|
//! | `driver` | the host's driver, which claims functions |
//! | `device` | the hypervisor's interface to a function, and its implementation for host functions |
//! | `container` | DMA domains: guest memory, and registers of other functions |
//! | `assigned` | a passed-through function on the guest's bus |

mod assigned;
mod container;
mod device;
mod driver;

pub use assigned::Assigned;
pub use container::Container;
pub use device::{HostFunction, Signal, VfioDevice};
pub use driver::{Change, Vfio};
