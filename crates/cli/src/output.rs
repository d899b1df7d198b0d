//! Where results go.

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

/// Writes `value` as JSON to `path`, or to the standard output for `-`. Nothing without a path.
pub fn json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)? + "\n";
    if path == Path::new("-") {
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
                let rows = report.readings.iter().map(|reading| {
                    vec![format!("  {}", reading.quantity), number(reading.value), reading.unit.to_owned()]
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
