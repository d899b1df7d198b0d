//! Interrupt remapping (VT-d specification, chapter 5): a function's MSI selects an entry of a table owned by the
//! kernel, and the entry alone determines core and vector.

use super::cache::TaggedCache;
use super::fault::{Fault, Refusal};
use super::memory::{TableReader, WalkMemory};
use super::params::IommuParams;
use super::translator::is_interrupt_address;
use engine::Seed;
use units::{Duration, Time};
use wire::pcie::Bdf;
use wire::vtd::{Delivery, FaultReason, InterruptEntry, InterruptTable, MsiMessage};

/// Result of an interrupt request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptOutcome {
    /// When it proceeds, or is refused.
    pub ready: Time,
    /// The delivery, or the fault, which has been counted and recorded.
    pub outcome: Result<Delivery, Fault>,
}

#[derive(Clone, Copy, Debug)]
struct CachedEntry {
    entry: InterruptEntry,
    known_from: Time,
}

/// The interrupt remapping table and the cache of its entries.
#[derive(Debug, Clone)]
pub(super) struct InterruptRemapper {
    hit_latency: Duration,
    posts: bool,
    table: Option<InterruptTable>,
    cache: TaggedCache<CachedEntry>,
}

impl InterruptRemapper {
    pub fn new(params: &IommuParams, seed: Seed) -> Self {
        Self {
            hit_latency: params.interrupt_hit_latency,
            posts: params.posts_interrupts,
            table: None,
            cache: TaggedCache::new(params.interrupt_entry_cache, seed.component("interrupt entry cache")),
        }
    }

    pub fn set_table(&mut self, table: Option<InterruptTable>) {
        self.table = table.map(|t| InterruptTable { order: t.order.min(15), ..t });
    }

    pub const fn is_enabled(&self) -> bool {
        self.table.is_some()
    }

    /// The delivery of a message that arrives at `at`, and when it is known.
    pub fn remap<M: WalkMemory>(
        &mut self,
        at: Time,
        requester: Bdf,
        message: MsiMessage,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<Delivery, Refusal>) {
        let (table, index) = match self.index(message) {
            Ok(Some(found)) => found,
            Ok(None) => return (at, message.unremapped().map(Delivery::Core).map_err(Refusal::from)),
            Err(reason) => return (at, Err(reason.into())),
        };
        let (at, entry) = self.entry(at + self.hit_latency, table, index, reader);
        let delivery = entry.and_then(|entry| match entry.source.allows(requester) {
            true => Ok(entry.delivery),
            false => Err(Refusal {
                reason: FaultReason::InterruptSourceRejected,
                is_recorded: !entry.fault_processing_disabled,
            }),
        });
        (at, delivery)
    }

    /// The table and the index in it for a message; `None` if it passes without remapping.
    fn index(&self, message: MsiMessage) -> Result<Option<(InterruptTable, u32)>, FaultReason> {
        if !is_interrupt_address(message.address) {
            return Err(FaultReason::InterruptRange);
        }
        let Some(table) = self.table else { return Ok(None) };
        match message.index()? {
            Some(index) if index < 2 << table.order => Ok(Some((table, index))),
            Some(_) => Err(FaultReason::InterruptIndexBeyondTable),
            None if table.allow_compatibility && !table.x2apic => Ok(None),
            None => Err(FaultReason::CompatibilityInterruptBlocked),
        }
    }

    /// An entry of the table, from the cache or from memory, and when a message looked up at `at` knows it.
    fn entry<M: WalkMemory>(
        &mut self,
        at: Time,
        table: InterruptTable,
        index: u32,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<InterruptEntry, Refusal>) {
        let tag = u64::from(index);
        if let Some(CachedEntry { entry, known_from }) = self.cache.lookup(tag) {
            return (at.max(known_from), Ok(entry));
        }
        let (known_from, words) = reader.pair(at, table.base, tag * 16);
        let Some(words) = words else {
            return (known_from, Err(FaultReason::InterruptTableUnreachable.into()));
        };
        // The bit counts even in an absent entry.
        let refuse = |reason| Refusal { reason, is_recorded: words[0] & 2 == 0 };
        let entry = InterruptEntry::decode(words, table.x2apic, self.posts).map_err(refuse);
        if let Ok(entry) = entry {
            self.cache.insert(tag, tag, CachedEntry { entry, known_from });
        }
        (known_from, entry)
    }

    /// Invalidates `2^mask` naturally aligned entries from an index, or all.
    pub fn invalidate(&mut self, index: Option<(u16, u8)>) {
        self.cache.remove_where(|tag, _| match index {
            None => true,
            Some((first, mask)) => tag.checked_shr(mask.into()) == u64::from(first).checked_shr(mask.into()),
        });
    }
}
