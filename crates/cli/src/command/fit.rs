//! `nearfar fit`: fits a machine file to measured results.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::fit::{
    Ablation, FitError, FitOptions, Fitted, LeftOut, Residuals, Verdict, ablate, fit, fit_memory,
    leave_one_out,
};
use results::Provenance;
use results::compare::{FamilySummary, Overall, summary_table};

use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, input, output, progress};

/// Fit a machine's parameters to measured results and write its file.
///
/// Each parameter has a statement of its provenance.
#[derive(clap::Args)]
#[command(after_help = "\
Give all directories of one machine: local, remote and IOMMU results determine different figures. What they do not \
determine is taken from the machine that the fit begins with, and marked so.

Examples:
  nearfar fit DIR DIR-s0-s1-s1 DIR-iommu -o mine.toml
  nearfar fit DIR --machine dell-t630 -o mine.toml --figures host.dram.access,host.llc.core_snoop
  nearfar fit DIR --machine mine.toml -o mine.toml --keep         its residuals anew, no figure changed
  nearfar fit mlc.txt --machine box/box.toml -o box.toml          latencies of memory, of Intel's MLC
  nearfar fit DIR DIR-iommu --leave-one-out                       each directory against a fit to the others
  nearfar fit DIR DIR-iommu --ablate state.json                   which figures results need; goes on where it was ended")]
