//! Cross-validation: fit a machine without one directory, then compare it with that directory.

use std::path::{Path, PathBuf};

use machine::{Determined, Doc, Kind, Machine, find_machine, find_relative};
use results::compare::Summary;

use super::measured::MeasuredDirectory;
use super::search::Tried;
use super::{FitError, FitOptions, give_back_what_is_worse, rounds, same_machine, statement, targets};
use crate::compare::{self, MachineSource};
use crate::progress::Progress;

/// A directory, compared with a machine fitted to the others.
#[derive(Debug)]
pub struct LeftOut {
    /// The directory that was left out.
    pub directory: PathBuf,
    /// The related machine from whose file the fit started.
    pub relative: String,
    /// The machine fitted without the directory.
    pub machine: Doc<Machine>,
    /// Parameters that the other directories do not determine: they keep the related machine's values.
    pub of_relative: Vec<String>,
    /// Errors of the comparison.
    pub summary: Summary,
}

/// Leaves out each of the directories in turn. All must be of one machine.
///
/// # Errors
/// As for [`leave_out`].
pub fn leave_one_out(
    paths: &[PathBuf],
    options: &FitOptions,
    sample: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<LeftOut>, FitError> {
    paths.iter().map(|path| leave_out(path, paths, options, sample, progress)).collect()
}

/// Fits to the other directories, all of one machine, and compares with the directory at `path`. The fit starts from
/// what is known without results: the most similar measured machine's file, overridden by data sheets, standards and
/// the machine's own settings. Compares about `sample` rows per family. The card's parameters do not change.
///
/// # Errors
/// As [`super::fit`]; also if there is no other directory.
pub fn leave_out(
    path: &Path,
    paths: &[PathBuf],
    options: &FitOptions,
    sample: Option<usize>,
    progress: &dyn Progress,
) -> Result<LeftOut, FitError> {
    let (mut problems, mut doubts) = (Vec::new(), Vec::new());
    let rest: Vec<&PathBuf> = paths.iter().filter(|other| *other != path).collect();
    if rest.is_empty() {
        return Err(FitError::OneDirectory);
    }
    let read = |path: &&PathBuf| MeasuredDirectory::read(path, options, &mut problems, &mut doubts);
    let directories: Vec<MeasuredDirectory> = rest.iter().map(read).collect::<Result<_, _>>()?;
    same_machine(&directories)?;
    let base = known_without_results(&directories[0], options)?;
    let before = base.read()?;
    let mut tried = Tried::new(base.clone(), before.clone());
    let mut wanted = targets(&before, &directories, options)?;
    let public: Vec<String> = machine::figures(&before)
        .into_iter()
        .filter(|f| matches!(f.provenance.kind, Kind::Datasheet | Kind::Specification | Kind::Measured))
        .map(|figure| figure.path)
        .collect();
    wanted.retain(|figure| !public.contains(&figure.path));
    let all: Vec<String> = wanted.iter().map(|figure| figure.path.clone()).collect();
    let mut fitted = rounds(wanted, &directories, &mut tried, &before, progress);
    give_back_what_is_worse(&directories, &mut fitted, &mut tried, &before, progress);
    let is_told = |path: &&String| {
        fitted.iter().any(|f| f.path == **path && f.determined != Determined::Not && f.given_back.is_none())
    };
    let of_relative = all.iter().filter(|path| !is_told(path)).cloned().collect();
    let machine = statement::write_down(base, &directories, &fitted, options)?;
    let with = compare::CompareOptions {
        library: options.library.clone(),
        known: MachineSource::File(Box::new(machine.clone())),
        held_out: true,
        sample,
        seed: options.seed,
        ..compare::CompareOptions::default()
    };
    let summary = compare::compare(path, &with, progress)?.summary;
    Ok(LeftOut { directory: path.to_owned(), relative: before.name, machine, of_relative, summary })
}

/// The file of the most similar measured machine, overridden by public data on the directory's machine.
fn known_without_results(
    directory: &MeasuredDirectory,
    options: &FitOptions,
) -> Result<Doc<Machine>, FitError> {
    let setup =
        directory.setup.as_ref().expect("a directory of a known machine has a name of the usual form");
    let own = find_machine(&options.library, compare::wanted(setup))?.0;
    let sockets = own.read()?.host.sockets.value.get();
    let mut base = find_relative(&options.library, compare::wanted(setup), sockets)?;
    compare::lay_what_is_public(&mut base, &own)?;
    Ok(base)
}
