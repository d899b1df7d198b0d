//! Cores and caches.

use crate::figure::Figure;
use crate::host::Host;
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use settings::{EvictionNotice, EvictionOrder, ReplacementPolicy, SliceFold};
use units::{ByteRate, Bytes, Cycles, Duration, Frequency};

record! {
    /// Dies with some of a socket's cores (AMD: CCDs), each with a link to the die with the memory controllers.
    pub struct CoreDie {
        /// Cores of a die.
        cores: Figure<Count>,
        /// What its link carries to the cores (bytes per second).
        reads: Figure<ByteRate>,
        /// What its link carries from the cores (bytes per second).
        writes: Figure<ByteRate>,
        /// Lines on their way from the cores that it holds.
        write_queue: Figure<Count>,
        /// Lines that its cores may have requested.
        reads_in_hand: Figure<Count>,
    }
    check |die: &CoreDie, check: &mut Check<'_>| {
        check.require_within("cores", die.cores.value.get().into(), (1, 64), "cores of a die are not modelled");
        check.require_within("reads_in_hand", die.reads_in_hand.value.get().into(), (1, 4096), "lines are too many");
        check.require_within("write_queue", die.write_queue.value.get().into(), (1, 4096), "lines are too many");
        for (key, rate) in [("reads", &die.reads), ("writes", &die.writes)] {
            check.require(rate.value.bytes_per_s() > 0, key, "the link carries nothing", "some 50 GB/s");
        }
    }
}

record! {
    /// The cores of one socket.
    pub struct Core {
        /// Number of cores.
        count: Figure<Count>,
        /// Clock during the measurements.
        frequency: Figure<Frequency>,
        /// Maximum outstanding cache line fetches per core (line-fill buffers).
        line_fill_buffers: Figure<Count>,
        /// Number of write-combining buffers per core.
        write_combining_buffers: Figure<Count>,
        /// Entries of the store buffer: retired stores not written yet.
        store_buffer: Figure<Count>,
        /// Interval between accesses to different lines in one instruction stream.
        access_interval: Figure<Cycles>,
        /// Interval between stores in one instruction stream.
        store_interval: Figure<Cycles>,
        /// Partly filled write-combining buffers are flushed in chunks of this size (bytes).
        combining_chunk: Figure<Bytes>,
        /// Order in which waiting write-combining buffers are flushed.
        combining_order: Figure<EvictionOrder>,
        /// Interval between TLPs leaving a core.
        eviction_interval: Figure<Cycles>,
        /// Whether guests take interrupts without an exit (APIC virtualization); false if not given.
        virtual_interrupts: Option<Figure<bool>>,
    }
    check |core: &Core, check: &mut Check<'_>| {
        let count = |figure: &Figure<Count>| u64::from(figure.value.get());
        // Sets of cores are 128-bit masks.
        check.require_within("count", count(&core.count), (1, 128), "cores in a socket are not modelled");
        check.require_within("line_fill_buffers", count(&core.line_fill_buffers), (1, 32), "buffers are too many");
        check.require_within("store_buffer", count(&core.store_buffer), (1, 4096), "stores are too many");
        let chunk = core.combining_chunk.value;
        check.require(
            chunk.get().is_power_of_two() && (8..=LINE).contains(&chunk.get()),
            "combining_chunk",
            format!("a buffer does not leave in chunks of {chunk}"),
            "8 B, 16 B, 32 B or 64 B",
        );
        check.require(
            core.write_combining_buffers.value <= core.line_fill_buffers.value,
            "write_combining_buffers",
            format!("{} of {} line-fill buffers", core.write_combining_buffers.value, core.line_fill_buffers.value),
            "at most `line_fill_buffers`: they are the same buffers",
        );
    }
}

/// Size and associativity of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheGeometry {
    /// Capacity.
    pub size: Bytes,
    /// Ways per set.
    pub ways: u32,
}

