//! Selects the measured rows that inform a parameter.

use std::fmt;

use results::compare::CompareRow;
use results::pciebench::{Cache, Test};
use units::Bytes;

/// Whether a directory's buffer is translated by an IOMMU and on a remote node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// The buffer is on another socket than the card.
    pub remote: bool,
    /// The IOMMU translates the card's addresses.
    pub iommu: bool,
}

/// A selection of rows that inform a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Informs {
    files: &'static [&'static str],
    caches: &'static [Cache],
    tests: &'static [Test],
    windows: (u64, u64),
    remote: Option<bool>,
    iommu: Option<bool>,
}

impl Informs {
    /// All rows.
    pub const ALL: Self =
        Self { files: &[], caches: &[], tests: &[], windows: (0, u64::MAX), remote: None, iommu: None };

    /// Rows of files whose names start with one of these.
    pub const fn of(files: &'static [&'static str]) -> Self {
        Self { files, ..Self::ALL }
    }
    /// Only rows with one of these cache states.
    pub const fn caches(self, caches: &'static [Cache]) -> Self {
        Self { caches, ..self }
    }
    /// Only rows of these tests.
    pub const fn tests(self, tests: &'static [Test]) -> Self {
        Self { tests, ..self }
    }
    /// Only windows of at least this many bytes.
    pub const fn from(self, bytes: u64) -> Self {
        Self { windows: (bytes, self.windows.1), ..self }
    }
    /// Only windows of at most this many bytes.
    pub const fn up_to(self, bytes: u64) -> Self {
        Self { windows: (self.windows.0, bytes), ..self }
    }
    /// Only memory of the card's socket.
    pub const fn local(self) -> Self {
        Self { remote: Some(false), ..self }
    }
    /// Only memory of another socket.
    pub const fn remote(self) -> Self {
        Self { remote: Some(true), ..self }
    }
    /// Only without an IOMMU.
    pub const fn untranslated(self) -> Self {
        Self { iommu: Some(false), ..self }
    }
    /// Only with an IOMMU.
    pub const fn translated(self) -> Self {
        Self { iommu: Some(true), ..self }
    }

    /// Whether the selection includes a row.
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

/// What the rows have in common, besides their files: "cold, local, windows from 4 MiB"; empty if nothing.
impl fmt::Display for Informs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        if !self.caches.is_empty() {
            let names: Vec<&str> = self.caches.iter().map(|&cache| state(cache)).collect();
            parts.push(names.join(" or "));
        }
        let place = |remote| if remote { "remote" } else { "local" };
        parts.extend(self.remote.map(|remote| place(remote).to_owned()));
        parts.extend(self.iommu.map(|on| if on { "with IOMMU" } else { "without IOMMU" }.to_owned()));
        match self.windows {
            (0, u64::MAX) => {}
            (0, most) => parts.push(format!("windows up to {}", Bytes::new(most))),
            (least, u64::MAX) => parts.push(format!("windows from {}", Bytes::new(least))),
            (least, most) => parts.push(format!("windows of {} to {}", Bytes::new(least), Bytes::new(most))),
        }
        f.write_str(&parts.join(", "))
    }
}

fn state(cache: Cache) -> &'static str {
    match cache {
        Cache::Cold => "cold",
        Cache::HostWarm => "host-warm",
        Cache::DeviceWarm => "device-warm",
        _ => "thrashed by the device",
    }
}
