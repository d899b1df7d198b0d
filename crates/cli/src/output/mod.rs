//! Output: files, standard output and its width.

pub mod answer;
mod counters;
mod places;
mod programs;
mod records;
mod rows;
pub mod sweep;
mod trust;
mod what_if;

use std::io::{self, IsTerminal as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use machine::Library;
use results::Provenance;
use results::provenance::{Input, command_line};
use results::report::{Chart, pdf, picture};

use nearfar::LinkState;
use nearfar::bench::Bench;
use nearfar::records::made_from;

pub use counters::{counter_summary, counter_table, fullness};
pub use places::Places;
pub use programs::number;
pub use programs::{account_table, folded, program_table, warning_lines};
pub use records::Records;
pub use results::table::{Fit, TextTable};
pub use rows::outcome_table;
pub use trust::{held_table, trust_lines};
pub use what_if::what_if_table;

use crate::failure::Failure;

/// The first error on standard output.
static UNWRITTEN: OnceLock<String> = OnceLock::new();
/// Whoever read the standard output has closed it.
static HAS_LEFT: OnceLock<()> = OnceLock::new();

/// Prints text. Ignores a closed pipe (`nearfar ... | head`), since files are still to be written; other errors are
/// reported [at the end](unwritten).
pub fn print(text: &str) {
    use std::io::Write as _;
    let mut out = io::stdout().lock();
    let text = files::shown(text);
    note_unwritten(crate::closed::check().and_then(|()| writeln!(out, "{text}")).and_then(|()| out.flush()));
}

/// Stores an error of standard output, unless the pipe was closed.
pub fn note_unwritten(written: io::Result<()>) {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => drop(HAS_LEFT.set(())),
        Err(error) => drop(UNWRITTEN.set(error.to_string())),
        Ok(()) => {}
    }
}

/// Whether what is printed again and again is still read.
///
/// # Errors
/// If it cannot be written, or whoever read it has gone.
pub fn is_heard() -> Result<(), Failure> {
    note_unwritten(crate::closed::check().and_then(|()| has_reader()));
    let has_left = HAS_LEFT.get().map(|()| Failure::new("nobody reads the standard output any more"));
    unwritten().or(has_left).map_or(Ok(()), Err)
}

