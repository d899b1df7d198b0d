//! A directory of results and what its name says.

use super::error::{Problem, ReadError};
use super::{ResultFile, Run, read_file};
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Whether and how an IOMMU translated the device's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IommuMode {
    /// No IOMMU.
    #[default]
    Off,
    /// Superpages where the CPU has them (`intel_iommu=on`).
    Superpages,
    /// 4 KiB pages only (`intel_iommu=on,sp_off`).
    SmallPages,
}

/// The sockets of one experiment, as in `s0-s1-s1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sockets {
    /// Where the device is attached.
    pub device: u32,
    /// Where the buffer lies.
    pub memory: u32,
    /// Where the program runs that warms or thrashes the cache.
    pub program: u32,
}

impl Sockets {
    /// Whether the buffer lies on another socket than the device.
    pub const fn remote_memory(&self) -> bool {
        self.device != self.memory
    }
}

impl fmt::Display for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}-s{}-s{}", self.device, self.memory, self.program)
    }
}

/// A text that is not of the form `s0-s1-s1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name the sockets of device, memory and program as in `s0-s1-s1`")]
pub struct BadSockets(String);

impl FromStr for Sockets {
    type Err = BadSockets;
    fn from_str(text: &str) -> Result<Self, BadSockets> {
        let number = |part: &str| part.strip_prefix('s').and_then(|n| n.parse::<u32>().ok());
        match text.split('-').map(number).collect::<Vec<_>>()[..] {
            [Some(device), Some(memory), Some(program)] => Ok(Self { device, memory, program }),
            _ => Err(BadSockets(text.into())),
        }
    }
}

impl Serialize for Sockets {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sockets {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a directory's name says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setup {
    /// The name itself.
    pub name: String,
    /// The card and its clock (`nfp6000-1.2GHz`).
    pub card: String,
    /// The CPU's generation (`bdw`, `hsw`, `ib`, `snb`).
    pub generation: String,
    /// The CPU's model (`Xeon-E5-2630v4`).
    pub cpu: String,
    /// The computer (`dell-t430`).
    pub chassis: String,
    /// Sockets of device, memory and program; all 0 where the name says nothing.
    pub sockets: Sockets,
    /// The IOMMU.
    pub iommu: IommuMode,
}

impl Setup {
    /// Reads a directory's name. `None` in the place of the missing part.
    ///
    /// # Errors
    /// The part that the name lacks.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        let (card, rest) = name.split_once('_').ok_or("the card (everything before the first `_`)")?;
        let (rest, iommu) = match (rest.strip_suffix("-iommu-nosp"), rest.strip_suffix("-iommu")) {
            (Some(rest), _) => (rest, IommuMode::SmallPages),
            (_, Some(rest)) => (rest, IommuMode::Superpages),
            _ => (rest, IommuMode::Off),
        };
        // The last three parts, if they name sockets.
        let cut = rest.rmatch_indices('-').nth(2).map(|(at, _)| at);
        let (rest, sockets) = match cut.map(|at| (&rest[..at], rest[at + 1..].parse())) {
            Some((head, Ok(sockets))) => (head, sockets),
            _ => (rest, Sockets::default()),
        };
        let (generation, rest) = rest.split_once('-').ok_or("the CPU's generation")?;
        // The CPU ends at `_`, or after the part that begins with its four-digit number.
        let (cpu, chassis) = match rest.split_once('_') {
            Some(parts) => parts,
            None => {
                let end = model_end(rest).ok_or("the CPU's model (a part that begins with four digits)")?;
                (&rest[..end], rest[end..].trim_start_matches('-'))
            }
        };
        if chassis.is_empty() {
            return Err("the computer");
        }
        Ok(Self {
            name: name.into(),
            card: card.into(),
            generation: generation.into(),
            cpu: cpu.into(),
            chassis: chassis.into(),
            sockets,
            iommu,
        })
    }
}

