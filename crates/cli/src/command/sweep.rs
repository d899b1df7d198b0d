//! `nearfar sweep`: runs a scenario for several values of its keys.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::{ComputerSetup, Library, Setup};
use nearfar::LinkState;
use nearfar::computer::{Counted, Counts};
use nearfar::counters::Binding;
use nearfar::experiment::{self, Combination, Experiment, combinations};
use nearfar::origins::Origins;
use nearfar::scenario::{self, FinishedRun};
use nearfar::{computer, records};
use results::Provenance;
use results::pciebench::{Row, Run};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::Records;
use crate::output::sweep::{Column, Table};
use crate::uncertain::Uncertainty;
use crate::{Common, input, output, progress};

/// Most combinations of a sweep: all of them are in memory.
const MOST_POINTS: usize = 100_000;

/// Run a scenario for every value of a key, or every combination of values of several.
#[derive(clap::Args)]
#[command(after_help = "\
A key is a path in the scenario (pcie_bench.transfer), in the machine (host.llc.ddio_ways) or in the card \
(dma_engine.tags, link.width); in a scenario with computers, host.a begins the path of what the scenario calls a.

Values are separated by commas. 8..12 stands for 8, 9, 10, 11, 12; 8..64x2 for 8, 16, 32, 64; \"64 B..256 B+64\" for four \
sizes. A list in brackets is one value. program.0.bs is an option of the first program's command line, as \
program.NAME.bs is of the one called so.

Examples:
  nearfar sweep iommu-window --over host.iommu.walkers=1,2,6
  nearfar sweep pktgen --over host.a.nic_driver.channels=1,2,4
  nearfar sweep pktgen --over program.0.size=64..1500x2 --plot rate.svg     an option of a program, -s here
  nearfar sweep fio-remote --over program.local.iodepth=1..16x2
  nearfar sweep pktgen --over host.a.device.0.change.controller.tags=8..64x2 --csv tags.csv --report tags.html
  nearfar sweep latency-by-size --over dma_engine.tags=8,16,32 --over machine=dell-t430,dell-t630 --json sweep.json")]
pub struct SweepArgs {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// A key and its values.
    #[arg(long, required = true, value_name = "KEY=VALUES", value_parser = input::values)]
    pub over: Vec<(String, Vec<String>)>,
    /// Change a value in all runs, as `run` does.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// The folder below which the scenario's own files are written: captures and drives' blocks. By default, the folder
    /// of the scenario's file; for a built-in scenario, the current one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Show where CPU time was spent, for each value.
    #[arg(long)]
    accounting: bool,
    #[command(flatten)]
    uncertainty: Uncertainty,
    #[command(flatten)]
    records: Records,
    /// Write an HTML page with a curve per quantity.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    report: Option<PathBuf>,
    /// Plot the first rate over the first key, or else the first quantity, as SVG, or as PDF for FILE.pdf.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
}

impl SweepArgs {
    fn named(&self) -> input::Named<'_> {
        input::Named { scenario: &self.scenario, folder: self.folder.as_deref() }
    }
}

/// A combination of values, and the resulting scenario.
type Variant<T> = (Combination, Box<T>);

/// Results of a sweep.
struct Swept {
    title: String,
    rows: Vec<Value>,
    tables: Vec<Table>,
    /// Links, each with the combination of values.
    links: Vec<(Combination, Vec<LinkState>)>,
    /// Text that follows the tables on the terminal.
    text: String,
    failed: bool,
    seed: u64,
    /// Where the figures in use come from, at all points.
    origins: Origins,
}

