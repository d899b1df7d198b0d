//! Where results go.

use std::collections::BTreeMap;
use std::path::Path;

use comfy_table::{Table, presets};
use nearfar::bench::{Bench, Outcome};
use nearfar::computer::{Account, Done};
use results::pciebench::{Row, Run};
use units::Duration;

use crate::failure::Failure;

/// Prints, and does not mind if nobody reads to the end (`nearfar ... | head`).
pub fn print(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes a line to the standard error, and does not mind if nobody reads it (`nearfar ... 2>&1 | head`).
pub fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether what goes to `path` goes to the standard output, where nothing else may then.
pub fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Writes `value` as JSON to `path`, or to the standard output for `-`. Nothing without a path.
pub fn json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)? + "\n";
    if is_stdout(Some(path)) {
        print(text.trim_end());
        return Ok(());
    }
    write(path, text.as_bytes())
}

/// Writes a file and the folders that it is in.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let cannot = |error| Failure::new(format!("`{}` cannot be written: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    std::fs::write(path, bytes).map_err(cannot)
}

/// A row of results as JSON.
pub fn row(file: &str, number: usize, row: &Row) -> serde_json::Value {
    let run = row.run();
    let mut value = serde_json::json!({
        "file": file, "row": number, "test": run.test, "pattern": run.pattern, "cache": run.cache,
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
                ("p95", ns.p95),
                ("p999", ns.p999),
            ];
            for (name, number) in fields {
                value[format!("{name}_ns")] = number.into();
            }
            value["samples"] = row.samples.into();
        }
        Row::Bandwidth(row) => {
            value["goodput_gbit_per_s"] = row.gbit_per_s.into();
            value["transactions_per_s"] = row.transactions_per_s.into();
        }
    }
    value
}

/// A table without borders.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied());
    table.set_style(comfy_table::TableComponent::HeaderLines, '─');
    table.set_style(comfy_table::TableComponent::MiddleHeaderIntersections, '─');
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}

/// Runs with what they gave; the first column is left out where it is empty throughout.
pub fn outcome_table<'a>(rows: impl Iterator<Item = (String, &'a Run, &'a Outcome)>) -> String {
    let rows: Vec<_> = rows.collect();
    let labelled = rows.iter().any(|(label, ..)| !label.is_empty());
    let mut header =
        vec!["", "test", "access", "cache", "window", "size", "median or rate", "95 % | ± %", "99.9 %"];
    let lines = rows.into_iter().map(|(label, run, outcome)| {
        let (value, spread, tail) = match &outcome.row {
            Row::Latency(row) => (
                format!("{:.1} ns", row.ns.median),
                format!("{:.1} ns", row.ns.p95),
                format!("{:.1} ns", row.ns.p999),
            ),
            Row::Bandwidth(row) => (
                format!("{:.2} Gbit/s", row.gbit_per_s),
                format!("± {:.2} %", 100.0 * outcome.half_width),
                String::new(),
            ),
        };
        let mut line = vec![
            label,
            run.test.to_string(),
            run.pattern.to_string(),
            run.cache.to_string(),
            run.window.to_string(),
            run.transfer.to_string(),
            value,
            spread,
            tail,
        ];
        if !labelled {
            line.remove(0);
        }
        line
    });
    let lines: Vec<_> = lines.collect();
    if !labelled {
        header.remove(0);
    }
    table(&header, lines)
}

/// Sockets and IOMMU in words.
pub fn placement(bench: &Bench) -> String {
    let sockets = &bench.sockets;
    format!(
        "sockets s{}-s{}-s{} (device, memory, program), IOMMU {}",
        sockets.device, sockets.memory, sockets.warming, bench.iommu
    )
}

/// What programs of a scenario measured, one row for each reading and each failure.
pub fn program_rows(scenario: &str, done: &[Done]) -> Vec<serde_json::Value> {
    let row = |n: usize, program: &Done| {
        serde_json::json!({
            "scenario": scenario, "program": n, "host": program.host, "run": program.run,
            "took_ns": program.took.as_ns_f64(),
        })
    };
    let mut rows = Vec::new();
    for (n, program) in done.iter().enumerate() {
        match &program.outcome {
            Ok(report) => rows.extend(report.readings.iter().map(|reading| {
                let mut row = row(n, program);
                row["quantity"] = reading.quantity.as_str().into();
                row["unit"] = reading.unit.into();
                row["value"] = reading.value.into();
                row
            })),
            Err(failure) => {
                let mut row = row(n, program);
                row["error"] = failure.to_string().into();
                rows.push(row);
            }
        }
    }
    rows
}

