//! `nearfar reproduce`: judges a paper's claims by simulation.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use machine::Library;
use papers::{AskedClaims, Basis, Options, Reproduction, SEEDS, data_folder};
use results::Provenance;
use results::claims::{
    ClaimFile, ClaimResult, Evidence, Verdict, VerdictCounts, claim_cells, claims_table, count_line,
    statements_line,
};
use results::report::Report;

use super::machines;
use super::repeated::{Repeated, Repetitions};
use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, input, output, progress};

/// Run all simulations for a paper's claims and figures, and say which claims hold.
#[derive(clap::Args)]
#[command(after_help = "\
Records are verdicts: all claims and then every point of every figure, told apart by `kind` (claim, point; published/README.md \
has all keys). Measured files are looked for in $NEARFAR_DATA, ../shared if that is not set; claims and curves do not need them.

Examples:
  nearfar reproduce
  nearfar reproduce pcie-bench --report report --json claims.json
  nearfar reproduce ioctopus --figure 8                  one figure: its claims and points, in seconds
  nearfar reproduce ioctopus --figure 8 --list           what would be judged, without simulating
  nearfar reproduce ioctopus --figure 8 --set host.llc.ddio_ways=0
  nearfar reproduce device-lending --stability 5         which results hang on a seed or on a nanosecond?
  nearfar reproduce kpio-wc --uncertainty 20             which figures do its verdicts hang on?
  nearfar reproduce --check || echo a claim is outside its tolerance")]
pub struct ReproduceArgs {
    /// The paper; by default, all.
    #[arg(value_name = "PAPER", value_parser = SEEDS)]
    paper: Option<String>,
    #[command(flatten)]
    records: Records,
    /// Write an HTML report per paper into this folder.
    #[arg(long, value_name = "DIR", value_parser = output::folder)]
    report: Option<PathBuf>,
    /// Plot every figure of the paper, as SVG, or as PDF for FILE.pdf.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
    /// Exit with status 1 if a claim is outside its tolerance, unless a claim that contradicts it is within its own.
    #[arg(long)]
    check: bool,
    /// Judge only the claims and points of this figure or table of the paper, such as `8`, `7a` or `table1`.
    #[arg(long, value_name = "FIGURE")]
    figure: Option<String>,
    /// Judge only what experiments whose names contain this give, and claims whose ids contain it; several, separated by commas,
    /// or by several `--only`.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// List the claims, figures and experiments instead of simulating them.
    #[arg(long)]
    list: bool,
    /// Change a figure of all machines, cards, devices and kernels that have it (`host.llc.ddio_ways=0`), or of an
    /// experiment's scenario (`host.server.iommu=strict`). Verdicts are then about the changed ones.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// Seed of all random numbers.
    #[arg(long, alias = "random-seed", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    repetitions: Repetitions,
}

