//! A real machine as its own files and its tools' outputs show it.
//!
//! Sources are read into one model, a [`Survey`], in which every value is known or unknown, with where it was read. Several sources
//! of the same machine are merged; what they disagree about, and what cannot be so, is told as a [`Doubt`].
//!
//! | Module | |
//! |---|---|
//! | `fact` | values with where they were read |
//! | `numbers` | sets of CPUs, nodes and interrupts |
//! | `pci` | functions: addresses, identities, links |
//! | `model` | the machine |
//! | `read` | sources: hwloc's and NCCL's XML, outputs of tools, /sys and /proc, archives |
//! | `capture` | the files that a survey reads, as an archive |
//! | `settle` | what follows from all sources together |
//! | `show`, `json` | as text, as JSON |
//! | `draw` | as SVG, what costs in red |
//! | `export` | as hwloc's and NCCL's XML |
//! | `import` | files from which it is simulated |
//! | `findings`, `far` | what holds devices up; processes far from them |

mod capture;
mod draw;
mod export;
mod fact;
mod far;
mod findings;
mod import;
mod json;
mod model;
mod numbers;
mod pci;
mod read;
mod settle;
mod show;

pub use capture::{capture, pack};
pub use export::NcclRate;
pub use fact::{Origin, Sourced};
pub use findings::{Finding, FindingCost, LinkSetting};
pub use import::{FarPlace, ImportOptions, Imported, PartRelative, credits_at, import};
pub use model::{
    CacheKey, CpuCache, Doubt, HostProcess, HostThread, IrqLine, LogicalCpu, MemoryNode, NameList,
    NetInterface, NumberCounts, OsDevice, SetList, SourceNote, Survey, WholeMachine,
};
pub use numbers::{NumberSet, shell_word, some_of};
pub use pci::{AcsBits, BusRange, LaneSpeed, PciAddress, PciClass, PciFunction, PciNumber, PortKind};
pub use read::{SourceError, texts_in};
