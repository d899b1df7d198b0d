//! Figures: parameter values with provenance.

use crate::diagnostic::Diagnostic;
use crate::read::{Complaints, Read, table};
use crate::scalar::{Scalar, names};
use crate::shape::Shape;
use crate::source::Place;
use crate::tree::{Entry, Node, Value};
use std::sync::Arc;

names! {
    /// The kind of source of a figure. A `source` states it by starting with one of these words and a colon;
    /// otherwise `kind` does.
    pub enum Kind {
        /// Adjusted by `nearfar fit` until simulation matched measurement.
        Fitted = "fitted",
        /// Adjusted by hand until simulation matched measurement.
        FittedByHand = "fitted by hand",
        /// Adjusted until simulation matched measurement, without a known counterpart in hardware. Its `without`
        /// states the results with the neutral value.
        Empirical = "empirical",
        /// Read directly off a measurement of this machine, without a model.
        Measured = "measured",
        /// Public data of the vendor.
        Datasheet = "datasheet",
        /// A standard, with section.
        Specification = "specification",
        /// Taken from a related machine or part, for lack of its own value.
        Relative = "relative",
        /// A round number with little or no effect on results.
        Assumed = "assumed",
        /// Given by the user for this run.
        Override = "override",
    }
}

names! {
    /// How well the data determine a fitted figure.
    pub enum Determined {
        /// Another value would visibly contradict measured results.
        Well = "well",
        /// Other values fit nearly as well.
        Weakly = "weakly",
        /// The data do not constrain it.
        Not = "not",
    }
}

impl Kind {
    /// Whether it was adjusted to results: a free parameter of the model.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Fitted | Self::FittedByHand | Self::Empirical)
    }
}

/// A value with its provenance.
///
/// In a file: `latency = { value = "62 ns", source = "fitted: lat_dma_sweep_rd, cold" }`,
/// or the bare value in a table whose own `source` covers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure<T> {
    /// The value itself, of a type with a unit where it has one.
    pub value: T,
    /// Where the value comes from.
    pub provenance: Provenance,
}

/// Where a figure comes from, and how far it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// The statement, for readers.
    pub source: String,
    /// How the value was obtained.
    pub kind: Kind,
    /// How well the source determines the value, if known.
    pub determined: Option<Determined>,
    /// Uncertainty of the value, one standard deviation, with a unit ("1 ns", "5 %").
    pub uncertainty: Option<String>,
    /// For an empirical figure: results with the neutral value.
    pub without: Option<String>,
}

impl Provenance {
    /// Parses a statement whose kind is the word before the first colon of `source`.
    pub fn stated(source: &str) -> Option<Self> {
        let kind = kind_of(source)?;
        Some(Self { source: source.into(), kind, determined: None, uncertainty: None, without: None })
    }
}

fn kind_of(source: &str) -> Option<Kind> {
    let word = source.split(':').next().unwrap_or("").trim();
    Kind::ALL.iter().find(|(spelling, _)| *spelling == word).map(|(_, kind)| *kind)
}

impl<T> std::ops::Deref for Figure<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Scalar> Figure<T> {
    /// The bare value; figures have a lower limit than other values.
    fn value(node: &Node, name: &str, complaints: &mut Complaints) -> Option<T> {
        let value = T::scalar(node, name, complaints)?;
        match T::MOST_FIGURE {
            Some(most) if value.number() > most.number() => {
                let message = format!("`{name}` cannot be {}", value.to_toml());
                let help = format!("a figure is {} at most", most.to_toml());
                complaints.push(Diagnostic::new(&node.place, message).help(help));
                None
            }
            _ => Some(value),
        }
    }
}

impl<T: Scalar> Read for Figure<T> {
    fn shape() -> Shape {
        Shape::Figure(Box::new(T::scalar_shape()))
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        if !matches!(entry.node.value, Value::Table(_)) {
            let value = Self::value(&entry.node, name, complaints);
            if let Some(provenance) = &entry.provenance {
                return Some(Self { value: value?, provenance: provenance.clone() });
            }
            let Some(source) = &entry.source else {
                complaints.push(
                    Diagnostic::new(&entry.key, format!("`{name}` does not say where its value comes from"))
                        .help(format!("write `{name} = {{ value = .., source = \"datasheet: ..\" }}`, or a `source` for the whole table")),
                );
                return None;
            };
            let Some(provenance) = Provenance::stated(source) else {
                complaints.push(unkind(&entry.key, name));
                return None;
            };
            if provenance.kind == Kind::Empirical {
                complaints.push(without(&entry.key, name, true));
                return None;
            }
            return Some(Self { value: value?, provenance });
        }
        let keys = ["value", "source", "kind", "determined", "uncertainty", "without"];
        let table = table(entry, name, &keys, complaints)?;
        let value = match table.get("value") {
            Some(entry) => Self::value(&entry.node, name, complaints),
            None => {
                complaints.push(Diagnostic::new(&entry.node.place, format!("`{name}` has no `value`")));
                None
            }
        };
        let kind = table.get("kind").map(|entry| Kind::read(entry, "kind", complaints));
        let determined =
            table.get("determined").map(|entry| Determined::read(entry, "determined", complaints));
        let uncertainty =
            table.get("uncertainty").map(|entry| String::read(entry, "uncertainty", complaints));
        let said_without = table.get("without").map(|entry| String::read(entry, "without", complaints));
        let source = match table.get("source") {
            Some(entry) => String::read(entry, "source", complaints)?,
            None => {
                complaints.push(
                    Diagnostic::new(&entry.node.place, format!("`{name}` does not say where its value comes from"))
                        .help("add `source = \"datasheet: ..\"` (or fitted, measured, specification, relative, assumed)"),
                );
                return None;
            }
        };
        let kind = match kind {
            Some(kind) => kind?,
            None => match kind_of(&source) {
                Some(kind) => kind,
                None => {
                    complaints.push(unkind(&table.get("source")?.node.place, name));
                    return None;
                }
            },
        };
        if (kind == Kind::Empirical) != said_without.is_some() {
            let place = table.get("without").map_or(&entry.node.place, |entry| &entry.key);
            complaints.push(without(place, name, said_without.is_none()));
            return None;
        }
        let value = value?;
        if let (Some(Some(stated)), Some(_)) = (&uncertainty, value.number())
            && deviation(&value, stated).is_none()
        {
            let place = table.get("uncertainty").map_or(&entry.node.place, |entry| &entry.node.place);
            complaints.push(
                Diagnostic::new(place, format!("`{name}`: its uncertainty cannot be \"{stated}\"")).help(
                    "one standard deviation, as a value of its type (\"1 ns\") or as a percentage (\"5 %\")",
                ),
            );
            return None;
        }
        let provenance = Provenance {
            source,
            kind,
            without: said_without.map_or(Some(None), |read| read.map(Some))?,
            determined: determined.map_or(Some(None), |read| read.map(Some))?,
            uncertainty: uncertainty.map_or(Some(None), |read| read.map(Some))?,
        };
        Some(Self { value, provenance })
    }

