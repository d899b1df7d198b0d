//! Files that replace others when they are whole.
//!
//! A file is written to a temporary name, `.NAME.nearfar-PROCESS-NUMBER.part`, and renamed. Its writer has it locked, so
//! that whoever finds one that is not locked, of a process that is gone, can remove it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::fault::{Operation, may_fail};
use crate::place::{descriptor, target};

/// Temporary files that are being written, by number.
static UNFINISHED: Mutex<BTreeMap<u64, (Arc<OwnedFd>, OsString)>> = Mutex::new(BTreeMap::new());

fn unfinished() -> MutexGuard<'static, BTreeMap<u64, (Arc<OwnedFd>, OsString)>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary files, because the program is about to be stopped. Who then begins or completes a file waits
/// for ever.
pub fn abandon() {
    let all = unfinished();
    for (folder, part) in all.values() {
        let _ = rustix::fs::unlinkat(folder, part, AtFlags::empty());
    }
    std::mem::forget(all);
}

/// A file being written, which replaces its destination with [`keep`](Self::keep). If dropped before, it is removed.
#[derive(Debug)]
pub struct Beside {
    file: File,
    /// `None` for a device or a pipe, which is written straight.
    part: Option<Part>,
}

/// A temporary file and its destination.
#[derive(Debug)]
struct Part {
    number: u64,
    folder: Arc<OwnedFd>,
    part: OsString,
    name: OsString,
    /// Whether there may be a file of that name.
    replaces: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if unfinished().remove(&self.number).is_some() {
            let _ = rustix::fs::unlinkat(&self.folder, &self.part, AtFlags::empty());
        }
    }
}

impl Beside {
    /// Starts a file for `path`, in an existing folder. Symbolic links are kept: their target is replaced. Devices,
    /// pipes and open files such as `/dev/fd/3` are written straight.
    ///
    /// # Errors
    /// If it cannot be written there, or the existing file may not be replaced.
    pub fn new(path: &Path) -> io::Result<Self> {
        let place = target(path);
        if let Some(file) = straight(&place)? {
            may_fail(Operation::Open)?;
            return Ok(Self { file: file.open()?, part: None });
        }
        let known = fs::metadata(&place).ok();
        if known.is_some() {
            may_fail(Operation::Open)?;
            // A read-only file is not replaced.
            OpenOptions::new().append(true).open(&place)?;
        }
        let name = place.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        may_fail(Operation::Open)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder_of(&place), flags, Mode::empty())?;
        Self::in_folder(&Arc::new(folder), name, known.map(|known| known.permissions()), true)
    }

    /// Starts a file in an open folder. Where it `replaces` none, a file that somebody makes until it is complete
    /// stays.
    pub(crate) fn in_folder(
        folder: &Arc<OwnedFd>,
        name: &OsStr,
        permissions: Option<Permissions>,
        replaces: bool,
    ) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_left_over(folder);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // A name has 255 bytes at most.
        let begin: String = name.to_string_lossy().chars().take(40).collect();
        let part = OsString::from(format!(".{begin}{MARK}{}-{number}{END}", std::process::id()));
        let part = Part { number, folder: Arc::clone(folder), part, name: name.to_owned(), replaces };
        may_fail(Operation::Open)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = {
            let mut all = unfinished();
            let file = rustix::fs::openat(folder, &part.part, flags, Mode::from_raw_mode(0o666))?;
            all.insert(number, (Arc::clone(folder), part.part.clone()));
            File::from(file)
        };
        // Not supported by every file system.
        let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if let Some(permissions) = permissions {
            let _ = file.set_permissions(permissions);
        }
        Ok(Self { file, part: Some(part) })
    }

    /// A second handle of the file, for a writer that needs it for longer.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn writer(&self) -> io::Result<impl Write + use<>> {
        Ok(SecondHandle(self.file.try_clone()?))
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Completes the file and moves it to its destination.
    ///
    /// # Errors
    /// If it cannot be written completely or moved.
    pub fn keep(self) -> io::Result<()> {
        if self.part.is_some() {
            may_fail(Operation::Sync)?;
            self.file.sync_all()?;
        }
        self.keep_unsynced().map(drop)
    }

    /// As [`keep`](Self::keep), for a file that may be incomplete after a crash of the machine. Returns it, open.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn keep_unsynced(self) -> io::Result<File> {
        let Some(part) = self.part else { return Ok(self.file) };
        may_fail(Operation::Rename)?;
        let mut all = unfinished();
        let moved = match part.replaces {
            true => rustix::fs::renameat(&part.folder, &part.part, &part.folder, &part.name),
            false => {
                let (from, to) = ((&part.folder, &part.part), (&part.folder, &part.name));
                match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
                    // Not supported by every file system.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                        rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())
                            .and_then(|()| rustix::fs::unlinkat(from.0, from.1, AtFlags::empty()))
                    }
                    moved => moved,
                }
            }
        };
        if moved.is_ok() {
            all.remove(&part.number);
        }
        drop(all);
        Ok(moved.map(|()| self.file)?)
    }
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        may_fail(Operation::Write)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A second handle of a file.
struct SecondHandle(File);

