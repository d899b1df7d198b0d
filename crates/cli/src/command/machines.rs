//! `nearfar machines`: lists and shows machines, devices, kernels and scenarios.

use std::collections::BTreeSet;
use std::process::ExitCode;

use machine::{
    ComputerScenario, Diagnostics, Doc, FileKind, KINDS, Kind, Kindred, Library, Listed, Machine, Scenario,
};

use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, input, output};

/// List machines, devices, kernels and scenarios, or show one's parameters with sources.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar machines
  nearfar machines dell-t430
  nearfar machines --sources                  how many figures are fitted, measured, assumed
  nearfar machines modern                     a NIC; so are cards, drives and kernels shown
  nearfar machines netperf                    a scenario's file, to copy and change")]
pub struct MachinesArgs {
    /// A machine, card, drive, NIC, kernel or scenario to show, by name or path.
    pub name: Option<String>,
    /// Count the parameters of every file by source. Those adjusted to results (fitted and empirical) are free.
    #[arg(long, conflicts_with = "name")]
    sources: bool,
    #[command(flatten)]
    records: Records,
}

/// The parameters of a machine, device or kernel: path and value. `None` if none has this name.
pub fn figures_of(library: &Library, name: &str) -> Result<Option<Vec<(String, String)>>, Failure> {
    let Some(kind) = kind_of(library, name)? else { return Ok(None) };
    let figures = figures(kind, library, name)?;
    let plain = |figure: Listed| (figure.path, figure.value.trim().trim_matches('"').to_owned());
    Ok(Some(figures.into_iter().map(plain).collect()))
}

/// Paths of the figures of all machines, cards, devices and kernels; files that cannot be read are left out.
pub fn all_figures(library: &Library) -> BTreeSet<String> {
    let of = |kind: &'static FileKind| {
        let names = library.names(kind.folder).into_iter();
        names.filter_map(|name| figures(kind, library, &name).ok()).flatten().collect::<Vec<_>>()
    };
    kinds().flat_map(of).map(|figure| figure.path).collect()
}

