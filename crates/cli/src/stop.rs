//! Stopping by a signal: nothing half written is left, and what is kept is said.

use std::os::unix::net::UnixStream;
use std::{io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::complain;

/// Ends the program on Ctrl-C, a hangup or `kill`, with the usual status. Also where a shell has it ignore Ctrl-C, as
/// scripts do with what they start in the background: otherwise only `kill -9` would end it. A command that `goes_on`
/// continues from what was finished.
///
/// # Errors
/// If there is no memory left for it.
pub fn watch(goes_on: bool) -> io::Result<()> {
    let mut wanted = vec![SIGINT, SIGTERM];
    // `nohup` has hangups ignored.
    wanted.extend((!is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(wanted)?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            files::abandon();
            complain(&what_is_kept(goes_on));
            std::process::exit(128 + signal);
        }
    };
    thread::Builder::new().spawn(watch).map(drop)
}

/// What can be read once the program is to end by a signal, for a command that has something to do then; and the other end,
/// by which the program itself can say so.
///
/// # Errors
/// If the system has no socket left.
pub fn readable() -> io::Result<(UnixStream, UnixStream)> {
    let (told, tells) = UnixStream::pair()?;
    let wanted = [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP));
    for signal in wanted {
        signal_hook::low_level::pipe::register(signal, tells.try_clone()?)?;
    }
    Ok((told, tells))
}

fn what_is_kept(goes_on: bool) -> String {
    match nearfar::cache::used() {
        _ if !goes_on => "stopped".to_owned(),
        (0, 0) => "stopped; nothing was finished".to_owned(),
        (found, added) => format!(
            "stopped: {} finished simulations are kept; the same command goes on from there",
            found + added
        ),
    }
}

/// Whether the program was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    ignored().is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
