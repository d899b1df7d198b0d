//! How far to trust results: where their figures come from, and how uncertain they are.

use std::collections::BTreeMap;

use nearfar::compare::HeldRows;
use nearfar::origins::Origins;
use nearfar::records::Record;

use super::{Fit, TextTable, number, prose, width};

/// The last lines of a command's text: how uncertain its results are, and what they rest on.
pub fn trust_lines(origins: &Origins, intervals: &[Record]) -> String {
    let mut text = String::new();
    if intervals.iter().any(|record| record["kind"] == "interval") {
        text += &format!("\n{}\n", interval_table(intervals));
    }
    text + &prose(&format!("\n{origins}"))
}

/// How many measured rows their simulated intervals hold, by family of files, and in one sentence of all.
pub fn held_table(held: &BTreeMap<String, HeldRows>, all: [HeldRows; 2]) -> String {
    let mut table = TextTable::new(["family", "rows", "within 5 to 95 %"], Fit::Wrap).numbers(1..3);
    let percent =
        |held: &HeldRows| held.percent().map_or_else(String::new, |percent| format!("{percent:.0} %"));
    for (family, held) in held {
        table.add(vec![family.clone(), held.rows.to_string(), percent(held)]);
    }
    let words = |(held, what): (&HeldRows, &str)| {
        format!("{} of {} {what} ({})", held.within, held.rows, percent(held))
    };
    let words: Vec<String> = all.iter().zip(["latencies", "bandwidths"]).map(words).collect();
    table.render(width()) + "\n" + &prose(&format!("Intervals from 5 to 95 % hold {}.", words.join(" and ")))
}

/// A row for each result that was simulated with drawn figures.
fn interval_table(records: &[Record]) -> String {
    let intervals: Vec<&Record> = records.iter().filter(|record| record["kind"] == "interval").collect();
    // The other percentiles of rows are in files.
    let is_shown = |record: &&&Record| {
        record["test"].is_null() || matches!(record["quantity"].as_str(), Some("median" | "goodput"))
    };
    let hangs = intervals.iter().filter(is_shown).any(|record| record["hangs_on"] != "");
    let header = ["uncertainty of", "unit", "value", "5 %", "median", "95 %", "it hangs on"];
    let header = &header[..if hangs { 7 } else { 6 }];
    let fit = if hangs { Fit::LastBelow } else { Fit::FirstAbove };
    let mut table = TextTable::new(header.iter().copied(), fit).numbers(2..6);
    for record in intervals.iter().filter(is_shown) {
        let of = |key: &str| record[key].as_f64().map_or_else(String::new, number);
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let mut row = vec![what(record), text("unit"), of("value"), of("p05"), of("median"), of("p95")];
        row.extend(hangs.then(|| text("hangs_on")));
        table.add(row);
    }
    let runs = intervals.iter().filter_map(|record| record["runs"].as_u64()).max().unwrap_or_default();
    let about = format!(
        "{runs} runs, each with the figures drawn anew within their uncertainties{}.",
        match hangs {
            true =>
                ": + or - says which way a result goes with a figure, % how much of its variance that explains",
            false => "; no figure stands out of so few",
        }
    );
    table.render(width()) + "\n" + &prose(&about)
}

/// What was measured where, in words: the values of a sweep, the program or the run, and the quantity.
fn what(record: &Record) -> String {
    /// Keys whose values are told as part of others, or are not told.
    const KNOWN: [&str; 12] = [
        "kind", "scenario", "program", "host", "run", "quantity", "unit", "value", "median", "p05", "p95",
        "runs",
    ];
    const ROW: [&str; 8] = [
        "file",
        "test",
        "pattern",
        "cache",
        "window_bytes",
        "transfer_bytes",
        "host_offset",
        "device_offset",
    ];
    let text = |key: &str| match &record[key] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    let swept = record.as_object().into_iter().flatten().filter(|(key, _)| {
        let key = key.as_str();
        !KNOWN.contains(&key) && !ROW.contains(&key) && !["hangs_on", "direction", "model"].contains(&key)
    });
    let mut words: Vec<String> = swept.map(|(key, _)| format!("{key}={}", text(key))).collect();
    match record["test"].is_null() {
        true => words.extend([format!("{}: {}:", text("host"), text("run")), text("direction")]),
        false => {
            let run = format!(
                "{} {} {} {} B of {} B:",
                text("test"),
                text("pattern"),
                text("cache"),
                text("transfer_bytes"),
                text("window_bytes")
            );
            words.push(run);
        }
    }
    words.push(text("quantity"));
    words.retain(|word| !word.is_empty());
    words.join(" ")
}
