//! Compares a directory of measured results with the same runs simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use machine::{Diagnostics, Doc, IommuMode, Library, Machine, Sockets};
use results::compare::{CompareRow, Rules, Summary, Target, compare_directory, modes};
use results::pciebench::{
    LatencyStats, ReadError, ResultDirectory, Row, Run, Setup, family, read_directory_lenient,
};
use thiserror::Error;

use crate::batch::{Job, Length, run_all};
use crate::links::LinkState;
use crate::progress::Progress;
use crate::suite;
use crate::uncertainty::{Draws, Spread};

mod choose;
mod held;
mod tools;

pub use choose::{Chosen, check, choose};
pub(crate) use choose::{lay_what_is_public, wanted};
pub use held::{HeldRows, holds};
pub use tools::{
    ToolComparison, ToolOptions, ToolsError, compare_reports, compare_tools, error_pct, read_tool,
};

/// Changes to a file: dotted path and value, as with `--set PATH=VALUE`.
pub type Settings = Vec<(String, String)>;

/// What is assumed to be known about the measured machine.
#[derive(Clone, Debug, Default)]
pub enum MachineSource {
    /// Its file, or its nearest relative's if it has none.
    #[default]
    Own,
    /// Data from data sheets, standards and the machine itself, as in its file; the rest from its nearest relative.
    DataSheet,
    /// Nothing: its nearest relative's file is used.
    Relative,
    /// This file, whatever the directory's name says.
    File(Box<Doc<Machine>>),
}

/// What to compare a directory with, and which of its rows.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Where to find machine and part files.
    pub library: Library,
    /// The machine; chosen by the directory's name if `None`.
    pub machine: Option<String>,
    /// What is known about a machine chosen by the directory's name.
    pub known: MachineSource,
    /// The card; chosen by the directory's name if `None`.
    pub card: Option<String>,
    /// The sockets; from the directory's name if `None`.
    pub sockets: Option<Sockets>,
    /// The IOMMU; from the directory's name if `None`.
    pub iommu: Option<IommuMode>,
    /// Changes to the machine.
    pub set: Settings,
    /// Changes to the card.
    pub card_set: Settings,
    /// Only files whose name contains this text.
    pub files: Option<String>,
    /// Approximate limit of rows per family of files, spread evenly; all if `None`.
    pub sample: Option<usize>,
    /// Apply the targets for directories that no parameter was fitted to, whatever the machine's file says.
    pub held_out: bool,
    /// Simulate rows with drawn figures as well.
    pub uncertainty: Option<Draws>,
    /// Random seed.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            library: Library::built_in(),
            machine: None,
            known: MachineSource::Own,
            card: None,
            sockets: None,
            iommu: None,
            set: Vec::new(),
            card_set: Vec::new(),
            files: None,
            sample: None,
            held_out: false,
            uncertainty: None,
            seed: 1,
        }
    }
}

/// Result of comparing a directory.
#[derive(Debug)]
pub struct Comparison {
    /// The directory.
    pub path: PathBuf,
    /// Name of the simulated machine.
    pub machine: String,
    /// Simulated card, sockets and IOMMU.
    pub simulated: String,
    /// Negotiated state of the card's link.
    pub link: Option<LinkState>,
    /// Reasons for the choice of the machine, and contradictions in the directory.
    pub notes: Vec<String>,
    /// Whether the directory itself was simulated. Differences then result from later changes, and no target applies.
    pub is_simulated: bool,
    /// Whether the targets for unseen directories apply.
    pub held_out: bool,
    /// Contents of the directory's name; `None` if it has another format.
    pub setup: Option<Setup>,
    /// All rows, in the order of the files.
    pub rows: Vec<CompareRow>,
    /// For each row, the artefact that excludes it from the summary, and the known cause of its error.
    pub reasons: Vec<(Option<String>, Option<String>)>,
    /// For each row, its interval by simulations with drawn figures, if asked for.
    pub intervals: Vec<Option<Spread>>,
    /// How many counted rows these intervals hold, by family.
    pub held: BTreeMap<String, HeldRows>,
    /// The same of all latencies and of all bandwidths.
    pub held_in_all: [HeldRows; 2],
    /// Errors by family.
    pub summary: Summary,
    /// Unreadable files and rows that could not be simulated. All others were compared.
    pub problems: Vec<String>,
    /// Number of distinct runs simulated.
    pub runs: usize,
    /// TLPs simulated.
    pub tlps: u64,
}

