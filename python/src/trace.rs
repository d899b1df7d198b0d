//! What passes links, as a table with a row for each packet.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::ArrowError;
use nearfar::experiment::Experiment;
use nearfar::scenario::runs_of;
use nearfar::trace::csv::{COLUMNS, Holds, Value, values};
use nearfar::trace::{Capture, Filter, Row, Span, bench, computers};
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::file::Library;
use crate::run::{Changes, made_from};
use crate::table::{Table, batch};
use crate::watch::watched;

/// Traces a scenario from `from_ns` on, so many packets, 0 for all until the end.
#[pyfunction]
#[pyo3(signature = (library, scenario, changes, run, links, from_ns, packets, types, command, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn trace(
    py: Python<'_>,
    library: &Library,
    scenario: &str,
    changes: Changes,
    run: usize,
    links: Vec<String>,
    from_ns: f64,
    packets: usize,
    types: Option<String>,
    command: &str,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Table> {
    let files = library.files();
    watched(py, None, progress, |progress| {
        let filter = match &types {
            Some(types) => types.parse::<Filter>().map_err(|error| {
                Failure::argument(
                    "types",
                    error.to_string(),
                    "such as MRd, CplD, UpdateFC, separated by commas",
                )
            })?,
            None => Filter::default(),
        };
        if !from_ns.is_finite() || from_ns < 0.0 {
            let message = format!("`from_ns` cannot be {from_ns}");
            return Err(Failure::argument("from_ns", message, "nanoseconds after the start, 0 or more"));
        }
        let from = units::Duration::from_ps((from_ns * 1e3).round() as u64);
        let span = Span { from, packets, filter, ..Span::default() };
        let experiment = Experiment::load(&files, scenario, "set", &changes)?;
        let capture = match &experiment {
            Experiment::Computers(setup) => computers::trace(setup, span, &links, progress)?.0.capture,
            Experiment::Bench(setup) => {
                let runs = runs_of(setup).len();
                if !(1..=runs).contains(&run) {
                    let message = format!("the scenario has no run {run}");
                    return Err(Failure::argument("run", message, format!("its runs are 1 to {runs}")));
                }
                if let Some(other) = links.iter().find(|&link| *link != setup.slot) {
                    let message = format!("no link leads to a slot `{other}` here");
                    return Err(Failure::argument("links", message, format!("there is `{}`", setup.slot)));
                }
                bench::trace(setup, run, span)?.0
            }
        };
        let provenance = made_from(command, experiment.seed(), &changes, &files);
        let made = table(&capture, HashMap::from([("provenance".to_owned(), provenance)]));
        Ok(made.map_err(|error| Failure::Run(error.to_string()))?.into())
    })
}

/// A column for each field; a packet that has no such field has no value in it.
fn table(capture: &Capture, metadata: HashMap<String, String>) -> Result<RecordBatch, ArrowError> {
    let mut built = COLUMNS.map(|(_, holds)| Column::new(holds));
    for row in Row::all(capture) {
        built.iter_mut().zip(values(&row)).for_each(|(column, value)| column.append(value));
    }
    let columns = COLUMNS.iter().zip(&mut built).map(|((name, _), column)| (*name, column.finish()));
    batch(columns.collect(), metadata)
}

/// A column under construction.
enum Column {
    Integers(Int64Builder),
    Numbers(Float64Builder),
    Texts(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Column {
    fn new(holds: Holds) -> Self {
        match holds {
            Holds::Integer | Holds::Hex => Self::Integers(Int64Builder::new()),
            Holds::Time => Self::Numbers(Float64Builder::new()),
            Holds::Text => Self::Texts(StringBuilder::new()),
            Holds::Bytes => Self::Bytes(BinaryBuilder::new()),
        }
    }

    fn append(&mut self, value: Option<Value<'_>>) {
        match (self, value) {
            (Self::Integers(built), Some(Value::Integer(number) | Value::Hex(number))) => {
                built.append_value(number.cast_signed());
            }
            (Self::Numbers(built), Some(Value::Time(time))) => built.append_value(time.as_ns_f64()),
            (Self::Texts(built), Some(Value::Text(text))) => built.append_value(text),
            (Self::Bytes(built), Some(Value::Bytes(bytes))) => built.append_value(bytes),
            (Self::Integers(built), _) => built.append_null(),
            (Self::Numbers(built), _) => built.append_null(),
            (Self::Texts(built), _) => built.append_null(),
            (Self::Bytes(built), _) => built.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Integers(built) => Arc::new(built.finish()),
            Self::Numbers(built) => Arc::new(built.finish()),
            Self::Texts(built) => Arc::new(built.finish()),
            Self::Bytes(built) => Arc::new(built.finish()),
        }
    }
}
