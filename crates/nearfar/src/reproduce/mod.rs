//! Judges the claims of papers by simulation: one module per paper.

mod data;
mod device_lending;
mod ioctopus;
mod kpio_wc;
mod numa_io;
mod pcie_bench;
mod rig;
mod runs;

use std::path::PathBuf;

use machine::{Diagnostics, Library};
use results::claims::{ClaimFile, ClaimResult, Evidence, Verdict};
use results::report::{Report, Section};

use crate::progress::Progress;

pub use data::data_folder;
use data::measured_evidence;

/// Names of the papers.
pub const SEEDS: [&str; 5] = ["pcie-bench", "ioctopus", "kpio-wc", "numa-io", "device-lending"];

/// What to reproduce, and from which files.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to look for machine files.
    pub library: Library,
    /// Directory of measured data: `$NEARFAR_DATA`, or `../shared`.
    pub data: PathBuf,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Run only experiments whose names contain this; `None` runs all.
    pub only: Option<String>,
}

impl Options {
    /// Whether an experiment is selected.
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }
}

/// A reproduced paper.
#[derive(Debug)]
pub struct Reproduction {
    /// The claims and figures.
    pub file: ClaimFile,
    /// Results of the simulations.
    pub evidence: Evidence,
    /// Number of experiments simulated.
    pub experiments: usize,
    /// Failed simulations and missing data.
    pub notes: Vec<String>,
    /// The report's title.
    title: String,
    /// Additional sections of the report.
    sections: Vec<Section>,
}

/// Runs all experiments for the paper `seed`, each once, and judges its claims and figures.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
///
/// # Panics
/// If `seed` is none of [`SEEDS`].
pub fn reproduce(
    seed: &str,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Reproduction, Diagnostics> {
    for (path, text) in ClaimFile::files(seed) {
        options.library.keep("claims", path, text);
    }
    match seed {
        "pcie-bench" => pcie_bench::reproduce(options, progress),
        "ioctopus" => ioctopus::reproduce(options, progress),
        "device-lending" => device_lending::reproduce(options, progress),
        "kpio-wc" => kpio_wc::reproduce(options, progress),
        "numa-io" => numa_io::reproduce(options, progress),
        other => panic!("`{other}` is not among the papers"),
    }
}

impl Reproduction {
    fn new(
        title: &str,
        file: ClaimFile,
        evidence: Evidence,
        experiments: usize,
        sections: Vec<Section>,
        notes: Vec<String>,
    ) -> Self {
        Self { file, evidence, experiments, notes, title: title.to_owned(), sections }
    }

    /// The claims, without the figures' points.
    pub fn claims(&self) -> Vec<ClaimResult> {
        self.file.judge_claims(&self.evidence)
    }

    /// All points of the figures for which the paper's values are known.
    pub fn points(&self) -> Vec<ClaimResult> {
        self.file.judge_figures(&self.evidence)
    }

    /// Claims outside their tolerance. If two claims contradict each other and one is within its tolerance, the other
    /// is not listed: both cannot hold.
    pub fn outside(&self) -> Vec<ClaimResult> {
        let claims = self.claims();
        let within = |id: &str| claims.iter().any(|c| c.id == id && c.verdict == Verdict::Within);
        let answered = |claim: &ClaimResult| {
            let forward = claim.contradicts.as_deref().is_some_and(within);
            let back = |c: &&ClaimResult| c.contradicts.as_deref() == Some(claim.id.as_str());
            forward || claims.iter().filter(back).any(|c| c.verdict == Verdict::Within)
        };
        claims.iter().filter(|c| c.verdict == Verdict::Outside && !answered(c)).cloned().collect()
    }

    /// The report as one page.
    pub fn report(&self) -> Report {
        let mut report = Report::of_claims(self.title.clone(), &self.file, &self.evidence);
        report.sections.extend(self.sections.iter().cloned());
        if !self.notes.is_empty() {
            let title = "What was not simulated or not there".into();
            report.sections.push(Section { title, prose: self.notes.clone(), ..Section::default() });
        }
        report
    }
}
