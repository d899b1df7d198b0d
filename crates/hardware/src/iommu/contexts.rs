//! Context entries: which domain a function belongs to, from the context cache or the tables in memory.

use super::cache::TaggedCache;
use super::memory::{TableReader, WalkMemory};
use super::params::IommuParams;
use super::walkers::Walkers;
use engine::Rng;
use units::{HostPhysical, Time};
use wire::amdvi::device;
use wire::pcie::Bdf;
use wire::smmu::stream::{self, StreamEntry};
use wire::vtd::{Access, ContextEntry, ContextScope, FaultReason, Features, RootEntry, TableFormat};

/// A cached context entry.
#[derive(Clone, Copy, Debug)]
struct CachedContext {
    entry: ContextEntry,
    /// When it was read.
    known_from: Time,
}

/// The root table and the context cache.
#[derive(Debug, Clone)]
pub(super) struct Contexts {
    features: Features,
    root_table: HostPhysical,
    cache: TaggedCache<CachedContext>,
    /// Context of the previous request, which saves a cache lookup for most packets.
    recent: Option<(Bdf, CachedContext)>,
}

impl Contexts {
    pub fn new(params: &IommuParams, random: Rng) -> Self {
        Self {
            features: Features::from(params),
            root_table: HostPhysical::new(0),
            cache: TaggedCache::new(params.context_cache, random),
            recent: None,
        }
    }

    pub const fn set_root_table(&mut self, root_table: HostPhysical) {
        self.root_table = root_table.align_down(4096);
    }

    /// The context entry of `requester`, and when a request that arrives at `at` knows it. Reads it with a walker if it
    /// is not cached.
    #[inline]
    pub fn of<M: WalkMemory>(
        &mut self,
        at: Time,
        requester: Bdf,
        walkers: &mut Walkers,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<ContextEntry, FaultReason>) {
        match self.recent {
            Some((recent, context)) if recent == requester => (at.max(context.known_from), Ok(context.entry)),
            _ => self.look_up(at, requester, walkers, reader),
        }
    }

    #[inline(never)]
    fn look_up<M: WalkMemory>(
        &mut self,
        at: Time,
        requester: Bdf,
        walkers: &mut Walkers,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<ContextEntry, FaultReason>) {
        let number = requester.bits().into();
        if let Some(context) = self.cache.lookup(number) {
            self.recent = Some((requester, context));
            return (at.max(context.known_from), Ok(context.entry));
        }
        self.recent = None;
        let walker = walkers.begin(at, Access::Read, None);
        let (end, found) = self.read(walker.start, requester, reader);
        walkers.end(walker, end);
        if let Ok(entry) = found {
            self.cache.insert(number, number, CachedContext { entry, known_from: end });
        }
        (end, found)
    }

    fn read<M: WalkMemory>(
        &self,
        at: Time,
        requester: Bdf,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<ContextEntry, FaultReason>) {
        match self.features.format {
            TableFormat::VtD => self.read_context(at, requester, reader),
            TableFormat::AmdVi => {
                let place = u64::from(requester.bits()) * device::ENTRY_BYTES;
                let (at, words) = reader.pair(at, self.root_table, place);
                let entry = words.ok_or(FaultReason::ContextTableUnreachable);
                (at, entry.and_then(|words| device::decode(words, self.features)))
            }
            TableFormat::SmmuV3 => self.read_stream(at, requester, reader),
        }
    }

    /// VT-d: the root entry of the bus, then the context entry.
    fn read_context<M: WalkMemory>(
        &self,
        at: Time,
        requester: Bdf,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<ContextEntry, FaultReason>) {
        let (at, words) = reader.pair(at, self.root_table, u64::from(requester.bus()) * 16);
        let root = words.ok_or(FaultReason::RootTableUnreachable);
        let root = match root.and_then(|words| RootEntry::decode(words, self.features)) {
            Ok(root) => root,
            Err(reason) => return (at, Err(reason)),
        };
        let (at, words) = reader.pair(at, root.context_table, u64::from(requester.bits() & 0xff) * 16);
        let entry = words.ok_or(FaultReason::ContextTableUnreachable);
        (at, entry.and_then(|words| ContextEntry::decode(words, self.features)))
    }

    /// SMMU: the descriptor of the bus, the stream table entry, then the context descriptor.
    fn read_stream<M: WalkMemory>(
        &self,
        at: Time,
        requester: Bdf,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<ContextEntry, FaultReason>) {
        let first = reader.word(at, self.root_table + u64::from(requester.bus()) * 8);
        let Some(word) = first.value else { return (first.ready, Err(FaultReason::RootTableUnreachable)) };
        let Some(table) = stream::level_2(word) else {
            return (first.ready, Err(FaultReason::RootNotPresent));
        };
        let place = u64::from(requester.bits() & 0xff) * stream::ENTRY_BYTES;
        let (at, words) = reader.pair(first.ready, table, place);
        let entry = words.ok_or(FaultReason::ContextTableUnreachable);
        match entry.and_then(|words| StreamEntry::decode(words, self.features)) {
            Err(reason) => (at, Err(reason)),
            Ok(StreamEntry::Abort) => (at, Err(FaultReason::ContextNotPresent)),
            Ok(StreamEntry::Bypass) => (at, Ok(stream::BYPASS_ENTRY)),
            Ok(StreamEntry::Translate { context, ats }) => {
                let (at, words) = reader.pair(at, context, 0);
                let entry = words.ok_or(FaultReason::ContextTableUnreachable);
                (at, entry.and_then(|words| stream::decode_context(words, ats, self.features)))
            }
        }
    }

    pub fn invalidate(&mut self, scope: ContextScope) {
        self.recent = None;
        self.cache.remove_where(|tag, c| scope.covers(c.entry.domain, Bdf::from_bits(tag as u16)));
    }
}
