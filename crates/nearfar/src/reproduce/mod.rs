//! A paper's claims judged by simulation: one module for each paper.

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

/// Papers whose claims are there to be judged.
pub const SEEDS: [&str; 5] = ["pcie-bench", "ioctopus", "kpio-wc", "numa-io", "device-lending"];

/// What to judge by.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where machine files are found.
    pub library: Library,
    /// Where measured data are looked for: `$NEARFAR_DATA`, or `../shared`.
    pub data: PathBuf,
    /// Seed of everything random.
    pub seed: u64,
    /// What the names of the experiments contain that are to run; all run if there is none.
    pub only: Option<String>,
}

impl Options {
    /// Whether an experiment of this name is to run.
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }
}

/// A paper reproduced.
#[derive(Debug)]
pub struct Reproduction {
    /// The claims and figures.
    pub file: ClaimFile,
    /// What the simulations gave.
    pub evidence: Evidence,
    /// How many experiments were simulated.
    pub experiments: usize,
    /// What could not be simulated, and what was not there.
    pub notes: Vec<String>,
    /// The report's title.
    title: String,
    /// The report's sections beside claims and curves.
    sections: Vec<Section>,
}

/// Simulates everything that the claims and figures of the paper called `seed` rest on, each experiment once, and
/// judges them.
///
/// # Errors
/// A machine, part or scenario file that is wrong.
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

    /// The claims alone, without the figures' points.
    pub fn claims(&self) -> Vec<ClaimResult> {
        self.file.judge_claims(&self.evidence)
    }

    /// Every point of every figure that the paper's values are known of.
    pub fn points(&self) -> Vec<ClaimResult> {
        self.file.judge_figures(&self.evidence)
    }

    /// Claims outside of their tolerance, except those whose contradiction is within its own: they cannot both hold.
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
