//! Faults of the machine's disk, for tests: builds with debug assertions fail the operation on files that
//! `NEARFAR_FAIL_AT` counts to (`7`), or that one and all later ones (`7+`).
//!
//! A new operation on files calls [`may_fail`]. `crates/cli/tests/faults.rs` fails each operation of some commands and asks
//! for status 2 or the right result, the old file or the new one, and nothing left behind; `tools/bad-days.py` does it for
//! more, and kills the program, damages its inputs and takes its memory. Without memory the program stops as after a kill:
//! the old file or the new one is there, and the next run removes what was half written.

use std::io;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening or creating.
    Open,
    /// Reading.
    Read,
    /// Writing, also of metadata.
    Write,
    /// Waiting until written data survive a crash.
    Sync,
    /// Renaming.
    Rename,
}

/// Called before each operation on a file.
///
/// # Errors
/// If a test wants this one to fail: there is no space left, or an error of the device.
#[cfg(debug_assertions)]
pub fn may_fail(operation: Operation) -> io::Result<()> {
    use std::sync::LazyLock;
    static AT: LazyLock<Option<(u64, bool)>> = LazyLock::new(|| {
        let text = std::env::var("NEARFAR_FAIL_AT").ok()?;
        let (number, goes_on) = text.strip_suffix('+').map_or((&*text, false), |number| (number, true));
        Some((number.parse().ok()?, goes_on))
    });
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some((at, goes_on)) = *AT else { return Ok(()) };
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if number < at || (number > at && !goes_on) {
        return Ok(());
    }
    // Tells a test that the run got as far as this.
    eprintln!("operation {number}, {operation:?}, fails as asked for");
    Err(match operation {
        Operation::Open | Operation::Write => rustix::io::Errno::NOSPC.into(),
        Operation::Read | Operation::Sync | Operation::Rename => rustix::io::Errno::IO.into(),
    })
}

/// Called before each operation on a file.
///
/// # Errors
/// None.
#[cfg(not(debug_assertions))]
#[inline]
pub fn may_fail(_: Operation) -> io::Result<()> {
    Ok(())
}