/// Size of a cache line on every modelled machine, in bytes.
const LINE: u64 = 64;
/// Maximum number of sets of a cache.
const MOST_SETS: u64 = 1 << 22;

impl CacheGeometry {
    /// Number of sets.
    fn sets(self) -> u64 {
        self.size.get() / (LINE * u64::from(self.ways.max(1)))
    }

    fn check(self, check: &mut Check<'_>) {
        check.require(
            (1..=32).contains(&self.ways),
            "ways",
            format!("a set cannot have {} ways", self.ways),
            "from 1 to 32",
        );
        let (set, sets) = (LINE * u64::from(self.ways.max(1)), self.sets());
        check.require(
            sets > 0 && self.size.get() % set == 0,
            "size",
            format!("{} do not divide into sets of {} lines", self.size, self.ways),
            format!("a multiple of {set} B ({} ways of {LINE} B)", self.ways),
        );
        check.require(
            sets <= MOST_SETS,
            "size",
            format!("{} make too many sets", self.size),
            format!("at most {MOST_SETS} sets"),
        );
    }
}

record! {
    /// A private cache of a core.
    pub struct PrivateCache {
        /// Capacity (bytes).
        size: Figure<Bytes>,
        /// Ways per set.
        ways: Figure<Count>,
        /// Which line of a full set makes room for a new one.
        replacement: Figure<ReplacementPolicy>,
        /// Load-to-use latency of a hit.
        hit: Figure<Duration>,
        /// How long a line transfer to or from the next level keeps the L2 busy; zero if not given.
        transfer: Option<Figure<Duration>>,
    }
    check |cache: &PrivateCache, check: &mut Check<'_>| {
        check.require_bytes("size", cache.size.value, (Bytes::new(LINE), Bytes::mib(64)));
        CacheGeometry { size: cache.size.value, ways: cache.ways.value.get() }.check(check);
        let quick = cache.hit.value <= Duration::from_ms(1);
        check.require(quick, "hit", format!("{} is too long for a cache hit", cache.hit.value), "1 ms at most");
        if let Some(transfer) = &cache.transfer {
            let quick = transfer.value <= Duration::from_ms(1);
            check.require(quick, "transfer", format!("{} for a line", transfer.value), "1 ms at most");
        }
        tree_needs_power_of_two(cache.replacement.value, cache.ways.value, check);
    }
}

record! {
    /// An L2's super queue and prefetchers.
    pub struct Prefetch {
        /// Maximum outstanding lines of the L2.
        super_queue: Figure<Count>,
        /// Number of pages that the streamer tracks at once.
        streams: Figure<Count>,
        /// Maximum distance ahead of an access, in lines.
        distance: Figure<Count>,
        /// Lines requested per access.
        degree: Figure<Count>,
        /// Whether a miss also fetches the adjacent line of its 128 bytes.
        adjacent_line: Figure<bool>,
        /// Whether a stream that reaches the end of its page fetches the first line of the next.
        next_page: Figure<bool>,
    }
    check |prefetch: &Prefetch, check: &mut Check<'_>| {
        let count = |figure: &Figure<Count>| u64::from(figure.value.get());
        check.require_within("super_queue", count(&prefetch.super_queue), (1, 64), "places are not modelled");
        check.require_within("streams", count(&prefetch.streams), (1, 64), "streams are not modelled");
        check.require_within("distance", count(&prefetch.distance), (1, 63), "lines lead beyond a page");
        check.require_within("degree", count(&prefetch.degree), (1, 8), "lines at each access are not modelled");
    }
}

fn tree_needs_power_of_two(replacement: ReplacementPolicy, ways: Count, check: &mut Check<'_>) {
    check.require(
        replacement != ReplacementPolicy::TreePlru || ways.get().is_power_of_two(),
        "replacement",
        format!("a tree cannot have {ways} leaves"),
        "with `tree-plru` the ways are a power of two",
    );
}

