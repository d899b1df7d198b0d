//! `nearfar machines`: what there is to choose from.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use machine::{
    ClusterSwitch, ComputerScenario, Doc, Drive, Gpu, KernelFile, Kind, Kindred, Library, Listed, Machine,
    Nic, Ntb, Part, PcieSwitch, Scenario,
};

use crate::failure::Failure;
use crate::output::{Fit, TextTable};
use crate::{Common, input, output};

/// List machines, devices, kernels and scenarios, or show one of them: every figure with its source.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar machines
  nearfar machines dell-t430
  nearfar machines --sources                  how many figures are fitted, measured, assumed
  nearfar machines modern                     a NIC; so are cards, drives and kernels shown
  nearfar machines netperf                    a scenario's file, to copy and change")]
pub struct Arguments {
    /// A machine, card, drive, NIC, kernel or scenario to show, by name or path.
    pub name: Option<String>,
    /// Count the figures of every file by where they come from. Those that were adjusted to results, fitted and empirical,
    /// are free.
    #[arg(long, conflicts_with = "name")]
    sources: bool,
    /// Write the list as JSON; - for the standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let to_stdout = output::is_stdout(arguments.json.as_deref());
    if arguments.sources {
        return show_sources(&library, arguments);
    }
    let Some(name) = &arguments.name else {
        let mut all = Vec::new();
        for name in library.names("machines") {
            all.push(("machine", name.clone(), read::<Machine>(&library, &name)?.summary));
        }
        for name in library.names("machines/parts") {
            all.push(("card", name.clone(), read::<Part>(&library, &name)?.summary));
        }
        for name in library.names("machines/drives") {
            all.push(("drive", name.clone(), read::<Drive>(&library, &name)?.summary));
        }
        for name in library.names("machines/nics") {
            all.push(("NIC", name.clone(), read::<Nic>(&library, &name)?.summary));
        }
        for name in library.names("machines/gpus") {
            all.push(("GPU", name.clone(), read::<Gpu>(&library, &name)?.summary));
        }
        for name in library.names("machines/switches") {
            all.push(("switch", name.clone(), read::<PcieSwitch>(&library, &name)?.summary));
        }
        for name in library.names("machines/ntbs") {
            all.push(("NTB adapter", name.clone(), read::<Ntb>(&library, &name)?.summary));
        }
        for name in library.names("machines/clusters") {
            all.push(("cluster switch", name.clone(), read::<ClusterSwitch>(&library, &name)?.summary));
        }
        for name in library.names("machines/kernels") {
            all.push(("kernel", name.clone(), read::<KernelFile>(&library, &name)?.summary));
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
        output::json(arguments.json.as_deref(), &json)?;
        if !to_stdout {
            let mut table = TextTable::new(["kind", "name", "what it is"], Fit::Wrap);
            all.into_iter().for_each(|(kind, name, summary)| table.add(vec![kind.to_owned(), name, summary]));
            output::print(&table.render(output::width()));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut residuals = None;
    let figures = match folder_of(&library, name) {
        "scenarios" => return show_scenario(&library, arguments, name),
        "machines/parts" => Doc::<Part>::load(&library, name)?.list()?,
        "machines/drives" => Doc::<Drive>::load(&library, name)?.list()?,
        "machines/nics" => Doc::<Nic>::load(&library, name)?.list()?,
        "machines/gpus" => Doc::<Gpu>::load(&library, name)?.list()?,
        "machines/switches" => Doc::<PcieSwitch>::load(&library, name)?.list()?,
        "machines/ntbs" => Doc::<Ntb>::load(&library, name)?.list()?,
        "machines/clusters" => Doc::<ClusterSwitch>::load(&library, name)?.list()?,
        "machines/kernels" => Doc::<KernelFile>::load(&library, name)?.list()?,
        "machines" => {
            let machine = read::<Machine>(&library, name)?;
            residuals = residual_table(&machine);
            machine::figures(&machine)
        }
        _ => {
            return Err(Failure::new(format!(
                "there is nothing called `{name}`; `nearfar machines` lists machines, cards, drives, NICs, GPUs, switches, kernels and scenarios"
            )));
        }
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
    output::json(arguments.json.as_deref(), &json)?;
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

/// How many figures of each file are of which kind.
fn show_sources(library: &Library, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut files = Vec::new();
    for name in library.names("machines") {
        files.push((name.clone(), Doc::<Machine>::load(library, &name)?.list()?));
    }
    for name in library.names("machines/parts") {
        files.push((name.clone(), Doc::<Part>::load(library, &name)?.list()?));
    }
    for name in library.names("machines/drives") {
        files.push((name.clone(), Doc::<Drive>::load(library, &name)?.list()?));
    }
    for name in library.names("machines/nics") {
        files.push((name.clone(), Doc::<Nic>::load(library, &name)?.list()?));
    }
    for name in library.names("machines/gpus") {
        files.push((name.clone(), Doc::<Gpu>::load(library, &name)?.list()?));
    }
    for name in library.names("machines/kernels") {
        files.push((name.clone(), Doc::<KernelFile>::load(library, &name)?.list()?));
    }
    let kinds: Vec<Kind> = Kind::ALL.iter().map(|(_, kind)| *kind).filter(|k| *k != Kind::Override).collect();
    // A value of two slots of one file counts twice: each could be another.
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
    output::json(arguments.json.as_deref(), &json)?;
    if !output::is_stdout(arguments.json.as_deref()) {
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

/// What results would be without each empirical figure; `None` if there is none.
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

/// The residuals that a machine's file states; `None` if it states none.
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

fn read<T: Kindred>(library: &Library, name: &str) -> Result<T, Failure> {
    Ok(Doc::<T>::load(library, name)?.read()?)
}

/// The library's folder that a name is in, or that the file at a path would be in by the folder that it is in.
fn folder_of(library: &Library, name: &str) -> &'static str {
    const FOLDERS: [&str; 10] = [
        "machines",
        "machines/parts",
        "machines/drives",
        "machines/nics",
        "machines/gpus",
        "machines/switches",
        "machines/ntbs",
        "machines/clusters",
        "machines/kernels",
        "scenarios",
    ];
    let above = Path::new(name).parent().and_then(Path::file_name).and_then(|folder| folder.to_str());
    let is_it = |folder: &&str| {
        library.names(folder).iter().any(|known| known == name)
            || above.is_some_and(|above| folder.rsplit('/').next() == Some(above))
    };
    // A file somewhere else is a machine's.
    FOLDERS.into_iter().find(is_it).unwrap_or(if name.ends_with(".toml") { "machines" } else { "" })
}

/// A scenario's file: what is in it needs no table.
fn show_scenario(library: &Library, arguments: &Arguments, name: &str) -> Result<ExitCode, Failure> {
    let doc = Doc::<Scenario>::load(library, name)?;
    output::json(arguments.json.as_deref(), &serde_json::json!({ "name": name, "text": doc.text() }))?;
    if !output::is_stdout(arguments.json.as_deref()) {
        output::print(doc.text().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
