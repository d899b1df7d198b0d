//! Results as records: the output of `--json` and `--csv`, and of the Python package. docs/outputs.md describes their
//! keys.

use machine::{ComputerSetup, Library, Setup};
use results::Provenance;
use results::pciebench::{LatencyRow, Row};
use results::provenance::Input;
use serde_json::{Value, json};
use units::Duration;

use crate::bench::Outcome;
use crate::compare::{self, Comparison};
use crate::computer::{Account, Counted, Counts, FinishedProgram, Warning};
use crate::counters::{Counter, HostCounters, OfferedLoad, Phase, Unit, Window};
use crate::links::LinkState;
use crate::origins::Origins;
use crate::scenario;
use crate::suite::Suite;
use crate::what_if::{Gain, WhatIf};

/// The origin of results: version, command, changes, and the files read through `library`.
pub fn made_from(
    version: String,
    command: String,
    seed: u64,
    changes: Vec<String>,
    library: &Library,
) -> Provenance {
    let used = library.used();
    let input =
        |(name, (kind, sha256)): (String, (&str, String))| Input { kind: kind.to_owned(), name, sha256 };
    Provenance {
        version,
        command,
        seed,
        changes: changes.into_iter().chain(used.changes).collect(),
        files: used.files.into_iter().map(input).collect(),
    }
}

/// A record: an object with a `kind`.
pub type Record = Value;

/// All records of a scenario with pcie-bench.
pub fn of_bench(setup: &Setup, done: &[scenario::FinishedRun]) -> Vec<Record> {
    let name = &setup.scenario.name;
    let mut records: Vec<_> =
        (1..).zip(done).map(|(number, done)| of_outcome(name, number, &done.outcome)).collect();
    for (row, done) in (1..).zip(done) {
        let about = json!({ "file": name, "row": row });
        records.extend(binding_rows(&done.outcome.window, "", &about));
        records.extend(counter_rows(&done.outcome.window, &about));
    }
    let bench = scenario::bench_of(setup);
    records.extend(LinkState::of_bench(&bench).iter().map(link_row));
    records.extend(Origins::of_bench(&bench, done.iter().map(|done| &done.outcome)).records());
    records
}

/// All records of a scenario with computers.
pub fn of_computers(setup: &ComputerSetup, counts: &Counts, accounting: bool) -> Vec<Record> {
    let mut records = program_rows(&setup.name, &counts.done);
    for counted in &counts.counted {
        let about = about(setup, counted);
        records.extend(binding_rows(&counted.window, counts.host_of(counted.program), &about));
        records.extend(counter_rows(&counted.window, &about));
    }
    if accounting {
        records.extend(account_rows(&setup.name, &counts.accounts));
    }
    records.extend(counts.links.iter().map(link_row));
    records.extend(counts.warnings.iter().map(|warning| warning_row(&setup.name, warning)));
    records.extend(Origins::of_computers(setup, &counts.counted).records());
    records
}

/// What more of each resource gains, by programs that were judged together.
pub fn of_what_if(setup: &ComputerSetup, all: &[WhatIf]) -> Vec<Record> {
    let of_one = |one: &WhatIf| {
        let WhatIf { programs, binding, gains } = one;
        let row = |gain: &Gain| {
            json!({
                "kind": "gain", "scenario": setup.name, "programs": programs, "part": binding.part,
                "host": gain.host, "place": gain.resource.place, "resource": gain.resource.kind.name(),
                "raised": gain.raise.words(), "gain_pct": 100.0 * gain.gain, "named": gain.is_named,
            })
        };
        gains.iter().map(row).collect::<Vec<Record>>()
    };
    all.iter().flat_map(of_one).collect()
}

/// What counters are about: a program, or what it does at a time.
fn about(setup: &ComputerSetup, counted: &Counted) -> Value {
    let mut about = json!({ "scenario": setup.name, "program": counted.program });
    if !counted.window.part.is_empty() {
        about["part"] = counted.window.part.clone().into();
    }
    about
}

/// What a kernel lacks, or a driver that failed.
fn warning_row(scenario: &str, warning: &Warning) -> Record {
    let at_us = warning.at_ps.map(|ps| Duration::from_ps(ps).as_ns_f64() / 1e3);
    let Warning { host, line, .. } = warning;
    json!({ "kind": "warning", "scenario": scenario, "host": host, "at_us": at_us, "line": line })
}

/// A row, with the number of TLPs on the card's link, preparation included.
fn of_outcome(file: &str, number: usize, outcome: &Outcome) -> Record {
    let mut record = row(file, number, &outcome.row, outcome.half_width);
    record["tlps"] = outcome.tlps.into();
    record
}

/// The record of one pcie-bench run in a sweep, with its bottleneck.
pub fn of_swept_run(scenario: &str, number: usize, outcome: &Outcome) -> Record {
    let mut record = of_outcome(scenario, number, outcome);
    let binding = outcome.window.binding("");
    record["binds"] = binding.what.as_ref().map(|(_, what)| what.kind.name()).into();
    record
}

