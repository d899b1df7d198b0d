//! Differences between two results: records of JSON, of the same kind and place.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A record, as `--json` writes it.
pub type JsonRecord = Map<String, Value>;

/// Keys that are results; other keys identify the record.
const VALUES: [&str; 20] = [
    "value",
    "time_ns",
    "share_pct",
    "ns_per_packet",
    "ps_per_byte",
    "median_ns",
    "average_ns",
    "minimum_ns",
    "maximum_ns",
    "p95_ns",
    "p999_ns",
    "goodput_gbit_per_s",
    "transactions_per_s",
    "simulated",
    "error_pct",
    "generation",
    "lanes",
    "mps_bytes",
    "mrrs_bytes",
    "verdict",
];
/// Keys that neither identify a record nor are worth comparing.
const ASIDE: [&str; 12] = [
    "provenance",
    "took_ns",
    "per_s",
    "of_network",
    "half_width_pct",
    "samples",
    "sentence",
    "run",
    "p95",
    "p999",
    "within",
    "held_back",
];

/// A value that differs between two results.
pub struct Difference {
    /// The kind of the records.
    pub kind: String,
    /// The record's identity, as text.
    pub about: String,
    /// What differs, with its unit.
    pub quantity: String,
    /// The value in the first result.
    pub first: Value,
    /// The value in the second one.
    pub second: Value,
}

impl Difference {
    /// The change in per cent, of numbers other than 0.
    pub fn change_pct(&self) -> Option<f64> {
        let (first, second) = (self.first.as_f64()?, self.second.as_f64()?);
        (first != 0.0).then(|| 100.0 * (second - first) / first.abs())
    }

    /// A relative amount regardless of unit, to sort the largest first.
    pub fn amount(&self) -> f64 {
        let of = |value: &Value| value.as_f64().unwrap_or(0.0);
        (of(&self.second) - of(&self.first)).abs()
    }

    /// Whether it differs by at least so many per cent.
    pub fn is_shown(&self, least: f64) -> bool {
        self.first != self.second && self.change_pct().is_none_or(|change| change.abs() >= least)
    }
}

/// The records in what `--json` writes.
///
/// # Errors
/// What else it is, and what is wanted instead.
pub fn records_of(bytes: &[u8]) -> Result<Vec<JsonRecord>, String> {
    const WANTED: &str = "give a file that --json has written, or a machine, device or kernel";
    let kinds: [(&[u8], &str); 5] = [
        (b"PAR1", "a Parquet file"),
        (b"\x0a\x0d\x0d\x0a", "a capture"),
        (b"<svg", "a picture"),
        (b"<!DOCTYPE html", "a page"),
        (b"kind,", "a table of records"),
    ];
    if let Some((_, kind)) = kinds.iter().find(|(begin, _)| bytes.starts_with(begin)) {
        return Err(format!("it is {kind}; {WANTED}"));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("{error}; {WANTED}"))?;
    let object = |record: Value| match record {
        Value::Object(fields) => Ok(fields),
        _ => Err(format!("it is not a list of records; {WANTED}")),
    };
    match value {
        Value::Array(records) => records.into_iter().map(object).collect(),
        // An object with lists of records, as `fit` writes it: each list is of its own kind.
        Value::Object(mut fields) => {
            let lists: Vec<String> = fields
                .iter()
                .filter(|(_, value)| value.as_array().is_some_and(|all| all.iter().all(Value::is_object)))
                .map(|(key, _)| key.clone())
                .collect();
            let mut all = Vec::new();
            for key in lists {
                let Some(Value::Array(records)) = fields.remove(&key) else { continue };
                for record in records {
                    let mut record = object(record)?;
                    record.entry("kind").or_insert_with(|| key.as_str().into());
                    all.push(record);
                }
            }
            all.insert(0, fields);
            Ok(all)
        }
        other => object(other).map(|record| vec![record]),
    }
}

