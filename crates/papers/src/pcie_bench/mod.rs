//! "Understanding PCIe performance for end host networking", SIGCOMM 2018.

mod model;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use machine::{
    Determined, Diagnostics, Doc, IommuMode, Kind, Library, Listed, Machine, Part, Sockets, figures, slot_of,
};
use nearfar::Progress;
use nearfar::batch::{self, Job, Length};
use nearfar::bench::{Bench, BenchError, Effort, run_beside};
use rayon::prelude::*;
use results::claims::{AnalyticPoint, Axis, ClaimFile, Evidence, Experiment, Outcome, Statistic};
use units::{BitRate, Bytes};

use super::{AskedClaims, Options, Reproduction, measured_evidence, selection};

use model::{ModelPoint, against_the_closed_form};

/// The card of the paper's measurements.
const CARD: &str = "nfp6000";
/// Samples of an experiment that reports a tail.
const SAMPLES_OF_A_TAIL: u64 = 20_000;

/// Runs all experiments for the claims and figures of pcie-bench, each once, and judges them.
///
/// # Errors
/// If a machine or part file is invalid.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let file = asked(options).file;
    let card = Doc::<Part>::load(&options.library, CARD)?.read()?;
    let machines = machines_by_cpu(&options.library)?;
    let mut read = BTreeMap::new();
    for (cpu, doc) in &machines {
        read.insert(cpu.clone(), doc.read()?);
    }
    let experiments: Vec<Experiment> = file.experiments().into_iter().collect();
    let why = reasons(&file);
    let tails = tails(&file);
    progress.begin("pcie-bench", experiments.len() as u64);
    let outcomes: Vec<Result<Outcome, String>> = experiments
        .par_iter()
        .with_max_len(1)
        .map(|experiment| {
            let outcome = simulate(experiment, &read, &card, options.seed, tails.contains(experiment));
            progress.step(why.get(experiment).map_or("", String::as_str));
            outcome
        })
        .collect();
    progress.end();
    let relatives = experiments.iter().filter_map(|experiment| {
        let machine = read.get(&experiment.cpu)?;
        Some((experiment.clone(), relative_figures(experiment, machine)))
    });
    let mut evidence = Evidence { relatives: relatives.collect(), ..Evidence::default() };
    let mut notes = Vec::new();
    for (experiment, outcome) in experiments.into_iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => {
                evidence.outcomes.insert(experiment, outcome);
            }
            Err(error) => notes.push(format!("{} {}: {error}", experiment.cpu, experiment.run)),
        }
    }
    for point in file.analytic() {
        evidence.analytic.insert(point, closed_form(point));
    }
    if options.is_part() {
        let experiments = evidence.outcomes.len();
        return Ok(Reproduction::new(
            "pcie-bench, simulated",
            file,
            evidence,
            experiments,
            Vec::new(),
            notes,
        ));
    }
    let closed_form = against_the_closed_form(&options.library, options.seed, progress)?;
    let measured = match measured_evidence(&options.data) {
        Ok(measured) => Some(measured),
        Err(reason) => {
            notes.push(format!("Skipped the comparison with measured files: {reason}"));
            None
        }
    };
    let sections = report::sections(&file, &evidence, measured.as_ref(), &closed_form, &machines)?;
    let experiments = evidence.outcomes.len();
    Ok(Reproduction::new("pcie-bench, simulated", file, evidence, experiments, sections, notes))
}

/// What of the paper is asked for.
pub(super) fn asked(options: &Options) -> AskedClaims {
    let mut file = ClaimFile::of("pcie-bench");
    selection::keep_figure(&mut file, options);
    let name = |experiment: &Experiment| format!("{} {}", experiment.cpu, experiment.run);
    if !options.only.is_empty() {
        file.claims.retain(|claim| {
            let points = claim.point.values().flat_map(results::claims::PointSpec::points);
            options.is_named(&claim.id)
                || points.map(|point| name(&point.experiment)).any(|name| options.is_named(&name))
        });
        file.figures.retain(|figure| {
            let points = || figure.line.iter().flat_map(|line| line.points(figure.axis));
            options.is_named(&format!("pcie-bench/{}/", figure.id))
                || points().any(|(_, point, _)| options.is_named(&name(&point.experiment)))
        });
    }
    let experiments = file.experiments().iter().map(name).collect();
    AskedClaims { file, experiments }
}

