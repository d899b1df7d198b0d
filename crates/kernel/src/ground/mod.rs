//! The ground: the machine that a kernel runs on. Cores that load and store, memory, devices, interrupts and IOMMUs.
//!
//! A kernel accesses hardware only through [`Ground`]. A host of the fabric is one implementation ([`HostGround`]); a
//! hypervisor provides another for its guests. Nothing else in this crate names hardware. Scheduling in simulated time is
//! done by the simulation's tasks and clock, which all kernels share. `tests/ground` boots a kernel on a third one, some 400
//! lines with an IOMMU and without `hardware`.
//!
//! What a kernel newly needs of a machine becomes a method here, with a default if not every machine has it. What an IOMMU
//! reads and a kernel writes, with the functions that edit such tables in any memory, is in [`wire::vtd`].
//!
//! A program runs ahead of the clock. So each access takes the program's time as `now`, and returns when it can go
//! on.

mod access;
pub(crate) mod convert;
mod host;
mod store_buffer;

use engine::Completion;
use platform::cpu::{CpuId, Node, StoreMark, Sweep};
use platform::memory::PhysAddr;
use platform::mmio::Store;
use units::{Duration, Time};
use wire::pcie::{Bdf, IntxLine};
use wire::vtd::tables::TableMemory;
use wire::vtd::{Features, InterruptTable};

pub use host::HostGround;

/// What firmware reports about a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// Node of each core.
    pub cores: Vec<Node>,
    /// Memory ranges of each node: start and bytes.
    pub memory: Vec<Vec<(PhysAddr, u64)>>,
}

/// Receives interrupts: core and vector.
pub type InterruptSink = Box<dyn FnMut(u32, u8)>;

/// The machine that a kernel runs on.
pub trait Ground: MemoryGround + DeviceGround + LineGround + IommuGround {
    /// Cores and memory of the machine.
    fn inventory(&self) -> Inventory;

    /// Sends interrupts to `sink` from now on, or drops them.
    fn connect_interrupts(&self, sink: Option<InterruptSink>);

    /// Clocks of cores that do not always run, such as vCPUs waiting for a host core. `None` if all cores always run.
    fn core_clocks(&self) -> Option<&dyn CoreClocks> {
        None
    }
}

/// Cores that do not always run.
pub trait CoreClocks {
    /// Total time that a core has run.
    fn clock(&self, core: CpuId) -> Time;

    /// Whether a core is running. If not, it computes nothing until [`Kernel::core_runs`](crate::Kernel::core_runs).
    fn runs(&self, core: CpuId) -> bool;

    /// A core has work from now on, or has none.
    fn set_busy(&self, core: CpuId, busy: bool);
}

/// Completion times of a loop over arrays.
#[derive(Clone, Copy, Debug)]
pub struct Swept {
    /// When the core can go on with work that does not need the data.
    pub issued: Time,
    /// When all loads are complete.
    pub loaded: Time,
}

/// How long a core has waited for lines that its own caches did not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineWaits {
    /// For a place: fill buffers, the super queue or the store buffer were full.
    pub places: Duration,
    /// For the data of loads that the next step needs, when nothing was left to do.
    pub data: Duration,
}

/// Memory, as seen by cores.
pub trait MemoryGround {
    /// A core reads. Returns when all data has arrived.
    fn load(&self, core: CpuId, now: Time, at: PhysAddr, into: &mut [u8]) -> Time;