impl Write for SecondHandle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        may_fail(Operation::Write)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What is written straight.
pub(crate) enum Straight {
    Descriptor(u32, PathBuf),
    Named(PathBuf),
}

impl Straight {
    fn open(self) -> io::Result<File> {
        let path = match self {
            Self::Descriptor(1, _) => return Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
            Self::Descriptor(2, _) => return Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
            Self::Descriptor(_, path) | Self::Named(path) => path,
        };
        // What is an open file already goes on at its end.
        OpenOptions::new().append(true).open(path)
    }

    /// Whether it may be written. Does not open it: who reads a pipe sees its end when the last writer closes it.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self {
            Self::Descriptor(1 | 2, _) => Ok(()),
            Self::Descriptor(_, path) | Self::Named(path) => {
                Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
            }
        }
    }
}

/// What is at `place`, if it is written straight.
pub(crate) fn straight(place: &Path) -> io::Result<Option<Straight>> {
    if let Some(number) = descriptor(place) {
        return Ok(Some(Straight::Descriptor(number, place.to_owned())));
    }
    let Ok(known) = fs::metadata(place) else { return Ok(None) };
    let kind = known.file_type();
    match () {
        () if kind.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
        () if kind.is_block_device() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a disk of this machine"))
        }
        () if kind.is_file() => Ok(None),
        () => Ok(Some(Straight::Named(place.to_owned()))),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Between a temporary file's own name and the number of its process.
const MARK: &str = ".nearfar-";
const END: &str = ".part";

/// The process of a temporary file.
fn process_of(part: &str) -> Option<i32> {
    let (_, numbers) = part.strip_prefix('.')?.strip_suffix(END)?.rsplit_once(MARK)?;
    let (process, number) = numbers.split_once('-')?;
    number.parse::<u64>().ok()?;
    process.parse().ok().filter(|&process| process > 0)
}

/// Removes temporary files of processes that are gone, once for each folder.
fn remove_left_over(folder: &OwnedFd) {
    static SEEN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let Ok(known) = rustix::fs::fstat(folder) else { return };
    if !SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((known.st_dev, known.st_ino)) {
        return;
    }
    sweep(folder);
}

/// Removes temporary files of processes that are gone.
fn sweep(folder: &OwnedFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(entries) =
        rustix::fs::openat(folder, ".", flags, Mode::empty()).and_then(rustix::fs::Dir::read_from)
    else {
        return;
    };
    for entry in entries.flatten() {
        let Some(process) = entry.file_name().to_str().ok().and_then(process_of) else { continue };
        let is_gone = rustix::process::Pid::from_raw(process)
            .is_some_and(|process| rustix::process::test_kill_process(process) == Err(Errno::SRCH));
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(folder, entry.file_name(), flags, Mode::empty()) else { continue };
        // A process that is not seen, as in a container, has its file locked.
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let is_regular = File::from(file).metadata().is_ok_and(|known| known.is_file());
        if is_gone && is_regular && lock != Err(Errno::WOULDBLOCK) {
            let _ = rustix::fs::unlinkat(folder, entry.file_name(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check, write};

    fn names(folder: &Path) -> Vec<String> {
        let mut all: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn what_was_there_stays_until_all_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        write(&path, b"old").unwrap();
        let mut beside = Beside::new(&path).unwrap();
        beside.write_all(b"ne").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(beside);
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"old".to_vec(), 1));
        write(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"new".to_vec(), 1));
    }

    #[test]
    fn links_pipes_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("x"), b"old").unwrap();
        std::os::unix::fs::symlink(at("x"), at("link")).unwrap();
        std::os::unix::fs::symlink("y", at("dangling")).unwrap();
        write(&at("link"), b"new").unwrap();
        write(&at("dangling"), b"new").unwrap();
        assert!(at("link").is_symlink() && at("dangling").is_symlink());
        assert_eq!((fs::read(at("x")).unwrap(), fs::read(at("y")).unwrap()), (b"new".into(), b"new".into()));
        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
        check(&at("pipe")).unwrap();
        write(&at("pipe"), b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // No process has the largest number there can be.
        let left = format!(".x.nearfar-{}-0.part", i32::MAX);
        let others = [".x.123-1.part", "x.nearfar-1-1.part", ".x.nearfar-a-1.part"];
        let alive = format!(".y.nearfar-{}-99.part", std::process::id());
        for name in others.iter().copied().chain([&*left, &*alive]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        sweep(&File::open(folder.path()).unwrap().into());
        let found = names(folder.path());
        assert!(!found.contains(&left), "{found:?}");
        assert_eq!(found.len(), others.len() + 1, "{found:?}");
    }

    #[test]
    fn a_new_file_does_not_replace_one_that_came_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let open = File::open(folder.path()).unwrap();
        let beside = Beside::in_folder(&Arc::new(open.into()), OsStr::new("x"), None, false).unwrap();
        fs::write(folder.path().join("x"), "theirs").unwrap();
        assert_eq!(beside.keep().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(folder.path()), ["x"]);
    }
}
