//! What all controllers of a drive share: namespaces, media, counts, faults.

use std::cell::{Cell, RefCell};

use platform::device::{Stage, StageKind};
use units::{Bytes, Duration, Time};
use wire::nvme::log::SmartLog;

use super::faults::Faults;
use super::media::Media;
use super::params::NvmeParams;
use super::store::Store;

/// A namespace: a part of the media.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    pub id: u32,
    /// Byte of the media at which it begins.
    pub base: u64,
    pub bytes: u64,
    /// Bytes of a block as a power of two.
    pub shift: u8,
    /// Controllers that it is attached to, one bit each.
    pub attached: u16,
}

impl Namespace {
    pub fn blocks(&self) -> u64 {
        self.bytes >> self.shift
    }
}

/// The drive behind its controllers.
pub(super) struct Drive {
    pub params: NvmeParams,
    pub store: RefCell<Store>,
    pub namespaces: RefCell<Vec<Namespace>>,
    pub faults: RefCell<Faults>,
    pub smart: RefCell<SmartLog>,
    /// When the path between link and media is free.
    data_free: Cell<Time>,
    /// For how long it has been taken.
    data_busy: Cell<Duration>,
    /// How many commands have begun.
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

    /// The namespace if `controller` may use it.
    pub fn attached(&self, id: u32, controller: u16) -> Option<Namespace> {
        let namespaces = self.namespaces.borrow();
        namespaces.iter().find(|ns| ns.id == id && ns.attached >> controller & 1 == 1).cloned()
    }

    /// Reserves the data path for `bytes`. Returns when they are through.
    pub fn pass(&self, now: Time, bytes: u64) -> Time {
        let takes = self.params.timing.data_path.time_for(Bytes::new(bytes));
        let through = self.data_free.get().max(now) + takes;
        self.data_free.set(through);
        self.data_busy.set(self.data_busy.get() + takes);
        through
    }

    /// What is full when the drive is.
    pub fn stages(&self) -> Vec<Stage> {
        let stage = |name: &str, of, busy| Stage { name: name.to_owned(), kind: StageKind::Server, of, busy };
        let begun = self.params.timing.command_interval * self.begun.get();
        let own =
            [stage("commands", self.params.ports.into(), begun), stage("data-path", 1, self.data_busy.get())];
        [&own[..], &self.store.borrow().stages()].concat()
    }

    /// A controller begins with a command.
    pub fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
    }
}
