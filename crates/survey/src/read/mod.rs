//! Sources: their formats are told by content, not by name.

pub mod config_space;
mod ethtool;
pub mod files;
mod hwloc;
mod lspci;
pub mod lstopo;
mod nccl;
pub mod processes;
pub mod sysfs;
pub mod tables;
mod xml;

use std::path::{Path, PathBuf};

use files::{ArchiveFiles, FolderFiles};

use crate::model::{SourceNote, Survey};

/// Why a source is not read.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {message}")]
pub struct SourceError {
    name: String,
    message: String,
}

/// Whether a text is of a format.
type TextTest = fn(&str) -> bool;

/// What reads a text of a format, as a source of this number.
type TextReader = fn(&str, usize) -> Survey;

/// Formats of text, with what tells each.
const TEXTS: [(&str, TextTest, TextReader); 11] = [
    ("lspci", lspci::is, lspci::read),
    ("lspci -t", lspci::tree::is, lspci::tree::read),
    (
        "numactl -H",
        |text| text.trim_start().starts_with("available: ") && text.contains(" nodes ("),
        tables::numactl,
    ),
    ("nvidia-smi topo -m", tables::is_nvidia_smi, tables::nvidia_smi),
    (
        "/proc/cpuinfo",
        |text| text.starts_with("processor\t") || text.starts_with("vendor_id\t"),
        tables::cpuinfo,
    ),
    ("/proc/meminfo", |text| text.starts_with("MemTotal:"), tables::meminfo),
    (
        "/proc/interrupts",
        |text| text.lines().next().is_some_and(|line| line.trim_start().starts_with("CPU0 ")),
        tables::interrupts,
    ),
    ("lstopo", lstopo::is, lstopo::read),
    (
        "kernel command line",
        |text| text.starts_with("BOOT_IMAGE=") || text.lines().count() == 1 && text.contains("root="),
        tables::command_line,
    ),
    ("ethtool -c", ethtool::is, ethtool::read),
    ("uname -a", |text| text.starts_with("Linux ") && text.lines().count() == 1, tables::uname),
];

/// Bytes of a source that are read.
const MOST_BYTES: usize = 256 << 20;

/// Outputs of tools that are read of a folder: texts and XML, sorted, 256 at most.
///
/// # Errors
/// If the folder cannot be read.
pub fn texts_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_text =
        |path: &PathBuf| path.is_file() && path.extension().is_none_or(|end| end == "txt" || end == "xml");
    let mut names: Vec<PathBuf> = entries.filter(is_text).collect();
    names.sort();
    names.truncate(256);
    Ok(names)
}

impl Survey {
    /// Reads sources about the same machine: files, folders, `/` for this machine. Where they differ, the first is taken,
    /// and that is told.
    ///
    /// # Errors
    /// If a source is of no known format, or is damaged.
    pub fn read(sources: &[&Path]) -> Result<Self, SourceError> {
        let mut survey = Self::default();
        for path in sources {
            survey.add_path(path)?;
        }
        survey.settle();
        Ok(survey)
    }

    /// Reads one source from its bytes.
    ///
    /// # Errors
    /// If it is of no known format, or is damaged.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, SourceError> {
        let mut survey = Self::default();
        survey.add_bytes(name, bytes)?;
        survey.settle();
        Ok(survey)
    }

    fn add_path(&mut self, path: &Path) -> Result<(), SourceError> {
        let name = path.display().to_string();
        let failed = |message: String| SourceError { name: name.clone(), message };
        let meta = path.metadata().map_err(|error| failed(error.to_string()))?;
        if !meta.is_dir() {
            if meta.is_file() && meta.len() > MOST_BYTES as u64 {
                return Err(failed(format!("it has more than {} MiB", MOST_BYTES >> 20)));
            }
            let bytes = ::files::read_any(path).map_err(|error| failed(error.to_string()))?;
            return self.add_bytes(&name, &bytes);
        }
        let files = FolderFiles::new(path);
        if sysfs::is(&files) {
            let source =
                self.note(&name, if path == Path::new("/") { "this machine" } else { "folder like /" });
            self.merge(sysfs::read(&files, source));
            return Ok(());
        }
        // A folder of outputs of tools, such as those beside measured results.
        let mut found = false;
        for path in texts_in(path).map_err(|error| failed(error.to_string()))? {
            let small = path.metadata().is_ok_and(|meta| meta.len() <= MOST_BYTES as u64);
            let bytes = ::files::read(&path).ok().filter(|_| small).unwrap_or_default();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found |= self.add_bytes(&name, &bytes).is_ok();
        }
        match found {
            true => Ok(()),
            false => Err(failed(
                "it is neither laid out like / (with sys and proc), nor has it outputs of tools as .txt or .xml".into(),
            )),
        }
    }

    /// Notes a source; returns its number.
    fn note(&mut self, name: &str, format: &'static str) -> usize {
        self.sources.push(SourceNote { name: name.to_owned(), format });
        self.sources.len() - 1
    }

    fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), SourceError> {
        let failed = |message: String| SourceError { name: name.to_owned(), message };
        let is_archive = bytes.starts_with(&[0x1f, 0x8b])
            || bytes.starts_with(b"BZh")
            || bytes.get(257..262).is_some_and(|magic| magic == b"ustar");
        if let Some(text) = files::unpacked_text(bytes).map_err(failed)? {
            return self.add_text(name, &text);
        }
        if is_archive {
            let files = ArchiveFiles::unpack(bytes).map_err(failed)?;
            if sysfs::is(&files) {
                let source = self.note(name, "archive of files like /");
                self.merge(sysfs::read(&files, source));
                return Ok(());
            }
            let texts = files.others().take(256);
            let read = texts
                .filter(|(inner, bytes)| self.add_text(&format!("{name}: {inner}"), bytes).is_ok())
                .count();
            return match read {
                0 => Err(failed("the archive has neither sys and proc nor outputs of tools".into())),
                _ => Ok(()),
            };
        }
        self.add_text(name, bytes)
    }

    fn add_text(&mut self, name: &str, bytes: &[u8]) -> Result<(), SourceError> {
        let failed = |message: String| SourceError { name: name.to_owned(), message };
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{feff}');
        if text.trim().is_empty() {
            return Err(failed("it is empty".into()));
        }
        if text.trim_start().starts_with('<') {
            let root =
                ["topology", "system", "graphs"].into_iter().find(|name| text.contains(&format!("<{name}")));
            return match root {
                Some("topology") => {
                    let source = self.note(name, "hwloc's XML");
                    hwloc::read(text, source).map(|found| self.merge(found)).map_err(failed)
                }
                Some("system") => {
                    let source = self.note(name, "NCCL's XML");
                    nccl::read(text, source).map(|found| self.merge(found)).map_err(failed)
                }
                Some(_) => Err(failed(
                    "it is a graph of NCCL: which ways its rings take, not what the machine is; give the topology \
                     (NCCL_TOPO_DUMP_FILE)"
                        .into(),
                )),
                None => Err(failed("it is XML, but neither hwloc's topology nor NCCL's system".into())),
            };
        }
        let Some((format, _, read)) = TEXTS.iter().find(|(_, is, _)| is(text)) else {
            let known: Vec<&str> = TEXTS.iter().map(|(name, ..)| *name).collect();
            return Err(failed(format!(
                "its format is not known; these are: hwloc's and NCCL's XML, {}, folders laid out like /, archives of such",
                known.join(", ")
            )));
        };
        let source = self.note(name, format);
        self.merge(read(text, source));
        Ok(())
    }
}
