//! Device Lending: functions of one host used by another as if they were its own (Markussen et al., Cluster Computing 23,
//! 2020).
//!
//! Every host of a cluster runs a [`Service`], which is both lender and borrower; there is no central manager.
//! Services exchange messages by writing into each other's memory through a non-transparent bridge. Borrowing adds
//! the function to the borrower's PCI functions behind a [`Backend`](kernel::Backend), so its driver cannot tell the
//! difference. The data path does not involve this crate: cores access registers, and the device accesses memory,
//! through windows alone.
//!
//! | file | subject |
//! |---|---|
//! | `message` | format of messages between services |
//! | `mail` | transport of messages: shared memory and doorbells |
//! | `host` | this host, as what it lends and borrows uses it |
//! | `service` | a host's service, and its reaction when a neighbour goes |
//! | `lender` | functions to lend, and their leases |
//! | `borrower` | borrowed functions |
//! | `mediated` | functions borrowed by guests |
//! | `doorbell` | doorbell bits for guests' interrupts |
//! | `backend` | access to a borrowed function, for the kernel and the driver's DMA API |

mod backend;
mod borrower;
mod doorbell;
mod host;
mod lender;
mod mail;
mod mediated;
mod message;
mod service;

pub use host::LendingParams;
pub use lender::{LenderDriver, Offers};
pub use mediated::Mediated;
pub use service::{Counters, Lendable, Service};