    /// A core writes. Returns when it goes on.
    fn store(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time;

    /// A core writes within a line. Returns when that is its own.
    fn exchange(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        self.store(core, now, at, from)
    }

    /// A core writes, bypassing its caches.
    fn stream(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time;

    /// A core runs a loop over arrays that takes at least `step` per line. Moves no bytes.
    fn sweep(&self, core: CpuId, now: Time, arrays: Sweep<'_>, step: Duration) -> Swept;

    /// A core waits for all loads of a loop. Returns when they are complete.
    fn complete(&self, _core: CpuId, swept: Swept) -> Time {
        swept.loaded
    }

    /// How long a core has waited for lines that its own caches did not have.
    fn waited(&self, _core: CpuId) -> LineWaits {
        LineWaits::default()
    }

    /// Switches a core's prefetchers on or off, if its software may.
    fn set_prefetchers(&self, _core: CpuId, _on: bool) {}

    /// Bytes that the caches of a node hold together; zero if it is not known.
    fn caches(&self, _node: Node) -> u64 {
        0
    }

    /// A core loads from independent addresses, at least `step` apart. Returns when it goes on. Moves no bytes.
    fn gather(&self, core: CpuId, now: Time, places: &[PhysAddr], step: Duration) -> Time;

    /// A core prefetches lines, without waiting for them.
    fn prefetch(&self, core: CpuId, now: Time, at: PhysAddr, length: u64) -> Time;

    /// A core flushes a line from its caches. Returns whether the address is memory.
    fn flush(&self, core: CpuId, now: Time, at: PhysAddr) -> bool;

    /// Whether all of a range is memory.
    fn is_memory(&self, at: PhysAddr, length: u64) -> bool;

    /// Reads memory without simulating the access, which the caller has accounted for. `false` if part of it is not
    /// memory.
    fn peek(&self, at: PhysAddr, into: &mut [u8]) -> bool;

    /// Writes memory without simulating the access, which the caller has accounted for. `false` if part of it is not
    /// memory.
    fn poke(&self, at: PhysAddr, from: &[u8]) -> bool;
}

/// Devices, as seen by cores: BARs and configuration space.
pub trait DeviceGround {
    /// A core stores to a device at `when`. Without a device there, the store is lost, as on a real bus.
    fn store_to_device(&self, core: CpuId, when: Time, store: Store<'_>);

    /// A core's position in its sequence of device stores at `when`.
    fn store_mark(&self, core: CpuId, when: Time) -> StoreMark;

    /// When all uncached stores of a core so far have been accepted, as far as known; at least `when`.
    fn uncached_accepted_by(&self, core: CpuId, when: Time) -> Time;

    /// Orders a core at `when` behind another core's stores up to a mark. Returns the resulting time.
    fn follow_stores(&self, core: CpuId, when: Time, behind: (CpuId, StoreMark)) -> Time;

    /// Resolves when at most `most` of a core's device stores are pending; `None` if that is already so.
    fn stores_pending_at_most(&self, core: CpuId, most: usize) -> Option<Completion<()>>;

    /// Whether a core has stores that have not left it.
    fn holds_stores(&self, core: CpuId) -> bool;

    /// Number of fill buffers that a core has free at `when`.
    fn free_fill_buffers(&self, core: CpuId, when: Time) -> usize;

    /// A core reads up to a line of a BAR; `None` if no device is there.
    fn read_device(&self, core: CpuId, at: PhysAddr, length: usize) -> Option<Completion<Vec<u8>>>;

    /// A core reads a doubleword of configuration space.
    fn config_read(&self, core: CpuId, function: Bdf, register: u16) -> Completion<Vec<u8>>;

    /// A core writes the bytes of a doubleword of configuration space selected by `enables`.
    fn config_write(
        &self,
        core: CpuId,
        function: Bdf,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Completion<Vec<u8>>;

    /// Node of a root port; `None` if there is no such port.
    fn node_of_port(&self, port: Bdf) -> Option<Node>;

    /// Whether a function below a root port can reach a range of another's BAR.
    fn has_way(&self, port: Bdf, at: PhysAddr, length: u64) -> bool;
}

/// The interrupt controller for legacy interrupt lines. Optional.
pub trait LineGround {
    /// Requester ID of its messages; `None` without a controller.
    fn line_source(&self) -> Option<Bdf> {
        None
    }

    /// Sets the message (address and data) that a line sends while active, if any.
    fn set_line(&self, _core: CpuId, _line: IntxLine, _message: Option<(u64, u32)>) {}

    /// A core has handled a line's message. Another is sent if the line is still active.
    fn end_line(&self, _core: CpuId, _line: IntxLine) {}
}

/// Tables of an IOMMU in memory.
#[derive(Clone, Copy, Debug)]
pub struct IommuTables {
    /// Root table.
    pub root: PhysAddr,
    /// Invalidation queue, one page.
    pub queue: PhysAddr,
    /// Interrupt remapping table, if interrupts are remapped.
    pub interrupts: Option<InterruptTable>,
}

/// IOMMUs. Optional.
pub trait IommuGround {
    /// Number of IOMMUs: one per node, starting with the first.
    fn iommus(&self) -> usize {
        0
    }

    /// Capabilities of an IOMMU.
    fn iommu_features(&self, _iommu: usize) -> Features {
        unreachable!("there are no IOMMUs")
    }

    /// Turns translation on or off, and sets the tables if given.
    fn set_iommu(&self, _iommu: usize, _translates: bool, _tables: Option<IommuTables>) {}

    /// Executes descriptors up to byte `tail` of the invalidation queue, on behalf of a core at `now`. Returns when
    /// the last is done, or `None` if the queue has stopped.
    fn invalidate(&self, _iommu: usize, _now: Time, _tail: u64) -> Option<Time> {
        None
    }

    /// Blocked requests: requester and count.
    fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        Vec::new()
    }

    /// Lets `edit` change tables that hardware walks.
    fn edit_tables(&self, _edit: &mut dyn FnMut(&mut dyn TableMemory)) {
        unreachable!("nothing walks tables without an IOMMU")
    }
}

impl dyn Ground + '_ {
    /// As [`edit_tables`](IommuGround::edit_tables), with a return value.
    pub(crate) fn edit<R>(&self, edit: impl FnOnce(&mut dyn TableMemory) -> R) -> R {
        let (mut edit, mut result) = (Some(edit), None);
        self.edit_tables(&mut |memory| result = edit.take().map(|edit| edit(memory)));
        result.expect("it is called once")
    }
}