names! {
    /// Inclusion policy of the LLC.
    pub enum Inclusion {
        /// Inclusive: evicting a line from the LLC evicts it from the private caches.
        Inclusive = "inclusive",
        /// Non-inclusive: a snoop filter locates private copies.
        NonInclusive = "non-inclusive",
    }
}

record! {
    /// The last-level cache of a socket.
    pub struct Llc {
        /// Capacity (bytes).
        size: Figure<Bytes>,
        /// Ways per set.
        ways: Figure<Count>,
        /// Number of slices over which a hash of the address distributes the lines; 1 for a cache without slices.
        slices: Figure<Count>,
        /// Handling of hash values beyond the last slice, if the number of slices is not a power of two.
        slice_fold: Figure<SliceFold>,
        /// Which line of a full set makes room for a new one.
        replacement: Figure<ReplacementPolicy>,
        /// Inclusion policy.
        inclusion: Figure<Inclusion>,
        /// Capacity that the snoop filter can track (bytes); only with `inclusion = "non-inclusive"`.
        snoop_filter_size: Option<Figure<Bytes>>,
        /// Ways of the snoop filter; goes with `snoop_filter_size`.
        snoop_filter_ways: Option<Figure<Count>>,
        /// Eviction notices of private caches.
        eviction_notice: Figure<EvictionNotice>,
        /// Load-to-use latency of a hit by a core.
        core_hit: Figure<Duration>,
        /// Time from the root complex's request until hit or miss is known.
        device_lookup: Figure<Duration>,
        /// Time from there, or from DRAM's response, until the line is at the root complex.
        device_return: Figure<Duration>,
        /// Time from knowing hit or miss until a device's write is globally ordered.
        device_commit: Figure<Duration>,
        /// How long a device's access occupies the root complex's port into the LLC.
        device_service: Figure<Duration>,
        /// Whether a core's streaming store waits until its line's home node has snooped all caches; false if not
        /// given.
        streaming_waits: Option<Figure<bool>>,
        /// Additional latency of snooping the core that owns a line (modified or exclusive).
        core_snoop: Figure<Duration>,
        /// Time for the socket to answer a home node's snoop, without the links.
        snoop_lookup: Figure<Duration>,
        /// Additional latency of a device's read that hits a line with a remote home node.
        remote_home_hit: Figure<Duration>,
        /// Ways available to device writes; 0 for a cache without DDIO.
        ddio_ways: Figure<u32>,
        /// Whether lines fetched by device reads stay in the LLC, in the ways of device writes.
        device_reads_allocate: Figure<bool>,
        /// Delay of a device's write that evicts a modified line.
        dirty_eviction: Figure<Duration>,
        /// Additional latency of a device's write of a whole uncached line: ownership without data.
        acquire: Figure<Duration>,
        /// Whether lines fetched by page walks stay in the LLC.
        walks_allocate: Figure<bool>,
    }
    check check_llc
}

fn check_llc(llc: &Llc, check: &mut Check<'_>) {
    let ways = llc.ways.value.get();
    let (size, slices) = (llc.size.value, u64::from(llc.slices.value.get()));
    let geometry = CacheGeometry { size, ways };
    let whole = size.get() % (LINE * u64::from(ways)) == 0 && geometry.sets() % slices == 0;
    // The address hash has four bits and selects among slices with a power-of-two number of sets.
    check.require(
        slices == 1 || (slices <= 16 && whole && (geometry.sets() / slices).is_power_of_two()),
        "slices",
        format!("{size} with {ways} ways do not divide into {slices} slices"),
        format!(
            "from 1 to 16; `size` is `slices` x a power of two x {} B (`ways` x {LINE} B)",
            LINE * u64::from(ways)
        ),
    );
    geometry.check(check);
    if let (Some(size), Some(ways)) = (&llc.snoop_filter_size, &llc.snoop_filter_ways) {
        check_snoop_filter(CacheGeometry { size: size.value, ways: ways.value.get() }, check);
    }
    tree_needs_power_of_two(llc.replacement.value, llc.ways.value, check);
    check.require(
        llc.ddio_ways.value <= ways,
        "ddio_ways",
        format!("{} of {ways} ways", llc.ddio_ways.value),
        format!("from 0 (no DDIO) to {ways}"),
    );
    let filter = llc.snoop_filter_size.is_some() && llc.snoop_filter_ways.is_some();
    check.require(
        (llc.inclusion.value == Inclusion::NonInclusive) == filter,
        "inclusion",
        "a snoop filter goes with a cache that is not inclusive",
        "give `snoop_filter_size` and `snoop_filter_ways` with `non-inclusive`, and with it only",
    );
}

