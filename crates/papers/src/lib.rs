//! Judges the claims of papers by simulation: one module per paper.
//!
//! `rig` boots computers, runs programs on them and measures; `runs` names the values that experiments give; `selection` picks the
//! experiments that are asked for; a folder's functions return the values that claims call `observed`. What is simulated, and how, is `nearfar`'s: nothing there knows of a paper.

mod basis;
mod data;
mod device_lending;
mod ioctopus;
mod kpio_wc;
mod numa_io;
mod pcie_bench;
mod repeat;
mod rig;
mod runs;
mod selection;
mod today;

use std::path::PathBuf;

use machine::{Diagnostics, Library};
use nearfar::Progress;
use nearfar::origins::Origins;
use results::claims::{ClaimFile, ClaimResult, Evidence, Verdict};
use results::report::{Report, Section};

pub use basis::Basis;
pub use data::data_folder;
use data::measured_evidence;
pub use repeat::{Variation, repeat};
pub use selection::AskedClaims;

/// Names of the papers, and of what is public of machines of today.
pub const SEEDS: [&str; 6] = ["pcie-bench", "ioctopus", "kpio-wc", "numa-io", "device-lending", "today"];

/// What to reproduce, and from which files.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to look for machine files.
    pub library: Library,
    /// Directory of measured data: `$NEARFAR_DATA`, or `../shared`.
    pub data: PathBuf,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Only the claims and points of this figure or table: `8`, `fig8`, `table1`.
    pub figure: Option<String>,
    /// Only experiments whose names contain this, and claims whose ids do; `None` runs all.
    pub only: Vec<String>,
    /// Leaves out what only a report has.
    pub claims_alone: bool,
    /// The figures in use.
    pub basis: Basis,
}

impl Options {
    /// All of a paper without measured data.
    #[cfg(test)]
    fn whole(seed: u64) -> Self {
        let library = Library::built_in();
        let basis = Basis::default();
        Self { library, data: ".".into(), seed, figure: None, only: Vec::new(), claims_alone: false, basis }
    }

    /// Whether a name or an id is asked for by [`only`](Self::only).
    fn is_named(&self, text: &str) -> bool {
        self.only.iter().any(|part| text.contains(part.as_str()))
    }

    /// Whether only a part of the paper is asked for.
    fn is_part(&self) -> bool {
        self.claims_alone || self.figure.is_some() || !self.only.is_empty()
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
    /// All values of selected experiments, as `name = value`.
    pub values: Vec<String>,
    /// The report's title.
    title: String,
    /// Additional sections of the report.
    sections: Vec<Section>,
    /// The figures in use in its runs.
    pub origins: Origins,
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
        "today" => today::reproduce(options, progress),
        other => panic!("`{other}` is not among the papers"),
    }
}

/// The claims and figures of the paper `seed` that are asked for, and the experiments for them. Simulates nothing.
///
/// # Panics
/// If `seed` is none of [`SEEDS`].
pub fn asked(seed: &str, options: &Options) -> AskedClaims {
    match seed {
        "pcie-bench" => pcie_bench::asked(options),
        "ioctopus" => ioctopus::asked(options),
        "device-lending" => device_lending::asked(options),
        "kpio-wc" => kpio_wc::asked(options),
        "numa-io" => numa_io::asked(options),
        "today" => today::asked(options),
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
        Self {
            file,
            evidence,
            experiments,
            notes,
            values: Vec::new(),
            title: title.to_owned(),
            sections,
            origins: Origins::default(),
        }
    }

    /// With the figures that its runs rest on.
    fn resting_on(mut self, rests: Vec<(String, Origins)>) -> Self {
        rests.into_iter().for_each(|(_, origins)| self.origins.extend(origins));
        self
    }

    fn with_values(mut self, values: Vec<String>) -> Self {
        self.values = values;
        self
    }

    /// The claims, without the figures' points.
    pub fn claims(&self) -> Vec<ClaimResult> {
        self.file.judge_claims(&self.evidence)
    }

    /// All points of the figures for which the paper's values are known; of selected experiments, those that they give.
    pub fn points(&self) -> Vec<ClaimResult> {
        let mut points = self.file.judge_figures(&self.evidence);
        if !self.values.is_empty() {
            points.retain(|point| point.simulated.is_some());
        }
        points
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
        if !self.values.is_empty() {
            let title = "All values of these experiments".into();
            report.sections.push(Section { title, prose: self.values.clone(), ..Section::default() });
        }
        if !self.notes.is_empty() {
            let title = "What was not simulated or not there".into();
            report.sections.push(Section { title, prose: self.notes.clone(), ..Section::default() });
        }
        report
    }
}
