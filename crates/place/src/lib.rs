//! Placement on a real Linux host: interrupts, queues, processes, and guests with their vhost and I/O threads.
//!
//! Where guests and their threads run is decided by `virt::placement`, the code that decides on simulated hosts. Nothing is written that
//! was not asked for; what was there before is recorded first, and each write is read back.
//!
//! | file | subject |
//! |---|---|
//! | `root` | files below a root folder, and CPUs that threads may use |
//! | `view` | nodes, network interfaces, guests |
//! | `queues` | interrupts, XPS, RPS and RFS of an interface |
//! | `guests` | loads of guests for the scheduler, and its decisions as writes |
//! | `plan` | all that was asked for, as writes |
//! | `apply` | writes carried out, read back, undone |
//! | `notify` | what systemd is told |
//! | `exchange` | functions that are lent and borrowed by `linux/nearfar_lender` and `nearfar_borrower` |

mod apply;
mod exchange;
mod guests;
mod notify;
mod plan;
mod queues;
mod root;
mod view;

pub use apply::{PlaceError, UndoRecord, apply, undo};
pub use exchange::{ExchangeError, FunctionOwner, LendingHost, SharedFunction};
pub use guests::{GuestPlacer, LoadSample};
pub use notify::{notify, watchdog};
pub use plan::{AskedFor, HostPlan, PlannedWrite, WriteTarget, plan};
pub use root::HostRoot;
pub use view::{GuestProcess, HostView};

/// The unit file of the systemd service.
pub const UNIT: &str = include_str!("../nearfar-place.service");
