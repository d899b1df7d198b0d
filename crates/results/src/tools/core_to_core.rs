//! `core-to-core-latency`: a triangle of latencies, as CSV or as its table.

use super::{ToolRead, ToolReport, ToolTask, ToolTest};

/// Most CPUs of a table.
const MOST_CPUS: usize = 4096;
/// Values whose ratio is below this belong together.
const APART: f64 = 1.25;

pub fn from_text(text: &str) -> ToolRead {
    let values = match text.contains('±') {
        true => table(text),
        false => csv(text),
    }?;
    Some(Ok(ToolReport::new("core-to-core-latency", tests(values))))
}

/// As many rows as columns, each with the CPUs before its own.
fn csv(text: &str) -> Option<Vec<f64>> {
    let rows: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(MOST_CPUS + 1).collect();
    let is_first = rows.first()?.len() + 1 == rows.len() && rows.first()?.bytes().all(|byte| byte == b',');
    if !is_first || rows.len() < 2 {
        return None;
    }
    let mut values = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        let (filled, empty) = cells.split_at_checked(number)?;
        if cells.len() != rows.len() || empty.iter().any(|cell| !cell.is_empty()) {
            return None;
        }
        for cell in filled {
            values.push(cell.parse().ok()?);
        }
    }
    Some(values)
}

/// Rows such as `  2   52±1   49±0`, which the names of columns precede.
fn table(text: &str) -> Option<Vec<f64>> {
    let mut values = Vec::new();
    for line in text.lines().filter(|line| !line.contains("latency")).take(2 * MOST_CPUS) {
        let cells = line.split_whitespace().filter_map(|cell| cell.split_once('±'));
        values.extend(cells.filter_map(|(mean, _)| mean.parse::<f64>().ok()));
    }
    (text.contains("latency") && !values.is_empty()).then_some(values)
}

/// The place of the widest gap between neighbours of sorted values, if it is wide.
fn gap(sorted: &[f64], places: std::ops::RangeInclusive<usize>) -> Option<usize> {
    let ratio = |place: usize| sorted[place] / sorted[place - 1];
    let widest = places.filter(|place| (1..sorted.len()).contains(place));
    widest.max_by(|a, b| ratio(*a).total_cmp(&ratio(*b))).filter(|place| ratio(*place) >= APART)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// No table says which CPUs are threads of one core, and which are at another node: the widest gaps do.
fn tests(mut values: Vec<f64>) -> Vec<ToolTest> {
    values.retain(|value| value.is_finite() && *value > 0.0);
    values.sort_by(f64::total_cmp);
    let cpus = (1.0 + (1.0 + 8.0 * values.len() as f64).sqrt()) / 2.0;
    // A core has two threads at most, so they are at most half as many pairs as there are CPUs.
    let threads = gap(&values, 1..=(cpus / 2.0) as usize).filter(|_| values.len() > 1).unwrap_or(0);
    let cores = &values[threads..];
    let (near, far) =
        cores.split_at(gap(cores, cores.len() / 5..=cores.len() * 4 / 5).unwrap_or(cores.len()));
    let mut notes = Vec::new();
    if threads > 0 {
        notes.push(format!(
            "{threads} pairs up to {:.0} ns are taken for threads of one core, which are not simulated",
            values[threads - 1]
        ));
    }
    if let Some(first) = far.first() {
        notes.push(format!("{} pairs from {first:.0} ns on are taken for cores of two nodes", far.len()));
    }
    let of = |name: &str, quantity: &str, values: &[f64]| {
        let task = ToolTask::AllCores { run: "core-to-core-latency".into() };
        let mut test = ToolTest::new(format!("core to core, {name} node"), task);
        test.add(quantity, "ns", mean(values));
        test.notes.clone_from(&notes);
        test
    };
    let mut tests = vec![of("same", "mean of cores of a node", near), of("other", "mean between nodes", far)];
    tests.retain(|test| !test.values.is_empty());
    tests
}