/// What programs of a scenario measured, program by program.
pub fn program_table(done: &[Done]) -> String {
    let mut text = String::new();
    for program in done {
        text += &format!("{}: {} ({})\n", program.host, program.run, nearfar::trace::human(program.took));
        match &program.outcome {
            Ok(report) => {
                let (ways, others) =
                    link_table(report.readings.iter().map(|r| (r.quantity.as_str(), r.unit, r.value)));
                text += &ways;
                let rows = others.into_iter().map(|(quantity, unit, value)| {
                    vec![format!("  {quantity}"), number(value), unit.to_owned()]
                });
                text += &format!(
                    "{}\n",
                    table(&["", "", ""], rows).lines().skip(2).collect::<Vec<_>>().join("\n")
                );
                report.notes.iter().for_each(|note| text += &format!("  {note}\n"));
            }
            Err(failure) => text += &format!("  failed: {failure}\n"),
        }
        text += "\n";
    }
    text
}

/// What was measured: quantity, unit, value.
type Measured<'a> = (&'a str, &'a str, f64);

/// Readings of a link's two directions as a table of a line for each, with what the model says beside, and the readings
/// that are none.
fn link_table<'a>(readings: impl Iterator<Item = Measured<'a>>) -> (String, Vec<Measured<'a>>) {
    let split = |quantity: &str| {
        let (kind, rest) = quantity.split_once(", ")?;
        let (way, is_model) = match rest.strip_suffix(", model") {
            Some(way) => (way, true),
            None => (rest, false),
        };
        way.ends_with("the NIC").then(|| (kind.to_owned(), way.to_owned(), is_model))
    };
    let (mut kinds, mut ways, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut values = BTreeMap::new();
    for reading in readings {
        let (quantity, unit, value) = reading;
        let Some((kind, way, is_model)) = split(quantity) else {
            others.push(reading);
            continue;
        };
        if !ways.contains(&way) {
            ways.push(way.clone());
        }
        if !kinds.contains(&kind) {
            kinds.push(kind.clone());
        }
        values.insert((way, kind, is_model), (value, unit));
    }
    if ways.is_empty() {
        return (String::new(), others);
    }
    // What sums up comes last.
    kinds.sort_by_key(|kind| {
        ["all", "busy"].iter().position(|last| last == kind).map_or(0, |place| place + 1)
    });
    let mut header = vec!["  B/frame (model)"];
    header.extend(kinds.iter().map(String::as_str));
    let cell = |way: &String, kind: &String| {
        let of = |is_model| values.get(&(way.clone(), kind.clone(), is_model));
        match (of(false), of(true)) {
            (None, _) => String::new(),
            (Some((value, unit)), _) if unit.starts_with('%') => format!("{value:.1} %"),
            (Some((value, _)), Some((model, _))) if *model > 0.0 => format!("{value:.1} ({model:.1})"),
            (Some((value, _)), _) => format!("{value:.1}"),
        }
    };
    let rows = ways.iter().map(|way| {
        [format!("  {way}")].into_iter().chain(kinds.iter().map(|kind| cell(way, kind))).collect::<Vec<_>>()
    });
    (table(&header, rows) + "\n", others)
}

/// Where the cores' time went, one row for each part of each account.
pub fn account_rows(scenario: &str, accounts: &[Account]) -> Vec<serde_json::Value> {
    let mut rows = Vec::new();
    for account in accounts {
        rows.extend(account.parts.iter().filter(|(_, time)| !time.is_zero()).map(|(part, time)| {
            serde_json::json!({
                "scenario": scenario, "host": account.host, "account": account.name, "tasks": account.tasks,
                "switches": account.switches, "migrations": account.migrations,
                "part": part, "time_ns": time.as_ns_f64(),
            })
        }));
    }
    rows
}

/// Where the cores' time went, in microseconds: a line for each account, a column for each part that took any.
pub fn account_table(accounts: &[Account]) -> String {
    let all = accounts.first().map_or(&[][..], |account| &account.parts);
    let used = |part: &&str| accounts.iter().any(|account| !account.of(part).is_zero());
    let parts: Vec<&str> = all.iter().map(|(part, _)| *part).filter(used).collect();
    let mut header = vec!["time in µs", "host", "tasks", "switches", "total"];
    header.extend(&parts);
    let micros = |time: Duration| match time.is_zero() {
        true => String::new(),
        false => format!("{:.1}", time.as_ns_f64() / 1e3),
    };
    let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
    let rows = accounts.iter().map(|account| {
        let mut row = vec![account.name.clone(), account.host.clone()];
        row.extend([count(account.tasks), count(account.switches), micros(account.total())]);
        row.extend(parts.iter().map(|part| micros(account.of(part))));
        row
    });
    format!("{}\n", table(&header, rows))
}

/// A number with as many digits as say anything.
fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1000.0 || value == value.trunc() => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A slot as a sentence has it: the usual one is called `slot`.
pub fn place(slot: &str) -> String {
    if slot == "slot" { "its slot".to_owned() } else { format!("slot {slot}") }
}