/// The records of one run of computers in a sweep: programs' measurements, bottleneck, and CPU times if requested.
pub fn of_swept_computers(setup: &ComputerSetup, counts: &Counts, accounting: bool) -> Vec<Record> {
    let mut records = program_rows(&setup.name, &counts.done);
    for counted in &counts.counted {
        let about = about(setup, counted);
        let binding = binding_rows(&counted.window, counts.host_of(counted.program), &about);
        records.extend(binding.into_iter().take(1));
    }
    if accounting {
        records.extend(account_rows(&setup.name, &counts.accounts));
    }
    records
}

/// All rows of a suite.
pub fn of_suite(suite: &Suite) -> Vec<Record> {
    let files = suite.files.iter().zip(&suite.half_widths);
    let rows = files.flat_map(|(file, widths)| {
        let numbered = (1..).zip(file.rows()).zip(widths);
        numbered.map(|((number, of), &width)| row(&file.name, number, &of, width))
    });
    rows.collect()
}

/// All rows of a compared directory, with the artefact that excludes a row and the known cause of its error.
pub fn of_comparison(comparison: &Comparison) -> Vec<Record> {
    let rows = comparison.rows.iter().zip(&comparison.reasons).zip(&comparison.intervals);
    rows.filter_map(|((row, (artefact, cause)), interval)| {
        let mut value = serde_json::to_value(row).ok()?;
        value["directory"] = comparison.path.display().to_string().into();
        value["machine"] = comparison.machine.clone().into();
        value["artefact"] = json!(artefact);
        value["cause"] = json!(cause);
        if let Some(interval) = interval {
            value["low"] = interval.low.into();
            value["high"] = interval.high.into();
            value["held"] = compare::holds(row, interval).into();
        }
        Some(value)
    })
    .collect()
}

/// The 95th and the 99.9th percentile of a row (ns); `None` of fewer samples than it takes for one to lie beyond.
pub fn tails(row: &LatencyRow) -> [Option<f64>; 2] {
    const LEAST: [u64; 2] = [20, 1_000];
    let known = |(value, least)| (row.samples >= least).then_some(value);
    [(row.ns.p95, LEAST[0]), (row.ns.p999, LEAST[1])].map(known)
}

/// A row of results as JSON, with the relative half-width of the 95 % confidence interval of its mean latency or
/// goodput.
fn row(file: &str, number: usize, row: &Row, half_width: f64) -> Record {
    let run = row.run();
    let mut value = json!({
        "kind": "row", "file": file, "row": number, "test": run.test, "pattern": run.pattern, "cache": run.cache,
        "window_bytes": run.window.get(), "transfer_bytes": run.transfer.get(),
        "host_offset": run.host_offset, "device_offset": run.device_offset,
    });
    match row {
        Row::Latency(row) => {
            let ns = &row.ns;
            let fields = [
                ("median", ns.median),
                ("average", ns.average),
                ("minimum", ns.minimum),
                ("maximum", ns.maximum),
            ];
            for (name, number) in fields {
                value[format!("{name}_ns")] = number.into();
            }
            let [p95, p999] = tails(row);
            value["p95_ns"] = json!(p95);
            value["p999_ns"] = json!(p999);
            value["samples"] = row.samples.into();
        }
        Row::Bandwidth(row) => {
            value["goodput_gbit_per_s"] = row.gbit_per_s.into();
            value["transactions_per_s"] = row.transactions_per_s.into();
        }
    }
    // Undefined for a single sample: null.
    value["half_width_pct"] = (100.0 * half_width).into();
    value
}

/// Measurements of a scenario's programs, one row per reading and per failure.
fn program_rows(scenario: &str, done: &[FinishedProgram]) -> Vec<Record> {
    let row = |n: usize, program: &FinishedProgram| {
        json!({
            "kind": match &program.outcome {
                Ok(_) => "reading",
                Err(_) if program.was_stopped => "stopped",
                Err(_) => "failure",
            },
            "scenario": scenario, "program": n, "host": program.host, "run": program.run,
            "took_ns": program.took.as_ns_f64(),
        })
    };
    let mut rows = Vec::new();
    for (n, program) in done.iter().enumerate() {
        match &program.outcome {
            Ok(report) => {
                rows.extend(report.readings.iter().map(|reading| {
                    let mut row = row(n, program);
                    row["quantity"] = reading.name().into();
                    if let Some(way) = &reading.way {
                        row["direction"] = way.direction.as_ref().into();
                        row["model"] = way.is_model.into();
                    }
                    row["unit"] = reading.unit.as_ref().into();
                    row["value"] = reading.value.into();
                    row
                }));
                if let Some(text) = &report.text {
                    let mut row = row(n, program);
                    row["kind"] = "printed".into();
                    row["text"] = text.clone().into();
                    rows.push(row);
                }
            }
            Err(failure) => {
                let mut row = row(n, program);
                row[if program.was_stopped { "stopped" } else { "error" }] = failure.to_string().into();
                rows.push(row);
            }
        }
    }
    rows
}

