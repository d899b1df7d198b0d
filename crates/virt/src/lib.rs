//! Guests: virtual machines on a simulated host.
//!
//! A guest runs the same kernel, drivers and programs as a host, on another [ground](kernel::Ground): its cores are tasks of the
//! host, its memory is the host's, and functions of the host are passed through to it.
//!
//! | file | subject |
//! |---|---|
//! | `vm` | a virtual machine: put together, started, counted |
//! | `vcpu` | a core of a guest: a task of the host that runs it and deals with its exits |
//! | `memory` | guest-physical memory: where it is, the tables that say so, and a core's translations of it |
//! | `function` | the configuration space, BARs and interrupts that a guest sees of a function passed through |
//! | `vfio` | the host's driver for functions that are passed through |
//! | `ground` | what the guest's kernel stands on |
//! | `costs` | what exits cost |
//!
//! # What is left out
//! The guest's own page tables: a miss of the TLB reads the host's tables alone, where a real one reads up to 24 entries for both
//! (facts of the architecture; what the guest's add is mostly cached). TLB entries are of 2 MiB, as those of a kernel's own
//! mapping are. Interrupts between cores of a guest cost no exit.

mod costs;
mod function;
mod ground;
mod memory;
mod vcpu;
mod vfio;
mod vm;

pub use costs::VirtCosts;
pub use vfio::Vfio;
pub use vm::{Exits, Vm, VmError, VmParams};
