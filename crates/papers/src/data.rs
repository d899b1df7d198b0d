//! Finds the measured data, if available.

use std::path::{Path, PathBuf};

use results::claims::Evidence;
use results::pciebench::read_directory;

/// `$NEARFAR_DATA`, or `../shared`.
pub fn data_folder() -> PathBuf {
    std::env::var_os("NEARFAR_DATA").map_or_else(|| PathBuf::from("../shared"), PathBuf::from)
}

/// Loads all measured pcie-bench directories below `data` as evidence.
///
/// # Errors
/// A sentence saying why there are none.
pub fn measured_evidence(data: &Path) -> Result<Evidence, String> {
    let folder = data.join("measured/pcie-bench");
    let entries = std::fs::read_dir(&folder)
        .map_err(|_| format!("no directory `{}` (set NEARFAR_DATA to where it is).", folder.display()))?;
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|p| p.is_dir()).collect();
    paths.sort();
    let mut evidence = Evidence::default();
    for path in &paths {
        evidence.add_measured(&read_directory(path).map_err(|error| format!("{error}."))?);
    }
    if evidence.outcomes.is_empty() {
        return Err(format!("nothing measured in `{}`.", folder.display()));
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_said() {
        let reason = measured_evidence(Path::new("/nowhere")).unwrap_err();
        assert!(reason.contains("NEARFAR_DATA") && reason.ends_with('.'), "{reason}");
    }
}