/// Fails if whoever read the standard output has closed it, also when there was nothing to print since.
fn has_reader() -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let out = io::stdout();
    let mut looked_at = [PollFd::new(&out, PollFlags::empty())];
    poll(&mut looked_at, Some(&Timespec::default()))?;
    let gone = looked_at[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
    if gone { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// The error of standard output, if any.
pub fn unwritten() -> Option<Failure> {
    UNWRITTEN.get().map(|error| Failure::new(format!("the standard output cannot be written: {error}")))
}

/// Provenance of a command's output. Changes are options with their settings.
pub fn provenance(seed: u64, changes: &[(&str, &[(String, String)])], library: &Library) -> Provenance {
    let option = |(option, all): &(&str, &[(String, String)])| {
        let change = |(path, value): &(String, String)| {
            format!("{option} {}", command_line([format!("{path}={value}")]))
        };
        all.iter().map(change).collect::<Vec<_>>()
    };
    // `NEARFAR_COMMIT` is set when building from a repository: see the Makefile.
    let version = match option_env!("NEARFAR_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let command = command_line(std::iter::once("nearfar".to_owned()).chain(words));
    made_from(version, command, seed, changes.iter().flat_map(option).collect(), library)
}

/// A folder of measured files as an input.
///
/// # Errors
/// If a file of it cannot be read.
pub fn measured(path: &Path) -> Result<Input, Failure> {
    let digest = match path.is_file() {
        true => files::read(path).map(|bytes| files::sha256(&bytes)),
        false => files::digest_folder(path),
    };
    let sha256 = digest.map_err(|error| Failure::new(format!("`{}`: {error}", path.display())))?;
    Ok(Input { kind: "measured".into(), name: path.display().to_string(), sha256 })
}

/// Whether the terminal shows the provenance.
static IS_VERBOSE: OnceLock<bool> = OnceLock::new();

/// Shows the provenance on the terminal, too.
pub fn be_verbose() {
    let _ = IS_VERBOSE.set(true);
}

/// Prints the provenance of what follows: with `-v`, or if standard output is a file. Otherwise, what the command line
/// changes.
pub fn heading(provenance: &Provenance) {
    if IS_VERBOSE.get().is_some() || is_redirected() {
        print(&(prose(&provenance.lines().join("\n")) + "\n"));
        return;
    }
    let is_own = |change: &&String| change.starts_with("--") && !change.starts_with("--over");
    let changes: Vec<&str> = provenance.changes.iter().filter(is_own).map(String::as_str).collect();
    if !changes.is_empty() {
        print(&(prose(&format!("changed: {}", changes.join("; "))) + "\n"));
    }
}

/// Whether standard output is a regular file, which is kept.
fn is_redirected() -> bool {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd as _;
        let file = io::stdout().as_fd().try_clone_to_owned().map(std::fs::File::from);
        file.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_file())
    }
    #[cfg(not(unix))]
    false
}

/// Writes records as a JSON list to `path`, or to standard output for `-`; does nothing without a path. The first
/// record holds the provenance of all.
pub fn list(
    path: Option<&Path>,
    mut rows: Vec<serde_json::Value>,
    provenance: &Provenance,
) -> Result<(), Failure> {
    if path.is_some()
        && let Some(first) = rows.first_mut()
    {
        first["provenance"] = serde_json::to_value(provenance).map_err(Failure::new)?;
    }
    json(path, &rows)
}

/// Writes a file whose format has no place for provenance, and a second file next to it with the provenance.
pub fn with_origin(path: &Path, bytes: &[u8], provenance: &Provenance) -> Result<(), Failure> {
    write(path, bytes)?;
    if keeps(path) { json(Some(&origin(path)), provenance) } else { Ok(()) }
}

/// The second file of [`with_origin`].
fn origin(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".provenance.json");
    name.into()
}

/// Whether a path is that of a file, with others beside it: not of a pipe or a device.
fn keeps(path: &Path) -> bool {
    !is_stdout(Some(path)) && std::fs::metadata(path).map_or(true, |known| known.is_file())
}

/// Writes a line to standard error, ignoring a closed pipe (`nearfar ... 2>&1 | head`).
pub fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{}", files::shown(text));
}

/// Tells which programs have failed. The status of a command that ran all the same.
pub fn complain_of(failed: &[String]) -> std::process::ExitCode {
    failed.iter().for_each(|failure| complain(&format!("error: {failure}")));
    if failed.is_empty() { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// Whether `path` is standard output; then nothing else may be printed there.
pub fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Writes `value` as JSON to `path`, or to standard output for `-`; does nothing without a path.
pub fn json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)? + "\n";
    write(path, files::shown_json(&text).as_bytes())
}

/// Writes a file and creates its folders; writes to standard output for `-`.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if let (true, Ok(text)) = (is_stdout(Some(path)), std::str::from_utf8(bytes)) {
        print(text.trim_end());
        return Ok(());
    }
    write_with(path, |out| out.write_all(bytes))
}

/// As [`write`](fn@write), for data produced piece by piece.
pub fn write_with(
    path: &Path,
    give: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if is_stdout(Some(path)) {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written =
            crate::closed::check().and_then(|()| give(&mut out)).and_then(|()| io::Write::flush(&mut out));
        note_unwritten(written);
        return Ok(());
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        complain(&format!("note: made the folder {}", folder.display()));
    }
    let _waiting = waits_at_pipe(path, "read");
    files::write_with(path, give)
        .map_err(|error| Failure::new(format!("`{}` cannot be written: {error}", path.display())))
}

/// Says that nobody reads a pipe, or writes to it, if that takes longer than a moment. The note is off once what it returns is
/// dropped.
pub fn waits_at_pipe(path: &Path, does: &str) -> Option<mpsc::Sender<()>> {
    if !std::fs::metadata(path).is_ok_and(|known| known.file_type().is_fifo()) {
        return None;
    }
    let (done, ended) = mpsc::channel();
    let note = format!("note: waiting for somebody to {does} `{}`, which is a pipe", path.display());
    // Where none can be started, nothing is said.
    let _ = std::thread::Builder::new().spawn(move || {
        if ended.recv_timeout(Duration::from_secs(2)) == Err(mpsc::RecvTimeoutError::Timeout) {
            complain(&note);
        }
    });
    Some(done)
}

