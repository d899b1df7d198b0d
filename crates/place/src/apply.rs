//! Writes carried out, read back, undone. Nothing stays half-done: a write that fails undoes those before it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plan::PlannedWrite;
use crate::root::HostRoot;

/// What was there before, for `undo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
// A plan (`--json`) has writes as well, and more: it is no record of what was done.
#[serde(deny_unknown_fields)]
pub struct UndoRecord {
    /// Each place once, with its first value and the last one that was written.
    pub writes: Vec<PlannedWrite>,
}

impl UndoRecord {
    /// Adds a write. Of a place that is known, the first value is what `undo` restores.
    fn keep(&mut self, write: PlannedWrite) {
        match self.writes.iter_mut().find(|known| known.target == write.target) {
            Some(known) => known.after = write.after,
            None => self.writes.push(write),
        }
    }
}

/// Whether an error says that a place is no more: a file, or the thread that it is of.
fn is_gone(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// What somebody without rights does about it.
fn rights_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run it as root, as `sudo` does",
        _ => "",
    }
}

/// Why a placement was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Another one is under way.
    #[error("another `nearfar place` is at work (it holds `{0}`); wait for it, or stop its service")]
    Locked(PathBuf),
    /// Files of its own cannot be used.
    #[error("`{0}`: {1}{rights}", rights = rights_of(.1))]
    Own(PathBuf, io::Error),
    /// The undo file is damaged.
    #[error("`{0}` is damaged: {1}")]
    Damaged(PathBuf, serde_json::Error),
    /// There is nothing to undo.
    #[error("there is nothing to undo: `{0}` does not exist")]
    Nothing(PathBuf),
    /// A value has changed since the plan was made.
    #[error("{0} has changed since the plan was made, to `{1}`; nothing was written, plan again")]
    Changed(String, String),
    /// A write failed; all before it are undone.
    #[error("{0}: {1}; what was changed before is as it was")]
    Undone(String, String),
    /// A write failed, and so did the way back.
    #[error("{0}: {1}; {2} could not be set back: `nearfar place --undo` tries again")]
    Stuck(String, String, String),
}

/// A lock that lasts as long as this.
struct PlaceLock(#[expect(dead_code, reason = "open is locked")] fs::File);

impl PlaceLock {
    fn take(undo: &Path) -> Result<Self, PlaceError> {
        let path = undo.with_extension("lock");
        let wrong = |error| PlaceError::Own(path.clone(), error);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| PlaceError::Own(folder.to_owned(), error))?;
        }
        let file =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(PlaceError::Locked(path)),
            Err(error) => Err(wrong(error.into())),
        }
    }
}

fn recorded(path: &Path) -> Result<Option<UndoRecord>, PlaceError> {
    match files::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| PlaceError::Damaged(path.to_owned(), error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PlaceError::Own(path.to_owned(), error)),
    }
}

fn record(path: &Path, record: &UndoRecord) -> Result<(), PlaceError> {
    if record.writes.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PlaceError::Own(path.to_owned(), error))
            }
            _ => Ok(()),
        };
    }
    let text =
        serde_json::to_string_pretty(record).map_err(|error| PlaceError::Damaged(path.to_owned(), error))?;
    files::write(path, text.as_bytes()).map_err(|error| PlaceError::Own(path.to_owned(), error))
}

/// Carries out writes. What was there before is in the file at `undo` before the first of them.
///
/// # Errors
/// If a value has changed since the plan, or a write fails or does not read back: then all are set back.
pub fn apply(root: &HostRoot, writes: &[PlannedWrite], undo: &Path) -> Result<(), PlaceError> {
    let _lock = PlaceLock::take(undo)?;
    for PlannedWrite { target, before, .. } in writes {
        let now =
            target.read(root).map_err(|error| PlaceError::Undone(target.to_string(), error.to_string()))?;
        if !target.same(&now, before) {
            return Err(PlaceError::Changed(target.to_string(), now));
        }
    }
    if writes.is_empty() {
        return Ok(());
    }
    let old = recorded(undo)?.unwrap_or_default();
    let mut new = old.clone();
    writes.iter().for_each(|write| new.keep(write.clone()));
    record(undo, &new)?;
    for (place, write) in writes.iter().enumerate() {
        let Err(reason) = carry_out(root, write, &write.after) else { continue };
        // This one may have been written in part.
        let mut stuck = Vec::new();
        for done in writes[..=place].iter().rev() {
            let is_as_before = done.target.read(root).is_ok_and(|now| done.target.same(&now, &done.before));
            // What is gone needs no way back.
            let is_gone = done.target.read(root).is_err_and(|error| is_gone(&error));
            if !is_as_before && !is_gone && carry_out(root, done, &done.before).is_err() {
                stuck.push(done.clone());
            }
        }
        if stuck.is_empty() {
            record(undo, &old)?;
            return Err(PlaceError::Undone(write.target.to_string(), reason));
        }
        let names: Vec<String> = stuck.iter().map(|write| write.target.to_string()).collect();
        let mut left = old;
        stuck.into_iter().for_each(|write| left.keep(write));
        record(undo, &left)?;
        return Err(PlaceError::Stuck(write.target.to_string(), reason, names.join(", ")));
    }
    Ok(())
}

/// Writes a value and reads it back.
fn carry_out(root: &HostRoot, write: &PlannedWrite, value: &str) -> Result<(), String> {
    write.target.write(root, value).map_err(|error| match error.raw_os_error() {
        // Managed interrupts say so, whoever asks.
        Some(5) => format!("the kernel places it itself ({error})"),
        _ => format!("{error}{}", rights_of(&error)),
    })?;
    let now = write.target.read(root).map_err(|error| error.to_string())?;
    match write.target.same(&now, value) {
        true => Ok(()),
        false => Err(format!("it was set to `{value}` and reads `{now}`")),
    }
}

/// Sets back what was written, in the reverse order. Returns how many values were, and what was left and why.
///
/// # Errors
/// If there is no record, or another placement is under way. Values that cannot be set back stay recorded.
pub fn undo(root: &HostRoot, path: &Path) -> Result<(usize, Vec<String>), PlaceError> {
    if !path.exists() {
        return Err(PlaceError::Nothing(path.to_owned()));
    }
    // Nothing is left beside what is no record.
    recorded(path)?;
    let _lock = PlaceLock::take(path)?;
    let all = recorded(path)?.unwrap_or_default();
    let (mut count, mut notes, mut left) = (0, Vec::new(), UndoRecord::default());
    for write in all.writes.iter().rev() {
        let target = &write.target;
        match target.read(root) {
            Err(error) if is_gone(&error) => notes.push(format!("{target} is gone")),
            Err(error) => {
                notes.push(format!("{target} cannot be read, and stays recorded: {error}"));
                left.writes.insert(0, write.clone());
            }
            Ok(now) if target.same(&now, &write.before) => {}
            Ok(now) if !target.same(&now, &write.after) => {
                notes.push(format!("{target} was changed by somebody else, to `{now}`, and is left"));
            }
            Ok(_) => match carry_out(root, write, &write.before) {
                Ok(()) => count += 1,
                Err(reason) => {
                    notes.push(format!("{target} stays, and stays recorded: {reason}"));
                    left.writes.insert(0, write.clone());
                }
            },
        }
    }
    record(path, &left)?;
    Ok((count, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_rights_is_told_what_to_do() {
        let told = |kind: io::ErrorKind| PlaceError::Own("/run/nearfar".into(), kind.into()).to_string();
        assert!(told(io::ErrorKind::PermissionDenied).contains("run it as root"));
        assert!(!told(io::ErrorKind::StorageFull).contains("root"));
    }
}
