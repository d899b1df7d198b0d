//! Files below a root folder, and CPUs that threads may use.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use survey::NumberSet;

/// Most bytes of a file in /sys or /proc that are read.
const MOST: u64 = 4 << 20;

/// `/`, or a folder laid out like it.
#[derive(Clone, Debug)]
pub struct HostRoot {
    path: PathBuf,
}

impl HostRoot {
    /// The folder.
    ///
    /// # Errors
    /// If it does not exist, or is no folder.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        if path.is_dir() { Ok(Self { path }) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Whether it is this machine.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn join(&self, name: &str) -> PathBuf {
        self.path.join(name.trim_start_matches('/'))
    }

    /// A file's text without the white space around it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let mut text = Vec::new();
        files::open(&self.join(name))?.take(MOST).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.read(name).ok()
    }

    /// Names in a folder, sorted.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.join(name)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .take(1 << 17)
            .collect();
        names.sort();
        names
    }

    /// The last part of what a link leads to.
    pub(crate) fn leads_to(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.join(name)).ok()?;
        target.file_name().map(|name| name.to_string_lossy().into_owned())
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.join(name).exists()
    }

    /// Writes into a file that exists, below the root.
    ///
    /// # Errors
    /// If it is not there, is outside, or the kernel refuses the value.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.of_kernel(name)?;
        // A pipe in a copy would be waited for.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut file = fs::OpenOptions::new().write(true).truncate(true).custom_flags(flags).open(path)?;
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// The path of a file in /sys or /proc without links: an undo file may have been tampered with.
    pub(crate) fn of_kernel(&self, name: &str) -> io::Result<PathBuf> {
        let path = fs::canonicalize(self.join(name))?;
        if path.starts_with(self.path.join("sys")) || path.starts_with(self.path.join("proc")) {
            return Ok(path);
        }
        let message = format!("it leads to {}, outside of /sys and /proc", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    /// CPUs that a thread may use.
    pub(crate) fn allowed(&self, process: u32, thread: u32) -> Option<String> {
        let status = self.text(&format!("/proc/{process}/task/{thread}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    }

    /// When a thread was started, in ticks: a number that is used again belongs to another one.
    pub(crate) fn started(&self, process: u32, thread: u32) -> Option<u64> {
        let stat = self.text(&format!("/proc/{process}/task/{thread}/stat"))?;
        // The name is in brackets, and may have any character.
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    }

    /// Restricts a thread to CPUs. In a copy of /proc, its status is edited.
    ///
    /// # Errors
    /// As of the kernel.
    pub(crate) fn allow(&self, process: u32, thread: u32, cpus: &NumberSet) -> io::Result<()> {
        if self.is_live() {
            let mut set = rustix::thread::CpuSet::new();
            cpus.iter()
                .filter(|&cpu| (cpu as usize) < rustix::thread::CpuSet::MAX_CPU)
                .for_each(|cpu| set.set(cpu as usize));
            let pid = rustix::process::Pid::from_raw(thread as i32);
            return Ok(rustix::thread::sched_setaffinity(pid, &set)?);
        }
        let name = format!("/proc/{process}/task/{thread}/status");
        let text = self.read(&name)?;
        let line = |line: &str| match line.starts_with("Cpus_allowed_list:") {
            true => format!("Cpus_allowed_list:\t{cpus}"),
            false => line.to_owned(),
        };
        self.write(&name, &text.lines().map(line).collect::<Vec<_>>().join("\n"))
    }
}
