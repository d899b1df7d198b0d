//! Which rows determine which figure.

use results::compare::CompareRow;
use results::pciebench::{Cache, Test};

/// Which rows of which directories say something about a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Informs {
    /// Beginnings of file names.
    pub files: &'static [&'static str],
    /// States of the cache; any if empty.
    pub caches: &'static [Cache],
    /// Tests; any if empty.
    pub tests: &'static [Test],
    /// Windows, bytes, inclusive.
    pub windows: (u64, u64),
    /// Only directories with (or without) remote memory.
    pub remote: Option<bool>,
    /// Only directories with (or without) an IOMMU.
    pub iommu: Option<bool>,
}

const ANY: Informs =
    Informs { files: &[], caches: &[], tests: &[], windows: (0, u64::MAX), remote: None, iommu: None };

/// Whether and where a directory's buffer is translated and remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// The buffer lies on another socket than the card.
    pub remote: bool,
    /// The IOMMU is on.
    pub iommu: bool,
}

impl Informs {
    /// Whether a row is one of them.
    pub fn holds(&self, row: &CompareRow, of: Circumstances) -> bool {
        let (least, most) = self.windows;
        (self.files.is_empty() || self.files.iter().any(|begin| row.file.starts_with(begin)))
            && (self.caches.is_empty() || self.caches.contains(&row.cache))
            && (self.tests.is_empty() || self.tests.contains(&row.test))
            && (least..=most).contains(&row.window_bytes)
            && self.remote.is_none_or(|remote| remote == of.remote)
            && self.iommu.is_none_or(|iommu| iommu == of.iommu)
    }
}

/// A figure that measured results can determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its path in the machine file.
    pub path: &'static str,
    /// The rows that it shows in.
    pub rows: Informs,
    /// What it may be, where that is a handful of values: each is tried. A figure of names has its names, and one that is
    /// given none here is a number that a parabola finds.
    pub candidates: &'static [&'static str],
}

const MIB: u64 = 1 << 20;
const READS: &[&str] = &["lat_dma_sweep_rd", "lat_cmd_sweep_rd"];
const WRITES_THEN_READS: &[&str] = &["lat_dma_sweep_wrrd", "lat_cmd_sweep_wrrd"];

const SIZES: Informs =
    Informs { files: &["bw_dma_sz_sweep", "bw_dma_off_rd"], tests: &[Test::BwDmaRd], ..ANY };
const MISSES: Informs =
    Informs { files: &["bw_dma_win_sweep"], iommu: Some(true), windows: (MIB / 2, u64::MAX), ..ANY };
const READ_MISSES: Informs = Informs { files: &["bw_dma_win_sweep_rd"], ..MISSES };
const WRITE_MISSES: Informs = Informs { files: &["bw_dma_win_sweep_wr"], ..MISSES };
const COLD_READS: Informs =
    Informs { files: READS, caches: &[Cache::Cold], remote: Some(false), iommu: Some(false), ..ANY };
const REMOTE_READS: Informs = Informs { files: READS, remote: Some(true), iommu: Some(false), ..ANY };
const REMOTE_WRITES: Informs = Informs { files: WRITES_THEN_READS, ..REMOTE_READS };

const fn target(path: &'static str, rows: Informs) -> Target {
    Target { path, rows, candidates: &[] }
}