pub struct FitArgs {
    /// Directories of results of one machine; or outputs of Intel's MLC, with --machine.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// The machine to start from; by default, the one in the directory's name.
    #[arg(long, short, value_name = "BASE")]
    machine: Option<String>,
    /// Where to write the machine's file.
    #[arg(long, short, value_name = "FILE", value_parser = output::file,
          required_unless_present_any = ["leave_one_out", "ablate"])]
    output: Option<PathBuf>,
    /// The parameters to fit, separated by commas.
    #[arg(long, value_delimiter = ',')]
    figures: Vec<String>,
    /// Change no parameter; only write the machine's current residuals into its file.
    #[arg(long, conflicts_with = "figures")]
    keep: bool,
    /// Leave out each directory in turn: fit to the others, starting without results, and compare with it.
    #[arg(long, conflicts_with_all = ["figures", "keep", "output", "machine"])]
    leave_one_out: bool,
    /// Of the directory left out, compare at most about N rows of each family.
    #[arg(long, value_name = "N", requires = "leave_one_out", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Set one free parameter after the other to its neutral value, fit the others again if that shows, and report
    /// which parameters the results need. Progress is saved in FILE; an interrupted run continues from there.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "leave_one_out"], value_parser = output::file)]
    ablate: Option<PathBuf>,
    /// The parameters to fit again with --ablate, separated by commas; by default, all that the rows determine.
    #[arg(long, value_delimiter = ',', requires = "ablate")]
    refit: Vec<String>,
    #[command(flatten)]
    records: Records,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(common: &Common, arguments: &FitArgs) -> Result<ExitCode, Failure> {
    let places = arguments
        .records
        .places(&[("--output", arguments.output.as_deref()), ("--ablate", arguments.ablate.as_deref())])?;
    places.reads(&arguments.directories)?;
    places.reads_folders(&arguments.directories)?;
    let to_stdout = places.to_stdout;
    let name = match &arguments.output {
        Some(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        None => Some("fitted".to_owned()),
    };
    let options = FitOptions {
        library: input::library(common),
        base: arguments.machine.clone(),
        figures: arguments.figures.clone(),
        keep: arguments.keep,
        name: name.ok_or_else(|| Failure::new("-o names no file"))?,
        seed: arguments.seed,
    };
    let progress = progress::of(common);
    if arguments.directories.iter().any(|path| path.is_file()) {
        return of_memory(arguments, &options, progress.as_ref(), to_stdout);
    }
    if arguments.leave_one_out {
        let sample = arguments.sample.map(|most| most as usize);
        let all =
            leave_one_out(&arguments.directories, &options, sample, progress.as_ref()).map_err(failure)?;
        return show_left_out(&all, arguments, &made_from(arguments, &options)?, to_stdout);
    }
    if let Some(state) = &arguments.ablate {
        let done = ablate(&arguments.directories, &options, &arguments.refit, state, progress.as_ref());
        return show_ablation(
            &done.map_err(failure)?,
            arguments,
            &made_from(arguments, &options)?,
            to_stdout,
        );
    }
    let done = fit(&arguments.directories, &options, progress.as_ref()).map_err(failure)?;
    for doubt in &done.doubts {
        crate::output::complain(&format!("warning: {doubt}"));
    }
    for problem in &done.problems {
        crate::output::complain(&format!("left out: {problem}"));
    }
    if done.figures.is_empty() && !arguments.keep {
        return Err(Failure::new("these directories determine no figure: nothing is written"));
    }
    let file = arguments.output.as_deref().expect("clap asks for it");
    let provenance = made_from(arguments, &options)?;
    let text = with_origin(&done.machine.to_text()?, &provenance);
    output::write(file, files::shown_toml(&text).as_bytes())?;
    let rows: Vec<_> = done
        .figures
        .iter()
        .map(|f| {
            serde_json::json!({
                "path": f.path, "before": f.before, "after": f.after, "determined": f.determined.as_str(),
                "uncertainty": f.uncertainty, "files": f.files, "rows": f.rows, "given_back": f.given_back,
            })
        })
        .collect();
    arguments.records.write_tables(&rows, &provenance)?;
    let json = serde_json::json!({
        "provenance": provenance,
        "figures": rows,
        "residuals": done.residuals.iter().map(|r| serde_json::json!({
            "directory": r.directory, "before": r.before, "after": r.after,
        })).collect::<Vec<_>>(),
    });
    output::json(arguments.records.json(), &json)?;
    if !to_stdout {
        if !done.figures.is_empty() {
            output::print(&figures(&done.figures));
        }
        for residuals in &done.residuals {
            output::print(&format!("\n{}\n{}", residuals.directory.display(), series(residuals)));
        }
    }
    crate::output::complain(&format!("\nwritten: {}", file.display()));
    Ok(if done.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Fits what outputs of Intel's MLC determine.
fn of_memory(
    arguments: &FitArgs,
    options: &FitOptions,
    progress: &dyn nearfar::Progress,
    to_stdout: bool,
) -> Result<ExitCode, Failure> {
    let file = arguments
        .output
        .as_deref()
        .ok_or_else(|| Failure::new("of a tool's output, -o names the file to write"))?;
    let done = fit_memory(&arguments.directories, options, progress).map_err(failure)?;
    for problem in &done.problems {
        output::complain(&format!("left out: {problem}"));
    }
    if done.figures.is_empty() {
        return Err(Failure::new("these outputs determine no figure: nothing is written"));
    }
    let mut provenance = output::provenance(arguments.seed, &[], &options.library);
    for path in &arguments.directories {
        provenance.files.push(output::measured(path)?);
    }
    let text = with_origin(&done.machine.to_text()?, &provenance);
    output::write(file, files::shown_toml(&text).as_bytes())?;
    let rows: Vec<_> = done
        .figures
        .iter()
        .map(|f| {
            serde_json::json!({
                "path": f.path, "before": f.before, "after": f.after, "tests": f.tests, "measured_ns": f.measured_ns,
                "before_ns": f.before_ns, "after_ns": f.after_ns,
            })
        })
        .collect();
    arguments.records.write_tables(&rows, &provenance)?;
    output::json(
        arguments.records.json(),
        &serde_json::json!({ "provenance": provenance, "figures": rows }),
    )?;
    if !to_stdout {
        for f in &done.figures {
            output::print(&output::prose(&format!(
                "{}: {} instead of {}; {} tests took {:.1} ns in the mean, simulated {:.1} ns, before {:.1} ns",
                f.path, f.after, f.before, f.tests, f.measured_ns, f.after_ns, f.before_ns
            )));
        }
    }
    output::complain(&format!("\nwritten: {}", file.display()));
    Ok(if done.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// The origin of the results.
fn made_from(arguments: &FitArgs, options: &FitOptions) -> Result<Provenance, Failure> {
    let mut provenance = output::provenance(arguments.seed, &[], &options.library);
    for folder in &arguments.directories {
        provenance.files.push(output::measured(folder)?);
    }
    Ok(provenance)
}

/// A machine file with a first line that says how it was written; replaces an older such line.
fn with_origin(text: &str, provenance: &Provenance) -> String {
    const BEGIN: &str = "# Written by nearfar ";
    let rest = match text.split_once('\n') {
        Some((first, rest)) if first.starts_with(BEGIN) => rest,
        _ => text,
    };
    format!("{BEGIN}{}, seed {}: {}\n{rest}", provenance.version, provenance.seed, provenance.command)
}

fn failure(error: FitError) -> Failure {
    match error {
        FitError::Machine(diagnostics) => diagnostics.into(),
        other => Failure::new(other),
    }
}

fn show_left_out(
    all: &[LeftOut],
    arguments: &FitArgs,
    provenance: &Provenance,
    to_stdout: bool,
) -> Result<ExitCode, Failure> {
    let json: Vec<_> = all
        .iter()
        .map(|one| {
            serde_json::json!({
                "directory": one.directory, "relative": one.relative, "of_relative": one.of_relative,
                "overall": Overall::of([&one.summary]), "summary": one.summary,
            })
        })
        .collect();
    arguments.records.write(json, provenance)?;
    if !to_stdout {
        for one in all {
            output::print(&output::prose(&format!(
                "\n{} against a fit to the others that began with {}; as there, because the others do not determine them: {}.",
                one.directory.display(),
                one.relative,
                one.of_relative.join(", ")
            )));
            output::print(&summary_table(&one.summary, 0, output::width()));
        }
        let lines: Vec<String> =
            Overall::of(all.iter().map(|one| &one.summary)).iter().map(ToString::to_string).collect();
        output::print(&format!("All that were left out: {}", lines.join("; ")));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_ablation(
    done: &Ablation,
    arguments: &FitArgs,
    provenance: &Provenance,
    to_stdout: bool,
) -> Result<ExitCode, Failure> {
    if let Some(file) = &arguments.output {
        output::write(file, with_origin(&done.machine.to_text()?, provenance).as_bytes())?;
        crate::output::complain(&format!("written: {}", file.display()));
    }
    let rows: Vec<_> = done
        .figures
        .iter()
        .map(|f| {
            serde_json::json!({
                "path": f.path, "value": f.value, "neutral": f.neutral, "verdict": f.verdict.as_str(),
                "moved": f.moved, "worse": f.worse,
            })
        })
        .collect();
    arguments.records.write_tables(&rows, provenance)?;
    let json = serde_json::json!({ "provenance": provenance, "figures": rows, "untried": done.untried });
    output::json(arguments.records.json(), &json)?;
    if !to_stdout {
        let mut table =
            TextTable::new(["figure", "value", "without effect", "it is", "because"], Fit::LastBelow);
        for f in &done.figures {
            let because = match f.verdict {
                Verdict::Dead => "no family is farther off without it".to_owned(),
                Verdict::Sum => {
                    let moved = f.moved.iter().map(|(path, value)| format!("{path} = {value}"));
                    format!("these make up for it: {}", moved.collect::<Vec<_>>().join(", "))
                }
                Verdict::Needed => format!("farther off without it: {}", f.worse.join(", ")),
            };
            let (value, neutral) = (f.value.clone(), f.neutral.clone());
            table.add(vec![f.path.clone(), value, neutral, f.verdict.as_str().to_owned(), because]);
        }
        output::print(&table.render(output::width()));
        let of = |verdict| done.figures.iter().filter(|f| f.verdict == verdict).count();
        output::print(&format!(
            "\n{} figures tried: {} dead, {} only in a sum, {} needed; {} have no value without effect.",
            done.figures.len(),
            of(Verdict::Dead),
            of(Verdict::Sum),
            of(Verdict::Needed),
            done.untried.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
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
