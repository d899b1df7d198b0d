//! Results as intervals.

use std::collections::BTreeMap;

use results::compare::{median, percentile};
use serde_json::{Map, Value, json};

use super::{DRAW, Draw, Draws, influence};

/// A result over all draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// 5 % of the draws are below.
    pub low: f64,
    /// 95 % of the draws are below.
    pub high: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |percent| percentile(&sorted, percent);
        Some(Self { median: median(&sorted)?, low: at(5.0)?, high: at(95.0)? })
    }
}

/// What simulations of fitted machines miss of rows of pcie-bench, whatever their figures: one standard deviation, as
/// a share (docs/accuracy.md). Nothing is known of what programs measure.
pub(crate) const MISSED_LATENCY: f64 = 0.012;
pub(crate) const MISSED_BANDWIDTH: f64 = 0.025;

/// A value of one draw, with what simulations miss of such values: a share of it.
pub(crate) fn missing(draw: Draw, what: &str, value: f64, share: f64) -> f64 {
    value * (1.0 + share * draw.deviations(what, "", ""))
}

/// Quantities of rows of pcie-bench: key, name and unit.
const OF_ROWS: [(&str, &str, &str); 4] = [
    ("median_ns", "median", "ns"),
    ("p95_ns", "95th percentile", "ns"),
    ("p999_ns", "99.9th percentile", "ns"),
    ("goodput_gbit_per_s", "goodput", "Gbit/s"),
];
/// Keys of records that are results or numbers of runs, and say nothing of what was measured.
const RESULTS: [&str; 16] = [
    "average_ns",
    "minimum_ns",
    "maximum_ns",
    "samples",
    "transactions_per_s",
    "half_width_pct",
    "tlps",
    "binds",
    "value",
    "unit",
    "quantity",
    "took_ns",
    "median_ns",
    "p95_ns",
    "p999_ns",
    "goodput_gbit_per_s",
];

/// What was measured where, its unit and value.
struct OneResult {
    /// Everything that identifies it.
    what: Map<String, Value>,
    quantity: String,
    unit: String,
    value: f64,
    /// What simulations of such quantities miss beyond what figures explain, as a share of the value.
    missed: f64,
}

/// The results among records.
fn results(records: &[Value]) -> Vec<OneResult> {
    let mut all = Vec::new();
    for record in records {
        let Some(fields) = record.as_object() else { continue };
        let mut what: Map<String, Value> = fields
            .iter()
            .filter(|(key, _)| !RESULTS.contains(&key.as_str()) && *key != DRAW)
            .map(own)
            .collect();
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
        match record["kind"].as_str() {
            Some("reading") if record["model"] != true => {
                let Some(value) = record["value"].as_f64() else { continue };
                what.remove("kind");
                all.push(OneResult {
                    what,
                    quantity: text("quantity"),
                    unit: text("unit"),
                    value,
                    missed: 0.0,
                });
            }
            Some("row") => {
                // Rows are numbered over all points of a sweep.
                what.remove("kind");
                what.remove("row");
                for (key, quantity, unit) in OF_ROWS {
                    let Some(value) = record[key].as_f64() else { continue };
                    let (quantity, unit) = (quantity.to_owned(), unit.to_owned());
                    let missed = if key == "goodput_gbit_per_s" { MISSED_BANDWIDTH } else { MISSED_LATENCY };
                    all.push(OneResult { what: what.clone(), quantity, unit, value, missed });
                }
            }
            _ => {}
        }
    }
    all
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// Results, each with what identifies it; equals are numbered.
fn identified(records: &[Value]) -> Vec<((String, usize), OneResult)> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let identity = |one: OneResult| {
        let key = format!("{} {}", Value::Object(one.what.clone()), one.quantity);
        let number = seen.entry(key.clone()).or_default();
        *number += 1;
        ((key, *number), one)
    };
    results(records).into_iter().map(identity).collect()
}

