//! The kernel of a simulated host: implements the interfaces of `platform` for drivers and programs.
//!
//! [`Kernel`] runs on the cores of a [`Ground`], such as a host of the [`Fabric`](hardware::Fabric). It enumerates
//! PCI functions through configuration space and assigns addresses, builds IOMMU tables in simulated memory, takes
//! interrupts and runs tasks. CPU costs of its code are parameters ([`KernelCosts`]); memory, IOMMU and devices add
//! their own times.
//!
//! | folder | subject |
//! |---|---|
//! | `ground` | the machine: memory, devices, interrupts and IOMMUs |
//! | `cpu` | cores, program clocks, loads and stores |
//! | `sched` | tasks and run queues |
//! | `irq` | vectors, handlers, deferred work |
//! | `mm` | pages by node, small pieces of coherent memory |
//! | `pci` | enumeration, resources, MSI-X and legacy interrupts, drivers, hot-plug |
//! | `dma` | the DMA API over the IOMMU |
//! | `block` | block devices: queues, tags, merging, timeouts, the page cache |
//! | `sys` | the kernel's state as a tree of attributes (sysfs) |
//! | `net` | network devices and protocols |

mod account;
mod base;
mod block;
mod costs;
mod cpu;
mod dma;
mod ground;
mod irq;
mod kernel;
mod log;
mod mm;
mod net;
mod pci;
mod sched;
mod sys;
mod tasks;

pub use account::{Ran, Times};
pub use block::{Block, BlockDevice, BlockParams};
pub use costs::{CoreParams, KernelCosts, SchedParams};
pub use dma::{DmaMode, DmaParams, Iommu, IommuDomain};
pub use ground::{
    CoreClocks, DeviceGround, Ground, HostGround, InterruptSink, Inventory, IommuGround, IommuTables,
    LineGround, LineWaits, MemoryGround, Swept,
};
pub use irq::{GuestMode, IrqCounters, POSTED_VECTOR, POSTED_WAKEUP_VECTOR};
pub use kernel::{GuestInterrupts, Kernel, KernelParams};
pub use mm::NodeMemory;
pub use net::{
    EcnMode, FragmentParams, InetParams, Net, NetDevice, NetRules, NetTotals, Protocols, SteeringParams,
};
pub use pci::{Backend, ErrorCounters, FunctionInfo, Message, PciParams, TreeText};
pub use sched::TaskWatcher;
pub use sys::SysNode;
pub use tasks::{TaskInfo, TaskTimes};
