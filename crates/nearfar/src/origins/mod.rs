//! Where the figures come from that a result rests on, and which limits no file gives.
//!
//! A figure is in use if the part that has it was: a socket whose cores ran the programs, a device with packets on its
//! link and its slot, an IOMMU that translated, the links between sockets if something crossed them. Counters say so.
//! Whether a result depends on a figure in use is another question, which [`uncertainty`] answers.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | figures in use, as a sentence and as records |
//! | `used` | which figures of each file are in use |
//! | `limits` | limits that no file gives, on ways that had traffic |

mod limits;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use machine::{AnyFigure, ComputerSetup, DeviceModel, Kind, Provenance, Read};
use serde_json::json;

use crate::bench::{Bench, Outcome};
use crate::computer::{Computers, Counted};
use crate::records::Record;
use crate::uncertainty::{self, Deviation};

/// The figures that results rest on.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Figures by file and path.
    figures: BTreeMap<(String, String), FigureInUse>,
    /// Ways with traffic that no figure limits, as phrases.
    unlimited: BTreeSet<String>,
}

/// A figure in use.
#[derive(Clone, Debug)]
struct FigureInUse {
    /// The value as its file states it.
    stated: String,
    provenance: Provenance,
    /// One standard deviation, by which it varies in runs with drawn figures.
    deviation: Option<String>,
}

impl FigureInUse {
    fn new(path: &str, figure: &dyn AnyFigure) -> Self {
        Self {
            stated: figure.to_toml().to_string().trim().trim_matches('"').to_owned(),
            provenance: figure.provenance().clone(),
            deviation: uncertainty::deviation(path, figure).map(|deviation| match deviation {
                Deviation::Share(share) => format!("{:.0} %", 100.0 * share),
                Deviation::Another(share) => format!("another value in {:.0} % of runs", 100.0 * share),
                Deviation::Absolute(_) => figure.provenance().uncertainty.clone().unwrap_or_default(),
            }),
        }
    }
}

/// Kinds of sources in the order of the sentence, each with its words: those to trust least come first.
const WORDS: [(&[Kind], &str); 6] = [
    (&[Kind::Assumed], "assumed"),
    (&[Kind::Relative], "from a relative"),
    (&[Kind::Empirical, Kind::Fitted, Kind::FittedByHand], "fitted"),
    (&[Kind::Measured], "measured"),
    (&[Kind::Datasheet, Kind::Specification], "of data sheets and standards"),
    (&[Kind::Override], "changed by hand"),
];

impl Origins {
    /// The figures in use so far.
    pub fn so_far(computers: &Computers, setup: &ComputerSetup) -> Self {
        let window = computers.moment(setup).since_power_on();
        let all = Counted { program: setup.programs.len(), window, arrivals: Vec::new() };
        Self::of_computers(setup, &[all])
    }

    /// The figures in use while these programs ran.
    pub fn of_computers(setup: &ComputerSetup, counted: &[Counted]) -> Self {
        let mut origins = Self::default();
        used::by_computers(setup, counted, &mut origins);
        limits::of_computers(setup, counted, &mut origins);
        origins
    }

    /// The figures in use in runs of pcie-bench.
    pub fn of_bench<'a>(bench: &Bench, outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        let mut origins = Self::default();
        used::by_bench(bench, outcomes, &mut origins);
        origins
    }

    /// Adds the figures of other results.
    pub fn extend(&mut self, others: Self) {
        self.figures.extend(others.figures);
        self.unlimited.extend(others.unlimited);
    }

    /// Adds the figures of a file that are in use.
    fn add(&mut self, file: &str, content: &impl Read, is_used: impl Fn(&str) -> bool) {
        content.figures("", &mut |path, figure| self.add_figure(file, path, figure, &is_used));
    }

    /// As [`add`](Self::add), of a device's file.
    fn add_device(&mut self, device: &dyn DeviceModel, is_used: impl Fn(&str) -> bool) {
        device.visit(&mut |path, figure| self.add_figure(device.name(), path, figure, &is_used));
    }

    fn add_figure(&mut self, file: &str, path: &str, figure: &dyn AnyFigure, is_used: &dyn Fn(&str) -> bool) {
        // An identity is no property: it affects no result.
        if is_used(path) && !path.ends_with("pci_id") {
            self.figures.insert((file.to_owned(), path.to_owned()), FigureInUse::new(path, figure));
        }
    }

    /// The figures whose sources are of a kind: file and path.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &(String, String)> {
        self.figures.iter().filter(move |(_, figure)| figure.provenance.kind == kind).map(|(which, _)| which)
    }

    fn count(&self, kinds: &[Kind]) -> usize {
        self.figures.values().filter(|figure| kinds.contains(&figure.provenance.kind)).count()
    }

    /// One record per figure, and one per way without a limit.
    pub fn records(&self) -> Vec<Record> {
        let figure = |((file, path), figure): (&(String, String), &FigureInUse)| {
            json!({
                "kind": "figure", "file": file, "path": path, "stated": figure.stated,
                "source_kind": figure.provenance.kind.as_str(), "source": figure.provenance.source,
                "deviation": figure.deviation,
            })
        };
        let unlimited = self.unlimited.iter().map(|way| json!({ "kind": "no-limit", "way": way }));
        let all = json!({ "kind": "origins", "figures": self.figures.len(), "sentence": self.to_string() });
        let rest = self.figures.iter().map(figure).chain(unlimited);
        if self.figures.is_empty() { Vec::new() } else { std::iter::once(all).chain(rest).collect() }
    }
}

/// One sentence: how many figures by kind of source, and ways without a limit.
impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rests on {} figures", self.figures.len())?;
        let counts = WORDS.iter().map(|(kinds, words)| (self.count(kinds), words));
        let counts = counts.filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
        let counts: Vec<String> = counts.collect();
        if !counts.is_empty() {
            write!(f, ": {}", counts.join(", "))?;
        }
        if !self.unlimited.is_empty() {
            let ways: Vec<&str> = self.unlimited.iter().map(String::as_str).collect();
            write!(f, "; no limit given: {}", ways.join(", "))?;
        }
        Ok(())
    }
}
