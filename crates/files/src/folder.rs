//! Files that a scenario names, below a folder that the user chose.
//!
//! A scenario may come from a stranger. So what it names lies below that folder, through no link; it does not exist yet,
//! or is what this program made before, which its content says.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::beside::Beside;
use crate::fault::{Operation, may_fail};

/// Why a file is not written.
#[derive(Debug)]
pub struct FileRefused {
    /// The reason.
    pub problem: String,
    /// What to do instead.
    pub remedy: String,
}

impl fmt::Display for FileRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl From<io::Error> for FileRefused {
    fn from(error: io::Error) -> Self {
        Self {
            problem: error.to_string(),
            remedy: "a file that can be written, in a folder that there is".into(),
        }
    }
}

impl From<Errno> for FileRefused {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

fn refused(problem: impl Into<String>, remedy: impl Into<String>) -> FileRefused {
    FileRefused { problem: problem.into(), remedy: remedy.into() }
}

/// A folder below which a scenario's files are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`; the current one if that is empty.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of a file below it; the same for `x` and `./x`.
    pub fn path(&self, name: &str) -> PathBuf {
        let parts = Path::new(name).components().filter(|part| *part != Component::CurDir);
        self.0.join(parts.collect::<PathBuf>())
    }

    /// Starts a capture that replaces one that this program wrote, or none. `is_ours` says whether a file is one, from
    /// its first bytes.
    ///
    /// # Errors
    /// If there is something else, or the name leads elsewhere.
    pub fn capture(&self, name: &str, is_ours: fn(&[u8]) -> bool) -> Result<Beside, FileRefused> {
        let (folder, last) = self.find(name)?;
        let known = existing(&folder, &last, OFlags::RDONLY)?;
        if let Some(file) = &known {
            let mut begin = Vec::new();
            may_fail(Operation::Read)?;
            file.take(HEADER).read_to_end(&mut begin)?;
            if !is_ours(&begin) {
                return Err(refused(
                    "there is a file, and it is not a capture that nearfar wrote",
                    "a file that does not exist yet; or move that one away",
                ));
            }
        }
        let permissions =
            known.as_ref().and_then(|file| file.metadata().ok()).map(|known| known.permissions());
        Ok(Beside::in_folder(&folder, &last, permissions, known.is_some())?)
    }

