//! NVMe driver, modelled on Linux's. Section numbers refer to the NVM Express Base Specification 1.4.
//!
//! A controller has an admin queue and I/O queue pairs. Each pair serves a group of cores and interrupts one of them.
//! A request takes a slot of its queue. The command identifier combines slot number and use count, which exposes
//! stale completions. As in Linux, queues are arbitrated round robin (CC.AMS 0) even if the controller offers more,
//! since all queues are equal. The controller also models weighted round robin, which is tested there.
//!
//! | file | subject |
//! |---|---|
//! | `mod`, `options` | options, probe |
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
mod counters;
mod data;
mod io;
mod means;
mod memory_buffer;
mod multipath;
mod namespace;
mod options;
mod queue;
mod registers;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};

pub use controller::{Controller, ControllerState};
pub use counters::NvmeCounters;
use multipath::Heads;
pub use options::{NvmeCosts, NvmeOptions};

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

    /// Changes the average segment size (bytes) from which requests use SGLs (Linux: the module's `sgl_threshold`).
    pub fn set_sgl_threshold(&self, bytes: u32) {
        self.options.set(NvmeOptions { sgl_threshold: bytes, ..self.options.get() });
        self.controllers().iter().for_each(|controller| controller.set_sgl_threshold(bytes));
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
