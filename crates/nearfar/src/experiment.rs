//! A scenario of either kind: loaded by name, changed, and ready to run.

use std::sync::Arc;

use machine::{ComputerScenario, ComputerSetup, Diagnostics, Doc, Library, Scenario, Setup};

use crate::bench::BenchError;
use rayon::prelude::*;

use crate::cache;
use crate::computer::{self, ComputerError};
use crate::origins::Origins;
use crate::progress::Progress;
use crate::records::{self, Record};
use crate::scenario;
use crate::uncertainty::{DRAW, Draw, Draws};

/// Changes to a scenario: dotted paths, with values in TOML syntax.
pub type Changes = [(String, String)];
/// One value per swept key.
pub type Combination = Vec<(String, String)>;

/// A scenario, with its machines and devices loaded.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// Programs on computers.
    Computers(Box<ComputerSetup>),
    /// pcie-bench on a machine with a card.
    Bench(Box<Setup>),
}

/// Why an experiment cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A file is invalid or missing.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// A run of pcie-bench cannot be simulated.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The computers cannot be simulated.
    #[error(transparent)]
    Computer(#[from] ComputerError),
    /// CPU accounting was requested, but no kernel runs.
    #[error(
        "where the cores' time went is known of scenarios with computers: this one has a machine with a card, on which no kernel runs"
    )]
    NoKernel,
    /// A run with drawn figures would write over what another one wrote.
    #[error(
        "{0} writes captures or a drive's blocks, so it cannot be run again and again: leave out `capture` and `backing` for --uncertainty"
    )]
    NotRepeatable(String),
}

/// The scenario table for what the machine's or the card's file calls `key`, in a scenario with a machine and a card.
pub fn table_in_scenario(key: &str) -> Option<&'static str> {
    match key.split('.').next().unwrap_or(key) {
        "host" => Some("change"),
        "dma_engine" | "link" => Some("change_card"),
        _ => None,
    }
}

/// Keys of a program's entry, which are no options of its command line.
const PROGRAM_KEYS: [&str; 7] = ["name", "host", "cpus", "memory", "run", "start", "namespace"];

/// A program and an option of its command line, of a path such as `program.0.bs`.
pub fn program_option(path: &str) -> Option<(&str, &str)> {
    let (program, option) = path.trim().strip_prefix("program.")?.split_once('.')?;
    (!PROGRAM_KEYS.contains(&option) && !option.is_empty()).then_some((program, option))
}

/// Changes an option of a program's command line. The program is a number, counted from 0, or a name: that of its
/// entry, fio's `--name`, or the tool's if it is the only one.
fn set_program_option(
    doc: &mut Doc<ComputerScenario>,
    option: &str,
    path: &str,
    (program, name): (&str, &str),
    value: &str,
) -> Result<(), Diagnostics> {
    let programs = doc.read()?.program;
    let wrong =
        |message: String, help: String| Diagnostics::about(&format!("{option} {path}"), message, Some(help));
    let lines: Vec<&str> = programs.iter().map(|entry| &*entry.run.value).collect();
    let is_called =
        |entry: &&machine::ProgramEntry| entry.name.as_ref().is_some_and(|name| name.value == program);
    let fio = format!("--name={program}");
    let is_of = |word: &str| {
        let places: Vec<usize> =
            (0..lines.len()).filter(|&n| lines[n].split_whitespace().any(|other| other == word)).collect();
        (places.len() == 1).then(|| places[0])
    };
    let number = program.parse().ok().filter(|&number: &usize| number < lines.len());
    let named = || programs.iter().position(|entry| is_called(&entry));
    let Some(number) = number.or_else(named).or_else(|| is_of(&fio)).or_else(|| is_of(program)) else {
        let known =
            lines.iter().enumerate().map(|(n, line)| format!("{n}: {line}")).collect::<Vec<_>>().join("; ");
        return Err(wrong(format!("there is no program `{program}`"), format!("the programs are {known}")));
    };
    // A range with a unit leaves a space before it.
    let value = value.trim().trim_matches('"').replace(' ', "");
    let line = workloads::with_option(lines[number], name, &value)
        .map_err(|refused| wrong(refused.message, refused.help.unwrap_or_default()))?;
    doc.set_by(option, None, &format!("program.{number}.run"), &toml_string(&line))
}

