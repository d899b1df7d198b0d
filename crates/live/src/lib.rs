//! Virtual machines with a real Linux on the simulated fabric.
//!
//! A host that is live has its slots, links, switches and devices from the simulation, and its cores and memory from a
//! virtual machine monitor such as QEMU, which is a client of each function's socket (vfio-user). On the simulated side a
//! kernel of ours numbers the buses and recovers from errors, as a host's kernel does below VFIO. The guest's accesses are
//! TLPs from the root port to the function, and the function's are TLPs to the root port, where they reach the guest's
//! memory.
//!
//! * `driver`: claims a live host's functions;
//! * `function`: a function as its guest sees it; `interrupts`: how the guest is told; `config`: which bits of its configuration space are
//!   the guest's own;
//! * `memory`: the guests' memory, as functions access it; [`iommu`]: a guest's IOMMU, which is ours or QEMU's;
//! * [`server`]: sockets, and simulated time after the wall clock; [`lockstep`]: simulated time after the guests'
//!   instructions;
//! * [`qemu`]: its command line; `monitor`: its monitor; `hotplug`: guests learn by it that functions are gone or have come;
//! * [`recording`]: what guests and devices did, as a file; [`replay`](mod@replay): the same on another machine.

#![forbid(unsafe_code)]

mod config;
mod driver;
mod function;
mod hotplug;
mod interrupts;
pub mod iommu;
pub mod lockstep;
mod memory;
mod monitor;
pub mod qemu;
pub mod recording;
pub mod replay;
pub mod server;
mod sockets;

pub use hotplug::PlugStep;
pub use server::{LiveClock, LiveError, LiveFunctionInfo, LiveOutcome, ServeOptions, serve};
