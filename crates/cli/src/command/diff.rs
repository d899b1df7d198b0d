//! `nearfar diff`: the differences between two results, CPU times included.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use machine::Library;

use super::machines;
use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, input, output};

/// Compare two results: their inputs, their values, and where CPU time was spent.
///
/// Results are files written by `--json` of `run`, `sweep`, `bench`, `compare` and `reproduce`. Records of the same
/// kind and place are compared. Given two machines, devices or kernels, by name or path, shows the parameters that
/// differ.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar run netperf --accounting --json a.json
  nearfar run netperf --set host.a.iommu=strict --accounting --json b.json
  nearfar diff a.json b.json
  nearfar diff a.json b.json --least 0 --csv all.csv
  nearfar diff a.json b.json --map nic0=octo --map 0=1   devices of other names, program 0 against program 1
  nearfar diff dell-t430 dell-r730                     figures of two machines")]
pub struct DiffArgs {
    /// The first result, or the file of a machine, device or kernel.
    first: PathBuf,
    /// The second, compared with the first.
    second: PathBuf,
    /// Compare what the first result calls NAME with what the second calls OTHER: a host, device, scenario, or a program by
    /// its number or its `--name`. The same file twice compares two hosts or programs of one result.
    #[arg(long, value_name = "NAME=OTHER", value_parser = input::setting)]
    map: Vec<(String, String)>,
    /// Show differences of at least this many per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    least: f64,
    /// Show only the N counters and accounts that differ most; 0 shows all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    #[command(flatten)]
    records: Records,
}

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
struct Difference {
    kind: String,
    /// The record's identity, as text.
    about: String,
    quantity: String,
    first: Value,
    second: Value,
}

impl Difference {
    fn change_pct(&self) -> Option<f64> {
        let (first, second) = (self.first.as_f64()?, self.second.as_f64()?);
        (first != 0.0).then(|| 100.0 * (second - first) / first.abs())
    }

    /// A relative amount regardless of unit, to sort the largest first.
    fn amount(&self) -> f64 {
        let of = |value: &Value| value.as_f64().unwrap_or(0.0);
        (of(&self.second) - of(&self.first)).abs()
    }

    fn is_shown(&self, least: f64) -> bool {
        self.first != self.second && self.change_pct().is_none_or(|change| change.abs() >= least)
    }
}

