//! The plan: which rows determine which parameter, and which parameters no row determines.

use results::pciebench::{Cache, Test};

use super::rows::Informs;

/// A parameter that measured results can determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its path in the machine file.
    pub path: &'static str,
    /// The rows that it affects.
    pub rows: Informs,
    /// Discrete values to try. If empty, the parameter's own names are tried, or a number is fitted by parabola.
    pub candidates: &'static [&'static str],
}

const fn target(path: &'static str, rows: Informs) -> Target {
    Target { path, rows, candidates: &[] }
}

const fn one_of(path: &'static str, rows: Informs, candidates: &'static [&'static str]) -> Target {
    Target { path, rows, candidates }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const COLD: &[Cache] = &[Cache::Cold];
const HOST_WARM: &[Cache] = &[Cache::HostWarm];
const DEVICE_WARM: &[Cache] = &[Cache::DeviceWarm];

/// Latencies of reads, and of writes followed by a read, over window size.
const READS: Informs = Informs::of(&["lat_dma_sweep_rd", "lat_cmd_sweep_rd"]);
const WRITES: Informs = Informs::of(&["lat_dma_sweep_wrrd", "lat_cmd_sweep_wrrd"]);
const COLD_READS: Informs = READS.caches(COLD).local().untranslated();
const COLD_WRITES: Informs = WRITES.caches(COLD).untranslated();
const LARGE_WARM: Informs = READS.caches(HOST_WARM).from(8 * MIB).local();
const REMOTE_READS: Informs = READS.remote().untranslated();
const REMOTE_WRITES: Informs = WRITES.remote().untranslated();
const TRANSLATED_READS: Informs = READS.translated();
/// Around the size of the device's share of the LLC.
const DDIO_EDGE: Informs = COLD_WRITES.from(MIB).up_to(8 * MIB);

/// Bandwidths over window size, and where the IOTLB misses.
const READ_WINDOWS: Informs = Informs::of(&["bw_dma_win_sweep_rd"]);
const LOCAL_READ_WINDOWS: Informs = READ_WINDOWS.local().untranslated();
const MISSES: Informs = Informs::of(&["bw_dma_win_sweep"]).translated().from(MIB / 2);
const READ_MISSES: Informs = READ_WINDOWS.translated().from(MIB / 2);
const WRITE_MISSES: Informs = Informs::of(&["bw_dma_win_sweep_wr"]).translated().from(MIB / 2);

/// Bandwidths over transfer size and offset.
const SIZES: Informs = Informs::of(&["bw_dma_sz_sweep", "bw_dma_off_rd"]).tests(&[Test::BwDmaRd]);
/// Latencies over transfer size.
const LATENCY_SIZES: Informs = Informs::of(&["lat_dma_sizes"]).local();

/// The parameters in fitting order: those that others depend on come first. Of the latencies on the way of a read, of
/// a write and of a walk, results show only the sums, which `completion_latency`, `device_commit` and `walk_overhead`
/// complete.
pub const TARGETS: &[Target] = &[
    target("host.root_complex.completion_latency", READS.caches(DEVICE_WARM).up_to(MIB).local()),
    target("host.llc.core_snoop", READS.caches(HOST_WARM).up_to(MIB).local()),
    target("host.dram.access", COLD_READS),
    target("host.llc.device_commit", WRITES.caches(DEVICE_WARM).up_to(MIB).local()),
    target("host.llc.acquire", COLD_WRITES.from(4 * MIB).local()),
    target("host.llc.ddio_ways", DDIO_EDGE),
    target("host.llc.device_reads_allocate", COLD_READS),
    target("host.root_complex.intake_per_line", LATENCY_SIZES),
    target("host.root_complex.same_line_wait", READ_WINDOWS.caches(HOST_WARM).up_to(16 * KIB)),
    target("host.interconnect.latency", REMOTE_READS.from(64 * KIB)),
    target("host.interconnect.remote_write_grant", REMOTE_WRITES.from(4 * MIB)),
    target("host.iommu.hit_latency", TRANSLATED_READS.up_to(64 * KIB)),
    target("host.iommu.walk_overhead", TRANSLATED_READS.from(4 * MIB)),
    target("host.iommu.iotlb.held_by_others", TRANSLATED_READS.from(MIB / 2).up_to(2 * MIB)),
    target("host.iommu.walkers", MISSES.from(16 * MIB)),
    target("host.iommu.lookup_interval", READ_MISSES.up_to(8 * MIB)),
    target("host.iommu.walker_hold_read", READ_MISSES.from(4 * MIB)),
    target("host.iommu.replay", READ_MISSES.from(4 * MIB)),
    target("host.iommu.retry_interval", MISSES),
    target("host.iommu.read_depth", READ_MISSES),
    one_of("host.iommu.read_unit", READ_MISSES, &["64 B", "128 B", "256 B", "4 KiB"]),
    target("host.iommu.write_depth", WRITE_MISSES),
    target("host.iommu.order", MISSES),
    target("host.iommu.walks_begin_in_order", MISSES),
    target("host.iommu.same_page_shares_place", WRITE_MISSES),
    one_of("host.iommu.serialised_walk_region", MISSES, &["1 MiB", "2 MiB", "4 MiB"]),
    one_of(
        "host.iommu.iotlb.entries",
        TRANSLATED_READS.from(MIB / 8).up_to(4 * MIB),
        &["32", "64", "128", "256", "512"],
    ),
    target("host.iommu.iotlb.replacement", TRANSLATED_READS.from(MIB / 4).up_to(4 * MIB)),
    target("host.llc.walks_allocate", TRANSLATED_READS.from(4 * MIB)),
    target("host.llc.slice_fold", DDIO_EDGE),
    target("host.llc.replacement", LARGE_WARM.untranslated()),
    target(
        "host.llc.eviction_notice",
        READS.caches(HOST_WARM).from(MIB / 4).up_to(16 * MIB).local().untranslated(),
    ),
    target("host.llc.dirty_eviction", WRITES.caches(&[Cache::DeviceThrash]).untranslated()),
    target("host.llc.remote_home_hit", REMOTE_READS.up_to(64 * KIB)),
    target("host.dram.refresh_duration", COLD_READS),
    target("host.dram.refresh_staggered", LOCAL_READ_WINDOWS),
    target("host.interconnect.snoop", COLD_WRITES.from(4 * MIB)),
    target("host.interconnect.remote_write", REMOTE_WRITES),
    target("host.interconnect.remote_write_waits", REMOTE_WRITES),
    target("host.interconnect.remote_hit", REMOTE_READS),
    target("host.root_complex.partial_line", Informs::of(&["lat_cmd_off_wrrd", "lat_cmd_sizes"]).local()),
    target("host.root_complex.completion_order", READ_WINDOWS.untranslated()),
    one_of(
        "host.root_complex.long_header_penalty",
        Informs::of(&["bw_dma_sz_sweep"]).tests(&[Test::BwDmaWr]),
        &["0 B", "4 B", "8 B"],
    ),
    one_of("host.root_complex.completion_split.tiny", SIZES, &["64 B", "128 B"]),
    one_of("host.root_complex.completion_split.small", SIZES, &["64 B", "128 B", "256 B"]),
    one_of("host.root_complex.completion_split.small_up_to", SIZES, &["128 B", "256 B", "512 B"]),
    one_of("host.root_complex.completion_split.large", SIZES, &["64 B", "128 B", "256 B"]),
    one_of("host.root_complex.completion_split.largest_from", SIZES, &["513 B", "1025 B", "1985 B"]),
    one_of("host.root_complex.completion_split.largest", SIZES, &["64 B", "128 B", "256 B"]),
    one_of("host.root_complex.completion_split.odd_multiple_as_largest", SIZES, &["0 B", "256 B", "512 B"]),
    target("host.root_complex.completion_split.combine_window", SIZES),
    target("host.root_complex.completion_split.busy_hold", SIZES),
    target("host.root_complex.completion_split.splits_last", SIZES),
    target("host.root_complex.completion_split.splits_partial", SIZES),
    one_of("host.root_complex.completion_split.granule", SIZES, &["4 B", "8 B", "16 B", "64 B"]),
    one_of("host.port.slot.mrrs_bytes", SIZES, &["256", "512", "1024", "2048", "4096"]),
];

/// Neutral values, where those are not zero, `false` or absent.
pub const NEUTRAL: &[(&str, &str)] =
    &[("host.port.slot.mrrs_bytes", "512"), ("host.iommu.serialised_walk_region", "4 KiB")];

const ONE_SUM: &str = "only sums show; completion_latency completes that of a read, device_commit a write's, walk_overhead a walk's";
const UNREPEATED: &str = "this box's rows do not repeat, so no row tells it; single percentiles do";

/// Parameters that stay fitted by hand, by the prefix of their path, with the reason.
pub const BY_HAND: &[(&str, &str)] = &[
    ("host.port.slot.link_latency", ONE_SUM),
    (
        "host.port.slot.transmit_width",
        "copies between the ports of a root fix it; no card of pcie-bench reads another's memory",
    ),
    ("host.port.slot-", "no card was measured there; as the slot of socket 0"),
    ("host.port.bay", "no card was measured there; as the slot of socket 0"),
    ("host.root_complex.request_latency", ONE_SUM),
    ("host.llc.device_lookup", ONE_SUM),
    ("host.llc.device_return", ONE_SUM),
    ("host.llc.snoop_lookup", "no row tells it from acquire"),
    ("host.interconnect.home_agent", "no row tells it from latency"),
    ("host.iommu.page_sizes", "read off whether any window shows misses"),
    ("host.iommu.iotlb.ways", "rows of random pages do not tell it"),
    (
        "host.iommu.invalidation_latency",
        "drives under a kernel that unmaps fix it; pcie-bench unmaps nothing",
    ),
    ("host.dram.access_spread", "shows among the samples of a row, not in its median or mean"),
    ("host.dram.row_idle", "one cold latency row and one cold bandwidth row bound it from either side"),
    (
        "host.dram.write_batch",
        "bandwidths of cores fix it, of other machines; no row of pcie-bench mixes enough",
    ),
    (
        "host.interconnect.bandwidth",
        "from data sheets, or what cores of one socket read from another; a card fills no such link",
    ),
    (
        "host.interconnect.data_header",
        "bandwidths of cores fix it, of other machines; a card fills no such link",
    ),
    (
        "host.root_complex.peer_",
        "copies between devices fix it; no card of pcie-bench reads another's memory",
    ),
    ("host.root_complex.quadrant_rate", "several devices that copy at once fix it; pcie-bench has one card"),
    (
        "host.root_complex.ordered_",
        "writes in order by devices faster than those of pcie-bench fix it, on machines of today",
    ),
    (
        "host.root_complex.outbound_latency",
        "stores of another host by an NTB fix it; no card of pcie-bench is written to",
    ),
    ("host.expander", "pcie-bench has no CXL memory"),
    ("host.core_die", "bandwidths of cores fix it; pcie-bench has one core at work"),
    (
        "host.interconnect.near",
        "latencies of cores fix it; no machine of pcie-bench has several nodes in a package",
    ),
    ("host.prefetch", "bandwidths of cores fix it; pcie-bench streams nothing"),
    ("host.power", UNREPEATED),
];
