//! `nearfar bench`: pcie-bench on a simulated machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use machine::{Doc, IommuMode, Machine, Part, Sockets};
use nearfar::LinkState;
use nearfar::bench::Bench;
use nearfar::compare::apply;
use nearfar::suite::{self, Suite};
use results::compare::curves;
use results::pciebench::{Setup, to_csv, to_dat};

use crate::failure::Failure;
use crate::output::Records;
use crate::uncertain::Uncertainty;
use crate::{Common, input, output, progress};

/// Run the complete pcie-bench suite on a simulated machine and write its CSV files.
///
/// Names and columns are those of pcie-bench, so its users' scripts can read them. Next to each CSV file there is a
/// gnuplot version (.dat), with the closed form in bw_calc.dat.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar bench --machine dell-t430
  nearfar bench --machine dell-t430 --sockets s0-s1-s1 --iommu 4k --short -o out
  nearfar bench --machine dell-t630 --card netfpga --set host.llc.ddio_ways=0 --json rows.json")]
pub struct BenchArgs {
    /// The machine, by name or path (`nearfar machines` lists them).
    #[arg(long, short)]
    machine: String,
    /// The card, by name or path.
    #[arg(long, default_value = "nfp6000")]
    card: String,
    /// Sockets of device, memory and warming program.
    #[arg(long, value_parser = input::sockets, default_value = "s0-s0-s0")]
    sockets: Sockets,
    /// The IOMMU: off, 4k or superpages.
    #[arg(long, value_parser = input::iommu, default_value = "off")]
    iommu: IommuMode,
    /// Change a parameter of the machine.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// Change a parameter of the card.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    card_set: Vec<(String, String)>,
    /// Only files whose names contain this.
    #[arg(long, value_name = "PART")]
    files: Option<String>,
    /// Only an eighth of the rows.
    #[arg(long)]
    short: bool,
    /// Where to write the files; by default, a folder named after the configuration.
    #[arg(long, short, value_name = "DIR", value_parser = output::folder)]
    output: Option<PathBuf>,
    #[command(flatten)]
    uncertainty: Uncertainty,
    #[command(flatten)]
    records: Records,
    /// Plot each file's rows over their most varied parameter, as SVG, or as PDF for FILE.pdf.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(common: &Common, arguments: &BenchArgs) -> Result<ExitCode, Failure> {
    let mut places = arguments.records.places(&[("--plot", arguments.plot.as_deref())])?;
    let to_stdout = places.to_stdout;
    let library = input::library(common);
    let mut machine = Doc::<Machine>::load(&library, &arguments.machine)?;
    let mut card = Doc::<Part>::load(&library, &arguments.card)?;
    apply(&mut machine, "--set", &arguments.set)?;
    apply(&mut card, "--card-set", &arguments.card_set)?;
    let bench = Bench {
        machine: machine.read()?,
        card: card.read()?,
        sockets: arguments.sockets.clone(),
        iommu: arguments.iommu,
        seed: arguments.seed,
    };
    nearfar::compare::check(&arguments.machine, &bench)?;
    let mut plan = suite::plan(arguments.short);
    if let Some(part) = &arguments.files {
        plan.retain(|file| file.name.contains(part.as_str()));
        if plan.is_empty() {
            let names: Vec<String> = suite::plan(true).into_iter().map(|file| file.name).collect();
            return Err(Failure::new(format!(
                "no file has `{part}` in its name; there are {}",
                names.join(", ")
            )));
        }
    }
    let folder = arguments.output.clone().unwrap_or_else(|| suite::directory_name(&bench).into());
    places.reads_through(&library)?;
    for name in plan.iter().map(|file| &*file.name).chain(["bw_calc"]) {
        let name = name.trim_end_matches(".csv");
        places.writes("--output", &folder.join(format!("{name}.csv")))?;
        places.writes("--output", &folder.join(format!("{name}.dat")))?;
    }
    places.writes("--output", &folder.join(suite::PROVENANCE))?;
    let setup = files::sha256(format!("{bench:?}").as_bytes());
    check_folder(&folder, &setup)?;
    output::folder(&folder.to_string_lossy())
        .map_err(|why| Failure::new(format!("`{}`: {why}", folder.display())))?;
    let done = suite::measure(&bench, &plan, progress::of(common).as_ref())?;
    let changes: [(&str, &[_]); 2] = [("--set", &arguments.set), ("--card-set", &arguments.card_set)];
    let provenance = output::provenance(arguments.seed, &changes, &library);
    let mut rows = nearfar::records::of_suite(&done);
    let Suite { files, skipped, origins, .. } = done;
    let count = rows.len();
    let figures = origins.records();
    let docs = (&machine, &card, &bench);
    let intervals = arguments.uncertainty.of_suite(common, docs, &plan, (&rows, &figures))?;
    rows.extend(figures.into_iter().chain(intervals.iter().cloned()));
    // Written first: even an interrupted run's folder says what it holds.
    let mut made_from = serde_json::to_value(&provenance).map_err(Failure::new)?;
    made_from["setup"] = setup.into();
    output::json(Some(&folder.join(suite::PROVENANCE)), &made_from)?;
    for file in &files {
        let text = to_csv(&file.contents, file.line_ending);
        output::write(&folder.join(&file.name), text.as_bytes())?;
    }
    let mut plots = to_dat(&files);
    plots.extend(suite::closed_form(&bench).map(|text| ("bw_calc.dat".to_owned(), text)));
    for (name, text) in &plots {
        output::write(&folder.join(name), text.as_bytes())?;
    }
    if !to_stdout {
        output::heading(&provenance);
        output::print(&output::link_lines(LinkState::of_bench(&bench).as_slice()));
        output::print(&output::trust_lines(&origins, &intervals));
    }
    arguments.records.write(rows, &provenance)?;
    let charts: Vec<_> = files.iter().flat_map(|file| curves(&file.name, &file.rows())).collect();
    output::plot(arguments.plot.as_deref(), &charts, &provenance)?;
    for file in skipped {
        crate::output::complain(&format!("skipped {}: {}", file.file, file.reason));
    }
    crate::output::complain(&format!("{} files with {} rows in {}", files.len(), count, folder.display()));
    // `.` has a real name, too.
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.clone());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if Setup::parse(&name).is_err() {
        let BenchArgs { machine, card, sockets, .. } = arguments;
        let Sockets { device, memory, warming } = sockets;
        let iommu = match arguments.iommu {
            IommuMode::Off => "",
            IommuMode::Pages4k => " --iommu 4k",
            IommuMode::Superpages => " --iommu superpages",
        };
        let folder = folder.display();
        crate::output::complain(&format!(
            "its name does not say what it is of, as pcie-bench's do: `nearfar compare {folder} --machine {machine} --card {card} \
             --sockets s{device}-s{memory}-s{warming}{iommu}` says it"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if a folder holds results of another configuration, since they would be mixed.
fn check_folder(folder: &Path, setup: &str) -> Result<(), Failure> {
    let is_result = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".csv");
    if !std::fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_result)) {
        return Ok(());
    }
    let known = files::read(&folder.join(suite::PROVENANCE)).ok();
    let known: serde_json::Value =
        known.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    if known["setup"] == setup {
        return Ok(());
    }
    let of = match known["command"].as_str() {
        Some(command) => format!("results of another set-up ({command})"),
        None => "results that do not say what they were made from".to_owned(),
    };
    let folder = folder.display();
    Err(Failure::new(format!("`{folder}` holds {of}; name another folder with -o, or remove it first")))
}