pub fn run(common: &Common, arguments: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let options = Options {
        library: input::library(common).with_changes(arguments.set.iter().cloned()),
        data: data_folder(),
        seed: arguments.seed,
        figure: arguments.figure.clone(),
        only: arguments.only.clone(),
        claims_alone: false,
        basis: Basis::default(),
    };
    check_changes(&options.library.aside(), &arguments.set)?;
    let mut seeds = arguments.paper.as_deref().map_or(SEEDS.to_vec(), |seed| vec![seed]);
    let asked: Vec<AskedClaims> = seeds.iter().map(|seed| papers::asked(seed, &options)).collect();
    // Of several papers, those that have such a figure or experiment.
    let is_there = |asked: &AskedClaims| !asked.experiments.is_empty();
    if !asked.iter().any(is_there) {
        return Err(nothing_asked(&seeds, arguments));
    }
    seeds.retain(|seed| asked.iter().any(|asked| asked.file.seed == *seed && is_there(asked)));
    if arguments.list {
        return list(arguments, &asked);
    }
    let mut places = arguments.records.places(&[("--plot", arguments.plot.as_deref())])?;
    for seed in seeds.iter().filter(|_| arguments.report.is_some()) {
        let folder = arguments.report.clone().unwrap_or_default();
        places.writes("--report", &folder.join(format!("{seed}.html")))?;
    }
    let to_stdout = places.to_stdout;
    let (mut all, mut provenance, mut charts) = (Vec::new(), Provenance::default(), Vec::new());
    for seed in seeds {
        let began = Instant::now();
        let done = papers::reproduce(seed, &options, progress::of(common).as_ref())?;
        let repeated = arguments.repetitions.of(common, seed, &options, &done)?;
        provenance = output::provenance(arguments.seed, &[("--set", &arguments.set)], &options.library);
        if !to_stdout {
            output::heading(&provenance);
            if !arguments.set.is_empty() {
                output::print("verdicts are about what was changed, not about the paper's machines\n");
            }
            show(&done, &repeated, (!common.quiet).then_some(began), common.verbose);
        }
        if let Some(folder) = &arguments.report {
            let path = folder.join(format!("{seed}.html"));
            let report = Report { provenance: provenance.clone(), ..done.report() };
            output::write(&path, report.to_html().as_bytes())?;
            crate::output::complain(&format!("report: {}", path.display()));
        }
        if arguments.plot.is_some() {
            charts.extend(done.report().sections.into_iter().flat_map(|section| section.charts));
        }
        all.push((done, repeated));
    }
    if let Some((path, _)) = arguments.set.iter().find(|(path, _)| !options.library.has_changed(path)) {
        return Err(Failure::new(format!(
            "--set {path}: no file that was used has it; `nearfar machines NAME` lists the figures of a machine"
        )));
    }
    output::plot(arguments.plot.as_deref(), &charts, &provenance)?;
    let claims = all.iter().flat_map(|(done, repeated)| repeated.judged(done.claims()));
    let points = all.iter().flat_map(|(done, repeated)| repeated.judged(done.points()));
    let mut rows = rows(claims, points)?;
    for (_, repeated) in &all {
        rows.iter_mut().try_for_each(|row| repeated.add(row))?;
    }
    arguments.records.write(rows, &provenance)?;
    let outside = all.iter().flat_map(|(done, repeated)| repeated.judged(done.outside()));
    let outside: Vec<_> = outside.filter(|claim| claim.verdict == Verdict::Outside).collect();
    for claim in outside.iter().filter(|_| arguments.check) {
        crate::output::complain(&format!("outside its tolerance: {}", claim.id));
    }
    Ok(if arguments.check && !outside.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Fails at a path that looks like one of a machine's or a device's and is in none, before anything is simulated.
fn check_changes(library: &Library, changes: &[(String, String)]) -> Result<(), Failure> {
    if changes.is_empty() {
        return Ok(());
    }
    let figures = machines::all_figures(library);
    for (path, _) in changes.iter().filter(|(path, _)| !library.has_changed(path)) {
        // `host.server...` is of a scenario, `host.llc...` of a machine.
        let begin = |path: &str| path.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
        let is_of_scenario =
            ["host", "program", "cable"].iter().any(|list| path.starts_with(&format!("{list}.")))
                && !figures.iter().any(|figure| begin(figure) == begin(path));
        if !is_of_scenario {
            let message = format!("--set {path}: no machine, card, device or kernel has it");
            return Err(Failure::with_nearest(message, path, figures.iter().map(String::as_str), ""));
        }
    }
    Ok(())
}

/// Says that nothing of the papers is asked for, and what there is.
fn nothing_asked(seeds: &[&str], arguments: &ReproduceArgs) -> Failure {
    let wanted = match (&arguments.figure, &arguments.only[..]) {
        (Some(figure), []) => format!("no claim or figure of {} is of figure `{figure}`", seeds.join(", ")),
        (_, [_, ..]) => {
            let only = arguments.only.join("` or `");
            format!("no experiment or claim of {} has `{only}` in its name", seeds.join(", "))
        }
        (None, []) => format!("there is nothing to simulate of {}", seeds.join(", ")),
    };
    let places: BTreeSet<String> = seeds
        .iter()
        .flat_map(|seed| {
            let file = ClaimFile::of(seed);
            let of_claims = file.claims.iter().filter_map(|claim| claim.id.split('/').nth(1));
            let all = of_claims.chain(file.figures.iter().map(|figure| &*figure.id));
            all.filter(|place| *place != "text").map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let there = match places.is_empty() {
        true => "its claims are all of its text".to_owned(),
        false => format!("there are {}", places.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Failure::new(format!("{wanted}; {there}; --list shows all claims and experiments"))
}

/// Lists claims, figures and experiments.
fn list(arguments: &ReproduceArgs, asked: &[AskedClaims]) -> Result<ExitCode, Failure> {
    let to_stdout = arguments.records.places(&[])?.to_stdout;
    let nothing = Evidence::default();
    let claims = asked.iter().flat_map(|asked| asked.file.judge_claims(&nothing));
    let points = asked.iter().flat_map(|asked| asked.file.judge_figures(&nothing));
    let provenance = output::provenance(arguments.seed, &[], &Library::built_in());
    arguments.records.write(rows(claims, points)?, &provenance)?;
    if to_stdout {
        return Ok(ExitCode::SUCCESS);
    }
    for AskedClaims { file, experiments } in asked.iter().filter(|asked| !asked.experiments.is_empty()) {
        output::print(&output::prose(&format!("{}: {}\n", file.seed, file.paper)));
        let mut table =
            TextTable::new(["claim", "published", "tolerance", "role", "what"], Fit::LastBelow).numbers(1..3);
        for claim in file.judge_claims(&nothing) {
            table.add(claim_cells(&claim));
        }
        if !file.claims.is_empty() {
            output::print(&table.render(output::width()));
        }
        for figure in &file.figures {
            let lines = figure.line.iter().map(|line| &*line.label).collect::<Vec<_>>().join(", ");
            output::print(&output::prose(&format!("{}: {} ({lines})", figure.id, figure.title)));
        }
        output::print(&output::prose(&format!(
            "\n{} claims, {} figures; {} experiments: {}\n",
            file.claims.len(),
            file.figures.len(),
            experiments.len(),
            experiments.join(", ")
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// The records that `--json` writes, described in published/README.md: all claims, then all points of figures.
fn rows(
    claims: impl Iterator<Item = ClaimResult>,
    points: impl Iterator<Item = ClaimResult>,
) -> Result<Vec<serde_json::Value>, Failure> {
    let all = claims.map(|claim| ("claim", claim)).chain(points.map(|point| ("point", point)));
    let row = |(kind, result): (&str, ClaimResult)| {
        let mut row = serde_json::to_value(result).map_err(Failure::new)?;
        row["kind"] = kind.into();
        Ok(row)
    };
    all.map(row).collect()
}

/// Prints the results; with `began`, also the elapsed time.
fn show(done: &Reproduction, repeated: &Repeated, began: Option<Instant>, verbose: bool) {
    let claims = repeated.judged(done.claims());
    output::print(&format!("{}\n", done.file.seed));
    if !claims.is_empty() {
        output::print(&(claims_table(&claims, output::width()) + "\n"));
    }
    let is_judged = |results: &[ClaimResult]| results.iter().any(|r| r.verdict != Verdict::NotPublished);
    if is_judged(&claims) {
        output::print(&output::prose(&format!("statements: {}", statements_line(&claims))));
        let all = VerdictCounts::of_claims(&claims);
        output::print(&output::prose(&format!("claims: {all}; {}", count_line(&claims))));
    }
    let points = repeated.judged(done.points());
    if is_judged(&points) {
        let line =
            format!("points of figures: {}; {}", VerdictCounts::of_claims(&points), count_line(&points));
        output::print(&output::prose(&line));
    }
    repeated.show(&claims);
    let took = began.map_or_else(String::new, |began| format!(" in {:.1} s", began.elapsed().as_secs_f64()));
    output::print(&format!("{} experiments simulated{took}\n", done.experiments));
    for value in done.values.iter().filter(|_| verbose) {
        output::print(value);
    }
    for note in &done.notes {
        crate::output::complain(&note.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// The keys that scripts rely on, their possible values, and the order of rows.
    #[test]
    fn json_has_the_shape_that_is_documented() {
        let is_number_or_null = |value: &Value| value.is_number() || value.is_null();
        let documented = concat!(env!("CARGO_MANIFEST_DIR"), "/../../published/README.md");
        let documented = std::fs::read_to_string(documented).expect("the published values' description");
        let mut ids = BTreeSet::new();
        // Without evidence, nothing is simulated, but the rows have the same shape.
        for file in SEEDS.map(ClaimFile::of) {
            let nothing = Evidence::default();
            let (claims, points) = (file.judge_claims(&nothing), file.judge_figures(&nothing));
            let rows = rows(claims.clone().into_iter(), points.into_iter())
                .unwrap_or_else(|error| panic!("{error}"));
            let kinds: Vec<&str> = rows.iter().map(|row| row["kind"].as_str().unwrap()).collect();
            assert!(
                kinds.is_sorted() && kinds.iter().filter(|kind| **kind == "claim").count() == claims.len()
            );
            assert!(kinds.iter().all(|kind| ["claim", "point"].contains(kind)));
            for row in &rows {
                let mut keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
                keys.sort_unstable();
                let wanted = "error_pct half_width id kind ours published quantity relative_figures role seed simulated source statement structural tolerance_pct unit verdict";
                assert_eq!(keys.join(" "), wanted);
                assert!(keys.iter().all(|key| documented.contains(&format!("| `{key}` |"))), "{keys:?}");
                let id = row["id"].as_str().unwrap();
                assert!(
                    (3..=5).contains(&id.split('/').count()) && id.split('/').next() == row["seed"].as_str(),
                    "{id}"
                );
                assert!(ids.insert(id.to_owned()), "{id} is there twice");
                assert!(["source", "quantity", "unit"].iter().all(|key| row[*key].is_string()), "{row}");
                let values = ["published", "simulated", "error_pct"];
                assert!(values.iter().all(|key| is_number_or_null(&row[*key])), "{row}");
                assert!(row["tolerance_pct"].is_number(), "{row}");
                assert!(
                    ["calibration", "prediction", "follows"].contains(&row["role"].as_str().unwrap()),
                    "{row}"
                );
                assert!(
                    ["within", "outside", "undetermined", "not-modelled"]
                        .contains(&row["verdict"].as_str().unwrap()),
                    "{row}"
                );
            }
        }
    }
}