pub fn run(common: &Common, arguments: &DiffArgs) -> Result<ExitCode, Failure> {
    let to_stdout = arguments.records.apart(&[])?;
    let library = input::library(common);
    let (mut first, mut second) = (read(&library, &arguments.first)?, read(&library, &arguments.second)?);
    if is_of_figures(&first) && is_of_figures(&second) {
        (first, second) = level(first, second);
    }
    for (name, other) in &arguments.map {
        let (name, other) = (program_number(&first, name), program_number(&second, other));
        for (records, name, path) in [(&first, &name, &arguments.first), (&second, &other, &arguments.second)]
        {
            if !records.iter().any(|record| names(record).contains(name)) {
                let known: BTreeSet<String> = records.iter().flat_map(names).collect();
                let near = machine::nearest(name, known.iter().map(String::as_str));
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                return Err(Failure::new(format!(
                    "--map: no host, device or program of {} is called `{name}`{near}",
                    path.display()
                )));
            }
        }
        first = first.into_iter().map(|record| renamed(record, &name, &other)).collect();
    }
    let inputs = inputs(&first, &second);
    let (differences, alone) = differences(&first, &second);
    if differences.is_empty() && inputs.is_empty() {
        return Err(Failure::new(format!(
            "{} and {} have no record of the same kind and place",
            arguments.first.display(),
            arguments.second.display()
        )));
    }
    let rows: Vec<Value> = differences
        .iter()
        .map(|d| {
            json!({
                "kind": d.kind, "about": d.about, "quantity": d.quantity, "first": d.first, "second": d.second,
                "change_pct": d.change_pct(),
            })
        })
        .collect();
    let mut provenance = output::provenance(0, &[], &library);
    provenance.files = [&arguments.first, &arguments.second]
        .into_iter()
        .filter_map(|path| output::input("result", path))
        .collect();
    arguments.records.write(rows, &provenance)?;
    if !to_stdout {
        show(arguments, &inputs, &differences, alone);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(arguments: &DiffArgs, inputs: &[String], differences: &[Difference], alone: [usize; 2]) {
    if inputs.is_empty() && differences.iter().all(|difference| difference.kind != "figure") {
        output::print("The same went in.");
    }
    inputs.iter().for_each(|line| output::print(&output::prose(line)));
    let of = |wanted: &[&str], most: usize| {
        let mut chosen: Vec<&Difference> = differences
            .iter()
            .filter(|d| wanted.contains(&&*d.kind) && d.is_shown(arguments.least))
            .collect();
        if most > 0 && chosen.len() > most {
            chosen.sort_by(|a, b| b.amount().total_cmp(&a.amount()));
            chosen.truncate(most);
        }
        chosen
    };
    let results = ["reading", "row", "claim", "point", "link", "record"];
    let parts = [
        ("Figures", of(&["figure"], 0)),
        ("What they gave", of(&results, 0)),
        ("Where the cores' time went", of(&["account"], arguments.most)),
        ("How full resources were", of(&["resource"], arguments.most)),
        ("What was counted", of(&["counter"], arguments.most)),
    ];
    let mut any = false;
    for (title, chosen) in parts.iter().filter(|(_, chosen)| !chosen.is_empty()) {
        any = true;
        output::print(&format!("\n{title}"));
        let mut table =
            TextTable::new(["about", "quantity", "first", "second", "change"], Fit::FirstAbove).numbers(2..5);
        for d in chosen {
            let change = d.change_pct().map_or_else(String::new, |change| format!("{change:+.1} %"));
            let value = |value: &Value| match value {
                Value::Number(number) => output::number(number.as_f64().unwrap_or(f64::NAN)),
                Value::String(text) => text.clone(),
                Value::Null => "–".to_owned(),
                other => other.to_string(),
            };
            table.add(vec![d.about.clone(), d.quantity.clone(), value(&d.first), value(&d.second), change]);
        }
        output::print(&table.render(output::width()));
    }
    if !any {
        output::print(&format!("\nNothing differs by {} % or more.", arguments.least));
    }
    for (count, place) in alone.into_iter().zip([&arguments.first, &arguments.second]) {
        if count > 0 {
            output::print(&format!("\n{count} values are in {} alone.", place.display()));
        }
    }
}

type Record = Map<String, Value>;

/// Keys whose texts name places; their parts are separated by these letters.
const PLACES: [&str; 6] = ["host", "place", "counter", "account", "scenario", "file"];
const SEPARATORS: [char; 3] = ['/', ':', ' '];

/// The names of a record's places, and its program's number.
fn names(record: &Record) -> Vec<String> {
    let texts = PLACES.iter().filter_map(|key| record.get(*key)?.as_str());
    let parts = texts.flat_map(|text| text.split(SEPARATORS).map(str::to_owned));
    parts.chain(record.get("program").map(ToString::to_string)).collect()
}

/// The number of the program that fio calls so with `--name`, or the name as it is.
fn program_number(records: &[Record], name: &str) -> String {
    let option = format!("--name={name}");
    let is_its = |record: &&Record| {
        let run = record.get("run").and_then(Value::as_str).unwrap_or_default();
        run.split_whitespace().any(|word| word == option)
    };
    let number = records.iter().find(is_its).and_then(|record| record.get("program"));
    number.map_or_else(|| name.to_owned(), ToString::to_string)
}

/// A record in which two names are exchanged, so that each stays unique.
fn renamed(mut record: Record, name: &str, other: &str) -> Record {
    let exchanged = |part: &str| match part {
        _ if part == name => other.to_owned(),
        _ if part == other => name.to_owned(),
        part => part.to_owned(),
    };
    for key in PLACES {
        if let Some(Value::String(text)) = record.get_mut(key) {
            let parts = text.split_inclusive(SEPARATORS).map(|part| {
                let name = part.trim_end_matches(SEPARATORS);
                exchanged(name) + &part[name.len()..]
            });
            *text = parts.collect();
        }
    }
    if let Some(program) = record.get_mut("program")
        && let Ok(number) = exchanged(&program.to_string()).parse::<u64>()
    {
        *program = number.into();
    }
    record
}

/// The records of a result, or one record per parameter of a machine, device or kernel file.
fn read(library: &Library, path: &Path) -> Result<Vec<Record>, Failure> {
    let is_result = path.extension().is_some_and(|extension| extension == "json");
    if let (false, Some(name)) = (is_result, path.to_str())
        && let Some(figures) = machines::figures_of(library, name)?
    {
        let record = |(path, value)| figure(path, Value::String(value));
        return Ok(figures.into_iter().map(record).collect());
    }
    let wrong = |why: String| Failure::new(format!("`{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        wrong(format!("{error}; give a file that --json has written, or a machine, device or kernel"))
    })?;
    let records = match value {
        Value::Array(records) => records,
        other => vec![other],
    };
    let object = |record: Value| match record {
        Value::Object(fields) => Ok(fields),
        _ => Err(wrong("it is not a list of records; give a file written by --json".into())),
    };
    records.into_iter().map(object).collect()
}

fn figure(path: String, value: Value) -> Record {
    [("kind", "figure".into()), ("path", path.into()), ("value", value)]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn is_of_figures(records: &[Record]) -> bool {
    records.iter().all(|record| record["kind"] == "figure")
}

/// Adds an empty record for each parameter that only the other file has.
fn level(first: Vec<Record>, second: Vec<Record>) -> (Vec<Record>, Vec<Record>) {
    let missing = |of: &[Record], there: &[Record]| {
        let known: BTreeSet<&str> = there.iter().filter_map(|record| record["path"].as_str()).collect();
        let paths =
            of.iter().filter_map(|record| record["path"].as_str()).filter(|path| !known.contains(path));
        paths.map(|path| figure(path.to_owned(), Value::Null)).collect::<Vec<_>>()
    };
    let (to_first, to_second) = (missing(&second, &first), missing(&first, &second));
    ([first, to_first].concat(), [second, to_second].concat())
}

/// Differences of the inputs, as sentences.
fn inputs(first: &[Record], second: &[Record]) -> Vec<String> {
    let of = |records: &[Record]| {
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

fn values(records: &[Record]) -> Values {
    let mut all = Vec::new();
    for record in records {
        let kind = record.get("kind").and_then(Value::as_str).unwrap_or("record").to_owned();
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
            all.push(((kind.clone(), about.clone(), quantity), record[*key].clone()));
        }
    }
    all
}

/// The values that differ, and the number of values that only one result has.
fn differences(first: &[Record], second: &[Record]) -> (Vec<Difference>, [usize; 2]) {
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

    fn records(rate: f64, change: &str) -> Vec<Record> {
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

    #[test]
    fn of_two_files_every_figure_that_differs_is_told() {
        let library = Library::built_in();
        let of = |name: &str| read(&library, Path::new(name)).ok().unwrap();
        let (first, second) = level(of("dell-t430"), of("dell-r730"));
        let (all, alone) = differences(&first, &second);
        assert_eq!(alone, [0, 0]);
        let told: Vec<&str> = all
            .iter()
            .filter(|difference| difference.is_shown(1.0))
            .map(|difference| &*difference.about)
            .collect();
        assert!(
            told.contains(&"host.core.frequency") && !told.contains(&"host.core.line_fill_buffers"),
            "{told:?}"
        );
        assert!(read(&library, Path::new("dell-t43")).is_err());
    }

    #[test]
    fn names_of_the_first_are_taken_for_those_of_the_second() {
        let record = |host: &str, counter: &str, program: u64| -> Record {
            let value = json!({"kind": "counter", "host": host, "counter": counter, "program": program, "value": 1.0,
                "run": format!("fio --name=job{program}")});
            value.as_object().unwrap().clone()
        };
        let first = record("a", "nic0/link-up-bytes/posted", 0);
        let map = |record: Record, name: &str, other: &str| renamed(record, name, other);
        let changed = map(map(map(first.clone(), "a", "b"), "nic0", "octo"), "0", "2");
        assert_eq!(changed["host"], "b");
        assert_eq!(changed["counter"], "octo/link-up-bytes/posted");
        assert_eq!(changed["program"], 2);
        assert_eq!(map(record("b", "x", 1), "a", "b")["host"], "a");
        assert_eq!(program_number(&[first.clone()], "job0"), "0");
        assert!(names(&first).contains(&"nic0".to_owned()));
        let (all, alone) = differences(&[changed], &[record("b", "octo/link-up-bytes/posted", 2)]);
        assert_eq!((all.len(), alone), (1, [0, 0]));
    }

    #[test]
    fn what_one_has_alone_is_counted() {
        let (all, alone) = differences(&records(1.0, "")[..1], &records(1.0, "")[1..]);
        assert!(all.is_empty() && alone == [1, 1]);
    }
}