/// Why a directory cannot be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// It is unreadable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no machine for it, or the machine's file is wrong.
    #[error(transparent)]
    Machine(#[from] Diagnostics),
    /// No file matches the filter.
    #[error("no result file of {directory} has `{wanted}` in its name; there are {files}")]
    NoFile {
        /// The directory whose files were looked through.
        directory: PathBuf,
        /// The filter.
        wanted: String,
        /// The existing files.
        files: String,
    },
}

/// Applies changes from the command line's `option` to a file. Paths may be spelt as in scenarios, which also name
/// the file.
///
/// # Errors
/// If a path does not exist.
pub fn apply<T: machine::Kindred>(
    doc: &mut Doc<T>,
    option: &str,
    settings: &Settings,
) -> Result<(), Diagnostics> {
    let own = |path: &str| {
        path.strip_prefix("change.").or_else(|| path.strip_prefix("change_card.")).unwrap_or(path).to_owned()
    };
    settings.iter().try_for_each(|(path, value)| doc.set_by(option, None, &own(path), value))
}

/// Compares every row of the directory at `path`. Repeated runs are simulated once.
///
/// # Errors
/// If the directory is unreadable or no machine is known for it. A bad file is only a problem in the result.
pub fn compare(
    path: &Path,
    options: &CompareOptions,
    progress: &dyn Progress,
) -> Result<Comparison, CompareError> {
    let (mut directory, bad) = read_directory_lenient(path)?;
    let mut problems: Vec<String> = bad.iter().map(ToString::to_string).collect();
    let sequence: Vec<(String, usize, Run)> =
        directory.sequence().into_iter().map(|(file, row, run)| (file.to_owned(), row, run)).collect();
    if let Some(wanted) = &options.files {
        let names = directory.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>().join(", ");
        directory.files.retain(|file| file.name.contains(wanted.as_str()));
        if directory.files.is_empty() {
            let (directory, wanted) = (path.to_owned(), wanted.clone());
            return Err(CompareError::NoFile { directory, wanted, files: names });
        }
    }
    let Chosen { bench, mut notes, seen } = choose(path, options)?;
    notes.extend(directory.cut_short());
    let held_out = options.held_out || !seen;
    let before: Vec<Run> = sequence.iter().map(|(_, _, run)| *run).collect();
    let sampled = options.sample.map(|most| sample(&directory, most));
    let is_asked = |file: &str, row: usize| {
        directory.file(file).is_some()
            && sampled.as_ref().is_none_or(|rows| rows.contains(&(file.to_owned(), row)))
    };
    // If earlier runs do not matter, one simulation serves all rows that repeat it.
    let mut places: BTreeMap<(Run, usize), Vec<(&str, usize)>> = BTreeMap::new();
    for (index, (file, row, run)) in sequence.iter().enumerate() {
        if is_asked(file, *row) {
            let history = if bench.remembers() { index } else { 0 };
            places.entry((*run, history)).or_default().push((file, *row));
        }
    }
    let jobs: Vec<Job<'_>> = places
        .keys()
        .map(|&(run, history)| Job { bench: &bench, run, before: &before[..history], effort: Length::Steady })
        .collect();
    let outcomes = run_all(&jobs, &format!("{} on {}", short(path), bench.machine.name), progress);
    let mut tlps = 0;
    let mut values = BTreeMap::new();
    for ((&(run, _), rows), outcome) in places.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => {
                tlps += outcome.tlps;
                values.extend(rows.iter().map(|&place| (place, outcome.row)));
            }
            Err(error) => problems.push(place(&directory, &run) + &error.to_string()),
        }
    }
    let mut rows = compare_directory(&directory, |file, row, _| values.get(&(file, row)).copied());
    rows.retain(|row| is_asked(&row.file, row.row));
    let rules = Rules::pcie_bench();
    let mut summary = Summary::of(&rows, directory.setup.as_ref(), &rules, Target::of(held_out));
    if bench.stops() {
        summary.modes = modes(&latencies(&directory, &values));
    }
    let is_simulated = suite::is_simulated(path);
    if is_simulated {
        for miss in &mut summary.misses {
            miss.cause.get_or_insert_with(|| "what was changed".into());
        }
        summary = summary.without_targets();
    }
    let reason = |row: &CompareRow| {
        let artefact = rules.artefact(directory.setup.as_ref(), row).map(|artefact| artefact.name.clone());
        (artefact, rules.cause(directory.setup.as_ref(), row).map(|cause| cause.name.clone()))
    };
    let reasons: Vec<_> = rows.iter().map(reason).collect();
    let mut spreads: BTreeMap<(&str, usize), Spread> = BTreeMap::new();
    if let Some(draws) = options.uncertainty {
        let runs: Vec<(Run, usize)> = places.keys().copied().collect();
        let intervals = held::intervals(path, options, draws, (&runs, &before), progress)?;
        for (rows, interval) in places.values().zip(intervals) {
            spreads.extend(
                interval.into_iter().flat_map(|interval| rows.iter().map(move |&row| (row, interval))),
            );
        }
    }
    let interval = |row: &CompareRow| spreads.get(&(row.file.as_str(), row.row)).copied();
    let intervals: Vec<Option<Spread>> = rows.iter().map(interval).collect();
    let counted = rows.iter().zip(&intervals).zip(&reasons).filter(|(_, (artefact, _))| artefact.is_none());
    let (held, held_in_all) =
        held::count(counted.filter_map(|((row, interval), _)| Some((row, interval.as_ref()?))));
    Ok(Comparison {
        path: path.to_owned(),
        machine: bench.machine.name.clone(),
        simulated: choose::describe(&bench),
        link: LinkState::of_bench(&bench),
        is_simulated,
        notes,
        held_out,
        setup: directory.setup,
        rows,
        reasons,
        intervals,
        held,
        held_in_all,
        summary,
        problems,
        runs: jobs.len(),
        tlps,
    })
}

