//! `nearfar compare`: measured rows against simulated ones. Outputs of tools other than pcie-bench are in `compare_tools`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use machine::{IommuMode, Sockets};
use nearfar::compare::{
    CompareOptions, Comparison, HeldRows, MachineSource, ToolOptions, compare, read_tool,
};
use results::compare::{Overall, pictures, rows_table, sections, summary_markdown, summary_table};
use results::report::{Chart, Fact, Report, Section};

use crate::failure::Failure;
use crate::output::{Records, complain};
use crate::uncertain::Uncertainty;
use crate::{Common, input, output, progress};

/// Simulate what pcie-bench, fio, netperf and others measured, and show the errors.
///
/// A pcie-bench directory's name identifies the machine, as in
/// `nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1-iommu-nosp`; options override it.
/// Files are outputs of fio (JSON), iperf3 -J, netperf, sockperf, nvbandwidth, p2pBandwidthLatencyTest, Intel MLC, STREAM,
/// testpmd, perftest or ntb_perf, told by their content. Each test is simulated on --machine, which may be an import.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar compare ../shared/measured/pcie-bench/nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630
  nearfar compare DIR --files lat_dma --rows
  nearfar compare DIR --set host.llc.ddio_ways=0 --json rows.json
  nearfar compare DIR... --known data-sheet --sample 100    as if nobody had fitted these machines
  nearfar compare DIR-WITH-IOMMU --set host.iommu.iotlb.entries=64 --set host.iommu.iotlb.ways=64
  nearfar compare DIR --known relative --uncertainty 20    do intervals hold what was measured?
  nearfar compare DIR --report compare.html
  nearfar compare fio.json netperf.txt --machine dell-t430 --card optane-900p
  nearfar compare iperf3.json mlc.txt --machine box     the folder that `nearfar import` wrote
  nearfar compare DIR --check && echo within the targets")]
