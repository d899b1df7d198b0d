//! What files hold, in one number.

use std::io;
use std::path::Path;

use sha2::{Digest as _, Sha256};

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
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if std::fs::metadata(entry.path())?.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), crate::read(&entry.path())?));
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

    /// The digest of three letters in the standard (FIPS 180-4).
    #[test]
    fn digests_are_those_of_the_standard() {
        assert!(sha256(b"abc").starts_with("ba7816bf8f01cfea"));
        assert_ne!(digest([&b"ab"[..], b"c"]), digest([&b"a"[..], b"bc"]));
    }
}