/// One record of kind `interval` for each result of a run, and one of kind `influence` for each figure that it hangs
/// on. `drawn` are the records of the runs with drawn figures, in order; `figures` are those of kind `figure` of the
/// run itself.
pub fn intervals(draws: Draws, run: &[Value], drawn: &[Vec<Value>], figures: &[Value]) -> Vec<Value> {
    let uncertain: Vec<&Value> = figures
        .iter()
        .filter(|figure| figure["kind"] == "figure" && figure["deviation"].is_string())
        .collect();
    let inputs = Inputs::new(draws, &uncertain);
    let drawn: Vec<BTreeMap<_, OneResult>> =
        drawn.iter().map(|records| identified(records).into_iter().collect()).collect();
    let mut all = Vec::new();
    for (key, result) in identified(run) {
        // A run that failed has no such result.
        let (which, values): (Vec<usize>, Vec<f64>) =
            drawn.iter().enumerate().filter_map(|(n, run)| Some((n, run.get(&key)?.value))).unzip();
        let drawn = |(&n, &value): (&usize, &f64)| {
            let draw = Draw::new(n as u32 + 1, draws);
            missing(draw, &format!("{key:?}"), value, result.missed)
        };
        let Some(spread) = Spread::of(&which.iter().zip(&values).map(drawn).collect::<Vec<_>>()) else {
            continue;
        };
        let hangs = inputs.explain(&which, &values);
        let mut record = Value::Object(result.what.clone());
        record["kind"] = "interval".into();
        record["quantity"] = result.quantity.clone().into();
        record["unit"] = result.unit.clone().into();
        let about = record.clone();
        record["value"] = result.value.into();
        record["median"] = spread.median.into();
        record["p05"] = spread.low.into();
        record["p95"] = spread.high.into();
        record["runs"] = values.len().into();
        let words: Vec<String> = hangs.iter().map(|(words, _)| words.clone()).collect();
        record["hangs_on"] = words.join(", ").into();
        all.push(record);
        for (rank, (_, fields)) in (1..).zip(hangs) {
            let mut record = about.clone();
            record["kind"] = "influence".into();
            record["rank"] = json!(rank);
            for (key, value) in fields.as_object().into_iter().flatten() {
                record[key.as_str()] = value.clone();
            }
            all.push(record);
        }
    }
    all
}

/// Says which figures results of drawn runs hang on.
pub struct Explainer(Inputs);

impl Explainer {
    /// For these draws; `figures` are records of the figures in use, of kind `figure`.
    pub fn new(draws: Draws, figures: &[Value]) -> Self {
        let is_uncertain = |figure: &&Value| figure["kind"] == "figure" && figure["deviation"].is_string();
        Self(Inputs::new(draws, &figures.iter().filter(is_uncertain).collect::<Vec<_>>()))
    }

    /// The figures that a result hangs on, most important first, with their kind of source: `path of file (assumed, +,
    /// 40 %)`. `values` has its value in each draw, if that gave one.
    pub fn of(&self, values: &[Option<f64>]) -> Vec<String> {
        let known = values.iter().enumerate().filter_map(|(n, value)| Some((n, (*value)?)));
        let (which, values): (Vec<usize>, Vec<f64>) = known.unzip();
        let words = |found: influence::Influence| {
            let (file, path, kind) = &self.0.names[found.figure];
            let (share, sign) = (100.0 * found.share, if found.rises { '+' } else { '-' });
            format!("{path} of {file} ({kind}, {sign}, {share:.0} %)")
        };
        self.0.influences(&which, &values).into_iter().map(words).collect()
    }
}

/// The uncertain figures and their values in all draws.
struct Inputs {
    /// File, path and kind of source; of several with one draw, those of the first.
    names: Vec<(String, String, String)>,
    /// For each figure, how far it is off in each draw.
    columns: Vec<Vec<f64>>,
}

impl Inputs {
    fn new(draws: Draws, figures: &[&Value]) -> Self {
        let (mut names, mut columns): (Vec<_>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
        for figure in figures {
            let text = |key: &str| figure[key].as_str().unwrap_or_default();
            let (path, stated, source) = (text("path"), text("stated"), text("source"));
            let steps = text("deviation").starts_with("another");
            let value = |draw: Draw| match steps {
                true => draw.step(path, stated, source),
                false => draw.deviations(path, stated, source),
            };
            let column: Vec<f64> = draws.all().map(value).collect();
            // What states the same in the same words has the same draw, and is named once.
            if !columns.contains(&column) {
                names.push((text("file").to_owned(), path.to_owned(), text("source_kind").to_owned()));
                columns.push(column);
            }
        }
        Self { names, columns }
    }

    /// The figures that these values of some draws hang on.
    fn influences(&self, which: &[usize], values: &[f64]) -> Vec<influence::Influence> {
        let column = |column: &Vec<f64>| which.iter().map(|&n| column[n]).collect();
        let columns: Vec<Vec<f64>> = self.columns.iter().map(column).collect();
        influence::of(values, &columns)
    }

    /// The figures that these values of some draws hang on: in words, and as fields of a record.
    fn explain(&self, which: &[usize], values: &[f64]) -> Vec<(String, Value)> {
        let explain = |found: influence::Influence| {
            let (file, path, _) = &self.names[found.figure];
            let (share, sign) = (100.0 * found.share, if found.rises { '+' } else { '-' });
            let direction = if found.rises { "rises" } else { "falls" };
            let fields = json!({ "file": file, "path": path, "share_pct": share, "direction": direction });
            (format!("{path} of {file} ({sign}, {share:.0} %)"), fields)
        };
        self.influences(which, values).into_iter().map(explain).collect()
    }
}
