//! A figure's deviation, and its value in one run.

use std::fmt;
use std::str::FromStr;

use engine::Seed;
use machine::{AnyFigure, Determined, Kind, Provenance, Redraw};

use super::Draws;

/// One standard deviation of a figure about its file's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deviation {
    /// A share of the value: the logarithm varies, so that a factor is as likely as its inverse.
    Share(f64),
    /// In base units (picoseconds, bytes, per second).
    Absolute(f64),
    /// None: in this share of runs, it has another of its few values.
    Another(f64),
}

/// Usual deviations of figures that state none, by kind of source; docs/accuracy.md has the reasons and how they were
/// checked.
const DATA_SHEET: f64 = 0.01;
const MEASURED: f64 = 0.02;
const FITTED_WELL: f64 = 0.03;
const FITTED: f64 = 0.06;
const FITTED_WEAKLY: f64 = 0.12;
const RELATIVE: f64 = 0.08;
const ASSUMED: f64 = 0.35;
/// Share of the sizes, counts and names in files of related machines that differ: 12 of 79.
const ANOTHER: f64 = 0.15;

/// The deviation of a figure, at a path of its file, by its provenance; `None` if it is exact. So are counts, sizes
/// and names that state no uncertainty: a table with another number of entries would be another part. Only how a
/// relative's caches, root complex, interconnect and IOMMU are designed is as uncertain as that they are alike.
pub fn deviation(path: &str, figure: &dyn AnyFigure) -> Option<Deviation> {
    let (Provenance { kind, determined, source, .. }, value) = (figure.provenance(), figure.number());
    // A part may do otherwise than a standard recommends.
    let recommended = *kind == Kind::Specification && determined.is_some();
    if *kind == Kind::Override || (*kind == Kind::Specification && !recommended) {
        return None;
    }
    if let Some(stated) = figure.deviation() {
        return (stated > 0.0).then_some(Deviation::Absolute(stated));
    }
    if value == Some(0.0) || is_share(source) {
        return None;
    }
    if !figure.is_continuous() {
        let varies = *kind == Kind::Relative && is_design(path);
        return varies.then_some(Deviation::Another(ANOTHER));
    }
    let share = match kind {
        Kind::Datasheet => DATA_SHEET,
        Kind::Measured => MEASURED,
        Kind::Fitted | Kind::FittedByHand | Kind::Empirical => match determined {
            Some(Determined::Well) => FITTED_WELL,
            Some(Determined::Weakly | Determined::Not) => FITTED_WEAKLY,
            None => FITTED,
        },
        Kind::Relative => RELATIVE,
        Kind::Assumed | Kind::Specification => ASSUMED,
        Kind::Override => return None,
    };
    Some(Deviation::Share(share))
}

/// Whether a figure says how a host's caches, root complex, interconnect or IOMMU work, rather than what is in it.
fn is_design(path: &str) -> bool {
    const PARTS: [&str; 4] = ["host.llc.", "host.root_complex.", "host.interconnect.", "host.iommu."];
    const SIZES: [&str; 4] = ["host.llc.size", "host.llc.ways", "host.llc.slices", "host.interconnect.links"];
    PARTS.iter().any(|part| path.starts_with(part)) && !SIZES.contains(&path)
}

/// Whether a figure is one of several whose sum is known: then the last of them varies, for all.
fn is_share(source: &str) -> bool {
    source.contains("a share of") || source.contains("contained in")
}

impl Deviation {
    /// The value so many standard deviations away.
    fn at(self, value: f64, deviations: f64) -> f64 {
        match self {
            Self::Share(share) => value * (share * deviations).exp(),
            Self::Absolute(deviation) => value + deviation * deviations,
            Self::Another(_) => value,
        }
    }
}

/// One of several runs with drawn figures. Number 0 is the run with the files' own values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    number: u32,
    all: Draws,
}

impl Draw {
    /// Draw `number`, counted from one.
    pub fn new(number: u32, all: Draws) -> Self {
        Self { number, all }
    }

