//! Guests: virtual machines on a simulated host.
//!
//! A guest runs the same kernel, drivers and programs as a host, on another [ground](kernel::Ground): its cores are
//! tasks of the host, its memory is host memory, and functions of the host can be passed through.
//!
//! | file | subject |
//! |---|---|
//! | `vm` | a virtual machine and its life cycle |
//! | `params` | what it is made of |
//! | `machine` | its parts, and how they reach each other |
//! | `vcpu` | a vCPU, and the host task that runs it and handles its exits |
//! | `memory` | guest-physical memory: second-level tables, TLBs, pinning |
//! | `bus` | functions of a guest, and targets of accesses to their registers |
//! | `port` | root ports and slots |
//! | `function` | virtual configuration space, BARs and messages of a function |
//! | `interrupts` | interrupt delivery into a guest |
//! | `vfio` | passed-through functions, of the host or mediated |
//! | `ground` | the machine that the guest's kernel sees |
//! | `exits` | exit counters |
//! | `costs` | CPU costs of exits, virtual NICs and disks |
//! | `ring` | the hypervisor's side of virtio rings |
//! | `disk/` | virtual disks and the I/O threads that serve them |
//! | `net/` | virtual NICs and the I/O threads that serve them |
//! | `placement/` | placement of virtual machines and I/O threads |
//!
//! # What is not modelled
//! The guest's own page tables: a TLB miss reads only the host's tables, where a real one reads up to 24 entries of
//! both (the guest's are mostly cached). TLB entries cover 2 MiB, like a kernel's own mapping. Interrupts between
//! vCPUs of a guest cause no exit.

mod bus;
mod costs;
pub mod disk;
mod exits;
mod function;
mod ground;
mod interrupts;
mod machine;
mod memory;
pub mod net;
mod params;
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
pub use interrupts::InterruptSupport;
pub use machine::GuestInterrupts;
pub use memory::{Block, GuestMemory, GuestNode};
pub use params::{VmError, VmParams};
pub use vfio::{HostFunction, Signal, Vfio, VfioDevice};
pub use vm::Vm;
