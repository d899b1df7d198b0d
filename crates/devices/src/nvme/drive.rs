//! State shared by all controllers of a drive: namespaces, media, counters, faults.

use std::cell::{Cell, RefCell};

use platform::device::{Stage, StageKind};
use units::{Bytes, Duration, Time};
use wire::nvme::log::SmartLog;

use super::faults::Faults;
use super::media::Media;
use super::params::NvmeParams;
use super::store::Store;

/// A namespace: a range of the media.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    pub id: u32,
    /// Start offset on the media in bytes.
    pub base: u64,
    pub bytes: u64,
    /// Log2 of the block size in bytes.
    pub shift: u8,
    /// Bitmap of attached controllers.
    pub attached: u16,
}

impl Namespace {
    pub fn blocks(&self) -> u64 {
        self.bytes >> self.shift
    }
}

/// The shared part of the drive, behind its controllers.
pub(super) struct Drive {
    pub params: NvmeParams,
    pub store: RefCell<Store>,
    pub namespaces: RefCell<Vec<Namespace>>,
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
        let mut base = 0;
        let mut namespaces = Vec::new();
        for (n, bytes) in params.namespaces.iter().enumerate() {
            let bytes = bytes.get() >> params.block_shift << params.block_shift;
            let shift = params.block_shift;
            namespaces.push(Namespace { id: n as u32 + 1, base, bytes, shift, attached: u16::MAX });
            base += bytes;
        }
        let smart = SmartLog {
            temperature: 313,
            available_spare: 100,
            spare_threshold: 10,
            power_cycles: 1,
            ..SmartLog::default()
        };
        Self {
            store: RefCell::new(Store::new(&params, media)),
            namespaces: RefCell::new(namespaces),
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
        namespaces.iter().find(|ns| ns.id == id && ns.attached >> controller & 1 == 1).cloned()
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
    pub fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
    }
}
