//! NVMe, in the manner of Linux's driver (NVM Express Base Specification 1.4, whose sections are named).
//!
//! A controller has an admin queue and I/O queue pairs, each for a group of cores, with an interrupt of its own that
//! arrives at one of them. A request takes a slot of its queue; the slot's number and how often it was used name the
//! command, so that a completion that nobody waits for is seen as one. Queues are served in turn (CC.AMS 0), as Linux has it,
//! whatever else the controller offers: queues of equal cores have nothing by which one would go before another. Weighted round
//! robin is the controller's, and has its tests there.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | probing, removal, interrupts |
//! | `controller` | what a controller is; enabling, disabling, setting up |
//! | `queue` | submission and completion rings, slots |
//! | `admin` | admin commands, asynchronous events |
//! | `namespace` | namespaces as block devices |
//! | `multipath` | one block device for a namespace that several controllers reach |
//! | `data` | PRPs and SGLs |
//! | `recovery` | timeouts, aborts, resets, and giving up |

mod admin;
mod controller;
mod data;
mod multipath;
mod namespace;
mod queue;
mod recovery;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::costs;
use platform::cpu::{Async, Cpu, Part};
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};
use units::Duration;

pub use controller::{Controller, ControllerState};
use multipath::Heads;

/// What can be chosen when the driver is loaded (Linux's module parameters).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmeOptions {
    /// How long an I/O command may take before it is aborted (`io_timeout`, 30 s).
    pub io_timeout: Duration,
    /// How long an admin command may take (`admin_timeout`, 60 s).
    pub admin_timeout: Duration,
    /// Entries of I/O queues (`io_queue_depth`, 1024).
    pub queue_entries: u16,
    /// Most I/O queue pairs; as many as there are cores if none is given.
    pub queues: Option<u16>,
    /// The drive's legacy interrupt is used even if it has messages: all queues have that one.
    pub legacy_interrupt: bool,
    /// How often a command that failed or was interrupted by a reset is tried again (`max_retries`, 5).
    pub retries: u8,
    /// Submission queues go into the controller memory buffer, if it has one that takes them (`use_cmb_sqs`).
    pub use_memory_buffer: bool,
    /// SGLs are used for segments of at least so many bytes on average (`sgl_threshold`, 32 KiB); 0 for never.
    pub sgl_threshold: u32,
    /// A namespace that several controllers reach is one block device (`multipath`), whose requests take the controller that is
    /// local to the submitting core (`iopolicy=numa`). Off, so that each controller has its own.
    pub multipath: bool,
    /// What its code costs.
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
    /// Cycles that the driver computes; its loads, stores and doorbells cost by themselves.
    NvmeCosts in "nvme_cost" {
        /// To build a command and its slot.
        submit,
        /// For each segment on top.
        segment,
        /// To end a command.
        complete,
        /// To look at a completion queue.
        look,
    }
}

/// What has happened to a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NvmeCounters {
    /// Interrupts.
    pub interrupts: u64,
    /// Interrupts that had nothing to say.
    pub idle_interrupts: u64,
    /// Completions of commands.
    pub completions: u64,
    /// Completions that name no command that is under way, or another queue.
    pub unknown_completions: u64,
    /// Completions whose submission queue head is impossible.
    pub wrong_heads: u64,
    /// Commands found completed when their time was over: an interrupt was lost.
    pub lost_interrupts: u64,
    /// Commands that took too long.
    pub timeouts: u64,
    /// Abort commands.
    pub aborts: u64,
    /// Resets of the controller.
    pub resets: u64,
    /// Commands that were tried again.
    pub retries: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Asynchronous events.
    pub events: u64,
}

/// One driver for all NVMe controllers of a host.
#[derive(Default)]
pub struct NvmeDriver {
    options: Cell<NvmeOptions>,
    controllers: RefCell<Vec<Weak<Controller>>>,
    heads: Rc<Heads>,
}

impl NvmeDriver {
    /// With options.
    pub fn new(options: NvmeOptions) -> Self {
        Self { options: Cell::new(options), ..Self::default() }
    }

    /// The controllers that it drives.
    pub fn controllers(&self) -> Vec<Rc<Controller>> {
        self.controllers.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Requests that went on by another controller than the one that they were given to.
    pub fn moved_requests(&self) -> u64 {
        self.heads.moved()
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
            let taken: Vec<u32> = self.controllers().iter().map(|c| c.instance).collect();
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

impl PciBinding for Controller {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.shut_down(cpu).await;
        })
    }

    fn error_detected(&self, cpu: &Cpu, state: ChannelState) -> Recovery {
        match state {
            ChannelState::Normal => Recovery::CanRecover,
            ChannelState::Frozen => {
                // What it was asked is asked again after the reset.
                self.frozen.set(true);
                self.freeze();
                Recovery::NeedReset
            }
            ChannelState::Gone => {
                self.give_up(cpu, Error::NoDevice);
                Recovery::Disconnect
            }
        }
    }

    fn slot_reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Recovery> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            match self.after_reset(cpu).await {
                Ok(()) => Recovery::CanRecover,
                Err(_) => Recovery::Disconnect,
            }
        })
    }
}
