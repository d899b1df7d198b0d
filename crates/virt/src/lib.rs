//! Guests: virtual machines on a simulated host.
//!
//! A guest runs the same kernel, drivers and programs as a host, on another [ground](kernel::Ground): its cores are tasks of the
//! host, its memory is the host's, and functions of the host are passed through to it.
//!
//! | file | subject |
//! |---|---|
//! | `vm` | a virtual machine: put together, started, paused, reset, killed |
//! | `vcpu` | a core of a guest: a task of the host that runs it and deals with its exits |
//! | `memory` | guest-physical memory: where it is, the tables that say so, who holds it there, and a core's translations of it |
//! | `bus` | the functions that a guest finds, and where accesses to their registers lead |
//! | `port` | the root ports and slots that they are below |
//! | `function` | the configuration space, BARs and messages that a guest sees of a function |
//! | `interrupts` | the way of interrupts into a guest |
//! | `vfio` | functions that are passed through, by the host or by who mediates others |
//! | `ground` | what the guest's kernel stands on |
//! | `exits` | why guests are left, counted |
//! | `costs` | what exits, virtual NICs and disks cost |
//! | `ring` | the hypervisor's side of virtio's rings |
//! | `disk/` | virtual disks and the I/O threads that serve them |
//! | `net/` | virtual NICs and the I/O threads that serve them |
//! | `placement/` | where virtual machines and I/O threads run |
//!
//! # What is left out
//! The guest's own page tables: a miss of the TLB reads the host's tables alone, where a real one reads up to 24 entries for both
//! (facts of the architecture; what the guest's add is mostly cached). TLB entries are of 2 MiB, as those of a kernel's own
//! mapping are. Interrupts between cores of a guest cost no exit.

mod bus;
mod costs;
pub mod disk;
mod exits;
mod function;
mod ground;
mod interrupts;
mod memory;
pub mod net;
pub mod placement;
mod port;
mod ring;
mod vcpu;
mod vfio;
mod vm;

pub use bus::{BarPart, Behind, GuestDevice};
pub use costs::{VhostCosts, VirtCosts};
pub use exits::{Exit, Exits};
pub use function::{GuestFunction, GuestMessage};
pub use interrupts::{GuestInterrupts, InterruptSupport};
pub use memory::{Block, GuestMemory, GuestNode};
pub use vfio::{HostFunction, Signal, Vfio, VfioDevice};
pub use vm::{Vm, VmError, VmParams};
