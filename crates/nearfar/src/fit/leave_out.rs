//! New configurations of a fitted machine: fit without a directory, compare with it.

use std::path::{Path, PathBuf};

use machine::{Determined, Doc, Kind, Machine, find_machine, find_relative};
use results::compare::Summary;

use super::measured::MeasuredDirectory;
use super::search::Tried;
use super::{FitError, Options, give_back_what_is_worse, rounds, same_machine, statement, targets};
use crate::compare::{self, Known};
use crate::progress::Progress;

/// A directory compared with a machine that was fitted to the others.
#[derive(Debug)]
pub struct LeftOut {
    /// The directory that was left out of fitting.
    pub directory: PathBuf,
    /// The relative whose file the fit began with.
    pub relative: String,
    /// The machine as it was fitted without the directory.
    pub machine: Doc<Machine>,
    /// Figures that the other directories do not determine: they are the relative's.
    pub of_relative: Vec<String>,
    /// How far off the directory is.
    pub summary: Summary,
}

/// Leaves each of the directories, all of one machine, out in turn.
///
/// # Errors
/// As for [one](leave_out).
pub fn leave_one_out(
    paths: &[PathBuf],
    options: &Options,
    sample: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<LeftOut>, FitError> {
    paths.iter().map(|path| leave_out(path, paths, options, sample, progress)).collect()
}

/// Fits to the other directories, all of one machine, and compares with the one at `path`. The fit begins with what is known
/// without results: the nearest measured relative's file, and over it what data sheets, standards and the machine itself say.
/// At most about `sample` rows of each family are compared. The card stays as it is.
///
/// # Errors
/// As [`super::fit`]; no other directory.
pub fn leave_out(
    path: &Path,
    paths: &[PathBuf],
    options: &Options,
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
    let with = compare::Options {
        library: options.library.clone(),
        known: Known::File(Box::new(machine.clone())),
        held_out: true,
        sample,
        seed: options.seed,
        ..compare::Options::default()
    };
    let summary = compare::compare(path, &with, progress)?.summary;
    Ok(LeftOut { directory: path.to_owned(), relative: before.name, machine, of_relative, summary })
}

/// The nearest measured relative's file with what is public of the directory's machine laid over it.
fn known_without_results(directory: &MeasuredDirectory, options: &Options) -> Result<Doc<Machine>, FitError> {
    let setup =
        directory.setup.as_ref().expect("a directory of a known machine has a name of the usual form");
    let own = find_machine(&options.library, compare::wanted(setup))?.0;
    let sockets = own.read()?.host.sockets.value.get();
    let mut base = find_relative(&options.library, compare::wanted(setup), sockets)?;
    compare::lay_what_is_public(&mut base, &own)?;
    Ok(base)
}
