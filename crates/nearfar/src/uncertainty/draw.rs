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
}

/// Usual deviations of figures that state none, by kind of source; docs/accuracy.md has the reasons and how they were
/// checked.
const DATA_SHEET: f64 = 0.01;
const MEASURED: f64 = 0.02;
const FITTED_WELL: f64 = 0.03;
const FITTED: f64 = 0.06;
const FITTED_WEAKLY: f64 = 0.12;
const RELATIVE: f64 = 0.15;
const ASSUMED: f64 = 0.35;

/// The deviation of a figure by its provenance; `None` if it is exact, no number, or a count or size without a stated
/// uncertainty: a table with other numbers of entries would be another part.
pub fn deviation(figure: &dyn AnyFigure) -> Option<Deviation> {
    let (Provenance { kind, determined, source, .. }, value) = (figure.provenance(), figure.number()?);
    if matches!(kind, Kind::Override | Kind::Specification) {
        return None;
    }
    if let Some(stated) = figure.deviation() {
        return (stated > 0.0).then_some(Deviation::Absolute(stated));
    }
    if !figure.is_continuous() || value == 0.0 || is_share(source) {
        return None;
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
        Kind::Assumed => ASSUMED,
        Kind::Override | Kind::Specification => return None,
    };
    Some(Deviation::Share(share))
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

    /// How many standard deviations a figure is off in this draw: triangularly distributed, so at most 2.45.
    pub fn deviations(self, path: &str, value: &str, source: &str) -> f64 {
        let key = format!("{} = {}: {source}", general(path), value.trim().trim_matches('"'));
        let mut random = Seed::new(self.all.seed).part("uncertainty").component(&key);
        let mut places: Vec<u32> = (0..self.all.runs).collect();
        random.shuffle(&mut places);
        let within: Vec<f64> = places.iter().map(|_| random.unit_f64()).collect();
        let place = self.number.saturating_sub(1) as usize % places.len();
        standard((f64::from(places[place]) + within[place]) / f64::from(self.all.runs))
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
    fn redraw(&self, path: &str, figure: &mut dyn AnyFigure) {
        let (Some(deviation), Some(value)) = (deviation(figure), figure.number()) else { return };
        if self.is_none() {
            return;
        }
        let off = self.deviations(path, &figure.to_toml().to_string(), &figure.provenance().source);
        let drawn = deviation.at(value, off).max(0.0);
        // A share of something stays one.
        let is_share = figure.is_continuous() && (0.0..=1.0).contains(&value) && figure.to_toml().is_float();
        figure.set_number(if is_share { drawn.min(1.0) } else { drawn });
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
