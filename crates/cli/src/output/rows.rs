//! Runs of pcie-bench and their outcomes.

use nearfar::bench::Outcome;
use results::pciebench::{Row, Run};

use super::{Fit, TextTable, prose, width};

/// A table of runs and their outcomes. What is equal in all runs is printed above the table.
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
    let (mut lines, mut samples): (Vec<Vec<String>>, Vec<u64>) = (Vec::new(), Vec::new());
    for (label, run, outcome) in rows {
        let mut line = if labelled { vec![label] } else { Vec::new() };
        line.extend([run.test.to_string(), run.pattern.to_string(), run.cache.to_string()]);
        line.extend([run.window.to_string(), run.transfer.to_string()]);
        line.extend(host.then(|| run.host_offset.to_string()));
        line.extend(device.then(|| run.device_offset.to_string()));
        match &outcome.row {
            Row::Latency(row) => {
                let [p95, p999] = nearfar::records::tails(row);
                let ns = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), |ns| format!("{ns:.1} ns"));
                line.extend([Some(row.ns.median), p95, p999].map(ns));
                samples.push(row.samples);
            }
            Row::Bandwidth(row) => {
                line.push(format!("{:.2} Gbit/s", row.gbit_per_s));
                line.push(format!("{:.2} %", 100.0 * outcome.half_width));
            }
        }
        line.resize(header.len(), String::new());
        lines.push(line);
    }
    let results = first + 5 + usize::from(host) + usize::from(device);
    let is_same =
        |&column: &usize| lines.len() > 1 && lines.iter().all(|line| line[column] == lines[0][column]);
    let same: Vec<usize> = (first..results).filter(is_same).collect();
    let kept: Vec<usize> = (0..header.len()).filter(|column| !same.contains(column)).collect();
    // Text columns precede number columns.
    let words = kept.iter().filter(|&&column| column < first + 3).count();
    let mut table = TextTable::new(kept.iter().map(|&column| header[column]), fit).numbers(words..kept.len());
    lines.iter().for_each(|line| table.add(kept.iter().map(|&column| line[column].clone()).collect()));
    let all: Vec<String> =
        same.iter().map(|&column| format!("{} {}", header[column], lines[0][column])).collect();
    let all = match all.is_empty() {
        true => String::new(),
        false => prose(&format!("All runs: {}.", all.join(", "))) + "\n\n",
    };
    let rests = samples.iter().min().zip(samples.iter().max()).map(|(least, most)| {
        let many = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let lacks = if *least < 1_000 { "; 99.9 % takes 1000, 95 % takes 20" } else { "" };
        format!("\n{}", prose(&format!("Latencies rest on {many} samples{lacks}.")))
    });
    all + &table.render(width()) + &rests.unwrap_or_default()
}
