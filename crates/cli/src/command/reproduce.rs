//! `nearfar reproduce`: judges a paper's claims by simulation.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use nearfar::reproduce::{self, Options, Reproduction, SEEDS, data_folder};
use results::Provenance;
use results::claims::{ClaimResult, claims_table, count_line};
use results::report::Report;

use crate::failure::Failure;
use crate::output::Records;
use crate::{Common, input, output, progress};

/// Run all simulations for a paper's claims and figures, and say which claims hold.
#[derive(clap::Args)]
#[command(after_help = "\
Records are verdicts: all claims and then every point of every figure, told apart by `kind` (claim, point; published/README.md \
has all keys). Measured files are looked for in $NEARFAR_DATA, ../shared if that is not set; claims and curves do not need them.

Examples:
  nearfar reproduce
  nearfar reproduce pcie-bench --report report --json claims.json
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
    /// Plot every figure of the paper, as SVG.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
    /// Exit with status 1 if a claim is outside its tolerance, unless a claim that contradicts it is within its own.
    #[arg(long)]
    check: bool,
    /// Run only experiments whose names contain this, for papers with named experiments (ioctopus, device-lending,
    /// numa-io). Claims that need others count as not simulated.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seed of all random numbers.
    #[arg(long, alias = "random-seed", default_value_t = 1)]
    seed: u64,
}

pub fn run(common: &Common, arguments: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let options = Options {
        library: input::library(common),
        data: data_folder(),
        seed: arguments.seed,
        only: arguments.only.clone(),
    };
    let seeds = arguments.paper.as_deref().map_or(SEEDS.to_vec(), |seed| vec![seed]);
    let to_stdout = arguments.records.apart(&[("--plot", arguments.plot.as_deref())])?;
    let (mut all, mut provenance, mut charts) = (Vec::new(), Provenance::default(), Vec::new());
    for seed in seeds {
        let began = Instant::now();
        let done = reproduce::reproduce(seed, &options, progress::of(common).as_ref())?;
        provenance = output::provenance(arguments.seed, &[], &options.library);
        if !to_stdout {
            output::heading(&provenance);
            show(&done, (!common.quiet).then_some(began));
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
        all.push(done);
    }
    if let Some(only) = arguments.only.as_ref().filter(|_| all.iter().all(|done| done.experiments == 0)) {
        return Err(Failure::new(format!(
            "no experiment has `{only}` in its name; they are shown as they run, such as `RX local 65536` of ioctopus"
        )));
    }
    output::plot(arguments.plot.as_deref(), &charts, &provenance)?;
    let (claims, points) =
        (all.iter().flat_map(Reproduction::claims), all.iter().flat_map(Reproduction::points));
    let rows = rows(claims, points)?;
    arguments.records.write(rows, &provenance)?;
    let outside: Vec<_> = all.iter().flat_map(Reproduction::outside).collect();
    for claim in outside.iter().filter(|_| arguments.check) {
        crate::output::complain(&format!("outside its tolerance: {}", claim.id));
    }
    Ok(if arguments.check && !outside.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
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
fn show(done: &Reproduction, began: Option<Instant>) {
    let claims = done.claims();
    output::print(&format!("{}\n", done.file.seed));
    output::print(&claims_table(&claims, output::width()));
    output::print(&output::prose(&format!("\nclaims: {}", count_line(&claims))));
    let points = done.points();
    if !points.is_empty() {
        output::print(&output::prose(&format!("points of figures: {}", count_line(&points))));
    }
    let took = began.map_or_else(String::new, |began| format!(" in {:.1} s", began.elapsed().as_secs_f64()));
    output::print(&format!("{} experiments simulated{took}\n", done.experiments));
    for note in &done.notes {
        crate::output::complain(&note.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use results::claims::{ClaimFile, Evidence};
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
                let wanted = "error_pct half_width id kind published quantity relative_figures role seed simulated source tolerance_pct unit verdict";
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
                    ["within", "outside", "not-modelled"].contains(&row["verdict"].as_str().unwrap()),
                    "{row}"
                );
            }
        }
    }
}
