//! The complete pcie-bench suite on a simulated machine, with results in pcie-bench's file formats.

use std::path::Path;

use machine::IommuMode;
use results::pciebench::{Contents, LineEnding, PlannedFile, ResultFile, Row, Run, place_in_suite, suite};

use units::Bytes;

use crate::batch::{Job, Length, run_all};
use crate::bench::{Bench, BenchError, Effort, Outcome};
use crate::links::LinkState;
use crate::origins::Origins;
use crate::progress::Progress;

/// Samples of a run whose distribution is written; pcie-bench takes two million.
const SAMPLES_OF_A_DISTRIBUTION: u64 = 20_000;
/// The short suite takes every `SHORT_STEP`th row of a file.
const SHORT_STEP: usize = 8;

/// File that states the origin of a simulated directory.
pub const PROVENANCE: &str = "provenance.json";

/// Whether a directory's results are simulated.
pub fn is_simulated(directory: &Path) -> bool {
    directory.join(PROVENANCE).is_file()
}

/// The files of the suite; the short one has every eighth row of each.
pub fn plan(short: bool) -> Vec<PlannedFile> {
    let mut files = suite();
    if short {
        for file in files.iter_mut().filter(|file| !file.distributions) {
            file.runs = std::mem::take(&mut file.runs).into_iter().step_by(SHORT_STEP).collect();
        }
    }
    files
}

/// A result file that the card cannot produce (it lacks the command interface).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The name of the result file.
    pub file: String,
    /// Why the card cannot produce it, as a sentence.
    pub reason: String,
}

/// Results of a suite.
#[derive(Debug)]
pub struct Suite {
    /// The files, as pcie-bench would write them.
    pub files: Vec<ResultFile>,
    /// For each row of each file, the relative half-width of its 95 % confidence interval; pcie-bench's formats have
    /// no column for it.
    pub half_widths: Vec<Vec<f64>>,
    /// Files that the card cannot produce.
    pub skipped: Vec<Skipped>,
    /// Where the figures in use come from.
    pub origins: Origins,
}

/// Simulates the files of `plan`.
///
/// # Errors
/// The first run that cannot be simulated.
pub fn measure(bench: &Bench, plan: &[PlannedFile], progress: &dyn Progress) -> Result<Suite, BenchError> {
    let mut skipped = Vec::new();
    let can = |file: &&PlannedFile| {
        let commands = file.runs.iter().any(|run| run.test.is_command());
        if commands && bench.card.dma_engine.command.is_none() {
            let reason = format!("`{}` has no command interface", bench.card.name);
            skipped.push(Skipped { file: file.name.clone(), reason });
            return false;
        }
        true
    };
    let files: Vec<&PlannedFile> = plan.iter().filter(can).collect();
    // Runs before a file: those of all earlier files in benchmark order.
    let mut ordered = files.clone();
    ordered.sort_by_key(|file| place_in_suite(&file.name));
    let sequence: Vec<Run> = ordered.iter().flat_map(|file| file.runs.iter().copied()).collect();
    let begins = |wanted: &PlannedFile| -> usize {
        ordered.iter().take_while(|file| file.name != wanted.name).map(|file| file.runs.len()).sum()
    };
    let jobs: Vec<Job<'_>> = files
        .iter()
        .flat_map(|file| {
            let begin = begins(file);
            let sequence = &sequence;
            let job =
                move |(row, &run)| Job { bench, run, before: &sequence[..begin + row], effort: length(file) };
            file.runs.iter().enumerate().map(job)
        })
        .collect();
    let mut outcomes = run_all(&jobs, &format!("pcie-bench on {}", bench.machine.name), progress).into_iter();
    let (mut written, mut half_widths) = (Vec::new(), Vec::new());
    let mut origins = Origins::default();
    for file in files {
        let outcomes = outcomes.by_ref().take(file.runs.len()).collect::<Result<Vec<_>, _>>()?;
        origins.extend(Origins::of_bench(bench, &outcomes));
        half_widths.push(outcomes.iter().map(|outcome| outcome.half_width).collect());
        written.extend(files_of(file, outcomes));
        // Distributions have no rows.
        half_widths.resize(written.len(), Vec::new());
    }
    Ok(Suite { files: written, half_widths, skipped, origins })
}

fn length(file: &PlannedFile) -> Length {
    if file.distributions {
        Length::Exactly(Effort { samples: SAMPLES_OF_A_DISTRIBUTION, ..Effort::default() })
    } else {
        Length::Steady
    }
}

/// A file of rows, and the file of their distributions if it has one.
fn files_of(file: &PlannedFile, outcomes: Vec<Outcome>) -> Vec<ResultFile> {
    let (mut latency, mut bandwidth, mut distributions) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        distributions.push(outcome.distribution);
        match outcome.row {
            Row::Latency(row) => latency.push(row),
            Row::Bandwidth(row) => bandwidth.push(row),
        }
    }
    let contents =
        if latency.is_empty() { Contents::Bandwidth(bandwidth) } else { Contents::Latency(latency) };
    let result =
        |name: &str, contents| ResultFile { name: name.into(), contents, line_ending: LineEnding::CrLf };
    let mut files = vec![result(&file.name, contents)];
    if file.distributions {
        let name = file.name.replace(".csv", "_cdf.csv");
        files.push(result(&name, Contents::Cdf(distributions)));
    }
    files
}

