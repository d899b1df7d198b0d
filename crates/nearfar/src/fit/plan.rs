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
}

const MIB: u64 = 1 << 20;
const READS: &[&str] = &["lat_dma_sweep_rd", "lat_cmd_sweep_rd"];
const WRITES_THEN_READS: &[&str] = &["lat_dma_sweep_wrrd", "lat_cmd_sweep_wrrd"];

const fn target(path: &'static str, rows: Informs) -> Target {
    Target { path, rows }
}

/// The figures in the order in which they are fitted: what others build on first. Only the sum of the latencies on
/// the way of a read shows in results, so one of them stands for all: `completion_latency`.
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
];

/// Rows for a figure that the table does not know: everything.
pub const EVERYTHING: Informs = ANY;