const fn one_of(path: &'static str, rows: Informs, candidates: &'static [&'static str]) -> Target {
    Target { path, rows, candidates }
}

/// The figures in the order in which they are fitted: what others build on first. Only the sum of the latencies on
/// the way of a read shows in results, so one of them stands for all: `completion_latency`.
///
/// Not here, and so never fitted by the program: the other parts of that sum, figures that another one contains
/// (`home_agent`, `step_overhead`, `snoop_lookup` beside `acquire`), what shows in the spread of single samples alone
/// (`access_spread`), what measured rows cannot be told apart by (`iotlb.ways`), and what makes rows that do not repeat
/// (`host.power`).
pub const TARGETS: &[Target] = &[
    target(
        "host.root_complex.completion_latency",
        Informs { files: READS, caches: &[Cache::DeviceWarm], windows: (0, MIB), remote: Some(false), ..ANY },
    ),
    target(
        "host.llc.core_snoop",
        Informs { files: READS, caches: &[Cache::HostWarm], windows: (0, MIB), remote: Some(false), ..ANY },
    ),
    target(
        "host.dram.access",
        Informs { files: READS, caches: &[Cache::Cold], remote: Some(false), iommu: Some(false), ..ANY },
    ),
    target(
        "host.llc.device_commit",
        Informs {
            files: WRITES_THEN_READS,
            caches: &[Cache::DeviceWarm],
            windows: (0, MIB),
            remote: Some(false),
            ..ANY
        },
    ),
    target(
        "host.llc.acquire",
        Informs {
            files: WRITES_THEN_READS,
            caches: &[Cache::Cold],
            windows: (4 * MIB, u64::MAX),
            remote: Some(false),
            iommu: Some(false),
            ..ANY
        },
    ),
    target(
        "host.llc.ddio_ways",
        Informs {
            files: WRITES_THEN_READS,
            caches: &[Cache::Cold],
            windows: (MIB, 8 * MIB),
            iommu: Some(false),
            ..ANY
        },
    ),
    target(
        "host.llc.background",
        Informs {
            files: READS,
            caches: &[Cache::HostWarm],
            windows: (8 * MIB, u64::MAX),
            remote: Some(false),
            ..ANY
        },
    ),
    target(
        "host.root_complex.line_interval",
        Informs { files: &["lat_dma_sizes"], remote: Some(false), ..ANY },
    ),
    target(
        "host.root_complex.same_line_wait",
        Informs {
            files: &["bw_dma_win_sweep_rd"],
            caches: &[Cache::HostWarm],
            windows: (0, 16 << 10),
            ..ANY
        },
    ),
    target(
        "host.interconnect.latency",
        Informs {
            files: READS,
            remote: Some(true),
            iommu: Some(false),
            windows: (64 << 10, u64::MAX),
            ..ANY
        },
    ),
    target(
        "host.interconnect.remote_write_grant",
        Informs {
            files: WRITES_THEN_READS,
            remote: Some(true),
            iommu: Some(false),
            windows: (4 * MIB, u64::MAX),
            ..ANY
        },
    ),
    target(
        "host.iommu.hit_latency",
        Informs { files: READS, iommu: Some(true), windows: (0, 64 << 10), ..ANY },
    ),
    target(
        "host.iommu.walk_overhead",
        Informs { files: READS, iommu: Some(true), windows: (4 * MIB, u64::MAX), ..ANY },
    ),
    target(
        "host.iommu.iotlb.held_by_others",
        Informs { files: READS, iommu: Some(true), windows: (MIB / 2, 2 * MIB), ..ANY },
    ),
    target(
        "host.iommu.walkers",
        Informs { files: &["bw_dma_win_sweep"], iommu: Some(true), windows: (16 * MIB, u64::MAX), ..ANY },
    ),
    target(
        "host.iommu.lookup_interval",
        Informs { files: &["bw_dma_win_sweep_rd"], iommu: Some(true), windows: (MIB / 2, 8 * MIB), ..ANY },
    ),
    target(
        "host.iommu.walker_hold_read",
        Informs { files: &["bw_dma_win_sweep_rd"], iommu: Some(true), windows: (4 * MIB, u64::MAX), ..ANY },
    ),
    target("host.iommu.walker_hold_write", Informs { windows: (4 * MIB, u64::MAX), ..WRITE_MISSES }),
    target("host.iommu.replay", Informs { windows: (4 * MIB, u64::MAX), ..READ_MISSES }),
    target("host.iommu.read_depth", READ_MISSES),
    one_of("host.iommu.read_unit", READ_MISSES, &["64 B", "128 B", "256 B", "4 KiB"]),
    target("host.iommu.write_depth", WRITE_MISSES),
    target("host.iommu.order", MISSES),
    target("host.iommu.walks_begin_in_order", MISSES),
    target("host.iommu.same_page_shares_place", WRITE_MISSES),
    one_of(
        "host.iommu.iotlb.entries",
        Informs { files: READS, iommu: Some(true), windows: (MIB / 8, 4 * MIB), ..ANY },
        &["32", "64", "128", "256", "512"],
    ),
    target(
        "host.iommu.iotlb.replacement",
        Informs { files: READS, iommu: Some(true), windows: (MIB / 4, 4 * MIB), ..ANY },
    ),
    target(
        "host.llc.walks_allocate",
        Informs { files: READS, iommu: Some(true), windows: (4 * MIB, u64::MAX), ..ANY },
    ),
    target(
        "host.llc.slice_fold",
        Informs {
            files: WRITES_THEN_READS,
            caches: &[Cache::Cold],
            windows: (MIB, 8 * MIB),
            iommu: Some(false),
            ..ANY
        },
    ),
    target(
        "host.llc.replacement",
        Informs {
            files: READS,
            caches: &[Cache::HostWarm],
            windows: (8 * MIB, u64::MAX),
            remote: Some(false),
            iommu: Some(false),
            ..ANY
        },
    ),
    target(
        "host.llc.eviction_notice",
        Informs {
            files: READS,
            caches: &[Cache::HostWarm],
            windows: (MIB / 4, 16 * MIB),
            remote: Some(false),
            iommu: Some(false),
            ..ANY
        },
    ),
    target(
        "host.llc.dirty_eviction",
        Informs { files: WRITES_THEN_READS, caches: &[Cache::DeviceThrash], iommu: Some(false), ..ANY },
    ),
    target("host.dram.refresh_duration", COLD_READS),
    target(
        "host.dram.contended_spread",
        Informs { files: &["bw_dma_win_sweep_rd"], iommu: Some(false), remote: Some(false), ..ANY },
    ),
    target(
        "host.dram.refresh_staggered",
        Informs { files: &["bw_dma_win_sweep_rd"], iommu: Some(false), remote: Some(false), ..ANY },
    ),
    target(
        "host.interconnect.spread",
        Informs { files: &["bw_dma_win_sweep_rd", "bw_dma_sz_sweep"], remote: Some(true), ..ANY },
    ),
    target(
        "host.interconnect.snoop",
        Informs {
            files: WRITES_THEN_READS,
            caches: &[Cache::Cold],
            windows: (4 * MIB, u64::MAX),
            iommu: Some(false),
            ..ANY
        },
    ),
    target("host.interconnect.remote_write", REMOTE_WRITES),
    target("host.interconnect.remote_write_waits", REMOTE_WRITES),
    target("host.interconnect.remote_hit", REMOTE_READS),
    target(
        "host.root_complex.partial_line",
        Informs { files: &["lat_cmd_off_wrrd", "lat_cmd_sizes"], remote: Some(false), ..ANY },
    ),
    target(
        "host.root_complex.completion_order",
        Informs { files: &["bw_dma_win_sweep_rd"], iommu: Some(false), ..ANY },
    ),
    one_of(
        "host.root_complex.long_header_penalty",
        Informs { files: &["bw_dma_sz_sweep"], tests: &[Test::BwDmaWr], ..ANY },
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

/// Rows for a figure that the table does not know: everything.
pub const EVERYTHING: Informs = ANY;