    /// Whether it is the run with the files' own values.
    pub fn is_none(self) -> bool {
        self.number == 0
    }

    /// Where a figure lies in this draw, from 0 to 1 in its distribution.
    fn place(self, path: &str, value: &str, source: &str) -> f64 {
        let key = format!("{} = {}: {source}", general(path), value.trim().trim_matches('"'));
        let mut random = Seed::new(self.all.seed).part("uncertainty").component(&key);
        let mut places: Vec<u32> = (0..self.all.runs).collect();
        random.shuffle(&mut places);
        let within: Vec<f64> = places.iter().map(|_| random.unit_f64()).collect();
        let place = self.number.saturating_sub(1) as usize % places.len();
        (f64::from(places[place]) + within[place]) / f64::from(self.all.runs)
    }

    /// How many standard deviations a figure is off in this draw: triangularly distributed, so at most 2.45.
    pub fn deviations(self, path: &str, value: &str, source: &str) -> f64 {
        standard(self.place(path, value, source))
    }

    /// Whether a figure with few values has the next lower one in this draw (-1), the next higher one (1), or its own.
    pub(super) fn step(self, path: &str, value: &str, source: &str) -> f64 {
        match self.another(path, value, source, ANOTHER) {
            None => 0.0,
            Some(which) if which < 0.5 => -1.0,
            Some(_) => 1.0,
        }
    }

    /// In a draw with another value of a figure, which one: from 0 to 1 among all others.
    fn another(self, path: &str, value: &str, source: &str, share: f64) -> Option<f64> {
        let place = self.place(path, value, source);
        (place < share).then_some(place / share)
    }
}

/// A figure's path, alike for all slots of a machine: they have one root complex.
fn general(path: &str) -> String {
    match path.strip_prefix("host.port.").and_then(|rest| rest.split_once('.')) {
        Some((_, figure)) => format!("host.port.*.{figure}"),
        None => path.to_owned(),
    }
}

/// The value below which this share of a triangular distribution with mean 0 and variance 1 lies.
fn standard(share: f64) -> f64 {
    let end = 6f64.sqrt();
    match share < 0.5 {
        true => end * ((2.0 * share).sqrt() - 1.0),
        false => end * (1.0 - (2.0 * (1.0 - share)).sqrt()),
    }
}

impl Redraw for Draw {
    fn redraw(&self, path: &str, figure: &dyn AnyFigure) -> Option<String> {
        let deviation = deviation(path, figure).filter(|_| !self.is_none())?;
        let (own, source) = (figure.to_toml().to_string(), &figure.provenance().source);
        let other = match (deviation, figure.number()) {
            (Deviation::Another(share), Some(number)) => {
                // Sizes and counts come in powers of two.
                let which = self.another(path, &own, source, share)?;
                if which < 0.5 { number / 2.0 } else { number * 2.0 }
            }
            (Deviation::Another(share), None) => {
                let which = self.another(path, &own, source, share)?;
                let own = own.trim().trim_matches('"');
                let others: Vec<&str> =
                    figure.choices().into_iter().filter(|choice| *choice != own).collect();
                return others.get((which * others.len() as f64) as usize).map(|&other| other.to_owned());
            }
            (_, Some(number)) => {
                let other = deviation.at(number, self.deviations(path, &own, source)).max(0.0);
                // A share of something stays one.
                let is_share = figure.to_toml().is_float() && (0.0..=1.0).contains(&number);
                if is_share { other.min(1.0) } else { other }
            }
            (_, None) => return None,
        };
        figure.spelled(other).map(|value| value.to_string())
    }
}

/// `3/40`, or `3/40:7` with the seed of the draws.
impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.all)
    }
}

impl FromStr for Draw {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no draw, such as 3/40");
        let (number, all) = text.split_once('/').ok_or_else(wrong)?;
        let all: Draws = all.parse()?;
        match number.parse() {
            Ok(number) if (0..=all.runs).contains(&number) => Ok(Self { number, all }),
            _ => Err(wrong()),
        }
    }
}
