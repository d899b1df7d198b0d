//! This machine's files as an archive: exactly those that a survey reads, without what identifies it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use wire::pcie::config::caps;

use crate::model::Survey;
use crate::read::files::{FolderFiles, RootFiles};
use crate::read::processes::{DEVICE_FILES, STATUS};
use crate::read::{sysfs, tables};

/// What the survey has asked for at a path.
enum Consulted {
    File(Vec<u8>),
    Link(String),
    /// A name in a folder that was listed.
    Name,
}

/// Files that note what is asked of them.
struct AccessRecorder<'f> {
    files: &'f dyn RootFiles,
    asked: RefCell<BTreeMap<String, Consulted>>,
    /// Folders without links in their paths.
    folders: RefCell<BTreeMap<String, Option<String>>>,
}

impl AccessRecorder<'_> {
    /// A path without links but for its last part.
    fn straight(&self, path: &str) -> Option<String> {
        let (folder, name) = path.rsplit_once('/')?;
        let known = self.folders.borrow().get(folder).cloned();
        let folder = known.unwrap_or_else(|| {
            let straight = self.files.resolved(folder);
            self.folders.borrow_mut().insert(folder.to_owned(), straight.clone());
            straight
        })?;
        Some(format!("{folder}/{name}"))
    }

    fn note(&self, path: &str, what: Consulted) {
        let Some(path) = self.straight(path) else { return };
        let mut asked = self.asked.borrow_mut();
        match (asked.get(&path), &what) {
            (Some(Consulted::File(_) | Consulted::Link(_)), Consulted::Name) => {}
            _ => {
                asked.insert(path, what);
            }
        }
    }
}

impl RootFiles for AccessRecorder<'_> {
    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let bytes = self.files.bytes(path)?;
        // A link to a file is followed: what it leads to is asked for.
        let path = self.files.resolved(path)?;
        self.note(&path, Consulted::File(bytes.clone()));
        Some(bytes)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let names = self.files.list(path);
        names.iter().for_each(|name| self.note(&format!("{path}/{name}"), Consulted::Name));
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        let target = self.files.link(path)?;
        self.note(path, Consulted::Link(target.clone()));
        Some(target)
    }
}

/// Writes a machine's files as a compressed archive; `root` is `/`, or a folder laid out like it. MAC addresses, serial numbers and
/// the kernel's command line stay out unless `identities` are to be kept.
///
/// # Errors
/// If it cannot be written, or there is nothing to capture.
pub fn capture(root: &Path, identities: bool, out: &mut dyn io::Write) -> io::Result<usize> {
    let files = FolderFiles::new(root);
    let recorder = AccessRecorder { files: &files, asked: RefCell::default(), folders: RefCell::default() };
    if !sysfs::is(&recorder) {
        let message = format!("`{}` has neither sys nor proc", root.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let survey = sysfs::read(&recorder, 0);
    let mut asked = recorder.asked.into_inner();
    asked.retain(|path, what| identities || matters(&survey, path, what));
    let mut archive = CaptureArchive::new(out);
    for (path, what) in &asked {
        match what {
            Consulted::File(bytes) if identities => archive.file(path, bytes)?,
            Consulted::File(bytes) => archive.file(path, &anonymous(path, bytes))?,
            Consulted::Link(target) => archive.link(path, target)?,
            // A folder's name is told by what is in it.
            Consulted::Name => {
                let below = format!("{path}/");
                if asked.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below)) {
                    continue;
                }
                archive.file(path, &[])?;
            }
        }
    }
    archive.finish()
}

/// Whether something is kept: of processes, those that the survey tells, and of their open files those of devices.
fn matters(survey: &Survey, path: &str, what: &Consulted) -> bool {
    let mut parts = path.split('/').skip(1);
    let (Some("proc"), Some(pid)) = (parts.next(), parts.next().and_then(|pid| pid.parse::<u32>().ok()))
    else {
        return true;
    };
    let is_known = survey.processes.contains_key(&pid) || survey.threads.contains_key(&pid);
    let part = parts.next();
    is_known
        && match what {
            Consulted::Link(target) => DEVICE_FILES.iter().any(|start| target.starts_with(start)),
            Consulted::Name => part == Some("task"),
            Consulted::File(_) => true,
        }
}

