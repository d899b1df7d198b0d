//! All access of the program to files: whole or not there, below a scenario's folder, and what they hold in one number.
//!
//! A file is written to a temporary name next to its destination and renamed when it is complete. If the program is
//! stopped or the disk is full, the old file or none is left, never a partial one.
//!
//! | Module | |
//! |---|---|
//! | `beside` | files that replace others when they are whole |
//! | `folder` | files that a scenario names |
//! | `place` | which file a path leads to, by whatever spelling |
//! | `digest` | what files hold, in one number |
//! | `text` | texts from files, as terminals and pages may show them |
//! | `fault` | faults of the disk, for tests |

mod beside;
mod digest;
mod fault;
mod folder;
mod place;
mod text;

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

pub use beside::{Beside, abandon};
pub use digest::{digest, digest_folder, sha256};
pub use fault::{Operation, may_fail};
pub use folder::{FileRefused, Folder};
pub use place::{Place, is_stdout};
pub use text::{masked, shown, shown_code, shown_json, shown_toml};

/// Bytes of the longest file that is read. `/dev/zero` is longer.
const MOST: u64 = 1 << 30;

/// Opens a regular file to be read.
///
/// # Errors
/// If it cannot be opened, or is none: a pipe or a device might never end.
pub fn open(path: &Path) -> io::Result<fs::File> {
    may_fail(Operation::Open)?;
    // A pipe would be waited for here.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    match () {
        () if kind.is_file() => Ok(file),
        () if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Reads a whole regular file.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    to_end(open(path)?)
}

/// Reads a whole file that the user has named: also a pipe, until its writer has ended.
///
/// # Errors
/// If it cannot be read.
pub fn read_any(path: &Path) -> io::Result<Vec<u8>> {
    may_fail(Operation::Open)?;
    to_end(fs::File::open(path)?)
}

fn to_end(file: fs::File) -> io::Result<Vec<u8>> {
    may_fail(Operation::Read)?;
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 GiB");
    let length = file.metadata()?.len();
    if length > MOST {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve(length as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST { Err(too_long()) } else { Ok(bytes) }
}

/// The bytes of a text without the byte order mark that editors may put before it.
pub fn unmarked(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Reads a whole text, without its byte order mark.
///
/// # Errors
/// If it cannot be read, or is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(unmarked(&read(path)?).to_vec())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Writes a whole file, and creates its parent folders.
///
/// # Errors
/// If it cannot be written; the previous file is kept.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |out| out.write_all(bytes))
}

/// Like [`write`](fn@write), for content that is produced piece by piece.
///
/// # Errors
/// As [`write`](fn@write), and those of `give`.
pub fn write_with(path: &Path, give: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    whole(path, give)?.keep()
}

/// Writes a whole file of the program's own, and creates its parent folders. After a crash of the machine it may be incomplete.
///
/// # Errors
/// As [`write`](fn@write); if there is a pipe or a device.
pub fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if beside::straight(&place::target(path))?.is_some() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    whole(path, |out| out.write_all(bytes))?.keep_unsynced().map(drop)
}

fn whole(path: &Path, give: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Beside> {
    let mut made = Vec::new();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        made =
            folder.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists()).collect();
        may_fail(Operation::Write)?;
        fs::create_dir_all(folder)?;
    }
    let written = (|| {
        let mut out = io::BufWriter::with_capacity(1 << 20, Beside::new(path)?);
        give(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)
    })();
    if written.is_err() {
        // What is not empty stays.
        made.iter().take_while(|folder| fs::remove_dir(folder).is_ok()).for_each(drop);
    }
    written
}

/// Checks whether a file can be written at `path`, or in its first existing parent folder. Leaves nothing behind.
///
/// # Errors
/// The reason why not.
pub fn check(path: &Path) -> io::Result<()> {
    if let Some(file) = beside::straight(&place::target(path))? {
        return file.check();
    }
    let exists = |path: &Path| path.as_os_str().is_empty() || path.exists();
    match path.ancestors().skip(1).find(|above| exists(above)) {
        Some(above) if path.exists() || above == path.parent().unwrap_or(above) => {
            Beside::new(path).map(drop)
        }
        // A name that no user would choose.
        Some(above) => Beside::new(&above.join(".nearfar-can-write")).map(drop),
        None => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder in which nothing was written goes again; one that was there stays.
    #[test]
    fn folders_that_were_made_for_nothing_go() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("own")).unwrap();
        for name in ["new/newer/x", "own/new/x"] {
            let failed = write_with(&folder.path().join(name), |_| Err(io::ErrorKind::StorageFull.into()));
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["own"]);
        assert!(fs::read_dir(folder.path().join("own")).unwrap().next().is_none());
        write(&folder.path().join("new/x"), b"x").unwrap();
        assert_eq!(read(&folder.path().join("new/x")).unwrap(), b"x");
    }

    #[test]
    fn what_never_ends_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zeros")).unwrap();
        fs::File::create(at("holes")).unwrap().set_len(MOST + 1).unwrap();
        fs::write(at("text"), "text").unwrap();
        for name in ["pipe", "zeros"] {
            assert!(read(&at(name)).unwrap_err().to_string().contains("not a regular file"), "{name}");
        }
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read_any(&at("holes")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(&at("text")).unwrap(), b"text");
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || read_any(&pipe).unwrap());
        fs::write(at("pipe"), "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        check(&at("a/b/c")).unwrap();
        check(&at("a")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(at("file"), b"").unwrap();
        check(&at("file/below")).unwrap_err();
        check(folder.path()).unwrap_err();
    }
}
