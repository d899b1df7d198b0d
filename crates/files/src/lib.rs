//! Files that are whole or not there, and digests of what they hold.
//!
//! A file is written beside its place and renamed when it is complete: whoever ends the program, or fills the disk, leaves
//! the old file or none, never half a new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

/// A file that is being written, and takes its place with [`keep`](Self::keep). Dropped before, it leaves nothing.
#[derive(Debug)]
pub struct Beside {
    file: Option<File>,
    /// Where it is written; its place itself, if that is a device or a pipe.
    written: PathBuf,
    place: PathBuf,
}

impl Beside {
    /// Begins a file for `path`, in a folder that there is.
    ///
    /// # Errors
    /// If it cannot be written there, or what is there may not be replaced.
    pub fn new(path: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A link stays one: what it leads to is replaced.
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
            // A file that may not be written is not replaced either.
            fs::OpenOptions::new().append(true).open(&place)?;
        }
        let name = place.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let beside = format!(".{}.{}-{number}.part", name.to_string_lossy(), std::process::id());
        let written = place.with_file_name(beside);
        let file = File::create(&written)?;
        if let Some(known) = known {
            // Not on every file system.
            let _ = file.set_permissions(known.permissions());
        }
        Ok(Self { file: Some(file), written, place })
    }

    /// A second handle of the file, for somebody who writes it over a longer time.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn writer(&self) -> io::Result<File> {
        self.file.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.try_clone()
    }

    /// The file is complete.
    ///
    /// # Errors
    /// If it cannot be written to the end, or take its place.
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

/// Writes a whole file, and the folders that it is in.
///
/// # Errors
/// If it cannot be written; what was there before is there still.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |out| out.write_all(bytes))
}

/// As [`write`](fn@write), of what comes piece by piece.
///
/// # Errors
/// As [`write`](fn@write), and those of who gives the pieces.
pub fn write_with(path: &Path, give: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let mut out = io::BufWriter::with_capacity(1 << 20, Beside::new(path)?);
    give(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.keep()
}

/// Whether a file can be written at `path`, or in the first folder above that there is. Nothing is left there.
///
/// # Errors
/// Why not.
pub fn check(path: &Path) -> io::Result<()> {
    let exists = |path: &Path| path.as_os_str().is_empty() || path.exists();
    match path.ancestors().skip(1).find(|above| exists(above)) {
        Some(above) if path.exists() || above == path.parent().unwrap_or(above) => {
            Beside::new(path).map(drop)
        }
        // No name that somebody gives a file.
        Some(above) => Beside::new(&above.join(".nearfar-can-write")).map(drop),
        None => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

/// The SHA-256 digest of parts of a text, one after the other, each with its length, in hexadecimal.
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

/// The digest of a folder: names and bytes of its files, in the order of their names. Folders in it do not count.
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