/// Packs files and links, by paths from `/`, as a capture: of a simulated machine.
///
/// # Errors
/// If they cannot be written.
pub fn pack(
    files: &BTreeMap<String, Vec<u8>>,
    links: &BTreeMap<String, String>,
    out: &mut dyn io::Write,
) -> io::Result<usize> {
    let mut archive = CaptureArchive::new(out);
    files.iter().try_for_each(|(path, bytes)| archive.file(path, bytes))?;
    links.iter().try_for_each(|(path, target)| archive.link(path, target))?;
    archive.finish()
}

/// A compressed archive while it is written.
struct CaptureArchive<'o> {
    archive: tar::Builder<flate2::write::GzEncoder<&'o mut dyn io::Write>>,
    count: usize,
}

impl<'o> CaptureArchive<'o> {
    fn new(out: &'o mut dyn io::Write) -> Self {
        let packed = flate2::write::GzEncoder::new(out, flate2::Compression::default());
        Self { archive: tar::Builder::new(packed), count: 0 }
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        self.count += 1;
        self.archive.append_data(&mut header, path.trim_start_matches('/'), bytes)
    }

    fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o644);
        header.set_size(0);
        self.count += 1;
        self.archive.append_link(&mut header, path.trim_start_matches('/'), target)
    }

    /// Ends it; returns how many files and links it has.
    fn finish(self) -> io::Result<usize> {
        self.archive.into_inner()?.finish()?;
        Ok(self.count)
    }
}

/// A file's bytes without what identifies the machine or its owner.
fn anonymous(path: &str, bytes: &[u8]) -> Vec<u8> {
    let lines = |keep: &dyn Fn(&str) -> bool| -> Vec<u8> {
        let text = String::from_utf8_lossy(bytes);
        text.lines()
            .filter(|line| keep(line))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .into_bytes()
    };
    match path {
        "/proc/cmdline" => {
            let survey = tables::command_line(&String::from_utf8_lossy(bytes), 0);
            let options = survey.machine.kernel_options.get().cloned().unwrap_or_default();
            // The first word says what the file is.
            format!("BOOT_IMAGE= {options}\n").into_bytes()
        }
        _ if path.starts_with("/proc/") && path.ends_with("/status") => {
            lines(&|line| STATUS.iter().any(|word| line.starts_with(word)))
        }
        _ if path.starts_with("/proc/") && path.contains("/fdinfo/") => {
            lines(&|line| line.starts_with("iff:"))
        }
        _ if path.starts_with("/proc/") && path.ends_with("/numa_maps") => without_names(bytes),
        _ if path.starts_with("/proc/driver/nvidia/") => lines(&|line| line.starts_with("Device Minor:")),
        "/proc/cpuinfo" => lines(&|line| !line.starts_with("Serial")),
        _ if path.ends_with("/config") => without_serial(bytes),
        _ => bytes.to_vec(),
    }
}

/// `numa_maps` without addresses, policies and names of files.
fn without_names(bytes: &[u8]) -> Vec<u8> {
    let is_kept = |word: &&str| {
        word.starts_with("kernelpagesize_kB=")
            || word.strip_prefix('N').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let text = String::from_utf8_lossy(bytes);
    let lines =
        text.lines().map(|line| line.split_whitespace().filter(is_kept).collect::<Vec<_>>().join(" "));
    let lines = lines.filter(|line| line.starts_with('N')).map(|line| line + "\n");
    lines.collect::<String>().into_bytes()
}

/// A configuration space without its serial number, which network cards make of their MAC address.
fn without_serial(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < wire::pcie::config::SIZE {
        return bytes;
    }
    let word = |at: u16| {
        let at = usize::from(at & !3);
        bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().unwrap_or_default()))
    };
    if let Some(at) = caps::find_extended(&word, caps::extended_id::SERIAL) {
        let number = usize::from(at) + 4;
        bytes.iter_mut().skip(number).take(8).for_each(|byte| *byte = 0);
    }
    bytes
}
