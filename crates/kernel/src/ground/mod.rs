//! What a kernel stands on: cores that load and store, memory, devices, interrupts, IOMMUs.
//!
//! Everything that a kernel does to hardware goes through [`Ground`]. A host of the fabric is one ground ([`HostGround`]); a
//! hypervisor gives its guests another. Nothing else in this crate names hardware, but for formats that hardware and kernel share
//! ([`formats`]). What runs, and when, is the business of the simulation's tasks and clock, which all kernels have in common.
//!
//! A core's program runs ahead of the clock, so each access says at which `now` the program is, and is told when it goes on.

mod access;
pub(crate) mod convert;
mod host;
mod store_buffer;

use engine::Completion;
use platform::cpu::{CpuId, Node, Sweep};
use platform::memory::PhysAddr;
use units::{Duration, Time};
use wire::pcie::{Bdf, IntxLine};

pub use hardware::core::{LINE, Store, StoreMark};
pub use host::HostGround;

/// Formats of tables, queues and registers that hardware reads and a kernel writes.
pub(crate) mod formats {
    pub use hardware::iommu::tables::{ContextTables, FrameAllocator, PageTable};
    pub use hardware::iommu::{
        ContextEntry, ContextScope, Delivery, DeliveryMode, Descriptor, DomainId, Features, Interrupt,
        InterruptEntry, InterruptTable, MsiMessage, PageSize, Permissions, PostedInterrupt, Scope,
        SourceCheck, TranslationType,
    };
}

pub use hardware::iommu::{Features, InterruptTable};
pub use hardware::memory::PhysicalMemory;

/// What firmware tells of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// By core: the node that it belongs to.
    pub cores: Vec<Node>,
    /// By node: ranges of memory, each with its first address and its bytes.
    pub memory: Vec<Vec<(PhysAddr, u64)>>,
}

/// Takes interrupts: which core, which vector.
pub type InterruptSink = Box<dyn FnMut(u32, u8)>;

/// What a kernel stands on.
pub trait Ground: MemoryGround + DeviceGround + LineGround + IommuGround {
    /// Which cores and which memory there are.
    fn inventory(&self) -> Inventory;

    /// Sends interrupts to `sink` from now on; to nobody without.
    fn connect_interrupts(&self, sink: Option<InterruptSink>);

    /// The clock of cores that do not always run, as those of a guest, which wait for cores of their host. None if they do.
    fn core_clocks(&self) -> Option<&dyn CoreClocks> {
        None
    }
}

/// Cores that run at times only.
pub trait CoreClocks {
    /// For how long a core has run, as a time since its beginning.
    fn clock(&self, core: CpuId) -> Time;

    /// Whether a core runs now. One that does not computes nothing until [`Kernel::core_runs`](crate::Kernel::core_runs).
    fn runs(&self, core: CpuId) -> bool;

    /// A core has something to do from now on, or has not.
    fn set_busy(&self, core: CpuId, busy: bool);
}

/// When a core is through with a loop over arrays.
#[derive(Clone, Copy, Debug)]
pub struct Swept {
    /// It can go on with what does not need the data.
    pub issued: Time,
    /// All that it loaded is there.
    pub loaded: Time,
}

/// Memory, as cores see it.
pub trait MemoryGround {
    /// A core reads; gives when it has all.
    fn load(&self, core: CpuId, now: Time, at: PhysAddr, into: &mut [u8]) -> Time;

