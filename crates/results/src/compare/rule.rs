//! Rules about rows, as data: which rows are artefacts of the measurement, and known causes of misses.

use super::CompareRow;
use crate::pciebench::{Cache, IommuMode, Pattern, Setup, Test};
use serde::Deserialize;

/// A condition on a row and its setup. All fields that are set must hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criterion {
    /// CPU generations (`bdw`, `hsw`, `ib`, `snb`).
    pub generation: Option<Vec<String>>,
    /// CPU models (`Xeon-E5-2630v4`).
    pub cpu: Option<Vec<String>>,
    /// IOMMU modes.
    pub iommu: Option<Vec<IommuMode>>,
    /// Whether the buffer is on another socket than the device.
    pub remote: Option<bool>,
    /// Socket of the buffer's memory; this decides how high the buffer's address is.
    pub memory_socket: Option<u32>,
    /// Prefixes of the file's name.
    pub file_begins: Option<Vec<String>>,
    /// Micro-benchmarks, by pcie-bench's names.
    pub test: Option<Vec<Test>>,
    /// Orders of access.
    pub pattern: Option<Vec<Pattern>>,
    /// States of the cache.
    pub cache: Option<Vec<Cache>>,
    /// Minimum window, bytes.
    pub window_at_least: Option<u64>,
    /// Maximum window, bytes.
    pub window_at_most: Option<u64>,
    /// Minimum transfer size, bytes.
    pub transfer_at_least: Option<u64>,
    /// Maximum transfer size, bytes.
    pub transfer_at_most: Option<u64>,
    /// Transfer sizes, bytes.
    pub transfer: Option<Vec<u64>>,
    /// Offsets in the host's buffer, bytes.
    pub host_offset: Option<Vec<u64>>,
    /// Whether the host offset or the device offset is nonzero.
    pub offset: Option<bool>,
}

impl Criterion {
    /// Whether the row meets it. Conditions on an unknown setup never hold.
    pub fn holds(&self, setup: Option<&Setup>, row: &CompareRow) -> bool {
        fn one_of<T: PartialEq>(wanted: Option<&Vec<T>>, value: Option<&T>) -> bool {
            wanted.is_none_or(|w| value.is_some_and(|v| w.contains(v)))
        }
        let at_least = |bound: Option<u64>, value| bound.is_none_or(|b| value >= b);
        let at_most = |bound: Option<u64>, value| bound.is_none_or(|b| value <= b);
        let offset = row.host_offset != 0 || row.device_offset != 0;
        one_of(self.generation.as_ref(), setup.map(|s| &s.generation))
            && one_of(self.cpu.as_ref(), setup.map(|s| &s.cpu))
            && one_of(self.iommu.as_ref(), setup.map(|s| &s.iommu))
            && self.remote.is_none_or(|r| setup.is_some_and(|s| s.sockets.remote_memory() == r))
            && self.memory_socket.is_none_or(|m| setup.is_some_and(|s| s.sockets.memory == m))
            && self.file_begins.as_ref().is_none_or(|b| b.iter().any(|b| row.file.starts_with(b.as_str())))
            && one_of(self.test.as_ref(), Some(&row.test))
            && one_of(self.pattern.as_ref(), Some(&row.pattern))
            && one_of(self.cache.as_ref(), Some(&row.cache))
            && at_least(self.window_at_least, row.window_bytes)
            && at_most(self.window_at_most, row.window_bytes)
            && at_least(self.transfer_at_least, row.transfer_bytes)
            && at_most(self.transfer_at_most, row.transfer_bytes)
            && one_of(self.transfer.as_ref(), Some(&row.transfer_bytes))
            && one_of(self.host_offset.as_ref(), Some(&row.host_offset))
            && self.offset.is_none_or(|o| o == offset)
    }
}

fn any(criteria: &[Criterion], setup: Option<&Setup>, row: &CompareRow) -> bool {
    criteria.iter().any(|c| c.holds(setup, row))
}

/// Rows that do not measure what their columns say, with evidence.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artefact {
    /// A short name, unique.
    pub name: String,
    /// What went wrong in the measurement and how that is known.
    pub evidence: String,
    /// Affected rows: those that meet any of these.
    pub any_of: Vec<Criterion>,
}

/// A known reason for a large miss.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// A short name, unique.
    pub name: String,
    /// Explanation for the reader of the comparison.
    pub text: String,
    /// Affected rows: those that meet any of these.
    pub any_of: Vec<Criterion>,
}

/// Artefacts and causes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Rows excluded from the summary.
    #[serde(default)]
    pub artefact: Vec<Artefact>,
    /// Causes of misses; the first that applies is used.
    #[serde(default)]
    pub cause: Vec<Cause>,
}

impl Rules {
    /// The rules for pcie-bench's published data, from `published/pcie-bench-data.toml`.
    ///
    /// # Panics
    /// If this built-in file is malformed.
    pub fn pcie_bench() -> Self {
        let text = include_str!("../../published/pcie-bench-data.toml");
        Self::parse(text).expect("published/pcie-bench-data.toml is well-formed")
    }

    /// Parses rules.
    ///
    /// # Errors
    /// If the TOML is malformed, with the line.
    pub fn parse(text: &str) -> Result<Self, toml_edit::de::Error> {
        toml_edit::de::from_str(text)
    }

    /// The first artefact that applies to the row.
    pub fn artefact(&self, setup: Option<&Setup>, row: &CompareRow) -> Option<&Artefact> {
        self.artefact.iter().find(|a| any(&a.any_of, setup, row))
    }

    /// The first cause that applies to the row.
    pub fn cause(&self, setup: Option<&Setup>, row: &CompareRow) -> Option<&Cause> {
        self.cause.iter().find(|c| any(&c.any_of, setup, row))
    }
}
