//! What passes links, as a table with a row for each packet.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::ArrowError;
use nearfar::experiment::Experiment;
use nearfar::scenario::runs_of;
use nearfar::trace::{Capture, Decoded, Filter, Row, Span, bench, computers};
use pyo3::prelude::*;
use wire::pcie::{Dllp, TlpKind};

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
        let span = Span { from, packets, filter };
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
    const INTEGERS: [&str; 10] = [
        "packet",
        "sequence",
        "traffic_class",
        "tag",
        "length_bytes",
        "byte_count",
        "credit_headers",
        "credit_data",
        "wire_bytes",
        "address",
    ];
    const TEXTS: [&str; 7] =
        ["link", "direction", "type", "requester", "completer", "status", "credit_class"];
    let mut integers = INTEGERS.map(|_| Int64Builder::new());
    let mut texts = TEXTS.map(|_| StringBuilder::new());
    let (mut times, mut durations, mut payloads) =
        (Float64Builder::new(), Float64Builder::new(), BinaryBuilder::new());
    let mut spelt = [String::new(), String::new(), String::new()];
    for row in Row::all(capture) {
        let mut numbers = [None; INTEGERS.len()];
        let mut words = [None; TEXTS.len()];
        spelt.iter_mut().for_each(String::clear);
        numbers[0] = Some(row.number as i64);
        numbers[8] = Some(row.wire_bytes as i64);
        let kind = row.kind();
        let [requester, completer, status] = &mut spelt;
        let mut payload = None;
        match &row.decoded {
            Decoded::Tlp { sequence, tlp, payload: data, .. } => {
                let (class, headers, units) = tlp.credits();
                numbers[1] = Some(sequence.get().into());
                numbers[2] = Some(tlp.common.traffic_class.into());
                numbers[3] = Some(tlp.tag().into());
                numbers[6] = Some(headers.into());
                numbers[7] = Some(units.into());
                words[6] = Some(CLASSES[class.index()]);
                // Text of its own always takes what is written.
                let _ = write!(requester, "{}", tlp.requester());
                words[3] = Some(&**requester);
                payload = Some(*data);
                match &tlp.kind {
                    TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => {
                        numbers[9] = Some(r.address.cast_signed());
                        numbers[4] = Some(i64::from(r.length_dw) * 4);
                    }
                    TlpKind::Completion(c) | TlpKind::CompletionData(c) => {
                        let _ = write!(completer, "{}", c.completer);
                        let _ = write!(status, "{}", c.status);
                        (words[4], words[5]) = (Some(&**completer), Some(&**status));
                        numbers[4] = Some(i64::from(c.length_dw) * 4);
                        numbers[5] = Some(c.byte_count.into());
                    }
                    TlpKind::IoRead(_)
                    | TlpKind::IoWrite(_)
                    | TlpKind::ConfigRead(_)
                    | TlpKind::ConfigWrite(_) => {
                        numbers[4] = Some(4);
                    }
                    TlpKind::Message(m) => numbers[4] = Some(i64::from(m.length_dw) * 4),
                }
            }
            Decoded::Dllp(Dllp::Ack(sequence) | Dllp::Nak(sequence)) => {
                numbers[1] = Some(sequence.get().into())
            }
            Decoded::Dllp(Dllp::FlowControl(fc)) => {
                numbers[6] = Some(fc.header_credits().into());
                numbers[7] = Some(fc.data_credits().into());
                words[6] = Some(CLASSES[fc.class.index()]);
            }
            Decoded::Dllp(_) => {}
            Decoded::Malformed { bytes, .. } => payload = Some(*bytes),
        }
        (words[0], words[1], words[2]) = (Some(row.link), Some(row.direction()), Some(kind.as_str()));
        times.append_value(row.since_t0.as_ns_f64());
        durations.append_value(row.duration.as_ns_f64());
        payloads.append_option(payload);
        integers.iter_mut().zip(numbers).for_each(|(built, number)| built.append_option(number));
        texts.iter_mut().zip(words).for_each(|(built, word)| built.append_option(word));
    }
    let mut columns: Vec<(&str, ArrayRef)> =
        vec![("time_ns", Arc::new(times.finish())), ("duration_ns", Arc::new(durations.finish()))];
    columns.extend(
        TEXTS.into_iter().zip(&mut texts).map(|(name, built)| (name, Arc::new(built.finish()) as ArrayRef)),
    );
    columns.extend(
        INTEGERS
            .into_iter()
            .zip(&mut integers)
            .map(|(name, built)| (name, Arc::new(built.finish()) as ArrayRef)),
    );
    columns.push(("payload", Arc::new(payloads.finish())));
    columns.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    batch(columns, metadata)
}

/// What people look for first.
const ORDER: [&str; 6] = ["packet", "link", "direction", "time_ns", "duration_ns", "type"];
/// Posted, non-posted, completion.
const CLASSES: [&str; 3] = ["P", "NP", "Cpl"];
