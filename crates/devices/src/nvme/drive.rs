//! State shared by all controllers of a drive: namespaces, media, counters, faults.

use std::cell::{Cell, RefCell};

use engine::Busy;
use platform::device::{Stage, StageKind};
use units::{Bytes, Time};
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
    /// Busy time of the data path.
    data_busy: Cell<Busy>,
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
        let mut busy = self.data_busy.get();
        busy.add(now, takes);
        self.data_busy.set(busy);
        through
    }

    /// Power is lost: nothing is on its way between link and media.
    pub fn stop(&self, now: Time) {
        let mut busy = self.data_busy.get();
        busy.cancel(now);
        self.data_busy.set(busy);
        self.data_free.set(self.data_free.get().min(now));
    }

    /// Stages that can be the drive's bottleneck, besides its controllers.
    pub fn stages(&self, now: Time) -> [Stage; 4] {
        let [channels, dies, write_buffer] = self.store.borrow().stages(now);
        let busy = self.data_busy.get().until(now);
        let data_path = Stage { name: "data-path".to_owned(), kind: StageKind::Server, of: 1, busy };
        [data_path, channels, dies, write_buffer]
    }
}
