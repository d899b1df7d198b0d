//! Where results go.

use std::path::Path;

use crate::failure::Failure;

/// Prints, and does not mind if nobody reads to the end (`nearfar ... | head`).
pub fn print(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes `value` as JSON to `path`, or to the standard output for `-`. Nothing without a path.
pub fn json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)? + "\n";
    if path == Path::new("-") {
        print(text.trim_end());
        return Ok(());
    }
    write(path, text.as_bytes())
}

/// Writes a file and the folders that it is in.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let cannot = |error| Failure::new(format!("`{}` cannot be written: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    std::fs::write(path, bytes).map_err(cannot)
}