/// The record of a parameter of a machine, device or kernel.
pub fn figure(path: String, value: Value) -> JsonRecord {
    [("kind", "figure".into()), ("path", path.into()), ("value", value)]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn kind_of(record: &JsonRecord) -> Option<&str> {
    record.get("kind").and_then(Value::as_str)
}

/// Whether all are records of parameters.
pub fn is_of_figures(records: &[JsonRecord]) -> bool {
    records.iter().all(|record| kind_of(record) == Some("figure"))
}

/// Adds an empty record for each parameter that only the other file has.
pub fn level(first: Vec<JsonRecord>, second: Vec<JsonRecord>) -> (Vec<JsonRecord>, Vec<JsonRecord>) {
    let missing = |of: &[JsonRecord], there: &[JsonRecord]| {
        let path = |record: &JsonRecord| record.get("path").and_then(Value::as_str).map(str::to_owned);
        let known: BTreeSet<String> = there.iter().filter_map(path).collect();
        let paths = of.iter().filter_map(path).filter(|path| !known.contains(path));
        paths.map(|path| figure(path, Value::Null)).collect::<Vec<_>>()
    };
    let (to_first, to_second) = (missing(&second, &first), missing(&first, &second));
    ([first, to_first].concat(), [second, to_second].concat())
}

/// Differences of the inputs, as sentences.
pub fn inputs(first: &[JsonRecord], second: &[JsonRecord]) -> Vec<String> {
    let of = |records: &[JsonRecord]| {
        records.iter().find_map(|record| record.get("provenance")).cloned().unwrap_or_default()
    };
    let (first, second) = (of(first), of(second));
    let mut lines = Vec::new();
    for (key, what) in [("version", "version"), ("seed", "seed")] {
        if first[key] != second[key] {
            lines.push(format!("{what}: {} and {}", first[key], second[key]));
        }
    }
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let changes = [texts(&first["changes"]), texts(&second["changes"])];
    for (n, which) in ["first", "second"].into_iter().enumerate() {
        let own = changes[n].iter().filter(|change| !changes[1 - n].contains(change));
        lines.extend(own.map(|change| format!("changed in the {which} alone: {change}")));
    }
    let files = |value: &Value| -> BTreeMap<String, String> {
        let all = value["files"].as_array().into_iter().flatten();
        let pair =
            |file: &Value| Some((file["name"].as_str()?.to_owned(), file["sha256"].as_str()?.to_owned()));
        all.filter_map(pair).collect()
    };
    let (first, second) = (files(&first), files(&second));
    for (name, digest) in &first {
        match second.get(name) {
            Some(other) if other == digest => {}
            Some(_) => lines.push(format!("{name} has other contents in the second")),
            None => lines.push(format!("{name} went into the first alone")),
        }
    }
    let new = second.keys().filter(|name| !first.contains_key(*name));
    lines.extend(new.map(|name| format!("{name} went into the second alone")));
    lines
}

/// Values with their identities, in order of the records.
type Values = Vec<((String, String, String), Value)>;

fn values(records: &[JsonRecord]) -> Values {
    let mut all = Vec::new();
    for record in records {
        let kind = kind_of(record).unwrap_or("record").to_owned();
        let is_about = |key: &str| key != "kind" && !VALUES.contains(&key) && !ASIDE.contains(&key);
        let word = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(format!("{key} {number}")),
            Value::Bool(true) => Some(key.clone()),
            _ => None,
        };
        let about: Vec<String> = record
            .iter()
            .filter(|(key, _)| is_about(key) && *key != "quantity" && *key != "unit")
            .filter_map(word)
            .collect();
        let about = about.join(" ");
        let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
        for key in VALUES.iter().filter(|key| record.contains_key(**key)) {
            let quantity = match (*key, text("quantity")) {
                ("value" | "simulated", quantity) if !quantity.is_empty() => {
                    format!("{quantity} {}", text("unit")).trim().to_owned()
                }
                (key, _) => key.replace('_', " "),
            };
            leaves(&about, &record[*key], &mut |about, value| {
                all.push(((kind.clone(), about, quantity.clone()), value));
            });
        }
    }
    all
}

/// The values in an object, as `tree` writes a folder; otherwise the value itself.
fn leaves(about: &str, value: &Value, put: &mut impl FnMut(String, Value)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let below = if about.is_empty() { key.clone() } else { format!("{about}/{key}") };
                leaves(&below, value, put);
            }
        }
        value => put(about.to_owned(), value.clone()),
    }
}