pub fn run(common: &Common, arguments: &MachinesArgs) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let places = arguments.records.places(&[])?;
    places.reads(&arguments.name)?;
    let to_stdout = places.to_stdout;
    if arguments.sources {
        return show_sources(&library, arguments, to_stdout);
    }
    let Some(name) = &arguments.name else {
        let mut all = Vec::new();
        for kind in kinds() {
            for name in library.names(kind.folder) {
                let summary = kind.open(&library, &name, None)?.summary()?;
                all.push((kind.listed, name, summary));
            }
        }
        for name in library.names("scenarios") {
            let computers = Doc::<ComputerScenario>::load(&library, &name)?;
            let summary = match computers.has("host")? {
                true => computers.read()?.summary,
                false => read::<Scenario>(&library, &name)?.summary,
            };
            all.push(("scenario", name, summary));
        }
        let json: Vec<_> = all
            .iter()
            .map(|(kind, name, summary)| serde_json::json!({"kind": kind, "name": name, "summary": summary}))
            .collect();
        write(arguments, json, &library)?;
        if !to_stdout {
            let mut table = TextTable::new(["kind", "name", "what it is"], Fit::Wrap);
            all.into_iter().for_each(|(kind, name, summary)| table.add(vec![kind.to_owned(), name, summary]));
            output::print(&table.render(output::width()));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(kind) = kind_of(&library, name)? else {
        return show_scenario(&library, arguments, name, to_stdout);
    };
    let figures = figures(kind, &library, name)?;
    let residuals = match kind.folder {
        "machines" => residual_table(&read::<Machine>(&library, name)?),
        _ => None,
    };
    let json: Vec<_> = figures
        .iter()
        .map(|f| {
            serde_json::json!({
                "path": f.path, "value": f.value.trim().trim_matches('"'), "kind": f.provenance.kind.as_str(),
                "source": f.provenance.source, "uncertainty": f.provenance.uncertainty,
                "determined": f.provenance.determined.map(machine::Determined::as_str),
                "without": f.provenance.without,
            })
        })
        .collect();
    write(arguments, json, &library)?;
    if !to_stdout {
        let mut table = TextTable::new(["figure", "value", "source"], Fit::LastBelow);
        let unexplained = without_table(&figures);
        for f in figures {
            let value = f.value.trim().trim_matches('"').to_owned();
            let source = match f.provenance.determined {
                Some(determined) => format!("{} (determined: {})", f.provenance.source, determined.as_str()),
                None => f.provenance.source,
            };
            table.add(vec![f.path, value, source]);
        }
        output::print(&table.render(output::width()));
        if let Some(unexplained) = unexplained {
            output::print(&format!(
                "\nEmpirical: nobody knows what in the hardware they stand for. Without each:\n{unexplained}"
            ));
        }
        if let Some(residuals) = residuals {
            output::print(&format!(
                "\nWhat these figures leave unexplained, |error| by series:\n{residuals}"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(arguments: &MachinesArgs, rows: Vec<serde_json::Value>, library: &Library) -> Result<(), Failure> {
    arguments.records.places(&[])?.reads_through(library)?;
    arguments.records.write(rows, &output::provenance(0, &[], library))
}

/// Number of each file's parameters by kind of source.
fn show_sources(library: &Library, arguments: &MachinesArgs, to_stdout: bool) -> Result<ExitCode, Failure> {
    let mut files = Vec::new();
    for kind in kinds() {
        for name in library.names(kind.folder) {
            files.push((name.clone(), figures(kind, library, &name)?));
        }
    }
    let kinds: Vec<Kind> = Kind::ALL.iter().map(|(_, kind)| *kind).filter(|k| *k != Kind::Override).collect();
    // A value of two slots in one file counts twice: the slots could differ.
    let count = |figures: &[Listed], kind: Kind| figures.iter().filter(|f| f.provenance.kind == kind).count();
    let free = |figures: &[Listed]| figures.iter().filter(|f| f.provenance.kind.is_free()).count();
    let json: Vec<_> = files
        .iter()
        .map(|(name, figures)| {
            let counts: serde_json::Map<String, serde_json::Value> =
                kinds.iter().map(|&kind| (kind.as_str().to_owned(), count(figures, kind).into())).collect();
            serde_json::json!({ "name": name, "figures": figures.len(), "free": free(figures), "kinds": counts })
        })
        .collect();
    write(arguments, json, library)?;
    if !to_stdout {
        let header = ["file".to_owned(), "figures".to_owned(), "free".to_owned()];
        let header = header.into_iter().chain(kinds.iter().map(|kind| kind.as_str().to_owned()));
        let mut table = TextTable::new(header, Fit::FirstAbove).numbers(1..kinds.len() + 3);
        let all: Vec<Listed> = files.iter().flat_map(|(_, figures)| figures.clone()).collect();
        files.push(("all".to_owned(), all));
        for (name, figures) in &files {
            let row = [name.clone(), figures.len().to_string(), free(figures).to_string()];
            let counts = kinds.iter().map(|&kind| count(figures, kind).to_string());
            table.add(row.into_iter().chain(counts).collect());
        }
        output::print(&table.render(output::width()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Results without each empirical parameter; `None` if there is none.
fn without_table(figures: &[Listed]) -> Option<String> {
    let mut table = TextTable::new(["figure", "without it"], Fit::LastBelow);
    let mut any = false;
    for f in figures {
        if let Some(without) = &f.provenance.without {
            table.add(vec![f.path.clone(), without.clone()]);
            any = true;
        }
    }
    any.then(|| table.render(output::width()))
}

/// The residuals stated in a machine's file; `None` if there are none.
fn residual_table(machine: &Machine) -> Option<String> {
    let header = ["directory", "series", "rows", "median %", "90th %", "worst %"];
    let mut table = TextTable::new(header, Fit::FirstAbove).numbers(2..6);
    for (directory, all) in &machine.residuals {
        for (series, r) in all {
            let percent = |value: f64| format!("{value:.2}");
            let (rows, errors) = (r.rows.to_string(), [r.median_pct, r.p90_pct, r.worst_pct].map(percent));
            table.add([directory.clone(), series.clone(), rows].into_iter().chain(errors).collect());
        }
    }
    (!machine.residuals.is_empty()).then(|| table.render(output::width()))
}

fn read<T: Kindred>(library: &Library, name: &str) -> Result<T, Diagnostics> {
    Doc::<T>::load(library, name)?.read()
}

/// The kinds of files with parameters, in the order of the list.
fn kinds() -> impl Iterator<Item = &'static FileKind> {
    KINDS.iter().filter(|kind| kind.extends)
}

fn figures(kind: &FileKind, library: &Library, name: &str) -> Result<Vec<Listed>, Diagnostics> {
    kind.open(library, name, None)?.list()
}

/// The kind of the file with this name or path; `None` for a scenario.
fn kind_of(library: &Library, name: &str) -> Result<Option<&'static FileKind>, Failure> {
    let known = |folder: &str| library.names(folder).iter().any(|known| known == name);
    if let Some(kind) = kinds().find(|kind| known(kind.folder)) {
        return Ok(Some(kind));
    }
    if known("scenarios") {
        return Ok(None);
    }
    if !name.ends_with(".toml") {
        let folders = kinds().map(|kind| kind.folder).chain(["scenarios"]);
        let names: Vec<String> = folders.flat_map(|folder| library.names(folder)).collect();
        let all = "`nearfar machines` lists all";
        return Err(Failure::unknown("file", name, names.iter().map(String::as_str), all));
    }
    let doc = Doc::<Scenario>::load(library, name)?;
    let keys = ["pcie_bench", "program", "card"];
    if keys.iter().any(|key| doc.has(key).unwrap_or(false)) {
        return Ok(None);
    }
    // It has the same kind as the file that it extends.
    let extends = doc.text().lines().find_map(|line| {
        let value = line.strip_prefix("extends")?.trim_start().strip_prefix('=')?;
        value.split('"').nth(1)
    });
    if let Some(kind) = extends.and_then(|extended| {
        kinds().find(|kind| library.names(kind.folder).iter().any(|known| known == extended))
    }) {
        return Ok(Some(kind));
    }
    // The file's kind is the one that can read it; for an invalid file, the one with the fewest errors.
    let mut best: Option<(usize, &FileKind)> = None;
    for kind in kinds() {
        let wrong = match figures(kind, library, name) {
            Ok(_) => 0,
            Err(diagnostics) => diagnostics.iter().count(),
        };
        if best.is_none_or(|(least, _)| wrong < least) {
            best = Some((wrong, kind));
        }
    }
    Ok(best.map(|(_, kind)| kind))
}

/// Shows a scenario's file as it is.
fn show_scenario(
    library: &Library,
    arguments: &MachinesArgs,
    name: &str,
    to_stdout: bool,
) -> Result<ExitCode, Failure> {
    let doc = Doc::<Scenario>::load(library, name)?;
    write(
        arguments,
        vec![serde_json::json!({ "kind": "scenario", "name": name, "text": doc.text() })],
        library,
    )?;
    if !to_stdout {
        output::print(doc.text().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