pub struct CompareArgs {
    /// Directories of pcie-bench's results, or outputs of other tools.
    #[arg(required = true, value_name = "DIR|FILE")]
    directories: Vec<PathBuf>,
    /// The machine, by name or path, or the folder of an import; by default, the one in the directory's name.
    #[arg(long, short)]
    machine: Option<String>,
    /// Which file to use for a machine chosen by the directory's name: its own; that of its most similar relative,
    /// overridden by data sheets, standards and the machine itself; or the relative's alone.
    #[arg(long, value_enum, default_value_t = KnownAs::Own, conflicts_with = "machine")]
    known: KnownAs,
    /// The card, or the drive, NIC or GPU, by name or path.
    #[arg(long)]
    card: Option<String>,
    /// Sockets of device, memory and warming program, such as s0-s1-s1.
    #[arg(long, value_parser = input::sockets)]
    sockets: Option<Sockets>,
    /// The IOMMU: off, 4k or superpages.
    #[arg(long, value_parser = input::iommu)]
    iommu: Option<IommuMode>,
    /// Change a parameter of the machine, such as host.llc.ddio_ways=4.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// Change a parameter of the card, such as dma_engine.tags=64.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    card_set: Vec<(String, String)>,
    /// Only files whose names contain this.
    #[arg(long, value_name = "PART")]
    files: Option<String>,
    /// At most about N rows of each family of files, spread evenly.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Apply the targets for directories that no parameter was fitted to, even if the machine's file lists the
    /// directory among those that it was fitted to.
    #[arg(long)]
    held_out: bool,
    #[command(flatten)]
    uncertainty: Uncertainty,
    /// Print every row.
    #[arg(long)]
    rows: bool,
    /// How many of the rows with an error above 15 % to list: a number or `all`.
    #[arg(long, value_name = "N", default_value = "20", value_parser = input::misses)]
    misses: usize,
    #[command(flatten)]
    records: Records,
    /// Write each directory's summary as JSON: families with errors, targets and verdicts, artefacts, misses.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    summary_json: Option<PathBuf>,
    /// Write each directory's residuals by series as Markdown tables (as in docs/accuracy.md); - for standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    markdown: Option<PathBuf>,
    /// Write an HTML page with curves and tables of every directory, tails included.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    report: Option<PathBuf>,
    /// Plot the errors over transfer size and window, as SVG; of a single file, as selected by --files, plot its
    /// curves.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
    /// Exit with status 1 if a family of files misses its target.
    #[arg(long)]
    check: bool,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Which file to use for a machine.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum KnownAs {
    Own,
    DataSheet,
    Relative,
}

impl CompareArgs {
    /// Options that are for pcie-bench's directories alone, of those given.
    fn of_directories(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--known", !matches!(self.known, KnownAs::Own)),
            ("--sockets", self.sockets.is_some()),
            ("--iommu", self.iommu.is_some()),
            ("--card-set", !self.card_set.is_empty()),
            ("--files", self.files.is_some()),
            ("--sample", self.sample.is_some()),
            ("--held-out", self.held_out),
            ("--uncertainty", self.uncertainty.draws.is_some()),
            ("--summary-json", self.summary_json.is_some()),
            ("--markdown", self.markdown.is_some()),
            ("--report", self.report.is_some()),
            ("--plot", self.plot.is_some()),
            ("--check", self.check),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

pub fn run(common: &Common, arguments: &CompareArgs) -> Result<ExitCode, Failure> {
    let paths = &arguments.directories;
    if paths.iter().any(|path| path.is_file()) {
        if let Some(folder) = paths.iter().find(|path| !path.is_file()) {
            return Err(Failure::new(format!(
                "`{}` is no file: compare directories of pcie-bench by themselves",
                folder.display()
            )));
        }
        if let Some(option) = arguments.of_directories().next() {
            return Err(Failure::new(format!(
                "{option} is for directories of pcie-bench, and these are files"
            )));
        }
        // What is no such output is told before what is missing.
        paths.iter().try_for_each(|path| read_tool(path).map(drop)).map_err(Failure::new)?;
        let Some(machine) = arguments.machine.clone() else {
            return Err(Failure::new(
                "--machine MACHINE is needed: outputs of tools do not name one. `nearfar import` makes one of a real machine",
            ));
        };
        let (set, card) = (arguments.set.clone(), arguments.card.clone());
        let options = ToolOptions { library: input::library(common), machine, card, set };
        return super::compare_tools::run(common, paths, &options, &arguments.records, arguments.seed);
    }
    let options = CompareOptions {
        library: input::library(common),
        machine: arguments.machine.clone(),
        known: match arguments.known {
            KnownAs::Own => MachineSource::Own,
            KnownAs::DataSheet => MachineSource::DataSheet,
            KnownAs::Relative => MachineSource::Relative,
        },
        card: arguments.card.clone(),
        sockets: arguments.sockets.clone(),
        iommu: arguments.iommu,
        set: arguments.set.clone(),
        card_set: arguments.card_set.clone(),
        files: arguments.files.clone(),
        sample: arguments.sample.map(|most| most as usize),
        held_out: arguments.held_out,
        uncertainty: arguments.uncertainty.draws,
        seed: arguments.seed,
    };
    let places = arguments.records.places(&[
        ("--summary-json", arguments.summary_json.as_deref()),
        ("--markdown", arguments.markdown.as_deref()),
        ("--report", arguments.report.as_deref()),
        ("--plot", arguments.plot.as_deref()),
    ])?;
    places.reads_folders(&arguments.directories)?;
    arguments.machine.iter().try_for_each(|machine| places.reads_machine(machine))?;
    places.reads(&arguments.card)?;
    let to_stdout = places.to_stdout;
    let progress = progress::of(common);
    let changes: [(&str, &[_]); 2] = [("--set", &arguments.set), ("--card-set", &arguments.card_set)];
    let mut folders = Vec::new();
    let (mut rows, mut within, mut bad): (Vec<serde_json::Value>, _, _) = (Vec::new(), true, false);
    let mut errors = Vec::new();
    let mut any_simulated = false;
    let mut held = [HeldRows::default(); 2];
    let (mut summaries, mut tables, mut sections, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for directory in &arguments.directories {
        let began = Instant::now();
        let comparison = match compare(directory, &options, progress.as_ref()) {
            Ok(comparison) => comparison,
            Err(error) => {
                Failure::from(error).tell();
                bad = true;
                continue;
            }
        };
        folders.push(output::measured(directory)?);
        any_simulated |= comparison.is_simulated;
        for note in &comparison.notes {
            complain(&format!("warning: {note}"));
        }
        if !to_stdout {
            show(&comparison, arguments.rows, arguments.misses, began);
        }
        for problem in &comparison.problems {
            complain(&format!("error: {problem}"));
        }
        bad |= !comparison.problems.is_empty();
        within &= comparison.summary.within();
        let name = comparison.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| comparison.path.display().to_string());
        tables.push(format!("## {}\n{}", files::shown_code(&name), summary_markdown(&comparison.summary)));
        if arguments.report.is_some() {
            sections.extend(page_of(&comparison, &name, sections.len()));
        }
        if arguments.plot.is_some() {
            let charts = pictures(&name, &comparison.rows);
            errors.extend(
                charts.into_iter().map(|chart| Chart { title: format!("{}: {name}", chart.title), ..chart }),
            );
        }
        all.push(comparison.summary.clone());
        for (all, own) in held.iter_mut().zip(comparison.held_in_all) {
            all.add(own);
        }
        summaries.push(serde_json::json!({
            "directory": comparison.path.display().to_string(), "machine": comparison.machine,
            "simulated": comparison.simulated, "held_out": comparison.held_out, "notes": comparison.notes,
            "problems": comparison.problems, "within": comparison.summary.within(), "summary": comparison.summary,
            "overall": Overall::of([&comparison.summary]),
            "held_pct": comparison.held_in_all.map(|held| held.percent()),
        }));
        rows.extend(nearfar::records::of_comparison(&comparison));
    }
    if all.len() > 1 && !to_stdout {
        let lines: Vec<String> = Overall::of(&all).iter().map(ToString::to_string).collect();
        output::print(&format!("\nAll {} directories: {}", all.len(), lines.join("; ")));
        if arguments.uncertainty.draws.is_some() {
            output::print(&output::held_table(&BTreeMap::new(), held));
        }
    }
    let mut provenance = output::provenance(arguments.seed, &changes, &options.library);
    provenance.files.extend(folders);
    if !to_stdout {
        output::heading(&provenance);
    }
    arguments.records.write(rows, &provenance)?;
    output::list(arguments.summary_json.as_deref(), summaries, &provenance)?;
    let plot = arguments.plot.as_deref().filter(|_| !all.is_empty());
    output::plot(plot, &errors, &provenance)?;
    // If nothing could be compared, an older page is not overwritten.
    if let Some(path) = arguments.report.as_ref().filter(|_| !sections.is_empty()) {
        let title = match any_simulated {
            false => "Measured directories and their simulation",
            true => "Folders and their simulation",
        };
        let title = title.into();
        let answers = Overall::of(&all).into_iter().map(|overall| {
            format!(
                "Half of {} {} are within {:.1} %, nine in ten within {:.1} %.",
                overall.counted,
                overall.what(),
                overall.median_pct,
                overall.p90_pct
            )
        });
        let about = match any_simulated {
            false => "Every row that pcie-bench measured on a real machine, beside the same run simulated. Lines are simulated, \
                      rings are measured."
                .to_owned(),
            true => "Every row of the folder, beside the same run simulated now. A folder with `provenance.json` is simulated, too: \
                     its rows stand as \"measured\", rings in the pictures."
                .to_owned(),
        };
        let lead = answers.chain([about]).collect();
        let facts = Overall::of(&all).into_iter().flat_map(|overall| {
            let of = |what: &str| format!("{what} of |error|, {} {}", overall.counted, overall.what());
            let fact = |value: f64, what| Fact { value: format!("{value:.1} %"), label: of(what) };
            [fact(overall.median_pct, "median"), fact(overall.p90_pct, "90th percentile")]
        });
        let verdict = if within { "within" } else { "outside" };
        let verdict = Fact { value: verdict.to_owned(), label: "the targets of every series".to_owned() };
        // Simulations with different settings have no targets.
        let facts = (!any_simulated).then_some(verdict).into_iter().chain(facts).collect();
        let provenance = provenance.clone();
        let report = Report { title, lead, facts, sections, provenance, ..Report::default() };
        output::write(path, report.to_html().as_bytes())?;
        complain(&format!("report: {}", path.display()));
    }
    if let Some(path) = &arguments.markdown {
        let from = provenance.lines().join("\n");
        output::write(
            path,
            format!("<!-- {} -->\n\n{}", from.replace("--", "- -"), tables.join("\n")).as_bytes(),
        )?;
    }
    Ok(ExitCode::from(match (bad, arguments.check && !within) {
        (true, _) => 2,
        (false, true) => 1,
        (false, false) => 0,
    }))
}

/// The targets of a directory's rows, as a sentence.
fn held_to(comparison: &Comparison) -> &'static str {
    match (comparison.is_simulated, comparison.held_out) {
        (true, _) => {
            "The folder is simulated, too, and says so in `provenance.json`: what differs comes of what was changed since; no target \
             holds it."
        }
        (false, true) => "Held to the targets of directories that no figure has seen.",
        (false, false) => "Held to the targets of directories that figures were fitted to.",
    }
}

/// A directory's sections of the page.
fn page_of(comparison: &Comparison, name: &str, number: usize) -> [Section; 2] {
    let mut prose = vec![
        format!("Simulated on {} ({}).", comparison.machine, comparison.simulated),
        held_to(comparison).into(),
    ];
    prose.extend(comparison.notes.iter().cloned());
    sections(&format!("d{number}"), name, prose, &comparison.rows, &comparison.summary)
}

fn show(comparison: &Comparison, every_row: bool, misses: usize, began: Instant) {
    let Comparison { path, machine, simulated, rows, runs, tlps, .. } = comparison;
    output::print(&output::prose(&format!(
        "{} against {machine} ({simulated}): {} rows, {runs} distinct runs, {tlps} TLPs, {:.1} s",
        path.display(),
        rows.len(),
        began.elapsed().as_secs_f64()
    )));
    output::print(&output::link_lines(comparison.link.as_slice()));
    output::print(&format!("{}\n", held_to(comparison)));
    if every_row {
        output::print(&(rows_table(rows, output::width()) + "\n"));
    }
    output::print(&summary_table(&comparison.summary, misses, output::width()));
    if !comparison.held.is_empty() {
        output::print(&output::held_table(&comparison.held, comparison.held_in_all));
    }
}