    /// A core writes; gives when it goes on.
    fn store(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time;

    /// A core writes past its caches.
    fn stream(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time;

    /// A core runs a loop over arrays, which takes it `step` for each line at least. Moves no bytes.
    fn sweep(&self, core: CpuId, now: Time, arrays: Sweep<'_>, step: Duration) -> Swept;

    /// A core loads from places that don't depend on one another, `step` apart at least; gives when it goes on. Moves no bytes.
    fn gather(&self, core: CpuId, now: Time, places: &[PhysAddr], step: Duration) -> Time;

    /// A core asks for lines without waiting for them.
    fn prefetch(&self, core: CpuId, now: Time, at: PhysAddr, length: u64) -> Time;

    /// A core flushes a line from its caches; says whether there is memory.
    fn flush(&self, core: CpuId, now: Time, at: PhysAddr) -> bool;

    /// Whether all of a range is memory.
    fn is_memory(&self, at: PhysAddr, length: u64) -> bool;

    /// What memory holds, for whoever has accounted for the time; `false` if some of it is no memory.
    fn peek(&self, at: PhysAddr, into: &mut [u8]) -> bool;

    /// Changes what memory holds, for whoever has accounted for the time; `false` if some of it is no memory.
    fn poke(&self, at: PhysAddr, from: &[u8]) -> bool;
}

/// Devices, as cores see them: BARs and configuration space.
pub trait DeviceGround {
    /// A core that is at `when` stores to a device. Where none is, the store is lost, as on a real bus.
    fn store_to_device(&self, core: CpuId, when: Time, store: Store<'_>);

    /// How far a core is with its stores to devices.
    fn store_mark(&self, core: CpuId) -> StoreMark;

    /// When a core's uncached stores so far have been accepted, as far as it can be known; no earlier than `when`.
    fn uncached_accepted_by(&self, core: CpuId, when: Time) -> Time;

    /// A core that is at `when` comes behind what another had stored at a mark; gives when it does.
    fn follow_stores(&self, core: CpuId, when: Time, behind: (CpuId, StoreMark)) -> Time;

    /// Resolves when no more than `most` of a core's stores to devices are pending; `None` if that is so now.
    fn stores_pending_at_most(&self, core: CpuId, most: usize) -> Option<Completion<()>>;

    /// Whether a core has stored what has not left it.
    fn holds_stores(&self, core: CpuId) -> bool;

    /// How many lines a core can fetch at once at `when`.
    fn free_fill_buffers(&self, core: CpuId, when: Time) -> usize;

    /// A core reads up to a line of a device's BAR; `None` if no device is there.
    fn read_device(&self, core: CpuId, at: PhysAddr, length: usize) -> Option<Completion<Vec<u8>>>;

    /// A core reads a doubleword of a function's configuration space.
    fn config_read(&self, core: CpuId, function: Bdf, register: u16) -> Completion<Vec<u8>>;

    /// A core writes the bytes of a doubleword of configuration space that `enables` names.
    fn config_write(
        &self,
        core: CpuId,
        function: Bdf,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Completion<Vec<u8>>;

    /// The node of a root port; `None` if there is no such port.
    fn node_of_port(&self, port: Bdf) -> Option<Node>;

    /// Whether a function below a root port reaches a range of another's BAR.
    fn has_way(&self, port: Bdf, at: PhysAddr, length: u64) -> bool;
}

/// The interrupt controller that legacy lines of functions lead to. A ground without one need not implement this.
pub trait LineGround {
    /// In whose name it sends messages; `None` if there is none.
    fn line_source(&self) -> Option<Bdf> {
        None
    }

    /// Lets a line send a message, address and data, while it is active, or nothing.
    fn set_line(&self, _core: CpuId, _line: IntxLine, _message: Option<(u64, u32)>) {}

    /// A core has dealt with a line's message: the next is sent if the line is still active.
    fn end_line(&self, _core: CpuId, _line: IntxLine) {}
}

/// Where a kernel has put what an IOMMU reads.
#[derive(Clone, Copy, Debug)]
pub struct IommuTables {
    /// The root table, which software fills.
    pub root: PhysAddr,
    /// Its invalidation queue, a page.
    pub queue: PhysAddr,
    /// What it remaps interrupts by, if it does.
    pub interrupts: Option<InterruptTable>,
}

/// IOMMUs. A ground without any need not implement this.
pub trait IommuGround {
    /// How many there are, one for each node from the first on.
    fn iommus(&self) -> usize {
        0
    }

    /// What one of them can do.
    fn iommu_features(&self, _iommu: usize) -> Features {
        unreachable!("there are no IOMMUs")
    }

    /// Turns translation on or off; with `tables`, by these from now on.
    fn set_iommu(&self, _iommu: usize, _translates: bool, _tables: Option<IommuTables>) {}

    /// Descriptors up to byte `tail` of the invalidation queue are to be executed, by a core that is at `now`: when the last
    /// has been, unless the queue has stopped.
    fn invalidate(&self, _iommu: usize, _now: Time, _tail: u64) -> Option<Time> {
        None
    }

    /// Requests that were refused: by whom, and how many.
    fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        Vec::new()
    }

    /// Lets `edit` change tables that hardware walks.
    fn edit_tables(&self, _edit: &mut dyn FnMut(&mut PhysicalMemory)) {
        unreachable!("nothing walks tables without an IOMMU")
    }
}

impl dyn Ground + '_ {
    /// As [`edit_tables`](IommuGround::edit_tables), with what comes of it.
    pub(crate) fn edit<R>(&self, edit: impl FnOnce(&mut PhysicalMemory) -> R) -> R {
        let (mut edit, mut result) = (Some(edit), None);
        self.edit_tables(&mut |memory| result = edit.take().map(|edit| edit(memory)));
        result.expect("it is called once")
    }
}
