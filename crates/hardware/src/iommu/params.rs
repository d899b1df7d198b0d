//! IOMMU parameters.

pub use settings::{IommuKind, IotlbReplacement, PipelineOrder};
use thiserror::Error;
use units::{Bytes, Duration};
use wire::vtd::{Features, TableFormat};

/// Size, associativity and replacement of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Geometry {
    /// Total number of entries; 0 for no cache.
    pub entries: usize,
    /// Entries per set; 0 for fully associative.
    pub ways: usize,
    /// Replacement policy of a set.
    pub replacement: IotlbReplacement,
}

impl Geometry {
    /// Maximum number of entries of a cache.
    pub const MAX_ENTRIES: usize = 1 << 14;

    /// A fully associative cache.
    pub const fn fully_associative(entries: usize, replacement: IotlbReplacement) -> Self {
        Self { entries, ways: 0, replacement }
    }

    /// Entries per set with "fully associative" resolved.
    pub const fn effective_ways(self) -> usize {
        if self.ways == 0 { self.entries } else { self.ways }
    }

    fn validate(self, cache: &'static str) -> Result<(), ParamsError> {
        let wrong = |problem| Err(ParamsError::Geometry { cache, problem });
        let Self { entries, replacement, .. } = self;
        let ways = self.effective_ways();
        if entries == 0 {
            return Ok(());
        }
        if entries > Self::MAX_ENTRIES {
            return wrong("more than 16384 entries");
        }
        if entries % ways != 0 || !(entries / ways).is_power_of_two() {
            return wrong("entries / ways is not a power of two");
        }
        if replacement == IotlbReplacement::TreePlru && !ways.is_power_of_two() {
            return wrong("pseudo-LRU needs a power of two of ways");
        }
        Ok(())
    }
}

/// Paging-structure cache entries by level, each cache fully associative and LRU; 0 for none.
///
/// A hit in the cache of level n lets a walk start at the table of level n (VT-d specification, section 6.2.2, which
/// leaves the sizes to the implementation).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagingStructureCaches {
    /// Entries that point at a level-1 table (512 pages of 4 KiB): walks of one read.
    pub level1: usize,
    /// Entries that point at a level-2 table.
    pub level2: usize,
    /// Entries that point at a level-3 table.
    pub level3: usize,
    /// Entries that point at a level-4 table; useful with five levels only.
    pub level4: usize,
}

/// An invalid value in [`IommuParams`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParamsError {
    /// A cache cannot be built.
    #[error("the {cache} has a geometry that cannot be built: {problem}")]
    Geometry {
        /// Which one.
        cache: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Another value is out of range.
    #[error("`{key}` must be {allowed}")]
    Value {
        /// The field.
        key: &'static str,
        /// Allowed values.
        allowed: &'static str,
    },
}

