//! Machine, part and scenario files: schema, parsing with helpful errors, editing and writing.
//!
//! A **machine** is a host: sockets, caches, memory, root ports, IOMMU. A **part** is a card: link capability, tags,
//! overheads. A **scenario** is an experiment with both, or with whole computers and their programs. All are TOML;
//! every value carries its unit, every figure its source.
//!
//! ```no_run
//! use machine::{Doc, Library, Machine};
//!
//! let library = Library::built_in();
//! let mut doc: Doc<Machine> = Doc::load(&library, "dell-t430")?;
//! doc.set("host.llc.ddio_ways", "4")?;
//! let machine: Machine = doc.read()?;
//! # Ok::<(), machine::Diagnostics>(())
//! ```

mod cluster;
mod computer;
mod diagnostic;
mod doc;
mod drive;
mod event;
mod figure;
mod file_kind;
mod gpu;
mod host;
mod host_names;
mod kernel;
mod kernel_names;
mod kinds;
mod kpio;
mod library;
mod limits;
mod link;
mod measured;
mod names;
mod network;
mod nic;
mod nic_driver;
mod ntb;
mod nvme_driver;
mod outline;
mod part;
mod pcie_switch;
mod placed;
mod placement;
mod port;
mod prefix;
mod program;
mod read;
mod residuals;
mod route;
mod scalar;
mod scenario;
mod setting;
mod shape;
mod siblings;
mod source;
mod suggest;
mod traffic;
mod tree;

pub use cluster::{
    BorrowEntry, BorrowSetup, ClusterEnd, ClusterSetup, ClusterSwitchEntry, NtbCableEntry, NtbCableSetup,
    adapter, node,
};
pub use computer::{
    ComputerScenario, ComputerSetup, DeviceEntry, DeviceFile, DeviceModel, DevicePlace, DeviceSetup,
    DiskSetup, DmaMode, DriveSetup, FoundLink, HostEntry, HostSetup, HypervisorEntry, HypervisorSetup,
    InterfaceSetup, LinkEntry, LinkSetup, PassedSetup, PcieSwitchEntry, PcieSwitchSetup, Placement,
    RiserEntry, RouteSetup, SlotSetup, TeamEntry, TeamMode, TeamSetup, VirtualNicSetup, VmEntry, VmSetup,
    links_found,
};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use doc::{Doc, Kindred, Listed, figures, set_number};
pub use drive::*;
pub use event::{
    Action, Condition, Deed, EventCounter, EventEntry, EventSetup, LinkErrors, LinkPlace, NetCounter,
    Setting, Trigger,
};
pub use figure::{AnyFigure, Determined, Figure, Kind, Provenance};
pub use file_kind::{AnyDoc, FileKind};
pub use gpu::*;
pub use host::*;
pub use kernel::{DmaFile, ErrorTrigger, KernelFile, PciFile, SchedulerFile};
pub use kernel_names::{KernelDevices, KernelName, KernelNet};
pub use kinds::KINDS;
pub use kpio::{KpioFormat, KpioSelect, NicKpio};
pub use library::{Library, Redraw, Used};
pub use link::{CompletionBoundary, LinkGeneration, LinkWidth, PAGE_BYTES, PayloadLimit, TagBits};
pub use measured::{MeasuredNames, Nearness, find_card, find_joined, find_machine, find_relative};
pub use network::{CableEntry, CableSetup, CaptureEntry, NetworkSetup, PortSetup, SwitchEntry};
pub use nic::{Nic, NicController, NicDefaults, NicPath, NicVirtual};
pub use nic_driver::{NicDriverEntry, RingPlace};
pub use ntb::{ClusterSwitch, Ntb};
pub use nvme_driver::NvmeDriverEntry;
pub use outline::{Outline, outline};
pub use part::*;
pub use pcie_switch::PcieSwitch;
pub use placed::{Placed, Several};
pub use placement::MemoryPolicy;
pub use port::PortAddress;
pub use program::{ProgramEntry, ProgramPriority, ProgramSetup};
pub use read::Read;
pub use residuals::{Residual, Residuals};
pub use route::RouteEntry;
pub use scalar::{Count, Scalar};
pub use scenario::{
    BenchRun, Cache, Changes, Interface, IommuMode, Pattern, PcieBench, Scenario, Setup, Sockets, Test,
    slot_of,
};

pub use setting::NetSetting;
pub use shape::{Key, Shape, Single};
pub use suggest::did_you_mean;
pub use traffic::{GeneratorEntry, GeneratorSetup, SinkEntry, SinkSetup, SourceEntry, SourceSetup};