    fn figures(&self, path: &str, visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {
        visit(path, self);
    }

    fn figures_mut(&mut self, path: &str, visit: &mut dyn FnMut(&str, &mut dyn AnyFigure)) {
        visit(path, self);
    }
}

/// An uncertainty of `value` in base units, stated as a percentage or like a value.
fn deviation<T: Scalar>(value: &T, stated: &str) -> Option<f64> {
    let stated = stated.trim();
    let number = value.number()?;
    let share = stated.strip_suffix('%').map(|percent| percent.trim().parse::<f64>());
    let parsed = match (share, stated.parse::<f64>()) {
        (Some(percent), _) => number.abs() * percent.ok()? / 100.0,
        // A count has no unit.
        (None, Ok(number)) => number,
        (None, Err(_)) => {
            let source = Arc::new(crate::source::Source::new("", ""));
            let node = Node { place: Place::new(&source, 0..0), value: Value::Text(stated.to_owned()) };
            T::scalar(&node, "uncertainty", &mut Complaints::default())?.number()?
        }
    };
    (parsed.is_finite() && parsed >= 0.0).then_some(parsed)
}

/// Error: the source of `name` does not state its kind.
fn unkind(place: &crate::source::Place, name: &str) -> Diagnostic {
    let kinds = crate::suggest::list(Kind::ALL.iter().map(|(spelling, _)| *spelling));
    Diagnostic::new(place, format!("the source of `{name}` is of no known kind"))
        .help(format!("begin it with its kind and a colon: {kinds}"))
}

/// Error: `name` is empirical without `without`, or has `without` but is not empirical.
fn without(place: &crate::source::Place, name: &str, missing: bool) -> Diagnostic {
    match missing {
        true => Diagnostic::new(place, format!("`{name}` is empirical and does not say what results are without it"))
            .help("write `without = \"0 ns: bw_dma_sz_sweep 1.1 / 3.9 % instead of 0.4 / 3.9 %\"` beside its value: `nearfar compare --set` tells"),
        false => Diagnostic::new(place, format!("`{name}` is not empirical, so `without` says nothing"))
            .help("take `without` away, or begin the source with `empirical:`"),
    }
}

/// A figure of any type, for lists, fits and sweeps.
pub trait AnyFigure {
    /// The value as a file spells it.
    fn to_toml(&self) -> toml_edit::Value;
    /// The value in base units (picoseconds, bytes, hertz, per second), if it is a number.
    fn number(&self) -> Option<f64>;
    /// Sets the value to the closest possible to `number` in base units. Returns false without a change if there is
    /// none.
    fn set_number(&mut self, number: f64) -> bool;
    /// The closest possible value to `number` in base units, as a file spells it.
    fn spelled(&self, number: f64) -> Option<toml_edit::Value>;
    /// All possible values in TOML, if these are a few names.
    fn choices(&self) -> Vec<&'static str>;
    /// Whether there are values between any two, as of times and rates; not of counts, sizes and names.
    fn is_continuous(&self) -> bool;
    /// The stated uncertainty in base units, one standard deviation; `None` if none is stated.
    fn deviation(&self) -> Option<f64>;
    /// Where the value comes from.
    fn provenance(&self) -> &Provenance;
    /// The provenance, for changes.
    fn provenance_mut(&mut self) -> &mut Provenance;
}

impl<T: Scalar> AnyFigure for Figure<T> {
    fn to_toml(&self) -> toml_edit::Value {
        self.value.to_toml()
    }
    fn number(&self) -> Option<f64> {
        self.value.number()
    }
    fn set_number(&mut self, number: f64) -> bool {
        match T::from_number(number) {
            Some(value) => {
                self.value = value;
                true
            }
            None => false,
        }
    }
    fn spelled(&self, number: f64) -> Option<toml_edit::Value> {
        T::from_number(number).map(|value| value.to_toml())
    }
    fn choices(&self) -> Vec<&'static str> {
        T::choices()
    }
    fn is_continuous(&self) -> bool {
        T::CONTINUOUS
    }
    fn deviation(&self) -> Option<f64> {
        deviation(&self.value, self.provenance.uncertainty.as_ref()?)
    }
    fn provenance(&self) -> &Provenance {
        &self.provenance
    }
    fn provenance_mut(&mut self) -> &mut Provenance {
        &mut self.provenance
    }
}