/// The parameters of an IOMMU.
///
/// Intel does not publish sizes and times of its CPU generations: those of a machine file are fitted to measurements
/// with and without the IOMMU, or taken from a related CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IommuParams {
    /// Whose it is, which says what its tables and commands look like.
    pub kind: IommuKind,
    /// The IOTLB, shared by all page sizes.
    pub iotlb: Geometry,
    /// Entries of the IOTLB occupied by functions outside the simulation (entries; needs a fully associative IOTLB).
    /// From the measured hit ratios of idle boxes: 10 on Broadwell, 1 on Sandy Bridge.
    pub iotlb_reserved: usize,
    /// Sizes of the paging-structure caches.
    pub paging_structure_caches: PagingStructureCaches,
    /// Cached context entries.
    pub context_cache: Geometry,
    /// Cached interrupt remapping table entries.
    pub interrupt_entry_cache: Geometry,

    /// Latency of a hit (time).
    pub hit_latency: Duration,
    /// Minimum interval between lookups (time; zero: unlimited).
    pub lookup_interval: Duration,
    /// Places for reads between lookup and translation; the next read waits until the first leaves (places; zero:
    /// unlimited). A request served in pieces takes one per piece.
    pub read_depth: usize,
    /// The same for writes.
    pub write_depth: usize,
    /// *Quirk*: whether consecutive requests for one 4 KiB page share a place. Sandy Bridge, from the measured
    /// bandwidths of writes that take two TLPs.
    pub same_page_shares_place: bool,
    /// Whether hits wait behind misses.
    pub order: PipelineOrder,

    /// Maximum number of concurrent page walks (walks, at least 1).
    pub walkers: usize,
    /// Time of a walk without its steps: detecting the miss, filling the IOTLB (time).
    pub walk_overhead: Duration,
    /// How long a walker and its region stay occupied after a walk for a read (time).
    pub walker_hold_read: Duration,
    /// From the end of a walk until a waiting request has been looked up again (time).
    pub replay_latency: Duration,
    /// Minimum interval between requests looked up again after a walk (time).
    pub retry_interval: Duration,
    /// Whether walks start in the order of their misses, so that a waiting one delays those behind it.
    pub walks_begin_in_order: bool,
    /// *Quirk*: walks of one domain in one naturally aligned region of this size are serialised (a power of two, at
    /// least 4 KiB). Sandy Bridge: 2 MiB, the reach of one page table, from the measured bandwidths over window size,
    /// which are lowest where misses share one region.
    pub serialised_walk_region: Option<Bytes>,

    /// Whether five-level tables (57-bit addresses) are supported (capability register, SAGAW bit 3).
    pub five_level: bool,
    /// Whether 2 MiB leaves are supported (capability register, SLLPS bit 0).
    pub pages_2mib: bool,
    /// Whether 1 GiB leaves are supported (capability register, SLLPS bit 1).
    pub pages_1gib: bool,
    /// Host-physical address width (bits, 32 to 52); bits above it are reserved in every table.
    pub host_address_bits: u8,

    /// Fault recording registers (registers; capability register, NFR).
    pub fault_records: usize,
    /// Execution time of an invalidation descriptor, without fetching it (time).
    pub invalidation_time: Duration,
    /// From the last use of a translation in flight until a draining invalidation is complete (time).
    pub drain_latency: Duration,
    /// From an invalidation wait descriptor being due until its status is in memory (time).
    pub status_write_latency: Duration,
    /// From an interrupt request until its remapping table entry is known, on a cache hit (time).
    pub interrupt_hit_latency: Duration,
    /// Whether interrupts can be posted to guests (capability PI; Broadwell and later Xeon E5 and Scalable).
    pub posts_interrupts: bool,
}

impl From<&IommuParams> for Features {
    fn from(p: &IommuParams) -> Self {
        let IommuParams {
            kind, host_address_bits, five_level, pages_2mib, pages_1gib, posts_interrupts, ..
        } = *p;
        let format = match kind {
            IommuKind::VtD => TableFormat::VtD,
            IommuKind::AmdVi => TableFormat::AmdVi,
            IommuKind::SmmuV3 => TableFormat::SmmuV3,
        };
        Self { format, host_address_bits, five_level, pages_2mib, pages_1gib, posts_interrupts }
    }
}

impl Default for IommuParams {
    /// An Intel server IOMMU of Broadwell's kind. IOTLB, depths, walkers and walk times are from the measured
    /// bandwidths and latencies over window size of `../shared/measured`; the rest is assumed.
    fn default() -> Self {
        Self {
            kind: IommuKind::VtD,
            iotlb: Geometry::fully_associative(128, IotlbReplacement::Random),
            iotlb_reserved: 0,
            paging_structure_caches: PagingStructureCaches { level1: 64, level2: 16, level3: 8, level4: 4 },
            context_cache: Geometry { entries: 64, ways: 8, replacement: IotlbReplacement::Lru },
            interrupt_entry_cache: Geometry { entries: 128, ways: 8, replacement: IotlbReplacement::Lru },
            hit_latency: Duration::from_ps(2_800),
            lookup_interval: Duration::ZERO,
            read_depth: 10,
            write_depth: 24,
            same_page_shares_place: false,
            order: PipelineOrder::Global,
            walkers: 6,
            walk_overhead: Duration::from_ns(160),
            walker_hold_read: Duration::from_ns(42),
            replay_latency: Duration::from_ns(20),
            retry_interval: Duration::ZERO,
            walks_begin_in_order: false,
            serialised_walk_region: None,
            five_level: false,
            pages_2mib: true,
            pages_1gib: true,
            host_address_bits: 46,
            fault_records: 8,
            invalidation_time: Duration::from_ns(100),
            drain_latency: Duration::ZERO,
            status_write_latency: Duration::from_ns(100),
            interrupt_hit_latency: Duration::ZERO,
            posts_interrupts: false,
        }
    }
}

impl IommuParams {
    /// Formats of its tables and commands.
    pub fn format(&self) -> TableFormat {
        Features::from(self).format
    }

