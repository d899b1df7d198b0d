//! `nearfar reproduce`: a paper's claims, simulated.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use nearfar::reproduce::{self, Options, Reproduction, SEEDS, data_folder};
use results::claims::{claims_table, count_line};

use crate::failure::Failure;
use crate::{Common, input, output, progress};

/// Simulate everything that a paper's claims and figures rest on, and say which hold.
#[derive(clap::Args)]
#[command(after_help = "\
Measured files are looked for in $NEARFAR_DATA, ../shared if that is not set; claims and curves do not need them.

Examples:
  nearfar reproduce
  nearfar reproduce pcie-bench --report report --json claims.json
  nearfar reproduce --check || echo a claim is outside its tolerance")]
pub struct Arguments {
    /// The paper; all of them if not given.
    #[arg(value_name = "PAPER", value_parser = SEEDS)]
    paper: Option<String>,
    /// Write verdicts as JSON, all claims and then every point of every figure, told apart by `kind`; - for the
    /// standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report of one HTML page for each paper into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// End with status 1 if a claim is outside its tolerance and none that contradicts it is within.
    #[arg(long)]
    check: bool,
    /// Seed of everything random.
    #[arg(long, alias = "random-seed", default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let options = Options { library: input::library(common), data: data_folder(), seed: arguments.seed };
    let seeds = arguments.paper.as_deref().map_or(SEEDS.to_vec(), |seed| vec![seed]);
    let mut all = Vec::new();
    for seed in seeds {
        let began = Instant::now();
        let done = reproduce::reproduce(seed, &options, progress::of(common).as_ref())?;
        if !output::is_stdout(arguments.json.as_deref()) {
            show(&done, began);
        }
        if let Some(folder) = &arguments.report {
            let path = folder.join(format!("{seed}.html"));
            output::write(&path, done.report().to_html().as_bytes())?;
            crate::output::complain(&format!("report: {}", path.display()));
        }
        all.push(done);
    }
    let mut rows = Vec::new();
    for (kind, results) in [
        ("claim", all.iter().flat_map(Reproduction::claims).collect::<Vec<_>>()),
        ("point", all.iter().flat_map(Reproduction::points).collect()),
    ] {
        for result in results {
            let mut row = serde_json::to_value(result).map_err(Failure::new)?;
            row["kind"] = kind.into();
            rows.push(row);
        }
    }
    output::json(arguments.json.as_deref(), &rows)?;
    let outside: Vec<_> = all.iter().flat_map(Reproduction::outside).collect();
    for claim in outside.iter().filter(|_| arguments.check) {
        crate::output::complain(&format!("outside its tolerance: {}", claim.id));
    }
    Ok(if arguments.check && !outside.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn show(done: &Reproduction, began: Instant) {
    let claims = done.claims();
    output::print(&format!("{}\n", done.file.seed));
    output::print(&claims_table(&claims, output::width()));
    output::print(&format!("\nclaims: {}", count_line(&claims)));
    let points = done.points();
    if !points.is_empty() {
        output::print(&format!("points of figures: {}", count_line(&points)));
    }
    output::print(&format!(
        "{} experiments simulated in {:.1} s\n",
        done.experiments,
        began.elapsed().as_secs_f64()
    ));
    for note in &done.notes {
        crate::output::complain(&note.to_string());
    }
}