fn check_snoop_filter(filter: CacheGeometry, check: &mut Check<'_>) {
    check.require_within("snoop_filter_ways", filter.ways.into(), (1, 32), "ways of a set are not modelled");
    let set = LINE * u64::from(filter.ways);
    check.require(
        filter.size.get() % set == 0 && (1..=MOST_SETS).contains(&filter.sets()),
        "snoop_filter_size",
        format!("{} do not divide into sets of {} lines", filter.size, filter.ways),
        format!("a multiple of {set} B (`snoop_filter_ways` x {LINE} B), at most {MOST_SETS} of it"),
    );
}

/// Maximum number of lines of all private caches or of all LLCs together: the model keeps some bytes per line.
const MOST_LINES: u64 = 1 << 24;
/// Number of tag bits that distinguish the lines of a set.
const TAG_BITS: u32 = 27;

/// Reports caches that have too many lines in total, or too few sets for their tags to cover memory up to `top`.
pub(super) fn check_caches(host: &Host, top: Bytes, check: &mut Check<'_>) {
    let sockets = u64::from(host.sockets.value.get());
    let cores = sockets * u64::from(host.core.count.value.get());
    let lines = |copies: u64, size: Bytes| copies.saturating_mul(size.get() / LINE);
    let private = [("l1", &host.l1), ("l2", &host.l2)];
    for (key, cache) in private {
        let size = cache.size.value;
        check.at(key).require(
            lines(cores, size) <= MOST_LINES,
            "size",
            format!("{size} for each of {cores} cores are too much to model"),
            format!("at most {} for all cores together", Bytes::new(MOST_LINES * LINE)),
        );
    }
    let filter = host.llc.snoop_filter_size.as_ref();
    for (key, size) in [("size", Some(&host.llc.size)), ("snoop_filter_size", filter)] {
        let size = size.map_or(Bytes::ZERO, |figure| figure.value);
        check.at("llc").require(
            lines(sockets, size) <= MOST_LINES,
            key,
            format!("{size} for each of {sockets} sockets are too much to model"),
            format!("at most {} for all sockets together", Bytes::new(MOST_LINES * LINE)),
        );
    }
    let mut can_tell = |table: &str, key: &str, size: Bytes, ways: &Figure<Count>, slices: u64| {
        let ways = ways.value.get();
        let sets = CacheGeometry { size, ways }.sets() / slices;
        let least = (top.get() / LINE).div_ceil(1 << TAG_BITS);
        check.at(table).require(
            sets >= least,
            key,
            format!("{sets} sets are too few to tell the lines of memory up to {top} apart"),
            format!(
                "at least {} (`ways` x {least} sets x {LINE} B), or less memory",
                Bytes::new(LINE * slices * least * u64::from(ways))
            ),
        );
    };
    for (table, cache) in private {
        can_tell(table, "size", cache.size.value, &cache.ways, 1);
    }
    let llc = &host.llc;
    can_tell("llc", "size", llc.size.value, &llc.ways, llc.slices.value.get().into());
    if let (Some(size), Some(ways)) = (&llc.snoop_filter_size, &llc.snoop_filter_ways) {
        can_tell("llc", "snoop_filter_size", size.value, ways, 1);
    }
}
