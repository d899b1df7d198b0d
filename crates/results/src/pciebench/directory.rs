//! A directory of results.

use super::error::{Problem, ReadError};
use super::{ResultFile, Run, Setup, missing_rows, place_in_suite, read_file};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A complete directory of results.
#[derive(Debug, Clone)]
pub struct ResultDirectory {
    /// Where it was read from.
    pub path: PathBuf,
    /// Setup parsed from its name; `None` if the name has another form (then a machine must be given).
    pub setup: Option<Setup>,
    /// Its result files, by name.
    pub files: Vec<ResultFile>,
    /// Files that were not read: `sys-*.txt`, plots.
    pub not_results: Vec<String>,
}

impl ResultDirectory {
    /// The file with this name, which has no directory in it; `None` if it was not read.
    pub fn file(&self, name: &str) -> Option<&ResultFile> {
        self.files.iter().find(|f| f.name == name)
    }

    /// All rows in the order in which pcie-bench runs them: file, row number from 1, run.
    pub fn sequence(&self) -> Vec<(&str, usize, Run)> {
        let mut files: Vec<&ResultFile> = self.files.iter().collect();
        files.sort_by_key(|file| place_in_suite(&file.name));
        let rows = |file: &ResultFile| file.rows().iter().map(|row| *row.run()).collect::<Vec<_>>();
        let numbered =
            |file| (1..).zip(rows(file)).map(|(row, run)| (file.name.as_str(), row, run)).collect::<Vec<_>>();
        files.into_iter().flat_map(numbered).collect()
    }

    /// A sentence for each file that is shorter than pcie-bench's.
    pub fn cut_short(&self) -> Vec<String> {
        let told = |file: &ResultFile| {
            let runs: Vec<Run> = file.rows().iter().map(|row| *row.run()).collect();
            let missing = missing_rows(&file.name, &runs)?;
            let last = runs.last().map_or_else(String::new, |run| format!(" ({run})"));
            let (path, rows) = (self.path.join(&file.name), runs.len());
            Some(format!(
                "{}: ends with row {rows}{last}, as if it had been cut off there: {missing} of the {} rows that pcie-bench \
                 writes are missing",
                path.display(),
                rows + missing
            ))
        };
        self.files.iter().filter_map(told).collect()
    }

    /// All distinct runs of its rows; these must be simulated to compare it.
    pub fn runs(&self) -> BTreeSet<Run> {
        self.files.iter().flat_map(ResultFile::rows).map(|row| *row.run()).collect()
    }
}

/// Reads every `*.csv` of a directory.
///
/// # Errors
/// For the first invalid file, or if there are no results.
pub fn read_directory(path: &Path) -> Result<ResultDirectory, ReadError> {
    let (directory, errors) = read_directory_lenient(path)?;
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(directory),
    }
}

/// Reads every `*.csv` of a directory, and returns invalid files as errors next to the valid ones, so that one bad
/// file does not hide the rest.
///
/// # Errors
/// If the directory cannot be listed or holds no results.
pub fn read_directory_lenient(path: &Path) -> Result<(ResultDirectory, Vec<ReadError>), ReadError> {
    let fail = |problem| ReadError::new(path, None, problem);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| fail(e.into()))? {
        names.push(entry.map_err(|e| fail(e.into()))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut directory = ResultDirectory {
        path: path.to_owned(),
        setup: setup_of(path).ok(),
        files: Vec::new(),
        not_results: Vec::new(),
    };
    let mut errors = Vec::new();
    for name in names {
        if !name.ends_with(".csv") {
            directory.not_results.push(name);
            continue;
        }
        match read_file(&path.join(&name)) {
            Ok(file) => directory.files.push(file),
            Err(error) => errors.push(error),
        }
    }
    if directory.files.is_empty() && errors.is_empty() {
        return Err(fail(Problem::NoResults));
    }
    Ok((directory, errors))
}

/// Parses the name of a directory.
///
/// # Errors
/// If the name has another form.
pub fn setup_of(path: &Path) -> Result<Setup, ReadError> {
    // `.` and `dir/..` must be resolved to get a name.
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = resolved.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Setup::parse(&name).map_err(|missing| ReadError::new(path, None, Problem::DirectoryName { missing }))
}
