//! Computers: hosts with kernels, devices in their slots, and programs that run on them.
//!
//! | file | subject |
//! |---|---|
//! | `error` | why computers cannot be simulated |
//! | `computers` | from a scenario's files to assembled hosts |
//! | `host` | a host with its kernel, and what comes with that |
//! | `boot`, `init` | booting hosts, at first and again |
//! | `kernel` | from a kernel's file to its parameters |
//! | `device/` | one file per kind of device: from its file to an endpoint in a slot |
//! | `kept` | cached results |
//! | `invariants` | what holds for every run |
//! | `network` | Ethernet cables, switches, captures |
//! | `passed` | devices and functions that are passed through or lent |
//! | `vms`, `guests` | virtual machines of hosts, and starting them |
//! | `lending`, `cluster` | cables between NTB adapters and lending services; borrowings |
//! | `traffic` | traffic sources and sinks |
//! | `budget` | traffic on the link to a NIC by kind, beside the analytic model |
//! | `packets` | link bytes per sent packet, beside the analytic model |
//! | `booked`, `accounting` | CPU time |
//! | `balance` | sums of the hardware's counters |
//! | `reading` | what a host has counted |
//! | `counting` | counters and interrupts while each program ran |
//! | `disturbances` | bit errors, drops and flushes that cost more than one per cent |
//! | `tree` | the kernels' device trees, as in sysfs |
//! | `nvme` | Identify and log pages of drives |
//! | `processes` | the programs' processes, on kernels that events replace |
//! | `found` | what booted kernels have found |
//! | `programs` | command lines, and what they find on their hosts |
//! | `checks` | what a scenario says of kernels, when these have booted |
//! | `rules` | names of network devices, and what happens when they appear |
//! | `scope` | what a program's work goes through |
//! | `run` | running the programs |
//! | `session` | running beside virtual machines |
//! | `events` | events of the scenario |
//! | `warnings` | what kernels lack, and drivers that failed |
//! | `connections` | which hardware is connected and powered |
//!
//! docs/guide/src/add-a-device.md says what a new kind of device needs.

mod accounting;
mod balance;
mod booked;
mod boot;
mod budget;
mod checks;
mod cluster;
mod computers;
mod connections;
mod counting;
pub(crate) mod device;
mod disturbances;
mod error;
mod events;
mod files;
mod finished;
mod found;
mod guests;
mod host;
mod init;
mod invariants;
mod kept;
mod kernel;
mod lending;
mod network;
mod nvme;
mod observer;
mod packets;
mod passed;
mod processes;
mod programs;
mod reading;
mod rogue;
mod rules;
mod run;
mod scope;
mod session;
mod settings;
mod traffic;
mod tree;
mod vms;
mod warnings;

pub use ::kernel::SysNode;
pub use accounting::Account;
pub use checks::check;
pub(crate) use checks::disks_of;
pub(crate) use counting::readings;
pub use counting::{Arrival, Counted};
pub use error::ComputerError;
pub use files::{SystemFiles, system_files};
pub use finished::{Counts, FinishedProgram, Subject, Warning};
pub(crate) use kept::is_repeatable;
pub use nvme::{NvmePages, nvme_pages};
pub use programs::check_syntax;
pub(crate) use reading::device_names;
pub use run::{run, run_all, run_counted};
pub use session::{Session, in_session};
pub use tree::{configuration, tree};

// Internals of a running simulation, for tests; not part of the public interface.
#[doc(hidden)]
pub use cluster::Cluster;
#[doc(hidden)]
pub use computers::Computers;
#[doc(hidden)]
pub use device::{drivers, nic_driver, nic_driver_params};
#[doc(hidden)]
pub use host::Computer;
#[doc(hidden)]
pub use invariants::violations;
#[doc(hidden)]
pub use observer::Observer;
#[doc(hidden)]
pub use packets::{PacketCost, PacketCosts};
#[doc(hidden)]
pub use run::run_watched;
#[doc(hidden)]
pub use traffic::PacketGenerator;
