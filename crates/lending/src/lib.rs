//! Device Lending: functions of one host used by another as if they were its own (Markussen et al., Cluster Computing 23,
//! 2020).
//!
//! Every host of a cluster runs a [`Service`], which is lender and borrower at once; there is no manager. Services talk by
//! messages that they write into each other's memory through a non-transparent bridge. Borrowing adds the function to the
//! borrower's PCI functions behind a [`Backend`](kernel::Backend): its driver cannot tell. After that, nothing of this crate is on the
//! way of data: cores reach registers and the device reaches memory through windows alone.
//!
//! | file | subject |
//! |---|---|
//! | `message` | what services say to each other, as bytes |
//! | `mail` | how they say it: memory of the other host, doorbells |
//! | `service` | a host's service, and what it does when a neighbour goes |
//! | `lender` | the functions that it lends, and their leases |
//! | `borrower` | the functions that it has borrowed |
//! | `mediated` | functions that guests borrow |
//! | `doorbell` | bits of the adapter's doorbell that belong to guests' interrupts |
//! | `way` | the way to a borrowed function: what the kernel and the driver's DMA API use |

mod borrower;
mod doorbell;
mod lender;
mod mail;
mod mediated;
mod message;
mod service;
mod way;

pub use lender::{LenderDriver, Offers};
pub use mediated::Mediated;
pub use service::{Counters, Lendable, LendingParams, Service};