pub fn run(common: &Common, arguments: &SweepArgs) -> Result<ExitCode, Failure> {
    for (n, (key, _)) in arguments.over.iter().enumerate() {
        if arguments.over[..n].iter().any(|(other, _)| other == key) {
            let message =
                format!("--over names `{key}` twice; give all its values at once, separated by commas");
            return Err(Failure::new(message));
        }
    }
    let points = arguments.over.iter().map(|(_, values)| values.len()).try_fold(1, usize::checked_mul);
    if points.is_none_or(|points| points > MOST_POINTS) {
        return Err(Failure::new(format!(
            "--over: the values of all keys have more than {MOST_POINTS} combinations; give fewer values, or sweep key by key"
        )));
    }
    let pictures = [("--report", arguments.report.as_deref()), ("--plot", arguments.plot.as_deref())];
    let mut places = arguments.records.places(&pictures)?;
    let to_stdout = places.to_stdout;
    let library = input::library(common);
    let (mut variants, mut computers) = (Vec::new(), Vec::new());
    for values in combinations(&arguments.over) {
        let experiment = load(&library, arguments, &values)?;
        input::places(&mut places, &library, &experiment)?;
        arguments.uncertainty.check(&experiment)?;
        match experiment {
            Experiment::Computers(setup) => computers.push((values, setup)),
            Experiment::Bench(setup) => variants.push((values, setup)),
        }
    }
    let mut swept = match computers.is_empty() {
        true => on_bench(common, arguments, &variants)?,
        false => on_computers(common, arguments, &computers)?,
    };
    tell_without_effect(arguments, &swept.rows);
    let (scenario, points) = ((&*arguments.scenario, &*arguments.set), combinations(&arguments.over));
    let figures = swept.origins.records();
    let intervals = arguments.uncertainty.of_points(common, scenario, &points, (&swept.rows, &figures))?;
    swept.rows.extend(figures.into_iter().chain(intervals.iter().cloned()));
    let over: Vec<(String, String)> =
        arguments.over.iter().map(|(key, values)| (key.clone(), values.join(","))).collect();
    let provenance =
        output::provenance(swept.seed, &[("--set", &arguments.set), ("--over", &over)], &library);
    write(arguments, &swept, &provenance)?;
    if !to_stdout {
        output::heading(&provenance);
        output::print(&(link_lines(&swept.links) + "\n"));
        for table in &swept.tables {
            output::print(&table.render());
        }
        if !swept.text.is_empty() {
            output::print(swept.text.trim_end());
        }
        output::print(&output::trust_lines(&swept.origins, &intervals));
        for answer in swept.tables.iter().filter_map(|table| table.answer(swept.tables.len() == 1)) {
            output::print(&output::prose(&format!("answer: {answer}")));
        }
    }
    Ok(if swept.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Loads the scenario with the common changes and one combination of values.
fn load(library: &Library, arguments: &SweepArgs, values: &Combination) -> Result<Experiment, Failure> {
    // Errors in the common changes are reported as such.
    if !arguments.set.is_empty() {
        input::scenario(library, &arguments.named(), "--set", &arguments.set)?;
    }
    let changes: Vec<(String, String)> = arguments.set.iter().chain(values).cloned().collect();
    input::scenario(library, &arguments.named(), "--over", &changes)
}

fn write(arguments: &SweepArgs, swept: &Swept, provenance: &Provenance) -> Result<(), Failure> {
    if let Some(path) = &arguments.report {
        let page = output::sweep::page(&swept.title, &swept.tables, provenance);
        output::write(path, page.to_html().as_bytes())?;
        output::complain(&format!("report: {}", path.display()));
    }
    let first: Vec<_> = swept.tables.iter().flat_map(Table::charts).take(1).collect();
    output::plot(arguments.plot.as_deref(), &first, provenance)?;
    arguments.records.write(swept.rows.clone(), provenance)
}

fn on_bench(common: &Common, arguments: &SweepArgs, variants: &[Variant<Setup>]) -> Result<Swept, Failure> {
    if arguments.accounting {
        return Err(Failure::new(
            "--accounting is for scenarios with computers: this one has a machine with a card, on which no kernel runs",
        ));
    }
    let setups: Vec<_> = variants.iter().map(|(_, setup)| &**setup).collect();
    let done = scenario::run_all(&setups, &arguments.scenario, progress::of(common).as_ref());
    let mut all: Vec<(&Combination, Vec<FinishedRun>)> = Vec::new();
    for ((values, _), done) in variants.iter().zip(done) {
        all.push((values, done?));
    }
    let (mut rows, mut origins) = (Vec::new(), Origins::default());
    for ((values, done), setup) in all.iter().zip(&setups) {
        origins.extend(Origins::of_bench(&scenario::bench_of(setup), done.iter().map(|one| &one.outcome)));
        for one in done {
            let mut row = records::of_swept_run(&setup.scenario.name, rows.len() + 1, &one.outcome);
            records::add_values(&mut row, values);
            rows.push(row);
        }
    }
    let first = setups.first();
    Ok(Swept {
        title: first.map_or_else(String::new, |setup| setup.scenario.summary.clone()),
        tables: bench_tables(&all),
        links: variants
            .iter()
            .map(|(values, setup)| {
                let link = LinkState::of_bench(&scenario::bench_of(setup));
                (values.clone(), link.into_iter().collect())
            })
            .collect(),
        rows,
        origins,
        text: String::new(),
        failed: false,
        seed: first.map_or(1, |setup| setup.scenario.seed.unwrap_or(1)),
    })
}

/// A table of latencies and one of bandwidths: a row per combination, a column per run.
fn bench_tables(all: &[(&Combination, Vec<FinishedRun>)]) -> Vec<Table> {
    let Some((_, first)) = all.first() else { return Vec::new() };
    let of = |title: &str, unit: &'static str, wanted: fn(&Row) -> Option<f64>| -> Option<Table> {
        let mut table = Table::of_runs(title);
        let same =
            |others: &[&Run], of: fn(&Run) -> String| others.iter().all(|run| of(run) == of(others[0]));
        for (values, done) in all {
            let runs: Vec<&Run> = done.iter().map(|one| &one.run).collect();
            let parts: [fn(&Run) -> String; 6] = [
                |run| run.test.to_string(),
                |run| run.pattern.to_string(),
                |run| run.cache.to_string(),
                |run| format!("window {}", run.window),
                |run| run.transfer.to_string(),
                |run| format!("offsets {} and {} B", run.host_offset, run.device_offset),
            ];
            // Column headings omit what is equal in all runs, and what is swept.
            let told: Vec<_> = parts.iter().filter(|of| !same(&runs, **of)).collect();
            let (mut cells, mut bindings) = (Vec::new(), Vec::new());
            for one in done {
                let Some(value) = wanted(&one.outcome.row) else { continue };
                let name = told.iter().map(|of| of(&one.run)).collect::<Vec<_>>().join(" ");
                let name = if name.is_empty() { "all".to_owned() } else { name };
                bindings.push((name.clone(), one.outcome.window.binding("")));
                cells.push((Column { name, unit: unit.into() }, value));
            }
            table.add(values, cells, bindings, Vec::new());
        }
        (!table.is_empty()).then_some(table)
    };
    let run = first[0].run;
    let median = |row: &Row| match row {
        Row::Latency(row) => Some(row.ns.median),
        Row::Bandwidth(_) => None,
    };
    let goodput = |row: &Row| match row {
        Row::Bandwidth(row) => Some(row.gbit_per_s),
        Row::Latency(_) => None,
    };
    let about = format!("of {run} and the like");
    let latency = of(&format!("median latency {about}"), "ns", median);
    let bandwidth = of(&format!("goodput {about}"), "Gbit/s", goodput);
    latency.into_iter().chain(bandwidth).collect()
}

/// Runs programs on computers for every combination, several at a time.
fn on_computers(
    common: &Common,
    arguments: &SweepArgs,
    variants: &[Variant<ComputerSetup>],
) -> Result<Swept, Failure> {
    let setups: Vec<_> = variants.iter().map(|(_, setup)| &**setup).collect();
    let all = computer::run_all(&setups, &arguments.scenario, progress::of(common).as_ref());
    let (mut text, mut rows, mut links, mut failed) = (String::new(), Vec::new(), Vec::new(), false);
    let mut tables: BTreeMap<(usize, String), Table> = BTreeMap::new();
    let mut origins = Origins::default();
    let mut results = Vec::new();
    for ((values, setup), counts) in variants.iter().zip(all) {
        results.push((values, setup, counts?));
    }
    for (values, setup, counts) in &results {
        let mut own = records::of_swept_computers(setup, counts, arguments.accounting);
        own.iter_mut().for_each(|row| records::add_values(row, values));
        origins.extend(Origins::of_computers(setup, &counts.counted));
        let Counts { done, accounts, counted, links: own_links, .. } = counts;
        let named: Combination =
            values.iter().map(|(key, value)| (axis_name(setup, key), value.clone())).collect();
        links.push(((*values).clone(), own_links.clone()));
        if arguments.accounting {
            text += &format!("\n{}\n{}", label(values), output::account_table(accounts));
        }
        rows.extend(own);
        for (place, program) in done.iter().enumerate() {
            let table = tables.entry((place, program.host.clone())).or_insert_with(|| {
                let runs = results.iter().filter_map(|(.., counts)| Some(&*counts.done.get(place)?.run));
                Table::new(&format!("{}: {}", program.host, common_words(&runs.collect::<Vec<_>>())))
            });
            let parts = || counted.iter().filter(|counted| Some(counted.program) == program.number());
            let binding = |counted: &Counted| {
                let binding = Binding { part: String::new(), ..counted.window.binding(&program.host) };
                (counted.window.part.clone(), binding)
            };
            let binding = parts().map(binding);
            let placement = parts().next().map(|counted| counted.placement(setup)).unwrap_or_default();
            match &program.outcome {
                Ok(report) => {
                    let cells = report.readings.iter().filter(|reading| reading.way.is_none());
                    let cells = cells.map(|reading| {
                        (Column { name: reading.quantity.clone(), unit: reading.unit.clone() }, reading.value)
                    });
                    table.add(&named, cells.collect(), binding.collect(), placement);
                }
                Err(_) if program.was_stopped => {}
                Err(failure) => {
                    failed = true;
                    let why =
                        format!("error: {}: {}: {}: {failure}", label(values), program.host, program.run);
                    output::complain(&why);
                }
            }
        }
    }
    let first = variants.first().map(|(_, setup)| setup);
    Ok(Swept {
        title: first.map_or_else(String::new, |setup| setup.summary.clone()),
        tables: tables.into_values().filter(|table| !table.is_empty()).collect(),
        rows,
        links,
        text,
        failed,
        origins,
        seed: first.map_or(1, |setup| setup.seed),
    })
}

/// What a key is called in tables and on axes: an option of a program by its name, with its unit.
fn axis_name(setup: &ComputerSetup, key: &str) -> String {
    let Some((program, option)) = experiment::program_option(key) else { return key.to_owned() };
    let lines = || setup.programs.iter().map(|program| &*program.run.value);
    let is_its = |line: &&str| {
        line.split_whitespace().any(|word| word == program || word == format!("--name={program}"))
    };
    let number = program.parse().ok().and_then(|number: usize| lines().nth(number));
    let called =
        || setup.programs.iter().find(|one| one.name.as_deref() == Some(program)).map(|one| &*one.run.value);
    let line = number.or_else(called).or_else(|| lines().find(is_its));
    let (name, unit) = workloads::option_axis(line.unwrap_or_default(), option);
    if unit.is_empty() { name } else { format!("{name} ({unit})") }
}

/// A command line in which words that differ between runs are left out.
fn common_words(runs: &[&str]) -> String {
    let [first, others @ ..] = runs else { return String::new() };
    let others: Vec<Vec<&str>> = others.iter().map(|run| run.split_whitespace().collect()).collect();
    let word = |(n, word): (usize, &str)| match others.iter().all(|other| other.get(n) == Some(&word)) {
        true => word.to_owned(),
        false => word.split_once('=').map_or_else(|| "…".to_owned(), |(option, _)| format!("{option}=…")),
    };
    first.split_whitespace().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

/// Negotiated link parameters: once if they are equal for all values, else per value.
fn link_lines(links: &[(Combination, Vec<LinkState>)]) -> String {
    match links {
        [(_, first), rest @ ..] if rest.iter().all(|(_, links)| links == first) => output::link_lines(first),
        _ => {
            let of = |(values, links): &(Combination, Vec<LinkState>)| {
                output::prose(&format!("{}:", label(values))) + "\n" + &output::link_lines(links)
            };
            links.iter().map(of).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Warns about a key whose values all give the same rows: it may be the wrong key.
fn tell_without_effect(arguments: &SweepArgs, rows: &[Value]) {
    for (key, values) in arguments.over.iter().filter(|(_, values)| values.len() > 1) {
        let mut by_value = BTreeMap::<String, Vec<String>>::new();
        for row in rows {
            let mut row = row.clone();
            let Some(fields) = row.as_object_mut() else { continue };
            let value = fields.remove(key).unwrap_or_default().to_string();
            // Rows are numbered across all values.
            fields.remove("row");
            by_value.entry(value).or_default().push(row.to_string());
        }
        let mut all = by_value.into_values();
        if let Some(first) = all.next()
            && all.len() > 0
            && all.all(|rows| rows == first)
        {
            output::complain(&format!(
                "note: no row depends on `{key}`: all are the same for each of {}; either this scenario does not use it, or \
                 something else is the limit at each of them",
                values.join(", ")
            ));
        }
    }
}

/// Heading of a combination's results.
fn label(values: &[(String, String)]) -> String {
    values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}