    /// Checks the value ranges.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), ParamsError> {
        self.iotlb.validate("IOTLB")?;
        self.context_cache.validate("context cache")?;
        self.interrupt_entry_cache.validate("interrupt entry cache")?;
        let value = |key, allowed| Err(ParamsError::Value { key, allowed });
        if !(1..=1024).contains(&self.walkers) {
            return value("walkers", "1 to 1024");
        }
        if self.iotlb_reserved > 0 && (self.iotlb.ways != 0 || self.iotlb_reserved >= self.iotlb.entries) {
            return value("iotlb_reserved", "less than the entries of a fully associative IOTLB");
        }
        if let Some(region) = self.serialised_walk_region
            && (!region.get().is_power_of_two() || region < Bytes::kib(4))
        {
            return value("serialised_walk_region", "a power of two from 4 KiB");
        }
        if self.read_depth.max(self.write_depth) > 1 << 16 {
            return value("read_depth and write_depth", "at most 65536");
        }
        if !(32..=52).contains(&self.host_address_bits) {
            return value("host_address_bits", "32 to 52");
        }
        if self.fault_records == 0 {
            return value("fault_records", "at least 1");
        }
        if self.pages_1gib && !self.pages_2mib {
            return value("pages_2mib", "true where 1 GiB pages are supported");
        }
        let c = self.paging_structure_caches;
        if [c.level1, c.level2, c.level3, c.level4].into_iter().any(|n| n > Geometry::MAX_ENTRIES) {
            return value("paging_structure_caches", "at most 16384 entries per level");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_up_to_their_limits() {
        let check = |change: &dyn Fn(&mut IommuParams)| {
            let mut params = IommuParams::default();
            change(&mut params);
            params.validate().map_err(|error| error.to_string())
        };
        let iotlb = |entries, ways, replacement| {
            move |p: &mut IommuParams| p.iotlb = Geometry { entries, ways, replacement }
        };
        let (lru, tree) = (IotlbReplacement::Lru, IotlbReplacement::TreePlru);
        let reserved = |reserved, ways| {
            move |p: &mut IommuParams| {
                (p.iotlb.entries, p.iotlb.ways, p.iotlb_reserved) = (64, ways, reserved);
            }
        };
        let region = |bytes| move |p: &mut IommuParams| p.serialised_walk_region = Some(Bytes::new(bytes));
        type Change<'a> = &'a dyn Fn(&mut IommuParams);
        let cases: [(Change<'_>, &str); 34] = [
            (&|_| (), ""),
            (&iotlb(0, 7, tree), ""),
            (&iotlb(1 << 14, 0, lru), ""),
            (&iotlb((1 << 14) + 1, 0, lru), "IOTLB has a geometry that cannot be built: more than 16384"),
            (&iotlb((1 << 14) + 2, 0, lru), "more than 16384"),
            (&iotlb(64, 8, lru), ""),
            (&iotlb(64, 12, lru), "not a power of two"),
            (&iotlb(24, 8, lru), "not a power of two"),
            (&iotlb(24, 24, lru), ""),
            (&iotlb(24, 12, tree), "power of two of ways"),
            (&iotlb(24, 0, tree), "power of two of ways"),
            (&iotlb(32, 0, tree), ""),
            (&|p| p.context_cache.ways = 7, "context cache"),
            (&|p| p.interrupt_entry_cache.ways = 7, "interrupt entry cache"),
            (&|p| p.walkers = 0, "walkers"),
            (&|p| p.walkers = 1025, "walkers"),
            (&reserved(63, 0), ""),
            (&reserved(64, 0), "iotlb_reserved"),
            (&reserved(1, 8), "iotlb_reserved"),
            (&reserved(0, 8), ""),
            (&region(4096), ""),
            (&region(8192), ""),
            (&region(2048), "serialised_walk_region"),
            (&region(12288), "serialised_walk_region"),
            (&|p| (p.read_depth, p.write_depth) = (1 << 16, 1 << 16), ""),
            (&|p| p.read_depth = (1 << 16) + 1, "read_depth"),
            (&|p| p.write_depth = (1 << 16) + 2, "read_depth"),
            (&|p| p.host_address_bits = 31, "host_address_bits"),
            (&|p| p.host_address_bits = 53, "host_address_bits"),
            (&|p| p.fault_records = 0, "fault_records"),
            (&|p| p.pages_2mib = false, "pages_2mib"),
            (&|p| (p.pages_2mib, p.pages_1gib) = (false, false), ""),
            (&|p| p.paging_structure_caches.level4 = 1 << 14, ""),
            (&|p| p.paging_structure_caches.level1 = (1 << 14) + 1, "paging_structure_caches"),
        ];
        for (n, (change, expected)) in cases.into_iter().enumerate() {
            match check(change) {
                Ok(()) => assert_eq!(expected, "", "case {n}"),
                Err(error) => assert!(!expected.is_empty() && error.contains(expected), "case {n}: {error}"),
            }
        }
    }
}