/// Machine files, by the CPU name used in results.
fn machines_by_cpu(library: &Library) -> Result<BTreeMap<String, Doc<Machine>>, Diagnostics> {
    let mut machines = BTreeMap::new();
    for name in library.names("machines") {
        let doc = Doc::<Machine>::load(library, &name)?;
        if let Some(known) = doc.read()?.measured_as {
            machines.entry(known.cpu).or_insert(doc);
        }
    }
    Ok(machines)
}

/// Number of a related machine's parameters that affect an experiment. Parameters of a core's accesses to a card
/// affect none.
fn relative_figures(experiment: &Experiment, machine: &Machine) -> usize {
    let slot = slot_of(machine, experiment.sockets.device).map(|slot| format!("host.port.{slot}."));
    let shows = |path: &str| {
        let of = |begins: &[&str]| begins.iter().any(|begin| path.starts_with(begin));
        match path {
            _ if of(&["host.port."]) => slot.as_ref().is_some_and(|slot| path.starts_with(slot)),
            _ if of(&["host.iommu."]) => experiment.iommu != IommuMode::Off,
            _ if of(&["host.interconnect."]) => experiment.sockets.remote_memory(),
            _ if of(&["host.root_complex.outbound", "host.root_complex.uncached"]) => false,
            _ => of(&["host.llc.", "host.dram.", "host.root_complex."]),
        }
    };
    let of_relative = |figure: &&Listed| {
        figure.provenance.kind == Kind::Relative
            && figure.provenance.determined != Some(Determined::Not)
            && shows(&figure.path)
    };
    figures(machine).iter().filter(of_relative).count()
}

/// For progress reports: a claim or figure that uses each experiment.
fn reasons(file: &ClaimFile) -> BTreeMap<Experiment, String> {
    let mut reasons = BTreeMap::new();
    for claim in &file.claims {
        for point in claim.point.values().flat_map(results::claims::PointSpec::points) {
            reasons.entry(point.experiment).or_insert_with(|| claim.id.clone());
        }
    }
    for figure in &file.figures {
        for (_, point, reference) in figure.line.iter().flat_map(|line| line.points(figure.axis)) {
            for experiment in std::iter::once(point.experiment).chain(reference.map(|r| r.experiment)) {
                reasons.entry(experiment).or_insert_with(|| format!("{}/{}", file.seed, figure.id));
            }
        }
    }
    reasons
}

/// Experiments that report a tail.
fn tails(file: &ClaimFile) -> BTreeSet<Experiment> {
    let mut tails = BTreeSet::new();
    for point in
        file.claims.iter().flat_map(|c| c.point.values()).flat_map(results::claims::PointSpec::points)
    {
        if matches!(point.statistic, Statistic::P95 | Statistic::P999 | Statistic::Maximum) {
            tails.insert(point.experiment);
        }
    }
    for figure in file.figures.iter().filter(|f| f.axis == Axis::Percentile) {
        for (_, point, _) in figure.line.iter().flat_map(|line| line.points(figure.axis)) {
            tails.insert(point.experiment);
        }
    }
    tails
}

fn simulate(
    experiment: &Experiment,
    machines: &BTreeMap<String, Machine>,
    card: &Part,
    seed: u64,
    tail: bool,
) -> Result<Outcome, String> {
    let machine = machines
        .get(&experiment.cpu)
        .ok_or_else(|| format!("no machine file has `cpu = \"{}\"` under `measured_as`", experiment.cpu))?;
    let sockets = experiment.sockets;
    let bench = Bench {
        machine: machine.clone(),
        card: card.clone(),
        sockets: Sockets { device: sockets.device, memory: sockets.memory, warming: sockets.program },
        iommu: experiment.iommu,
        seed,
    };
    let effort = match tail {
        true => Length::Exactly(Effort { samples: SAMPLES_OF_A_TAIL, ..Effort::default() }),
        false => Length::Steady,
    };
    let outcome: Result<_, BenchError> = match &experiment.aggressor {
        Some(aggressor) => run_beside(&bench, &experiment.run, Effort::default(), aggressor),
        None => batch::run(&Job { bench: &bench, run: experiment.run, before: &[], effort }),
    };
    outcome.map(|outcome| Outcome::of(&outcome.row)).map_err(|error| error.to_string())
}

fn closed_form(point: AnalyticPoint) -> f64 {
    match point {
        AnalyticPoint::FrameInterval { gbit_per_s, frame_bytes } => {
            let line = analytic::Ethernet::new(BitRate::gbit_per_s(gbit_per_s));
            line.frame_interval(Bytes::new(frame_bytes)).as_ns_f64()
        }
    }
}