/// Maximum goodput of a bench's link for every payload size, in the format of pcie-bench's gnuplot scripts
/// (`bw_calc.dat`); `None` if the closed form does not cover the link.
pub fn closed_form(bench: &Bench) -> Option<String> {
    use analytic::{Direction, Ethernet, Generation, Link};
    let state = LinkState::of_bench(bench)?;
    let generation = Generation::ALL.into_iter().nth(usize::from(state.generation as u8).checked_sub(1)?)?;
    let sizes = [state.max_payload, state.max_read_request].map(|size| Bytes::new(size.into()));
    let link = Link::new(generation, state.width.lanes().into(), sizes[0], sizes[1]).ok()?;
    let mut text = [
        "\"Payload(Bytes)\" \"PCIe Write BW\" \"PCIe Write Trans/s\" \"PCIe Read BW\" \"PCIe Read Trans/s\" ",
        "\"PCIe Read/Write BW\" \"PCIe Read/Write Trans/s\" \"40G Ethernet BW\" \"40G Ethernet PPS\" \n",
    ]
    .concat();
    for payload in 1..=2048_u64 {
        let bytes = Bytes::new(payload);
        text += &payload.to_string();
        for direction in [Direction::Write, Direction::Read, Direction::Both] {
            let rate = link.goodput(direction, bytes);
            let bits = rate.as_gbit_per_s_f64() * 1e9;
            text += &format!(" {:.2} {:.1}", rate.as_gbit_per_s_f64(), bits / (8 * payload) as f64);
        }
        let frames = 1e12 / Ethernet::forty_gbit().frame_interval(bytes).as_ps() as f64;
        text += &format!(" {:.2} {:.0}\n", frames * (8 * payload) as f64 / 1e9, frames.floor());
    }
    Some(text)
}

/// Name for a directory of results that `nearfar compare` can parse.
pub fn directory_name(bench: &Bench) -> String {
    let sockets = &bench.sockets;
    let (cpu, system) = match &bench.machine.measured_as {
        Some(known) => {
            (known.cpu.clone(), known.system.clone().unwrap_or_else(|| bench.machine.name.clone()))
        }
        None => ("E0-0000".into(), bench.machine.name.clone()),
    };
    let iommu = match bench.iommu {
        IommuMode::Off => "",
        IommuMode::Superpages => "-iommu",
        IommuMode::Pages4k => "-iommu-nosp",
    };
    format!(
        "{}-simulated_{}-Xeon-{cpu}_{system}-s{}-s{}-s{}{iommu}",
        bench.card.name,
        generation(&bench.machine.host.microarchitecture),
        sockets.device,
        sockets.memory,
        sockets.warming
    )
}

/// pcie-bench's short name for a CPU generation.
fn generation(microarchitecture: &str) -> String {
    let names = [("broadwell", "bdw"), ("haswell", "hsw"), ("ivy", "ib"), ("sandy", "snb")];
    let known = names.iter().find(|(long, _)| microarchitecture.starts_with(long));
    known.map_or_else(|| microarchitecture.replace('-', ""), |(_, short)| (*short).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Doc, Library, Machine, Part, Sockets};

    fn bench(iommu: IommuMode) -> Bench {
        let library = Library::built_in();
        Bench {
            machine: Doc::<Machine>::load(&library, "dell-t430").unwrap().read().unwrap(),
            card: Doc::<Part>::load(&library, "nfp6000").unwrap().read().unwrap(),
            sockets: Sockets { device: 0, memory: 1, warming: 1 },
            iommu,
            seed: 1,
        }
    }

    /// Results under this name are compared with the right machine without naming it.
    #[test]
    fn the_name_of_the_directory_says_what_was_run() {
        let bench = bench(IommuMode::Pages4k);
        let setup = results::pciebench::Setup::parse(&directory_name(&bench)).unwrap();
        assert_eq!((setup.generation.as_str(), setup.cpu.as_str()), ("bdw", "Xeon-E5-2630v4"));
        assert_eq!((setup.chassis.as_str(), setup.sockets.to_string().as_str()), ("dell-t430", "s0-s1-s1"));
        assert_eq!((setup.iommu, setup.doubts.len()), (IommuMode::Pages4k, 0));
    }

    /// Same seed, same bytes, on one thread and on several.
    #[test]
    fn files_do_not_depend_on_the_number_of_threads() {
        let bench = bench(IommuMode::Off);
        let mut plan = plan(true);
        plan.retain(|file| file.name.starts_with("lat_cmd_sizes") || file.name.starts_with("bw_dma_sz"));
        let text = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let files = pool.install(|| measure(&bench, &plan, &crate::progress::Silent)).unwrap().files;
            let csv = |file: &ResultFile| results::pciebench::to_csv(&file.contents, file.line_ending);
            files.iter().map(csv).collect::<Vec<_>>()
        };
        let one = text(1);
        assert!(one.iter().all(|csv| csv.lines().count() > 1));
        assert_eq!(one, text(2));
    }
}
