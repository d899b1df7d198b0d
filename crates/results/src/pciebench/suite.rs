//! The experiments of the suite and their files.

use super::{Cache, Pattern, Run, Test};
use units::Bytes;

/// A file of the suite and the runs of its rows, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// The file's name.
    pub name: String,
    /// Its rows.
    pub runs: Vec<Run>,
    /// Whether it has a file of distributions (`*_details` and `*_details_cdf`).
    pub distributions: bool,
}

/// Host and device offsets of the DMA offset files, in bytes.
const DMA_OFFSETS: [u64; 15] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 25, 32, 41, 48, 63];
/// Transfer sizes of the DMA offset files, in bytes.
const DMA_OFFSET_SIZES: [u64; 7] = [64, 128, 256, 407, 416, 1024, 2048];
/// Host offsets of the command offset files, in bytes.
const CMD_OFFSETS: [u64; 10] = [0, 1, 2, 3, 4, 6, 8, 16, 32, 48];
/// Transfer sizes of the bandwidth sweep, in bytes.
const SWEEP_SIZES: [u64; 40] = [
    16, 32, 63, 64, 65, 127, 128, 129, 192, 255, 256, 257, 320, 384, 511, 512, 513, 576, 640, 704, 767, 768,
    769, 832, 896, 960, 1023, 1024, 1025, 1279, 1280, 1281, 1535, 1536, 1537, 1791, 1792, 1793, 2047, 2048,
];
/// Cache states of a sweep over windows.
const CACHES: [Cache; 4] = [Cache::Cold, Cache::DeviceThrash, Cache::DeviceWarm, Cache::HostWarm];

/// Windows of a sweep, in KiB up to 512, then the common larger ones.
fn windows(small_kib: &[u64], three_mib: bool) -> Vec<u64> {
    let large = [1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768, 65536];
    let large = large.into_iter().filter(|&w| three_mib || w != 3072);
    small_kib.iter().copied().chain(large).map(|kib| kib << 10).collect()
}

fn run(test: Test, pattern: Pattern, cache: Cache, window: u64, transfer: u64) -> Run {
    let (window, transfer) = (Bytes::new(window), Bytes::new(transfer));
    Run { test, pattern, cache, host_offset: 0, device_offset: 0, window, transfer }
}

fn file(name: impl Into<String>, runs: Vec<Run>) -> PlannedFile {
    PlannedFile { name: name.into(), runs, distributions: false }
}

/// Prefixes of file names in pcie-bench's order of execution: a test may find in the caches what an earlier one left
/// there.
const ORDER: [&str; 18] = [
    "lat_cmd_sizes",
    "lat_cmd_sweep_rd",
    "lat_cmd_sweep_wrrd",
    "lat_cmd_off",
    "lat_dma_sizes",
    "lat_dma_sizes_byte_inc",
    "lat_dma_sweep_rd",
    "lat_dma_sweep_wrrd",
    "lat_dma_off",
    "lat_cmd_details",
    "lat_dma_details",
    "bw_dma_sz_sweep",
    "bw_dma_win_sweep_rd",
    "bw_dma_win_sweep_wr",
    "bw_dma_off_rd_cold",
    "bw_dma_off_wr_cold",
    "bw_dma_off_rd",
    "bw_dma_off_wr",
];

/// Sort key of a file name in the order of execution of the whole suite.
pub fn place_in_suite(name: &str) -> (usize, u64, &str) {
    let stem = name.strip_suffix(".csv").unwrap_or(name);
    // Use the longest prefix: `lat_dma_sizes_byte_inc` does not belong to `lat_dma_sizes`.
    let longest =
        ORDER.iter().enumerate().filter(|(_, b)| stem.starts_with(**b)).max_by_key(|(_, b)| b.len());
    let size = stem.rsplit('_').next().and_then(|last| last.parse().ok()).unwrap_or(0);
    (longest.map_or(ORDER.len(), |(place, _)| place), size, name)
}

