//! Any bytes as an entry of the cache: a result or nothing, never a panic.

/// Tests an input: as an entry of a key, and as the value of a whole entry.
pub fn run(data: &[u8]) {
    nearfar::cache::try_entry(data);
}
