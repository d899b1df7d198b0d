//! Any bytes as claims and values of figures: read or refused, never a panic.

use results::claims::ClaimFile;

/// Tests an input: claims, and behind a zero byte values.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (claims, values) = text.split_once('\0').unwrap_or((text, ""));
    match ClaimFile::parse(claims, values) {
        Ok(file) => drop(file.observed()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