/// Where the part ends that begins with four digits.
fn model_end(text: &str) -> Option<usize> {
    let mut start = 0;
    for part in text.split('-') {
        let end = start + part.len();
        if part.len() >= 4 && part.bytes().take(4).all(|b| b.is_ascii_digit()) {
            return Some(end);
        }
        start = end + 1;
    }
    None
}

/// A directory of results, read whole.
#[derive(Debug, Clone)]
pub struct ResultDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// What its name says; `None` where the name is of another form (a machine must be given then).
    pub setup: Option<Setup>,
    /// Its result files, by name.
    pub files: Vec<ResultFile>,
    /// Everything else in it that was not read: `sys-*.txt`, plots.
    pub not_results: Vec<String>,
}

impl ResultDirectory {
    /// The file of this name.
    pub fn file(&self, name: &str) -> Option<&ResultFile> {
        self.files.iter().find(|f| f.name == name)
    }

    /// Every run that its rows are of, each once: what has to be simulated to compare it.
    pub fn runs(&self) -> BTreeSet<Run> {
        self.files.iter().flat_map(ResultFile::rows).map(|row| *row.run()).collect()
    }
}

/// Reads every `*.csv` of a directory.
///
/// # Errors
/// The first file that cannot be used, or a directory without any.
pub fn read_directory(path: &Path) -> Result<ResultDirectory, ReadError> {
    let (directory, errors) = read_directory_lenient(path)?;
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(directory),
    }
}

/// Reads every `*.csv` of a directory and gives the files that cannot be used
/// as errors beside the others, so that one bad file does not hide the rest.
///
/// # Errors
/// A directory that cannot be listed or holds no results.
pub fn read_directory_lenient(path: &Path) -> Result<(ResultDirectory, Vec<ReadError>), ReadError> {
    let fail = |problem| ReadError::new(path, None, problem);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| fail(e.into()))? {
        names.push(entry.map_err(|e| fail(e.into()))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut directory = ResultDirectory {
        path: path.to_owned(),
        setup: setup_of(path).ok(),
        files: Vec::new(),
        not_results: Vec::new(),
    };
    let mut errors = Vec::new();
    for name in names {
        if !name.ends_with(".csv") {
            directory.not_results.push(name);
            continue;
        }
        match read_file(&path.join(&name)) {
            Ok(file) => directory.files.push(file),
            Err(error) => errors.push(error),
        }
    }
    if directory.files.is_empty() && errors.is_empty() {
        return Err(fail(Problem::NoResults));
    }
    Ok((directory, errors))
}

/// What the name of a directory says.
///
/// # Errors
/// A name of another form.
pub fn setup_of(path: &Path) -> Result<Setup, ReadError> {
    // `.` and `dir/..` have a name only once resolved.
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = resolved.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Setup::parse(&name).map_err(|missing| ReadError::new(path, None, Problem::DirectoryName { missing }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_name_are_understood() {
        let bdw = Setup::parse("nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1-iommu-nosp").unwrap();
        assert_eq!(
            (bdw.card.as_str(), bdw.generation.as_str(), bdw.cpu.as_str(), bdw.chassis.as_str()),
            ("nfp6000-1.2GHz", "bdw", "Xeon-E5-2630v4", "dell-t430")
        );
        assert_eq!((bdw.sockets.to_string().as_str(), bdw.iommu), ("s0-s1-s1", IommuMode::SmallPages));
        assert!(bdw.sockets.remote_memory());

        let hsw = Setup::parse("nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630-iommu").unwrap();
        assert_eq!((hsw.cpu.as_str(), hsw.chassis.as_str()), ("Xeon-E5-2620v3", "dell-t630"));
        assert_eq!((hsw.sockets, hsw.iommu), (Sockets::default(), IommuMode::Superpages));
    }

    #[test]
    fn other_names_say_what_is_missing() {
        assert!(Setup::parse("results").unwrap_err().contains("card"));
        assert!(Setup::parse("nfp_hsw-whatever").unwrap_err().contains("four digits"));
        assert!(Setup::parse("nfp_hsw-Xeon-E5-2620v3").unwrap_err().contains("computer"));
    }
}
