//! A standard output that was closed before the program started (`nearfar ... >&-`).
//!
//! Rust's own start opens a closed one as `/dev/null`, so that nothing afterwards can tell it from one that somebody chose
//! (Python's `DEVNULL` is open in the same way). So it is looked at before.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[ctor::ctor]
fn look() {
    let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    IS_CLOSED.store(flags.is_err(), Ordering::Relaxed);
}

/// Whether the standard output can be written.
///
/// # Errors
/// If it is closed.
pub fn check() -> io::Result<()> {
    match IS_CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::other("it is closed")),
        false => Ok(()),
    }
}
