//! Runs of pcie-bench with what they gave.

use nearfar::bench::Outcome;
use results::pciebench::{Row, Run};

use super::{Fit, TextTable, width};

/// Runs with what they gave; a column that is empty throughout is left out.
pub fn outcome_table<'a>(rows: impl Iterator<Item = (String, &'a Run, &'a Outcome)>) -> String {
    let rows: Vec<_> = rows.collect();
    let (latencies, labelled) = (
        rows.iter().filter(|(.., outcome)| matches!(outcome.row, Row::Latency(_))).count(),
        rows.iter().any(|(label, ..)| !label.is_empty()),
    );
    let mut header = if labelled { vec!["changed"] } else { Vec::new() };
    header.extend(["test", "access", "cache", "window", "size"]);
    // Most runs have no offsets.
    let host = rows.iter().any(|(_, run, _)| run.host_offset != 0);
    let device = rows.iter().any(|(_, run, _)| run.device_offset != 0);
    header.extend(host.then_some("host offset"));
    header.extend(device.then_some("device offset"));
    header.extend(match latencies {
        0 => vec!["goodput", "± %"],
        all if all == rows.len() => vec!["median", "95 %", "99.9 %"],
        _ => vec!["median or goodput", "95 % or ± %", "99.9 %"],
    });
    let first = usize::from(labelled);
    let fit = if labelled { Fit::FirstAbove } else { Fit::Wrap };
    let mut table = TextTable::new(header.iter().copied(), fit).numbers(first + 3..header.len());
    for (label, run, outcome) in rows {
        let mut line = if labelled { vec![label] } else { Vec::new() };
        line.extend([run.test.to_string(), run.pattern.to_string(), run.cache.to_string()]);
        line.extend([run.window.to_string(), run.transfer.to_string()]);
        line.extend(host.then(|| run.host_offset.to_string()));
        line.extend(device.then(|| run.device_offset.to_string()));
        match &outcome.row {
            Row::Latency(row) => {
                line.extend([row.ns.median, row.ns.p95, row.ns.p999].map(|ns| format!("{ns:.1} ns")));
            }
            Row::Bandwidth(row) => {
                line.push(format!("{:.2} Gbit/s", row.gbit_per_s));
                line.push(format!("{:.2} %", 100.0 * outcome.half_width));
            }
        }
        line.resize(header.len(), String::new());
        table.add(line);
    }
    table.render(width())
}