/// The suite as in the measured directories: every file except the distributions, with its rows.
pub fn suite() -> Vec<PlannedFile> {
    use Cache::{Cold, HostWarm};
    use Pattern::{Random, Sequential};
    let mut files = Vec::new();
    let short = |test: Test| match test {
        Test::LatCmdRd | Test::LatDmaRd | Test::BwDmaRd => "rd",
        Test::BwDmaWr => "wr",
        _ => "wrrd",
    };

    for (cold, suffix) in [(HostWarm, ""), (Cold, "_cold")] {
        for test in [Test::BwDmaRd, Test::BwDmaWr] {
            files.push(file(format!("bw_dma_off_{}{suffix}.csv", short(test)), dma_offsets(test, cold)));
        }
    }
    let sizes = |tests: &[Test], sizes: &[u64], pattern, window| {
        let each = |&test: &Test| {
            let sizes = sizes.to_vec();
            sizes.into_iter().map(move |size| run(test, pattern, HostWarm, window, size))
        };
        tests.iter().flat_map(each).collect::<Vec<_>>()
    };
    let bandwidths = [Test::BwDmaRd, Test::BwDmaWr, Test::BwDmaRw];
    files.push(file("bw_dma_sz_sweep.csv", sizes(&bandwidths, &SWEEP_SIZES, Random, 8192)));

    let sweep = |test, size, windows: &[u64]| {
        let windows = windows.to_vec();
        CACHES
            .into_iter()
            .flat_map(|cache| {
                windows.iter().map(move |&w| run(test, Random, cache, w, size)).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    for test in [Test::BwDmaRd, Test::BwDmaWr] {
        for size in [64, 128, 256, 512] {
            let rows = sweep(test, size, &windows(&[4, 16, 256, 512], true));
            files.push(file(format!("bw_dma_win_sweep_{}_rnd_{size:02}.csv", short(test)), rows));
        }
    }

    let command = [Test::LatCmdRd, Test::LatCmdWrRd];
    let dma = [Test::LatDmaRd, Test::LatDmaWrRd];
    for (stem, tests, sizes) in [("lat_cmd", command, &[8][..]), ("lat_dma", dma, &[64, 2048][..])] {
        let mut runs = Vec::new();
        for test in tests {
            for &size in sizes {
                for window in [8192, 64 << 20] {
                    for cache in [Cold, HostWarm] {
                        runs.push(run(test, Random, cache, window, size));
                    }
                }
            }
        }
        files.push(PlannedFile { name: format!("{stem}_details.csv"), runs, distributions: true });
    }
    for test in command {
        let mut runs = Vec::new();
        for size in [8, 64] {
            for window in [4096, 8 << 20] {
                for cache in [Cold, HostWarm] {
                    for host_offset in CMD_OFFSETS {
                        runs.push(Run { host_offset, ..run(test, Sequential, cache, window, size) });
                    }
                }
            }
        }
        files.push(file(format!("lat_cmd_off_{}.csv", short(test)), runs));
    }
    files.push(file("lat_cmd_sizes.csv", sizes(&command, &[4, 8, 16, 24, 32, 48, 64], Sequential, 4096)));
    for test in command {
        for size in [8, 64] {
            let rows = sweep(test, size, &windows(&[1, 4, 16, 256, 512], true));
            files.push(file(format!("lat_cmd_sweep_{}_rnd_{size:02}.csv", short(test)), rows));
        }
    }
    for test in dma {
        files.push(file(format!("lat_dma_off_{}.csv", short(test)), dma_offsets(test, HostWarm)));
    }
    let dma_sizes = [4, 8, 16, 24, 32, 48, 64, 128, 256, 512, 768, 1024, 1280, 1520, 2048];
    files.push(file("lat_dma_sizes.csv", sizes(&dma, &dma_sizes, Sequential, 8192)));
    let mut bytes = Vec::new();
    for middle in [256_u64, 1024] {
        let around: Vec<u64> = (middle - 16..middle + 16).collect();
        bytes.extend(sizes(&dma, &around, Sequential, 8192));
    }
    files.push(file("lat_dma_sizes_byte_inc.csv", bytes));
    for test in dma {
        let rows = sweep(test, 64, &windows(&[8, 64, 256, 512], false));
        files.push(file(format!("lat_dma_sweep_{}_rnd_64.csv", short(test)), rows));
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Number of rows missing at the end of a file called `name` with these runs, if it starts like pcie-bench's. `None`
/// if nothing is missing, or if it is another file.
pub fn missing_rows(name: &str, runs: &[Run]) -> Option<usize> {
    let planned = suite().into_iter().find(|file| file.name == name)?.runs;
    let missing = planned.len().checked_sub(runs.len()).filter(|&missing| missing > 0)?;
    planned.starts_with(runs).then_some(missing)
}

/// For each size, first the host's offsets, then the device's.
fn dma_offsets(test: Test, cache: Cache) -> Vec<Run> {
    let mut runs = Vec::new();
    for size in DMA_OFFSET_SIZES {
        let base = run(test, Pattern::Sequential, cache, 8192, size);
        runs.extend(DMA_OFFSETS.map(|host_offset| Run { host_offset, ..base }));
        runs.extend(DMA_OFFSETS.map(|device_offset| Run { device_offset, ..base }));
    }
    runs
}
