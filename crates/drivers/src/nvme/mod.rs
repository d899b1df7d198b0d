//! NVMe driver, modelled on Linux's. Section numbers refer to the NVM Express Base Specification 1.4.
//!
//! A controller has an admin queue and I/O queue pairs. Each pair serves a group of cores and interrupts one of them.
//! A request takes a slot of its queue. The command identifier combines slot number and use count, which exposes
//! stale completions. As in Linux, queues are arbitrated round robin (CC.AMS 0) even if the controller offers more,
//! since all queues are equal. The controller also models weighted round robin, which is tested there.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | options, probe |
//! | `controller` | life cycle, interrupts, namespaces found; recovery: timeouts, aborts, resets, giving up |
//! | `registers`, `memory_buffer` | what is in the BARs |
//! | `queue` | submission and completion rings, slots |
//! | `admin` | admin queue and commands, asynchronous events |
//! | `io` | I/O queues, requests as commands |
//! | `data` | PRPs and SGLs |
//! | `namespace` | namespaces as block devices |
//! | `multipath` | one block device per namespace that several controllers reach |

mod admin;
mod controller;
mod data;
mod io;
mod means;
mod memory_buffer;
mod multipath;
mod namespace;
mod queue;
mod registers;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::costs;
use platform::cpu::{Async, Cpu, Part};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use units::Duration;

pub use controller::{Controller, ControllerState};
use multipath::Heads;

/// Options set when the driver is loaded (Linux's module parameters, in brackets).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmeOptions {
    /// I/O commands are aborted after this time (`io_timeout`, 30 s).
    pub io_timeout: Duration,
    /// Admin commands time out after this time (`admin_timeout`, 60 s).
    pub admin_timeout: Duration,
    /// Entries of an I/O queue (`io_queue_depth`, 1024).
    pub queue_entries: u16,
    /// Most I/O queue pairs; `None` for one per core.
    pub queues: Option<u16>,
    /// Use the legacy interrupt, shared by all queues, even if messages are available.
    pub legacy_interrupt: bool,
    /// Retries of a command that failed or was interrupted by a reset (`max_retries`, 5).
    pub retries: u8,
    /// Place submission queues in the controller memory buffer, if supported (`use_cmb_sqs`).
    pub use_memory_buffer: bool,
    /// Average segment size (bytes) from which SGLs are used (`sgl_threshold`, 32 KiB); 0 for never.
    pub sgl_threshold: u32,
    /// Combine the paths to a namespace into one block device (`multipath`), which prefers the controller local to
    /// the submitting core (`iopolicy=numa`). If off, each controller has its own block device.
    pub multipath: bool,
    /// CPU costs.
    pub costs: NvmeCosts,
}

impl Default for NvmeOptions {
    fn default() -> Self {
        Self {
            io_timeout: Duration::from_ms(30_000),
            admin_timeout: Duration::from_ms(60_000),
            queue_entries: 1024,
            queues: None,
            legacy_interrupt: false,
            retries: 5,
            use_memory_buffer: true,
            sgl_threshold: 32 << 10,
            multipath: false,
            costs: NvmeCosts::linux(),
        }
    }
}

costs! {
    /// Cycles that the driver computes; loads, stores and doorbells are charged separately.
    NvmeCosts in "nvme_cost" {
        /// To build a command and fill its slot.
        submit,
        /// For each segment.
        segment,
        /// To complete a command.
        complete,
        /// To check a completion queue.
        look,
    }
}

/// Event counters of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NvmeCounters {
    /// Interrupts handled, of all vectors.
    pub interrupts: u64,
    /// Interrupts without any completion.
    pub idle_interrupts: u64,
    /// Commands completed.
    pub completions: u64,
    /// Completions whose command is not in flight, or belongs to another queue.
    pub unknown_completions: u64,
    /// Completions with an impossible submission queue head.
    pub wrong_heads: u64,
    /// Commands found complete at their timeout: the interrupt was lost.
    pub lost_interrupts: u64,
    /// Commands that timed out.
    pub timeouts: u64,
    /// Abort commands sent.
    pub aborts: u64,
    /// Resets of the controller.
    pub resets: u64,
    /// Commands retried.
    pub retries: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Asynchronous events.
    pub events: u64,
}

/// One driver instance for all NVMe controllers of a host.
#[derive(Default)]
pub struct NvmeDriver {
    options: Cell<NvmeOptions>,
    controllers: RefCell<Vec<Weak<Controller>>>,
    heads: Rc<Heads>,
}

impl NvmeDriver {
    /// A driver with these options.
    pub fn new(options: NvmeOptions) -> Self {
        Self { options: Cell::new(options), ..Self::default() }
    }

    /// The bound controllers.
    pub fn controllers(&self) -> Vec<Rc<Controller>> {
        self.controllers.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}

impl PciDriver for NvmeDriver {
    fn name(&self) -> &'static str {
        "nvme"
    }

    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] = [PciMatch::class(wire::nvme::CLASS)];
        &IDS
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let taken: Vec<u32> = self.controllers().iter().map(|c| c.instance()).collect();
            let instance = (0..).find(|n| !taken.contains(n)).unwrap_or_default();
            let controller =
                Controller::probe(cpu, device, instance, self.options.get(), &self.heads).await?;
            let mut known = self.controllers.borrow_mut();
            known.retain(|controller| controller.strong_count() > 0);
            known.push(Rc::downgrade(&controller));
            Ok(controller as Rc<dyn PciBinding>)
        })
    }
}
