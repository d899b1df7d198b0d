//! Where results go, and how wide they may be.

mod counters;
mod programs;
mod rows;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use nearfar::bench::Bench;

pub use counters::{binding_rows, counter_rows, counter_summary, counter_table};
pub use programs::{account_rows, account_table, program_rows, program_table};
pub use results::table::{Fit, TextTable};
pub use rows::{outcome_table, row};

use crate::failure::Failure;

/// Prints, and does not mind if nobody reads to the end (`nearfar ... | head`): files are written all the same.
pub fn print(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a line to the standard error, and does not mind if nobody reads it (`nearfar ... 2>&1 | head`).
pub fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether what goes to `path` goes to the standard output, where nothing else may then.
pub fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Writes `value` as JSON to `path`, or to the standard output for `-`. Nothing without a path.
pub fn json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)? + "\n";
    write(path, text.as_bytes())
}

/// Complains of two options that write to the same place.
pub fn apart(outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    for (n, (option, path)) in outputs.iter().enumerate() {
        if let Some((other, path)) =
            outputs[..n].iter().find(|(_, other)| other == path).and_then(|(o, p)| Some((o, (*p)?)))
        {
            let place = path.display();
            return Err(Failure::new(format!(
                "{other} and {option} both write to `{place}`; give one of them another file"
            )));
        }
    }
    Ok(())
}

/// Writes a file and the folders that it is in; to the standard output for `-`.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if is_stdout(Some(path)) {
        print(String::from_utf8_lossy(bytes).trim_end());
        return Ok(());
    }
    let cannot = |error| Failure::new(format!("`{}` cannot be written: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    std::fs::write(path, bytes).map_err(cannot)
}

/// A file to write, as an option gives it; `-` for the standard output. Looked at before anything is simulated.
pub fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if is_stdout(Some(&path)) {
        return Ok(path);
    }
    if path.is_dir() || text.ends_with('/') {
        return Err("it is a folder; name a file in it".into());
    }
    if path.file_name().is_none() {
        return Err("it names no file".into());
    }
    if path.exists() {
        let opened = std::fs::OpenOptions::new().append(true).open(&path);
        return opened.map(|_| path).map_err(|error| format!("it cannot be written: {error}"));
    }
    in_folder(&path)?;
    Ok(path)
}

/// A folder to write into, which need not be there yet.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() {
        return Err("it names no folder".into());
    }
    if path.exists() && !path.is_dir() {
        return Err("it is a file, not a folder".into());
    }
    in_folder(&path)?;
    Ok(path)
}

/// Whether what is first there of the folders above a path is one.
fn in_folder(path: &Path) -> Result<(), String> {
    match path.ancestors().skip(1).find(|above| above.exists()) {
        Some(above) if !above.is_dir() => Err(format!("`{}` is a file, not a folder", above.display())),
        _ => Ok(()),
    }
}

/// How wide what is printed may be: as the terminal, or as `COLUMNS` says. Without either rows stay whole, so that each can be
/// searched for.
pub fn width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || terminal_size::terminal_size().map(|(width, _)| width.0.into());
    told.or_else(|| std::io::stdout().is_terminal().then(seen).flatten()).filter(|&width| width > 0)
}

/// Sentences, in lines that fit.
pub fn prose(text: &str) -> String {
    let width = width().unwrap_or(usize::MAX);
    let lines = |line: &str| match line.trim().is_empty() {
        true => vec![String::new()],
        false => results::table::wrapped(line, line.len() - line.trim_start().len(), width),
    };
    text.lines().flat_map(lines).collect::<Vec<_>>().join("\n")
}

/// Sockets and IOMMU in words.
pub fn placement(bench: &Bench) -> String {
    let sockets = &bench.sockets;
    format!(
        "sockets s{}-s{}-s{} (device, memory, program), IOMMU {}",
        sockets.device, sockets.memory, sockets.warming, bench.iommu
    )
}

/// A slot as a sentence has it: the usual one is called `slot`.
pub fn place(slot: &str) -> String {
    if slot == "slot" { "its slot".to_owned() } else { format!("slot {slot}") }
}