    /// Opens a drive's blocks, and makes the file if there is none. It stays locked as long as it is open. Says whether
    /// it is new.
    ///
    /// # Errors
    /// If there is something else, or a drive of another size; if the name leads elsewhere; if it is in use.
    pub fn blocks(&self, name: &str, capacity: u64) -> Result<(File, bool), FileRefused> {
        let (folder, last) = self.find(name)?;
        let mark = mark(capacity);
        let Some(mut file) = existing(&folder, &last, OFlags::RDWR)? else {
            let beside = Beside::in_folder(&folder, &last, None, false)?;
            // The lock of a temporary file is the drive's from now on.
            let mut file = beside.file();
            may_fail(Operation::Write)?;
            file.set_len(capacity)?;
            file.seek(SeekFrom::Start(capacity))?;
            file.write_all(mark.as_bytes())?;
            return Ok((beside.keep_unsynced()?, true));
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Not supported by every file system.
            Ok(()) | Err(Errno::NOTSUP | Errno::NOLCK) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(refused(
                    "another drive has its blocks there, in this run or in another one that goes on",
                    "a file for each drive, or none where runs go on side by side; or wait until the other run has ended",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        let length = file.metadata()?.len();
        if length == capacity + mark.len() as u64 {
            let mut end = vec![0; mark.len()];
            may_fail(Operation::Read)?;
            file.seek(SeekFrom::Start(capacity))?;
            file.read_exact(&mut end)?;
            if end == mark.as_bytes() {
                return Ok((file, false));
            }
        }
        let quoted = quoted(&self.path(name));
        let other = marked(&mut file, length);
        let problem = match other {
            Some(other) => format!("it holds a drive of {other} bytes, and this one has {capacity}"),
            None => {
                "there is a file, and it does not say at its end that it holds a simulated drive".to_owned()
            }
        };
        Err(refused(
            problem,
            match (other, length) {
                (Some(_), _) => "another file, or a drive of that size".to_owned(),
                // Longer than the drive: marking it would cut it.
                (None, length) if length > capacity => {
                    format!(
                        "a file that does not exist yet; this one has {length} bytes, more than the drive's {capacity}"
                    )
                }
                (None, _) => format!(
                    "a file that does not exist yet. If this one is an image that the simulated drive may change, say so at its \
                     end: truncate -s {capacity} {quoted} && printf '{}' >> {quoted}",
                    mark.replace('\n', "\\n")
                ),
            },
        ))
    }

    /// The folder of a file below this one, open, and the file's own name.
    fn find(&self, name: &str) -> Result<(Arc<OwnedFd>, OsString), FileRefused> {
        let place = if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 };
        let mut parts = Vec::new();
        for part in Path::new(name).components() {
            match part {
                Component::CurDir => {}
                Component::Normal(part) if part.as_encoded_bytes().starts_with(b".") => {
                    return Err(refused("the name of a scenario's file does not begin with a point", BELOW));
                }
                Component::Normal(part) if !is_plain(part) => {
                    return Err(refused(
                        "the name of a scenario's file has no control characters or direction marks, and does not begin with a \
                         dash or a blank",
                        BELOW,
                    ));
                }
                Component::Normal(part) => parts.push(part),
                _ => return Err(refused(format!("it is not below {}", shown(place)), BELOW)),
            }
        }
        let Some(last) = parts.pop().filter(|_| !name.ends_with('/')) else {
            return Err(refused("it names no file", BELOW));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        may_fail(Operation::Open)?;
        let mut folder = rustix::fs::open(place, flags, Mode::empty())?;
        for part in parts {
            let below = rustix::fs::openat(&folder, part, flags | OFlags::NOFOLLOW, Mode::empty());
            folder = below.map_err(|error| match error {
                Errno::LOOP => link(part),
                // Of a link, where only folders are opened.
                Errno::NOTDIR if is_link(&folder, part) => link(part),
                error => error.into(),
            })?;
        }
        Ok((Arc::new(folder), last.to_owned()))
    }
}

/// Where the files of scenarios can be.
const BELOW: &str = "a name such as `x.img` or `folder/x.img`: it is below the scenario's own folder, or below the one that \
                     --folder names";

/// Whether a name does nothing to terminals and shells that show it.
fn is_plain(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    crate::shown(&text) == text && !text.contains('\n') && !text.starts_with(['-', ' ', '\t'])
}

fn shown(place: &Path) -> String {
    if place == Path::new(".") { "the current folder".into() } else { format!("`{}`", place.display()) }
}

fn link(part: &OsStr) -> FileRefused {
    refused(format!("`{}` is a symbolic link, and may lead elsewhere", part.to_string_lossy()), BELOW)
}

fn irregular() -> FileRefused {
    refused("it is not a regular file", "a file that does not exist yet")
}

fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::readlinkat(folder, name, Vec::new()).is_ok()
}

/// Bytes of a file that are enough to see what it is.
const HEADER: u64 = 64 << 10;

/// Opens a regular file that exists; `None` if there is nothing.
fn existing(folder: &OwnedFd, name: &OsStr, access: OFlags) -> Result<Option<File>, FileRefused> {
    may_fail(Operation::Open)?;
    // What is no regular file may block.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(link(name)),
        Err(Errno::ISDIR) => return Err(irregular()),
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() { Ok(Some(file)) } else { Err(irregular()) }
}

/// What follows a drive's blocks in their file. The blocks come first, so that other programs read the file as a raw
/// image.
fn mark(capacity: u64) -> String {
    format!("\nnearfar: the {capacity} bytes before this line are a simulated drive\n")
}

/// The capacity that a file's mark tells, if it has one.
fn marked(file: &mut File, length: u64) -> Option<u64> {
    // No mark is longer.
    let longest = mark(u64::MAX).len() as u64;
    file.seek(SeekFrom::Start(length.saturating_sub(longest))).ok()?;
    let mut end = Vec::new();
    file.take(longest).read_to_end(&mut end).ok()?;
    let begin = b"\nnearfar: the ";
    let at = end.windows(begin.len()).rposition(|part| part == begin)?;
    let told = std::str::from_utf8(&end[at..]).ok()?;
    let capacity = told[begin.len()..].split(' ').next()?.parse().ok()?;
    (told == mark(capacity) && length.checked_sub(told.len() as u64) == Some(capacity)).then_some(capacity)
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn problem<T>(done: Result<T, FileRefused>) -> String {
        done.map(|_| ()).expect_err("it is refused").problem
    }

    #[test]
    fn blocks_are_kept_for_one_drive_of_one_size_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path());
        let (mut first, is_new) = folder.blocks("x.img", 8192).unwrap();
        assert!(is_new);
        first.seek(SeekFrom::Start(0)).unwrap();
        first.write_all(b"kept").unwrap();
        assert!(problem(folder.blocks("./x.img", 8192)).contains("another drive"));
        drop(first);
        let (mut again, is_new) = folder.blocks("./x.img", 8192).unwrap();
        let mut bytes = [0; 4];
        again.seek(SeekFrom::Start(0)).unwrap();
        again.read_exact(&mut bytes).unwrap();
        assert!(!is_new && &bytes == b"kept");
        drop(again);
        assert!(problem(folder.blocks("x.img", 4096)).contains("a drive of 8192 bytes"));
        assert!(problem(folder.blocks("x.img", 8193)).contains("a drive of 8192 bytes"));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_made_is_not_touched_unless_they_say_so() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path());
        let path = place.path().join("own.img");
        for content in ["", "a scenario", &"x".repeat(9000)] {
            fs::write(&path, content).unwrap();
            let refused = folder.blocks("own.img", 8192).unwrap_err();
            assert!(refused.problem.contains("there is a file"), "{refused}");
            let capture = folder.capture("own.img", |bytes| bytes.starts_with(b"ours"));
            assert!(problem(capture).contains("not a capture"));
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        // The remedy works.
        fs::write(&path, "image").unwrap();
        let remedy = folder.blocks("own.img", 8192).unwrap_err().remedy;
        let line = remedy.split_once("end: ").unwrap().1;
        assert!(std::process::Command::new("sh").args(["-c", line]).status().unwrap().success());
        let (mut file, _) = folder.blocks("own.img", 8192).unwrap();
        let mut bytes = [0; 5];
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"image");
    }

    #[test]
    fn names_lead_nowhere_else() {
        let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = Folder::new(place.path());
        fs::create_dir(place.path().join("below")).unwrap();
        symlink(outside.path(), place.path().join("link")).unwrap();
        symlink(outside.path().join("new"), place.path().join("dangling")).unwrap();
        symlink("real", place.path().join("inside")).unwrap();
        let absolute = outside.path().join("x").display().to_string();
        for name in [
            "../x",
            "below/../../x",
            &absolute,
            "link/x",
            "dangling",
            "inside",
            "",
            ".",
            "x/",
            ".x",
            ".git/x",
            "none/x",
            "below",
        ] {
            problem(folder.blocks(name, 4096));
            problem(folder.capture(name, |_| true));
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
        folder.blocks("below/x", 4096).unwrap();
        folder.capture("below/y", |_| true).unwrap().keep().unwrap();
        fs::write(place.path().join("below/y"), "ours").unwrap();
        folder.capture("below/y", |bytes| bytes == b"ours").unwrap();
    }
}
