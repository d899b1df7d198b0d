//! A remapping unit: passes requests, interrupts and register writes to its parts.

use super::IommuCounters;
use super::fault::FaultLog;
use super::memory::{TableReader, WalkMemory};
use super::params::{IommuParams, ParamsError};
use super::pipeline::Pipeline;
use super::queue::{InvalidationQueue, QueueAction, Targets};
use super::remapper::{InterruptOutcome, InterruptRemapper};
use super::request::DmaRequest;
use super::translator::{Translation, Translator};
use crate::memory::NodeId;
use engine::Seed;
use units::{Duration, HostPhysical, Time};
use wire::pcie::Bdf;
use wire::vtd::{Access, Features, InterruptTable, MsiMessage};

/// An IOMMU, shared by all functions below its root ports.
#[derive(Debug, Clone)]
pub struct Iommu {
    params: IommuParams,
    /// Its socket.
    node: NodeId,
    /// Seed of the random replacement policies.
    seed: Seed,
    enabled: bool,
    /// What passes through it, requests and interrupts.
    pipeline: Pipeline,
    translator: Translator,
    interrupts: InterruptRemapper,
    queue: InvalidationQueue,
    faults: FaultLog,
}

impl Iommu {
    /// Creates an IOMMU in the socket of `node`, disabled as after a reset. `seed` is for random replacement.
    ///
    /// # Errors
    /// If `params` are invalid.
    pub fn new(params: IommuParams, node: NodeId, seed: Seed) -> Result<Self, ParamsError> {
        params.validate()?;
        Ok(Self {
            params,
            node,
            seed,
            enabled: false,
            pipeline: Pipeline::new(&params),
            translator: Translator::new(&params, seed),
            interrupts: InterruptRemapper::new(&params, seed),
            queue: InvalidationQueue::new(&params),
            faults: FaultLog::new(params.fault_records),
        })
    }

    /// Resets the IOMMU: disabled, caches empty, counters zero.
    pub fn reset(&mut self) {
        *self = Self::new(self.params, self.node, self.seed).expect("it has been built from this");
    }

    /// Parameters of the IOMMU.
    pub const fn params(&self) -> &IommuParams {
        &self.params
    }

    /// Table format features in its capability register.
    pub fn features(&self) -> Features {
        Features::from(&self.params)
    }

    /// Enables or disables DMA remapping (global command register, TE). While disabled, addresses pass unchanged
    /// without delay.
    pub const fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Sets the root table (root table address register). Software must then invalidate the context cache and the
    /// IOTLB.
    pub const fn set_root_table(&mut self, root_table: HostPhysical) {
        self.translator.contexts.set_root_table(root_table);
    }

    /// Fault recording registers and counters.
    pub const fn faults(&self) -> &FaultLog {
        &self.faults
    }

    /// Counters since the reset.
    pub const fn counters(&self) -> IommuCounters {
        self.translator.counters(self.pipeline.queueing())
    }

    /// How long its page walkers were in use up to `now`, all together.
    pub fn walkers_busy(&self, now: Time) -> Duration {
        self.translator.walkers.busy(now)
    }

    /// How long it looked translations up, up to `now`; zero if there is no limit to how often it does.
    pub fn lookups_busy(&self, now: Time) -> Duration {
        self.pipeline.lookups_busy(now)
    }

    /// Time up to `now` in which requests waited for one of `read_depth` or `write_depth` places.
    pub fn places_waited(&self, access: Access, now: Time) -> Duration {
        self.pipeline.waited(access, now)
    }

    /// Translates a request, which must not cross a 4 KiB boundary unless the caller checks [`Translated::page`].
    /// Writes to the interrupt range go to [`Iommu::remap_interrupt`] instead.
    ///
    /// Takes no time if translation is disabled. Otherwise calls must be in the order in which the requests arrive at
    /// the IOMMU.
    ///
    /// [`Translated::page`]: super::Translated::page
    #[inline]
    pub fn translate<M: WalkMemory>(
        &mut self,
        now: Time,
        request: DmaRequest,
        memory: &mut M,
    ) -> Translation {
        if !self.enabled {
            return Translation::unchanged(now, request.address);
        }
        let reader = &mut TableReader { memory, node: self.node };
        let (ready, found) = self.translator.translate(now, &request, &mut self.pipeline, reader);
        let DmaRequest { requester, address, access, .. } = request;
        let outcome =
            found.map_err(|refusal| self.faults.refuse(ready, requester, address.get(), access, refusal));
        Translation { ready, outcome }
    }

    /// Records that a translated request is in use until `until`, when a write's data is in memory or a read has been
    /// served. A draining invalidation waits for that. Until this call the request counts as in use until its
    /// translation is ready.
    #[inline]
    pub fn in_use_until(&mut self, until: Time) {
        self.pipeline.in_use_until(until);
    }

    /// Enables interrupt remapping with `table`, or disables it. Software must then invalidate the interrupt entry
    /// cache.
    pub fn set_interrupt_table(&mut self, table: Option<InterruptTable>) {
        self.interrupts.set_table(table);
    }

    /// Whether interrupts are remapped.
    pub const fn remaps_interrupts(&self) -> bool {
        self.interrupts.is_enabled()
    }

    /// Handles a write of 4 bytes to the interrupt range, behind earlier writes.
    ///
    /// A `message` elsewhere is refused as an [`InterruptRange`](wire::vtd::FaultReason::InterruptRange) fault.
    pub fn remap_interrupt<M: WalkMemory>(
        &mut self,
        now: Time,
        requester: Bdf,
        message: MsiMessage,
        memory: &mut M,
    ) -> InterruptOutcome {
        let place = self.pipeline.enter_alone(now, Access::Write);
        let reader = &mut TableReader { memory, node: self.node };
        let (ready, found) = self.interrupts.remap(place.at, requester, message, reader);
        let ready = self.pipeline.leave(place, ready, Access::Write);
        let outcome = found.map_err(|refusal| {
            self.faults.refuse(ready, requester, message.fault_information(), Access::Write, refusal)
        });
        InterruptOutcome { ready, outcome }
    }

    /// Places the invalidation queue: 2^`order` pages of 4 KiB, 256 descriptors each (queue address register).
    pub fn set_invalidation_queue(&mut self, base: HostPhysical, order: u8) {
        self.queue.place(base, order);
    }

    /// Byte offset of the next descriptor to execute (queue head register).
    pub const fn invalidation_queue_head(&self) -> u64 {
        self.queue.head()
    }

    /// Whether the queue has stopped at an invalid descriptor, one outside memory, or a tail outside the ring (fault
    /// status register, IQE).
    pub const fn invalidation_queue_error(&self) -> bool {
        self.queue.has_error()
    }

    /// Clears the error; execution goes on with the next write of the tail.
    pub fn clear_invalidation_queue_error(&mut self) {
        self.queue.clear_error();
    }

    /// Handles a write of the queue tail register: executes all descriptors up to byte offset `tail`.
    ///
    /// Entries are invalidated at once in call order: no later call uses an invalidated translation. `actions` say when
    /// the invalidation is *complete*, including reads and writes translated earlier.
    pub fn write_invalidation_tail<M: WalkMemory>(
        &mut self,
        now: Time,
        tail: u64,
        memory: &mut M,
        actions: &mut Vec<QueueAction>,
    ) {
        let Self { pipeline, translator, interrupts, .. } = self;
        let mut targets = Targets { pipeline, translator, interrupts };
        let reader = &mut TableReader { memory, node: self.node };
        self.queue.write_tail(now, tail, &mut targets, reader, actions);
    }
}