/// The values that differ, and the number of values that only one result has.
pub fn differences(first: &[JsonRecord], second: &[JsonRecord]) -> (Vec<Difference>, [usize; 2]) {
    let (first, second) = (values(first), values(second));
    // Repeated records are distinguished by their position.
    let numbered = |all: Values| {
        let mut seen: BTreeMap<(String, String, String), usize> = BTreeMap::new();
        let number = |(key, value): ((String, String, String), Value)| {
            let count = seen.entry(key.clone()).or_default();
            *count += 1;
            ((key, *count), value)
        };
        all.into_iter().map(number).collect::<Vec<_>>()
    };
    let (first, mut second) = (numbered(first), numbered(second).into_iter().collect::<BTreeMap<_, _>>());
    let mut both = Vec::new();
    let mut alone = 0;
    for ((key, count), value) in first {
        match second.remove(&(key.clone(), count)) {
            Some(other) => {
                let (kind, about, quantity) = key;
                both.push(Difference { kind, about, quantity, first: value, second: other });
            }
            None => alone += 1,
        }
    }
    (both, [alone, second.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn records(rate: f64, change: &str) -> Vec<JsonRecord> {
        let value = json!([
            {"kind": "reading", "scenario": "x", "program": 0, "host": "a", "run": change, "quantity": "rate",
             "unit": "Gbit/s", "value": rate, "provenance": {"seed": 1, "changes": [change], "files": [
                {"kind": "machine", "name": "m.toml", "sha256": change}]}},
            {"kind": "account", "host": "a", "account": "net/0", "part": "driver", "time_ns": 10.0 * rate},
            {"kind": "binds", "host": "a", "sentence": "x"},
        ]);
        value.as_array().unwrap().iter().map(|record| record.as_object().unwrap().clone()).collect()
    }

    #[test]
    fn records_of_the_same_place_are_held_against_each_other() {
        let (first, second) = (records(10.0, "--set a=1"), records(15.0, "--set a=2"));
        let (all, alone) = differences(&first, &second);
        assert_eq!((all.len(), alone), (2, [0, 0]));
        assert_eq!((all[0].quantity.as_str(), all[0].change_pct()), ("rate Gbit/s", Some(50.0)));
        assert_eq!((all[1].kind.as_str(), all[1].about.as_str()), ("account", "net/0 a driver"));
        let lines = inputs(&first, &second);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[2].contains("m.toml has other contents"));
        let (same, _) = differences(&first, &first);
        assert!(same.iter().all(|difference| !difference.is_shown(0.0)));
    }

    /// Anything that is JSON has differences or a reason why not; nothing panics.
    #[test]
    fn any_json_is_compared_or_refused() {
        let all = [
            "{}",
            "[]",
            "[{}]",
            "[[]]",
            "null",
            "0",
            "\"x\"",
            "{\"a\":[{}],\"provenance\":[1]}",
            "[{\"kind\":7,\"value\":{\"a\":{\"b\":[1]}}},{\"provenance\":\"x\",\"value\":1e308}]",
            "[{\"kind\":\"figure\"},{\"kind\":\"figure\",\"path\":1,\"value\":-1e308}]",
            "[{\"kind\":\"figure\",\"path\":\"a\",\"value\":null,\"provenance\":{\"files\":{},\"changes\":[1]}}]",
        ];
        for first in all {
            for second in all {
                let (Ok(first), Ok(second)) = (records_of(first.as_bytes()), records_of(second.as_bytes()))
                else {
                    continue;
                };
                let (first, second) = match is_of_figures(&first) && is_of_figures(&second) {
                    true => level(first, second),
                    false => (first, second),
                };
                inputs(&first, &second);
                for difference in differences(&first, &second).0 {
                    difference.is_shown(1.0);
                    assert!(!difference.amount().is_nan());
                }
            }
        }
        assert!(records_of(b"PAR1...").unwrap_err().contains("Parquet"));
    }

    #[test]
    fn what_one_has_alone_is_counted() {
        let (all, alone) = differences(&records(1.0, "")[..1], &records(1.0, "")[1..]);
        assert!(all.is_empty() && alone == [1, 1]);
    }
}
