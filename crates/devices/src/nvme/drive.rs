//! State shared by all controllers of a drive: namespaces, media, counters, faults.

use std::cell::{Cell, RefCell};

use platform::device::{Stage, StageKind};
use units::{Bytes, Duration, Time};
use wire::nvme::Status;
use wire::nvme::log::SmartLog;

use super::faults::Faults;
use super::media::Media;
use super::namespaces::{Namespace, Namespaces};
use super::params::NvmeParams;
use super::store::Store;

/// The shared part of the drive, behind its controllers.
pub(super) struct Drive {
    pub params: NvmeParams,
    pub store: RefCell<Store>,
    pub namespaces: RefCell<Namespaces>,
    pub faults: RefCell<Faults>,
    pub smart: RefCell<SmartLog>,
    /// When the data path between link and media is free.
    data_free: Cell<Time>,
    /// Accumulated busy time of the data path.
    data_busy: Cell<Duration>,
    /// Number of commands started.
    begun: Cell<u64>,
}

impl Drive {
    pub fn new(params: NvmeParams, media: Box<dyn Media>) -> Self {
        let smart = SmartLog {
            temperature: 313,
            available_spare: 100,
            spare_threshold: 10,
            power_cycles: 1,
            ..SmartLog::default()
        };
        Self {
            store: RefCell::new(Store::new(&params, media)),
            namespaces: RefCell::new(Namespaces::new(&params)),
            faults: RefCell::default(),
            smart: RefCell::new(smart),
            data_free: Cell::new(Time::ZERO),
            data_busy: Cell::default(),
            begun: Cell::default(),
            params,
        }
    }

    /// The namespace, if it is attached to `controller`.
    pub fn attached(&self, id: u32, controller: u16) -> Option<Namespace> {
        let namespaces = self.namespaces.borrow();
        namespaces.get(id).filter(|ns| ns.is_attached(controller)).cloned()
    }

    /// Acknowledged writes can be lost when power fails.
    pub fn has_volatile_cache(&self) -> bool {
        self.params.volatile_buffer && self.store.borrow().has_buffer()
    }

    /// Whether a command may transfer this many bytes (MDTS).
    pub fn check_transfer(&self, bytes: u64) -> Result<(), Status> {
        let shift = self.params.max_transfer_shift;
        if shift > 0 && bytes > 4096 << shift { Err(Status::INVALID_FIELD.dnr()) } else { Ok(()) }
    }

    /// Reserves the data path for `bytes`. Returns when they have passed.
    pub fn pass(&self, now: Time, bytes: u64) -> Time {
        let takes = self.params.timing.data_path.time_for(Bytes::new(bytes));
        let through = self.data_free.get().max(now) + takes;
        self.data_free.set(through);
        self.data_busy.set(self.data_busy.get() + takes);
        through
    }

    /// Stages that can be the drive's bottleneck.
    pub fn stages(&self) -> Vec<Stage> {
        let stage = |name: &str, of, busy| Stage { name: name.to_owned(), kind: StageKind::Server, of, busy };
        let begun = self.params.timing.command_interval * self.begun.get();
        let own =
            [stage("commands", self.params.ports.into(), begun), stage("data-path", 1, self.data_busy.get())];
        [&own[..], &self.store.borrow().stages()].concat()
    }

    /// Counts the start of a command.
    pub fn count_start(&self) {
        self.begun.set(self.begun.get() + 1);
    }
}
