//! Functions that are passed through to guests.
//!
//! | file | subject |
//! |---|---|
//! | `driver` | the host's driver: it claims functions and leaves them alone |
//! | `device` | what a hypervisor does with a function, and how the host's own functions do it |
//! | `container` | where their requests lead: the guest's memory at the guest's addresses, and each other's registers |
//! | `assigned` | such a function on the guest's bus |

mod assigned;
mod container;
mod device;
mod driver;

pub use assigned::Assigned;
pub use container::Container;
pub use device::{HostFunction, Signal, VfioDevice};
pub use driver::{Change, Vfio};
