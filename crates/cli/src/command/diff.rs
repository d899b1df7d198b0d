//! `nearfar diff`: the differences between two results, CPU times included.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use results::difference::{
    Difference, JsonRecord, differences, figure, inputs, is_of_figures, level, records_of,
};
use results::provenance::Input;
use serde_json::{Value, json};

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

pub fn run(common: &Common, arguments: &DiffArgs) -> Result<ExitCode, Failure> {
    let places = arguments.records.places(&[])?;
    places.reads([&arguments.first, &arguments.second])?;
    let to_stdout = places.to_stdout;
    let library = input::library(common);
    let mut read_files = Vec::new();
    let mut first = read(&library, &arguments.first, &mut read_files)?;
    let mut second = read(&library, &arguments.second, &mut read_files)?;
    if is_of_figures(&first) && is_of_figures(&second) {
        (first, second) = level(first, second);
    }
    for (name, other) in &arguments.map {
        let (name, other) = (program_number(&first, name), program_number(&second, other));
        for (records, name, path) in [(&first, &name, &arguments.first), (&second, &other, &arguments.second)]
        {
            if !records.iter().any(|record| names(record).contains(name)) {
                let known: BTreeSet<String> = records.iter().flat_map(names).collect();
                let message =
                    format!("--map: no host, device or program of {} is called `{name}`", path.display());
                return Err(Failure::with_nearest(message, name, known.iter().map(String::as_str), ""));
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
    provenance.files.extend(read_files);
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
    const PARTS: [&str; 4] = ["figure", "account", "resource", "counter"];
    let kinds: BTreeSet<&str> = differences.iter().map(|d| &*d.kind).collect();
    let results: Vec<&str> = kinds.into_iter().filter(|kind| !PARTS.contains(kind)).collect();
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

/// Keys whose texts name places; their parts are separated by these letters.
const PLACES: [&str; 6] = ["host", "place", "counter", "account", "scenario", "file"];
const SEPARATORS: [char; 3] = ['/', ':', ' '];

/// The names of a record's places, and its program's number.
fn names(record: &JsonRecord) -> Vec<String> {
    let texts = PLACES.iter().filter_map(|key| record.get(*key)?.as_str());
    let parts = texts.flat_map(|text| text.split(SEPARATORS).map(str::to_owned));
    parts.chain(record.get("program").map(ToString::to_string)).collect()
}

/// The number of the program that fio calls so with `--name`, or the name as it is.
fn program_number(records: &[JsonRecord], name: &str) -> String {
    let option = format!("--name={name}");
    let is_its = |record: &&JsonRecord| {
        let run = record.get("run").and_then(Value::as_str).unwrap_or_default();
        run.split_whitespace().any(|word| word == option)
    };
    let number = records.iter().find(is_its).and_then(|record| record.get("program"));
    number.map_or_else(|| name.to_owned(), ToString::to_string)
}

/// A record in which two names are exchanged, so that each stays unique.
fn renamed(mut record: JsonRecord, name: &str, other: &str) -> JsonRecord {
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
fn read(library: &Library, path: &Path, read_files: &mut Vec<Input>) -> Result<Vec<JsonRecord>, Failure> {
    let is_named = !path.exists() || path.extension().is_some_and(|extension| extension == "toml");
    let is_result = path.extension().is_some_and(|extension| extension == "json");
    if let (true, false, Some(name)) = (is_named, is_result, path.to_str())
        && let Some(figures) = machines::figures_of(library, name)?
    {
        let record = |(path, value)| figure(path, Value::String(value));
        return Ok(figures.into_iter().map(record).collect());
    }
    let wrong = |why: String| Failure::new(format!("`{}`: {why}", path.display()));
    let _waiting = output::waits_at_pipe(path, "write to");
    let bytes = files::read_any(path).map_err(|error| wrong(error.to_string()))?;
    read_files.push(Input {
        kind: "result".into(),
        name: path.display().to_string(),
        sha256: files::sha256(&bytes),
    });
    records_of(files::unmarked(&bytes)).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_files_every_figure_that_differs_is_told() {
        let library = Library::built_in();
        let of = |name: &str| read(&library, Path::new(name), &mut Vec::new()).ok().unwrap();
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
        assert!(read(&library, Path::new("dell-t43"), &mut Vec::new()).is_err());
    }

    /// Editors of some systems put one before a text.
    #[test]
    fn a_byte_order_mark_is_no_part_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let marked = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, [b"\xef\xbb\xbf", text].concat()).unwrap();
            path
        };
        let library = Library::built_in();
        let json = marked("a.json", br#"[{"kind": "counter", "counter": "a", "value": 1.0}]"#);
        assert_eq!(read(&library, &json, &mut Vec::new()).ok().unwrap().len(), 1);
        let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/dell-t430.toml");
        let machine = std::fs::read(machine).unwrap();
        let machine = read(&library, &marked("m.toml", &machine), &mut Vec::new()).ok().unwrap();
        assert_eq!(
            machine.len(),
            read(&library, Path::new("dell-t430"), &mut Vec::new()).ok().unwrap().len()
        );
    }

    #[test]
    fn names_of_the_first_are_taken_for_those_of_the_second() {
        let record = |host: &str, counter: &str, program: u64| -> JsonRecord {
            let value = json!({"kind": "counter", "host": host, "counter": counter, "program": program, "value": 1.0,
                "run": format!("fio --name=job{program}")});
            value.as_object().unwrap().clone()
        };
        let first = record("a", "nic0/link-up-bytes/posted", 0);
        let map = |record: JsonRecord, name: &str, other: &str| renamed(record, name, other);
        let changed = map(map(map(first.clone(), "a", "b"), "nic0", "octo"), "0", "2");
        assert_eq!(changed["host"], "b");
        assert_eq!(changed["counter"], "octo/link-up-bytes/posted");
        assert_eq!(changed["program"], 2);
        assert_eq!(map(record("b", "x", 1), "a", "b")["host"], "a");
        assert_eq!(program_number(std::slice::from_ref(&first), "job0"), "0");
        assert!(names(&first).contains(&"nic0".to_owned()));
        let (all, alone) = differences(&[changed], &[record("b", "octo/link-up-bytes/posted", 2)]);
        assert_eq!((all.len(), alone), (1, [0, 0]));
    }
}
