//! `nearfar fit`: a machine file from measured results.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::fit::{FitError, Fitted, Options, Residuals, fit};
use results::compare::FamilySummary;

use crate::failure::Failure;
use crate::output::{Fit, TextTable};
use crate::{Common, input, output, progress};

/// Fit a machine's figures to measured results and write its file, each figure with a statement of what it rests on.
#[derive(clap::Args)]
#[command(after_help = "\
Give all directories of one machine: local, remote and IOMMU results determine different figures. What they do not
determine is taken from the machine that the fit begins with, and marked so.

Examples:
  nearfar fit DIR DIR-s0-s1-s1 DIR-iommu -o mine.toml
  nearfar fit DIR --machine dell-t630 -o mine.toml --figures host.dram.access,host.llc.core_snoop
  nearfar fit DIR --machine mine.toml -o mine.toml --keep         its residuals anew, no figure changed")]
pub struct Arguments {
    /// Directories of results of one machine.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// The machine to begin with; chosen by the directory's name if not given.
    #[arg(long, short, value_name = "BASE")]
    machine: Option<String>,
    /// Where to write the machine's file.
    #[arg(long, short, value_name = "FILE", value_parser = output::file)]
    output: PathBuf,
    /// The figures to fit, separated by commas.
    #[arg(long, value_delimiter = ',')]
    figures: Vec<String>,
    /// Change no figure: put the residuals of the machine as it is into its file.
    #[arg(long, conflicts_with = "figures")]
    keep: bool,
    /// Write figures and residuals as JSON; - for the standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    output::apart(&[("--output", Some(&arguments.output)), ("--json", arguments.json.as_deref())])?;
    let name = arguments.output.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let options = Options {
        library: input::library(common),
        base: arguments.machine.clone(),
        figures: arguments.figures.clone(),
        keep: arguments.keep,
        name: name.ok_or_else(|| Failure::new("-o names no file"))?,
        seed: arguments.seed,
    };
    let done = fit(&arguments.directories, &options, progress::of(common).as_ref()).map_err(|e| match e {
        FitError::Machine(diagnostics) => diagnostics.into(),
        other => Failure::new(other),
    })?;
    for doubt in &done.doubts {
        crate::output::complain(&format!("warning: {doubt}"));
    }
    for problem in &done.problems {
        crate::output::complain(&format!("left out: {problem}"));
    }
    if done.figures.is_empty() && !arguments.keep {
        return Err(Failure::new("these directories determine no figure: nothing is written"));
    }
    let text = done.machine.to_text()?;
    output::write(&arguments.output, text.as_bytes())?;
    let json = serde_json::json!({
        "figures": done.figures.iter().map(|f| serde_json::json!({
            "path": f.path, "before": f.before, "after": f.after, "determined": f.determined.as_str(),
            "uncertainty": f.uncertainty, "files": f.files, "rows": f.rows, "given_back": f.given_back,
        })).collect::<Vec<_>>(),
        "residuals": done.residuals.iter().map(|r| serde_json::json!({
            "directory": r.directory, "before": r.before, "after": r.after,
        })).collect::<Vec<_>>(),
    });
    output::json(arguments.json.as_deref(), &json)?;
    if !output::is_stdout(arguments.json.as_deref()) {
        if !done.figures.is_empty() {
            output::print(&figures(&done.figures));
        }
        for residuals in &done.residuals {
            output::print(&format!("\n{}\n{}", residuals.directory.display(), series(residuals)));
        }
    }
    crate::output::complain(&format!("\nwritten: {}", arguments.output.display()));
    Ok(if done.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn figures(figures: &[Fitted]) -> String {
    let header = ["figure", "before", "after", "uncertainty", "determined", "from"];
    let mut table = TextTable::new(header, Fit::LastBelow);
    for f in figures {
        table.add(vec![
            f.path.clone(),
            f.before.clone(),
            f.after.clone(),
            f.uncertainty.as_ref().map_or_else(String::new, |u| format!("± {u}")),
            if f.given_back.is_some() { "given back".into() } else { f.determined.as_str().to_owned() },
            format!("{} rows of {}", f.rows, f.files.join(", ")),
        ]);
    }
    table.render(output::width())
}

fn series(residuals: &Residuals) -> String {
    let percent = |v: Option<f64>| v.map_or_else(|| "–".into(), |v| format!("{v:.2}"));
    let header = ["series", "quantity", "median %", "90th %", "worst %", "before: median %", "90th %"];
    let mut table = TextTable::new(header, Fit::FirstAbove).numbers(2..7);
    for family in &residuals.after.families {
        let same = |f: &&FamilySummary| f.family == family.family && f.quantity == family.quantity;
        let before = residuals.before.as_ref().and_then(|b| b.families.iter().find(same));
        table.add(vec![
            family.family.clone(),
            family.quantity.to_string(),
            percent(family.median_pct),
            percent(family.p90_pct),
            percent(family.worst_pct),
            percent(before.and_then(|b| b.median_pct)),
            percent(before.and_then(|b| b.p90_pct)),
        ]);
    }
    table.render(output::width())
}
