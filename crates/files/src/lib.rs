//! Atomic file writes, and digests.
//!
//! A file is written to a temporary name next to its destination and renamed when it is complete. If the program is
//! stopped or the disk is full, the old file or none is left, never a partial one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

/// A file being written, which replaces its destination with [`keep`](Self::keep). If dropped before, it is removed.
#[derive(Debug)]
pub struct Beside {
    file: Option<File>,
    /// Temporary path; the destination itself if that is a device or a pipe.
    written: PathBuf,
    place: PathBuf,
}

impl Beside {
    /// Starts a file for `path`, in an existing folder.
    ///
    /// # Errors
    /// If it cannot be written there, or the existing file may not be replaced.
    pub fn new(path: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Symbolic links are kept: their target is replaced.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let known = fs::metadata(&place).ok();
        if known.as_ref().is_some_and(|known| known.is_dir()) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            let file = fs::OpenOptions::new().write(true).open(&place)?;
            return Ok(Self { file: Some(file), written: place.clone(), place });
        }
        if known.is_some() {
            // A read-only file is not replaced.
            fs::OpenOptions::new().append(true).open(&place)?;
        }
        let name = place.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let beside = format!(".{}.{}-{number}.part", name.to_string_lossy(), std::process::id());
        let written = place.with_file_name(beside);
        let file = File::create(&written)?;
        if let Some(known) = known {
            // Not supported by every file system.
            let _ = file.set_permissions(known.permissions());
        }
        Ok(Self { file: Some(file), written, place })
    }

    /// A second handle of the file, for a writer that needs it for longer.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn writer(&self) -> io::Result<File> {
        self.file.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.try_clone()
    }

    /// Completes the file and moves it to its destination.
    ///
    /// # Errors
    /// If it cannot be written completely or moved.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
            if self.written == self.place {
                return Ok(());
            }
            if let Err(error) = file.sync_all().and_then(|()| fs::rename(&self.written, &self.place)) {
                let _ = fs::remove_file(&self.written);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.file.take().is_some() && self.written != self.place {
            let _ = fs::remove_file(&self.written);
        }
    }
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
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let mut out = io::BufWriter::with_capacity(1 << 20, Beside::new(path)?);
    give(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.keep()
}

/// Checks whether a file can be written at `path`, or in its first existing parent folder. Leaves nothing behind.
///
/// # Errors
/// The reason why not.
pub fn check(path: &Path) -> io::Result<()> {
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

/// The SHA-256 digest, in hexadecimal, of the parts of a text in sequence, each with its length.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut state = Sha256::new();
    for part in parts {
        state.update((part.len() as u64).to_le_bytes());
        state.update(part);
    }
    hexadecimal(&state.finalize())
}

/// The SHA-256 digest of a file's bytes, as `sha256sum` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The digest of a folder: names and contents of its files, sorted by name. Subfolders are ignored.
///
/// # Errors
/// If it cannot be read.
pub fn digest_folder(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if fs::metadata(entry.path())?.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
        }
    }
    files.sort();
    Ok(digest(files.iter().flat_map(|(name, bytes)| [name.as_bytes(), bytes])))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("nearfar-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_was_there_stays_until_all_is_written() {
        let folder = folder("whole");
        let path = folder.join("x");
        write(&path, b"old").unwrap();
        let mut beside = Beside::new(&path).unwrap();
        beside.write_all(b"ne").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(beside);
        assert_eq!((fs::read(&path).unwrap(), fs::read_dir(&folder).unwrap().count()), (b"old".to_vec(), 1));
        write(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read_dir(&folder).unwrap().count()), (b"new".to_vec(), 1));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = folder("before");
        check(&folder.join("a/b/c")).unwrap();
        check(&folder.join("a")).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(folder.join("file"), b"").unwrap();
        check(&folder.join("file/below")).unwrap_err();
        check(&folder).unwrap_err();
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = folder("links");
        write(&folder.join("x"), b"old").unwrap();
        std::os::unix::fs::symlink(folder.join("x"), folder.join("link")).unwrap();
        write(&folder.join("link"), b"new").unwrap();
        assert!(folder.join("link").is_symlink());
        assert_eq!(fs::read(folder.join("x")).unwrap(), b"new");
        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::remove_dir_all(folder).unwrap();
    }

    /// The digest of three letters in the standard (FIPS 180-4).
    #[test]
    fn digests_are_those_of_the_standard() {
        assert!(sha256(b"abc").starts_with("ba7816bf8f01cfea"));
        assert_ne!(digest([&b"ab"[..], b"c"]), digest([&b"a"[..], b"bc"]));
    }
}