/// Writes charts as a picture, if requested: as PDF if the file is called so, else as SVG.
pub fn plot(path: Option<&Path>, charts: &[Chart], provenance: &Provenance) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let is_pdf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pdf"));
    match picture(charts) {
        Some(svg) if is_pdf => {
            let bytes =
                pdf(&svg).ok_or_else(|| Failure::new("--plot: the picture cannot be written as PDF"))?;
            with_origin(path, &bytes, provenance)
        }
        Some(svg) => with_origin(path, svg.as_bytes(), provenance),
        None => Err(Failure::new("--plot: there is nothing to draw: no quantity has two values")),
    }
}

/// Parses an output file argument; `-` is standard output. Checked before anything is simulated.
pub fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if is_stdout(Some(&path)) || files::is_stdout(&path) {
        return Ok("-".into());
    }
    if path.is_dir() || text.ends_with('/') {
        return Err("it is a folder; name a file in it".into());
    }
    if path.file_name().is_none() {
        return Err("it names no file".into());
    }
    in_folder(&path)?;
    files::check(&path).map(|()| path).map_err(|error| format!("it cannot be written: {error}"))
}

/// As [`file()`], for binary data.
pub fn binary(text: &str) -> Result<PathBuf, String> {
    match file(text)? {
        path if text == "-" || is_stdout(Some(&path)) && io::stdout().is_terminal() => {
            Err("it is binary and cannot go to a terminal; name a file".into())
        }
        path => Ok(path),
    }
}

/// Parses an output folder argument; the folder need not exist.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() {
        return Err("it names no folder".into());
    }
    if path.exists() && !path.is_dir() {
        return Err("it is a file, not a folder".into());
    }
    in_folder(&path)?;
    files::check(&path.join("x")).map(|()| path).map_err(|error| format!("it cannot be written: {error}"))
}

/// Fails if the closest existing parent of a path is not a folder.
fn in_folder(path: &Path) -> Result<(), String> {
    match path.ancestors().skip(1).find(|above| above.exists()) {
        Some(above) if !above.is_dir() => Err(format!("`{}` is a file, not a folder", above.display())),
        _ => Ok(()),
    }
}

/// Maximum width of printed text: that of the terminal, or `COLUMNS`; 80 columns for files and pipes. To search rows,
/// use `--csv` or `--json`, or set COLUMNS=0 to disable wrapping.
pub fn width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || terminal_size::terminal_size().map(|(width, _)| width.0.into());
    /// Fits every screen and sheet of paper.
    const PIPED: usize = 80;
    let seen = || if std::io::stdout().is_terminal() { seen() } else { Some(PIPED) };
    told.or_else(seen).filter(|&width| width > 0)
}

/// Wraps prose to the width.
pub fn prose(text: &str) -> String {
    let width = width().unwrap_or(usize::MAX);
    let lines = |line: &str| match line.trim().is_empty() {
        true => vec![String::new()],
        false => results::table::wrapped(line, line.len() - line.trim_start().len(), width),
    };
    text.lines().flat_map(lines).collect::<Vec<_>>().join("\n")
}

/// Negotiated parameters, one line per link.
pub fn link_lines(links: &[LinkState]) -> String {
    prose(&links.iter().map(|link| format!("link {link}")).collect::<Vec<_>>().join("\n"))
}

/// Sockets and IOMMU, as text.
pub fn placement(bench: &Bench) -> String {
    let sockets = &bench.sockets;
    format!(
        "sockets s{}-s{}-s{} (device, memory, program), IOMMU {}",
        sockets.device, sockets.memory, sockets.warming, bench.iommu
    )
}

/// A slot as part of a sentence; the default one is called `slot`.
pub fn place(slot: &str) -> String {
    if slot == "slot" { "its slot".to_owned() } else { format!("slot {slot}") }
}