/// All counters of a window, one row each, with rate and, for bytes, the ratio to the network payload.
fn counter_rows(window: &Window, about: &Value) -> Vec<Record> {
    let mut rows = Vec::new();
    for host in &window.hosts {
        for counter in &host.counters {
            let mut row = about.clone();
            row["kind"] = "counter".into();
            row["host"] = host.host.clone().into();
            row["counter"] = counter.name.clone().into();
            row["unit"] = counter.unit.name().into();
            row["value"] = counter.amount().into();
            row["per_s"] = rate(counter, window).into();
            if let Some(multiple) = of_network(counter, host) {
                row["of_network"] = multiple.into();
            }
            rows.push(row);
        }
    }
    rows
}

/// The bottleneck and the utilization of all resources.
fn binding_rows(window: &Window, own: &str, about: &Value) -> Vec<Record> {
    let binding = window.binding(own);
    let mut binds = about.clone();
    binds["kind"] = "binds".into();
    let what = binding.what.as_ref();
    binds["host"] = what.map(|(host, _)| host.clone()).into();
    binds["place"] = what.map(|(_, resource)| resource.place.clone()).into();
    binds["resource"] = what.map(|(_, resource)| resource.kind.name()).into();
    binds["share_pct"] = what.map(|(_, resource)| 100.0 * resource.share).into();
    binds["sentence"] = binding.to_string().into();
    if let Some(OfferedLoad::Generator(by) | OfferedLoad::Pace(by)) = &binding.offered {
        binds["offered_by"] = by.clone().into();
    }
    if !binding.phases.is_empty() {
        let phase = |phase: &Phase| {
            json!({
                "host": phase.host, "place": phase.resource.place, "resource": phase.resource.kind.name(),
                "share_pct": 100.0 * phase.resource.share, "time_pct": 100.0 * phase.of_time,
            })
        };
        binds["phases"] = binding.phases.iter().map(phase).collect();
    }
    let mut rows = vec![binds];
    for host in &window.hosts {
        rows.extend(host.resources.iter().filter(|resource| resource.share > 0.0).map(|resource| {
            let mut row = about.clone();
            row["kind"] = "resource".into();
            row["host"] = host.host.clone().into();
            row["place"] = resource.place.clone().into();
            row["resource"] = resource.kind.name().into();
            row["share_pct"] = (100.0 * resource.share).into();
            row
        }));
    }
    rows
}

/// Bytes or events per second; for times, the share; 0 for kept bytes. `None` in a window without length.
pub fn rate(counter: &Counter, window: &Window) -> Option<f64> {
    let per = |length: f64| (length > 0.0).then(|| counter.value as f64 / length);
    match counter.unit {
        Unit::Bytes | Unit::Events => per(window.length.as_s_f64()),
        Unit::Time => per(window.length.as_ps() as f64),
        Unit::Held => per(window.length.as_ns_f64()),
        Unit::Kept => Some(0.0),
    }
}

/// Ratio of a byte counter to the network payload; `None` for other counters or without a network.
pub fn of_network(counter: &Counter, host: &HostCounters) -> Option<f64> {
    let network = host.network_bytes();
    (counter.unit == Unit::Bytes && network > 0).then(|| counter.value as f64 / network as f64)
}

/// CPU times, one row per part of each account.
fn account_rows(scenario: &str, accounts: &[Account]) -> Vec<Record> {
    let mut rows = Vec::new();
    for account in accounts {
        rows.extend(account.parts.iter().filter(|(_, time)| !time.is_zero()).map(|(part, time)| {
            json!({
                "kind": "account", "scenario": scenario, "host": account.host, "account": account.name, "tasks": account.tasks,
                "switches": account.switches, "migrations": account.migrations,
                "part": part, "time_ns": time.as_ns_f64(), "share_pct": account.share_pct(*time),
                "ns_per_packet": account.ns_per_packet(*time), "ps_per_byte": account.ps_per_byte(*time),
            })
        }));
    }
    rows
}

/// Negotiated parameters of a link.
fn link_row(link: &LinkState) -> Record {
    json!({
        "kind": "link", "place": link.place, "generation": link.generation as u8, "lanes": link.width.lanes(),
        "mps_bytes": link.max_payload, "mrrs_bytes": link.max_read_request,
        "held_back": link.is_held_back(),
    })
}

/// Adds a combination's values to a record.
pub fn add_values(row: &mut Record, values: &[(String, String)]) {
    for (key, value) in values {
        row[key.as_str()] = typed(value);
    }
}

/// A value as JSON: numbers and booleans typed, strings without their quotes.
fn typed(value: &str) -> Value {
    match serde_json::from_str::<Value>(value) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::String(_) | Value::Array(_))) => value,
        _ => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_a_rate_in_no_time() {
        let counter = |unit| Counter { name: "a/b".to_owned(), unit, value: 3 };
        for unit in [Unit::Bytes, Unit::Events, Unit::Time, Unit::Held] {
            assert_eq!(rate(&counter(unit), &Window::default()), None);
        }
        let window = Window { length: Duration::from_us(1), ..Window::default() };
        assert_eq!(rate(&counter(Unit::Events), &window), Some(3e6));
    }
}