/// Files and row numbers of about `most` rows per family.
fn sample(directory: &ResultDirectory, most: usize) -> BTreeSet<(String, usize)> {
    let mut families: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for file in &directory.files {
        let rows = (1..=file.rows().len()).map(|row| (file.name.clone(), row));
        families.entry(family(&file.name)).or_default().extend(rows);
    }
    families.into_values().flat_map(|rows| spread(rows, most)).collect()
}

/// About `most` of these rows, spread without a period, since sizes, windows and cache states of the rows are
/// periodic.
pub(crate) fn spread<T>(rows: Vec<T>, most: usize) -> impl Iterator<Item = T> {
    /// Fractional part of the golden ratio, whose multiples fill an interval most evenly.
    const STEP: f64 = 0.618_033_988_749_895;
    let share = most as f64 / rows.len() as f64;
    let is_chosen = move |index: usize| (index as f64 * STEP).fract() < share;
    rows.into_iter().enumerate().filter(move |(index, _)| is_chosen(*index)).map(|(_, row)| row)
}

/// Latency rows of a directory in ns, each measured and simulated.
fn latencies(
    directory: &ResultDirectory,
    simulated: &BTreeMap<(&str, usize), Row>,
) -> Vec<(LatencyStats, LatencyStats)> {
    let pair = |(measured, simulated): (&Row, &Row)| match (measured, simulated) {
        (Row::Latency(measured), Row::Latency(simulated)) => Some((measured.ns, simulated.ns)),
        _ => None,
    };
    let mut all = Vec::new();
    for file in &directory.files {
        for (index, row) in file.rows().iter().enumerate() {
            let simulated = simulated.get(&(file.name.as_str(), index + 1));
            all.extend(simulated.and_then(|simulated| pair((row, simulated))));
        }
    }
    all
}

/// File and row of the first occurrence of a run.
fn place(directory: &ResultDirectory, run: &Run) -> String {
    let find = |file: &results::pciebench::ResultFile| file.rows().iter().position(|row| row.run() == run);
    let found = directory.files.iter().find_map(|file| find(file).map(|row| (&file.name, row + 1)));
    found.map_or_else(String::new, |(file, row)| {
        format!("{}, row {row} ({run}): ", directory.path.join(file).display())
    })
}

/// Last component of a path.
fn short(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