/// Changes a scenario with computers, options of its programs included.
pub(crate) fn set_all(
    doc: &mut Doc<ComputerScenario>,
    option: &str,
    changes: &Changes,
) -> Result<(), Diagnostics> {
    changes.iter().try_for_each(|(path, value)| match program_option(path) {
        Some(program) => set_program_option(doc, option, path, program, value),
        None => doc.set_by(option, None, path, value),
    })
}

/// A text as TOML.
pub(crate) fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Experiment {
    /// Loads the scenario with this name or path and applies `changes`. Errors refer to the changes by `option`.
    ///
    /// # Errors
    /// Errors in the scenario, the files it refers to, or the changes.
    pub fn load(
        library: &Library,
        name: &str,
        option: &str,
        changes: &Changes,
    ) -> Result<Self, ExperimentError> {
        if !name.ends_with(".toml")
            && std::path::Path::new(name).is_dir()
            && !library.names("scenarios").iter().any(|known| known == name)
        {
            let message = format!("`{name}` is a folder");
            let help = "name a scenario's file in it, or a scenario that `nearfar machines` lists";
            return Err(Diagnostics::about(name, message, Some(help.into())).into());
        }
        let mut doc = Doc::<ComputerScenario>::load(library, name)?;
        // Computers without hosts are told so, rather than read as pcie-bench.
        let of_computers = ["host", "program", "event", "cable"];
        if of_computers.iter().try_fold(false, |is, key| Ok::<_, Diagnostics>(is || doc.has(key)?))? {
            set_all(&mut doc, option, changes)?;
            let setup = ComputerSetup::load(library, &doc)?;
            computer::check_syntax(&setup)?;
            return Ok(Self::Computers(Box::new(setup)));
        }
        let mut doc = Doc::<Scenario>::load(library, name)?;
        changes.iter().try_for_each(|(key, value)| doc.set_by(option, table_in_scenario(key), key, value))?;
        Ok(Self::Bench(Box::new(Setup::load(library, &doc)?)))
    }

    /// The scenario's summary.
    pub fn summary(&self) -> &str {
        match self {
            Self::Computers(setup) => &setup.summary,
            Self::Bench(setup) => &setup.scenario.summary,
        }
    }

    /// The seed of all random numbers.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Computers(setup) => setup.seed,
            Self::Bench(setup) => setup.scenario.seed.unwrap_or(1),
        }
    }

    /// Whether its records are its only output, so that it can be run again and again.
    ///
    /// # Errors
    /// If it writes files of its own.
    pub fn check_repeatable(&self) -> Result<(), ExperimentError> {
        match self {
            Self::Computers(setup) if !computer::is_repeatable(setup) => {
                Err(ExperimentError::NotRepeatable(self.name().to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Runs it and returns all records, counters included.
    ///
    /// # Errors
    /// If it cannot be simulated. A failing program is a record, not an error.
    pub fn run(&self, accounting: bool, progress: &dyn Progress) -> Result<Vec<Record>, ExperimentError> {
        match self {
            Self::Bench(_) if accounting => Err(ExperimentError::NoKernel),
            Self::Bench(setup) => Ok(records::of_bench(setup, &scenario::run(setup, progress)?)),
            Self::Computers(setup) => {
                let counts = computer::run_counted(setup, progress)?;
                Ok(records::of_computers(setup, &counts, accounting))
            }
        }
    }
}

/// Runs the points of a sweep on all cores. Returns, in order, the records that `nearfar sweep` writes for each
/// point, with the point's values.
///
/// # Errors
/// The first point that cannot be simulated.
pub fn sweep(
    points: &[(Combination, Experiment)],
    accounting: bool,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Record>>, ExperimentError> {
    let what = points.first().map_or("", |(_, first)| first.name());
    let mut benches = Vec::new();
    let mut computers = Vec::new();
    for (_, experiment) in points {
        match experiment {
            Experiment::Bench(_) if accounting => return Err(ExperimentError::NoKernel),
            Experiment::Bench(setup) => benches.push(&**setup),
            Experiment::Computers(setup) => computers.push(&**setup),
        }
    }
    let mut done = match benches.is_empty() {
        true => Vec::new(),
        false => scenario::run_all(&benches, what, progress),
    }
    .into_iter();
    let mut counts = match computers.is_empty() {
        true => Vec::new(),
        false => computer::run_all(&computers, what, progress),
    }
    .into_iter();
    let mut number = 0;
    let mut all = Vec::new();
    for (values, experiment) in points {
        let (mut own, origins);
        match experiment {
            Experiment::Bench(setup) => {
                let done = done.next().expect("one for each")?;
                let outcomes = done.iter().map(|one| &one.outcome);
                origins = Origins::of_bench(&scenario::bench_of(setup), outcomes);
                own = Vec::new();
                for one in done {
                    number += 1;
                    own.push(records::of_swept_run(&setup.scenario.name, number, &one.outcome));
                }
            }
            Experiment::Computers(setup) => {
                let counts = counts.next().expect("one for each")?;
                origins = Origins::of_computers(setup, &counts.counted);
                own = records::of_swept_computers(setup, &counts, accounting);
            }
        }
        let (draws, swept): (Vec<_>, Vec<_>) = values.iter().cloned().partition(|(key, _)| key == DRAW);
        own.iter_mut().for_each(|record| records::add_values(record, &swept));
        // Whoever finds intervals needs to know which figures can have moved them.
        if draws.iter().any(|(_, draw)| draw.parse().is_ok_and(Draw::is_none)) {
            own.extend(origins.records());
        }
        all.push(own);
    }
    Ok(all)
}

/// Loads a point of a sweep. A value of [`DRAW`] is no change but says how figures are drawn.
///
/// # Errors
/// As [`Experiment::load`].
pub fn load_point(
    library: &Library,
    scenario: &str,
    option: &str,
    changes: &Changes,
    point: &Combination,
) -> Result<Experiment, ExperimentError> {
    let (draws, values): (Vec<_>, Vec<_>) = point.iter().cloned().partition(|(key, _)| key == DRAW);
    let all: Combination = changes.iter().cloned().chain(values).collect();
    let draw = draws.first().and_then(|(_, draw)| draw.parse::<Draw>().ok());
    let Some(draw) = draw else { return Experiment::load(library, scenario, option, &all) };
    let experiment = Experiment::load(&library.redrawn(Arc::new(draw)), scenario, option, &all)?;
    experiment.check_repeatable()?;
    Ok(experiment)
}

/// Runs all points of a sweep with drawn figures, on all cores. Returns the records of all points, for each draw.
///
/// # Errors
/// The first run that cannot be loaded or simulated.
pub fn sample(
    draws: Draws,
    points: &[Combination],
    load: impl Fn(&Combination) -> Result<Experiment, ExperimentError> + Sync,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Record>>, ExperimentError> {
    let each = draws.runs as usize;
    let drawn = |point: &Combination, draw: Draw| -> Combination {
        point.iter().cloned().chain([(DRAW.to_owned(), draw.to_string())]).collect()
    };
    let drawn: Vec<Combination> =
        points.iter().flat_map(|point| draws.all().map(move |draw| drawn(point, draw))).collect();
    let drawn = drawn.into_par_iter();
    let loaded: Vec<(Combination, Experiment)> =
        drawn.map(|point| Ok((point.clone(), load(&point)?))).collect::<Result<_, ExperimentError>>()?;
    let mut all = vec![Vec::new(); each];
    for (number, records) in sweep(&loaded, false, progress)?.into_iter().enumerate() {
        all[number % each].extend(records);
    }
    Ok(all)
}

/// The cache key of records that depend only on these strings; `None` without a cache.
pub fn key(depends_on: &[&str]) -> Option<String> {
    cache::key("records", depends_on)
}

/// The records of a sweep point that [`keep`] stored earlier.
pub fn known(key: &str) -> Option<Vec<Record>> {
    let text: String = cache::get(Some(key))?;
    serde_json::from_str(&text).ok()
}

/// Stores the records of a sweep point.
pub fn keep(key: &str, records: &[Record]) {
    if let Ok(text) = serde_json::to_string(records) {
        cache::put(Some(key), &text);
    }
}

impl Experiment {
    /// The scenario's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Computers(setup) => &setup.name,
            Self::Bench(setup) => &setup.scenario.name,
        }
    }
}

/// All combinations of the keys' values; the last key varies fastest.
pub fn combinations(over: &[(String, Vec<String>)]) -> Vec<Combination> {
    let mut all = vec![Vec::new()];
    for (key, values) in over {
        let longer = |before: &Combination| {
            let with = |value: &String| {
                let mut longer = before.clone();
                longer.push((key.clone(), value.clone()));
                longer
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
