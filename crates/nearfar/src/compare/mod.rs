//! A directory of measured results against the same runs simulated.

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

mod choose;

pub use choose::{Chosen, check, choose};
pub(crate) use choose::{lay_what_is_public, wanted};

/// Changes to a file: dotted path and value, as `--set PATH=VALUE` gives them.
pub type Settings = Vec<(String, String)>;

/// What is taken to be known of the machine that a directory was measured on.
#[derive(Clone, Debug, Default)]
pub enum Known {
    /// Its file, or its nearest relative's where it has none.
    #[default]
    Own,
    /// What data sheets, standards and the machine itself say, as its file has it; the rest is its nearest relative's.
    DataSheet,
    /// Nothing: its nearest relative's file stands for it.
    Relative,
    /// The machine of this file, whatever the directory's name says.
    File(Box<Doc<Machine>>),
}

/// What to compare with what.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where machine and part files are found.
    pub library: Library,
    /// The machine; chosen by the directory's name where not given.
    pub machine: Option<String>,
    /// What is taken to be known of a machine that the directory's name chooses.
    pub known: Known,
    /// The card; chosen by the directory's name where not given.
    pub card: Option<String>,
    /// The sockets; told by the directory's name where not given.
    pub sockets: Option<Sockets>,
    /// The IOMMU; told by the directory's name where not given.
    pub iommu: Option<IommuMode>,
    /// Changes to the machine.
    pub set: Settings,
    /// Changes to the card.
    pub card_set: Settings,
    /// Only files whose name contains this.
    pub files: Option<String>,
    /// At most about so many rows of each family of files, spread over them; all if not given.
    pub sample: Option<usize>,
    /// Whether the targets are those of directories that no parameter has seen, whatever the machine's file says.
    pub held_out: bool,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            library: Library::built_in(),
            machine: None,
            known: Known::Own,
            card: None,
            sockets: None,
            iommu: None,
            set: Vec::new(),
            card_set: Vec::new(),
            files: None,
            sample: None,
            held_out: false,
            seed: 1,
        }
    }
}

/// A directory compared.
#[derive(Debug)]
pub struct Comparison {
    /// The directory.
    pub path: PathBuf,
    /// The machine that it was compared with.
    pub machine: String,
    /// Card, sockets and IOMMU that were simulated.
    pub simulated: String,
    /// What the card's link agreed on.
    pub link: Option<LinkState>,
    /// What the choice of the machine rests on, and what in the directory contradicts it.
    pub notes: Vec<String>,
    /// Whether the directory was simulated: what differs comes of what was changed since, and no target holds it.
    pub is_simulated: bool,
    /// Whether it is held to the targets of directories that no parameter has seen.
    pub held_out: bool,
    /// What the directory's name says; `None` if it is of another form.
    pub setup: Option<Setup>,
    /// Every row, in the order of the files.
    pub rows: Vec<CompareRow>,
    /// For each row the artefact that leaves it out of the summary, and the known cause of its error.
    pub reasons: Vec<(Option<String>, Option<String>)>,
    /// Errors by family.
    pub summary: Summary,
    /// Files that could not be read and rows that could not be simulated. The others were compared.
    pub problems: Vec<String>,
    /// Distinct runs simulated.
    pub runs: usize,
    /// TLPs that they took.
    pub tlps: u64,
}

/// Why a directory cannot be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no machine for it, or the machine's file is wrong.
    #[error(transparent)]
    Machine(#[from] Diagnostics),
    /// None of its files is asked for.
    #[error("no result file of {directory} has `{wanted}` in its name; there are {files}")]
    NoFile {
        /// The directory.
        directory: PathBuf,
        /// What was asked for.
        wanted: String,
        /// What there is.
        files: String,
    },
}

/// Makes changes in a file that the command line's `option` asks for. Paths may be spelt as scenarios do, which say whose
/// file they change.
///
/// # Errors
/// A path that is none.
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

/// Compares every row of the directory at `path`. Runs that occur several times are simulated once.
///
/// # Errors
/// If the directory cannot be read or no machine is known for it. A bad file is a problem in the result.
pub fn compare(path: &Path, options: &Options, progress: &dyn Progress) -> Result<Comparison, CompareError> {
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
    // Where nothing before bears on a run, one simulation serves all rows that repeat it.
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
    let reasons = rows.iter().map(reason).collect();
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
        summary,
        problems,
        runs: jobs.len(),
        tlps,
    })
}

/// Files and numbers of about `most` rows of each family, spread over it without a period: rows follow each other in
/// periods of sizes, windows and states of the cache.
fn sample(directory: &ResultDirectory, most: usize) -> BTreeSet<(String, usize)> {
    /// The golden ratio's fraction, whose multiples fill an interval most evenly.
    const STEP: f64 = 0.618_033_988_749_895;
    let mut families: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for file in &directory.files {
        let rows = (1..=file.rows().len()).map(|row| (file.name.clone(), row));
        families.entry(family(&file.name)).or_default().extend(rows);
    }
    let mut chosen = BTreeSet::new();
    for rows in families.into_values() {
        let share = most as f64 / rows.len() as f64;
        let is_chosen = |index: usize| (index as f64 * STEP).fract() < share;
        chosen
            .extend(rows.into_iter().enumerate().filter(|(index, _)| is_chosen(*index)).map(|(_, row)| row));
    }
    chosen
}

/// The latency rows of a directory, each measured and simulated, in ns.
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

/// The first file and row that a run stands in.
fn place(directory: &ResultDirectory, run: &Run) -> String {
    let find = |file: &results::pciebench::ResultFile| file.rows().iter().position(|row| row.run() == run);
    let found = directory.files.iter().find_map(|file| find(file).map(|row| (&file.name, row + 1)));
    found.map_or_else(String::new, |(file, row)| {
        format!("{}, row {row} ({run}): ", directory.path.join(file).display())
    })
}

/// The last part of a path.
fn short(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
