//! Translation of DMA requests: context entry, then page.

use super::IommuCounters;
use super::contexts::Contexts;
use super::fault::{Fault, Refusal};
use super::memory::{TableReader, WalkMemory};
use super::pages::Pages;
use super::params::IommuParams;
use super::pipeline::Pipeline;
use super::request::DmaRequest;
use super::walkers::Walkers;
use engine::Seed;
use units::{Duration, HostPhysical, Iova, Time};
use wire::vtd::{ContextEntry, FaultReason, PageSize, TranslationType};

/// A translated address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translated {
    /// The host-physical address.
    pub address: HostPhysical,
    /// Size of the page; a request beyond its end needs another translation.
    pub page: PageSize,
}

impl Translated {
    /// Passes the address unchanged.
    #[inline]
    const fn unchanged(address: Iova) -> Self {
        Self { address: HostPhysical::new(address.get()), page: PageSize::Size1GiB }
    }
}

/// Result of a translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// When the request proceeds (its last piece, if there are several), or is refused.
    pub ready: Time,
    /// The translated address, or the fault, which has been counted and recorded.
    pub outcome: Result<Translated, Fault>,
}

impl Translation {
    #[inline]
    pub(super) const fn unchanged(ready: Time, address: Iova) -> Self {
        Self { ready, outcome: Ok(Translated::unchanged(address)) }
    }
}

/// Whether `address` is in the interrupt range, 0xfee0_0000 to 0xfeef_ffff, which is never translated.
#[inline]
pub(super) const fn is_interrupt_address(address: u64) -> bool {
    address >> 20 == 0xfee
}

/// Contexts, pages, and the walkers that read both.
#[derive(Debug, Clone)]
pub(super) struct Translator {
    host_address_bits: u8,
    pub(super) contexts: Contexts,
    pub(super) pages: Pages,
    pub(super) walkers: Walkers,
    passed: u64,
    refused_early: u64,
}

impl Translator {
    pub fn new(params: &IommuParams, seed: Seed) -> Self {
        Self {
            host_address_bits: params.host_address_bits,
            contexts: Contexts::new(params, seed.component("context cache")),
            pages: Pages::new(params, seed.component("IOTLB")),
            walkers: Walkers::new(params),
            passed: 0,
            refused_early: 0,
        }
    }

    pub const fn counters(&self, pipeline_queueing: Duration) -> IommuCounters {
        let Self { passed, refused_early, .. } = *self;
        IommuCounters { pages: self.pages.counters(), passed, refused_early, pipeline_queueing }
    }

    /// Translates a request, from its entry into the pipeline until it leaves.
    #[inline]
    pub fn translate<M: WalkMemory>(
        &mut self,
        now: Time,
        request: &DmaRequest,
        pipeline: &mut Pipeline,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<Translated, Refusal>) {
        let &DmaRequest { requester, address, access, pieces, .. } = request;
        let page = address.get() >> 12 | u64::from(requester.bits()) << 48;
        let place = pipeline.enter(now, access, page);
        let (known, context) = self.contexts.of(place.at, requester, &mut self.walkers, reader);
        let context = context.map_err(Refusal::from);
        let entry = match context.and_then(|entry| Ok((entry, self.is_to_translate(&entry, request)?))) {
            Ok((entry, true)) => entry,
            Ok((_, false)) => {
                self.passed += 1;
                return (pipeline.leave(place, known, access), Ok(Translated::unchanged(address)));
            }
            Err(refusal) => {
                self.refused_early += 1;
                return (pipeline.leave(place, known, access), Err(refusal));
            }
        };
        let (ready, found) =
            self.pages.resolve((place, known), &entry, request, &mut self.walkers, pipeline, reader);
        let mut ready = pipeline.leave(place, ready, access);
        for _ in 1..pieces {
            // The other pieces take places, too, but their page has been looked up.
            let place = pipeline.enter_piece(now, access);
            ready = pipeline.leave(place, ready.max(place.at), access);
        }
        let found = match found {
            Ok(leaf) => Ok(Translated { address: leaf.resolve(address), page: leaf.size }),
            Err(reason) => Err(Refusal { reason, is_recorded: !entry.fault_processing_disabled }),
        };
        (ready, found)
    }

    /// Whether a request of a function with this context entry is translated. Otherwise its address passes unchanged.
    #[inline]
    fn is_to_translate(&self, entry: &ContextEntry, request: &DmaRequest) -> Result<bool, Refusal> {
        let passes = match (request.is_translated, entry.translation) {
            (false, kind) => kind == TranslationType::PassThrough,
            (true, TranslationType::WithAts) => true,
            (true, _) => return Err(FaultReason::AtsBlocked.into()),
        };
        let address = request.address;
        let is_within = match passes {
            true => address.get() >> self.host_address_bits == 0,
            false => entry.spans(address),
        };
        let reason = match is_interrupt_address(address.get()) {
            true => FaultReason::InterruptRange,
            false if is_within => return Ok(!passes),
            false => FaultReason::BeyondAddressWidth,
        };
        Err(Refusal { reason, is_recorded: passes || !entry.fault_processing_disabled })
    }
}
