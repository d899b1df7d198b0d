//! A measured row and the same run simulated.

use crate::pciebench::{Cache, LatencyStats, Pattern, ResultDirectory, ResultFile, Row, Run, Test, family};
use serde::{Deserialize, Serialize};

/// The number by which a row is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Median latency, ns.
    Median,
    /// Goodput, Gbit/s.
    Bandwidth,
}

impl Quantity {
    /// Its unit as written in results.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Median => "ns",
            Self::Bandwidth => "Gbit/s",
        }
    }
    /// The quantity by which a row of this test is judged.
    pub const fn of(test: Test) -> Self {
        if test.is_latency() { Self::Median } else { Self::Bandwidth }
    }
}

impl core::fmt::Display for Quantity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Median => "median",
            Self::Bandwidth => "bandwidth",
        })
    }
}

/// A percentile of a latency row, measured and simulated, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// The measured value.
    pub measured: f64,
    /// The simulated value.
    pub simulated: f64,
    /// 100 · (simulated − measured) / measured.
    pub error_pct: f64,
}

impl Tail {
    fn new(measured: f64, simulated: f64) -> Self {
        Self { measured, simulated, error_pct: 100.0 * (simulated - measured) / measured }
    }
}

/// A row of `nearfar compare`. The field names are the keys of its JSON, which scripts rely on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompareRow {
    /// The file's name, without its directory.
    pub file: String,
    /// Number of the row below the header, from 1.
    pub row: usize,
    /// The micro-benchmark, with pcie-bench's name.
    pub test: Test,
    /// The order of accesses.
    pub pattern: Pattern,
    /// The state of the caches.
    pub cache: Cache,
    /// Size of the window of host memory that the test accesses, in bytes.
    pub window_bytes: u64,
    /// The size of one transaction, in bytes.
    pub transfer_bytes: u64,
    /// Offset from a cache line in host memory, in bytes.
    pub host_offset: u64,
    /// Offset from a cache line in device memory, in bytes.
    pub device_offset: u64,
    /// The number by which the row is judged.
    pub quantity: Quantity,
    /// Unit of both values: `ns` or `Gbit/s`.
    pub unit: String,
    /// The measured value.
    pub measured: f64,
    /// The simulated value; `None` (JSON null) if the run was not simulated.
    pub simulated: Option<f64>,
    /// 100 · (simulated − measured) / measured.
    pub error_pct: Option<f64>,
    /// The 95th percentile of a simulated latency row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p95: Option<Tail>,
    /// The 99.9th percentile of a simulated latency row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p999: Option<Tail>,
}

impl CompareRow {
    /// Combines a measured row with the simulation of the same run.
    pub fn new(file: &str, row: usize, measured: &Row, simulated: Option<&Row>) -> Self {
        let run = measured.run();
        let tail = |of: fn(&LatencyStats) -> f64| match (measured, simulated) {
            (Row::Latency(measured), Some(Row::Latency(simulated))) => {
                Some(Tail::new(of(&measured.ns), of(&simulated.ns)))
            }
            _ => None,
        };
        let (p95, p999) = (tail(|ns| ns.p95), tail(|ns| ns.p999));
        let simulated = simulated.map(Row::headline);
        let quantity = Quantity::of(run.test);
        let value = measured.headline();
        Self {
            file: file.into(),
            row,
            test: run.test,
            pattern: run.pattern,
            cache: run.cache,
            window_bytes: run.window.get(),
            transfer_bytes: run.transfer.get(),
            host_offset: run.host_offset,
            device_offset: run.device_offset,
            quantity,
            unit: quantity.unit().into(),
            measured: value,
            simulated,
            error_pct: simulated.map(|s| 100.0 * (s - value) / value),
            p95,
            p999,
        }
    }

    /// The family of files in whose summary the row counts.
    pub fn family(&self) -> String {
        family(&self.file)
    }
}

/// Compares the rows of a file with the results of `simulate`, which gets the row's number, from 1.
pub fn compare_file(
    file: &ResultFile,
    mut simulate: impl FnMut(usize, &Run) -> Option<Row>,
) -> Vec<CompareRow> {
    let rows = file.rows();
    rows.iter()
        .enumerate()
        .map(|(i, row)| CompareRow::new(&file.name, i + 1, row, simulate(i + 1, row.run()).as_ref()))
        .collect()
}

/// Compares all rows of a directory, in order of its files.
pub fn compare_directory(
    directory: &ResultDirectory,
    mut simulate: impl FnMut(&str, usize, &Run) -> Option<Row>,
) -> Vec<CompareRow> {
    let of_file = |file: &ResultFile| compare_file(file, |row, run| simulate(&file.name, row, run));
    directory.files.iter().flat_map(of_file).collect()
}
