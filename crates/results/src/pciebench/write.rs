//! Writes the CSV files in pcie-bench's format.

use super::number::{python_float, python_number};
use super::read::{BANDWIDTH_COLUMNS, CDF_COLUMNS, LATENCY_COLUMNS, RUN_COLUMNS};
use super::{BandwidthRow, Cdf, Contents, LatencyRow, LineEnding, Run};

/// The text of a file, header included.
pub fn to_csv(contents: &Contents, line_ending: LineEnding) -> String {
    let end = match line_ending {
        LineEnding::CrLf => "\r\n",
        LineEnding::Lf => "\n",
    };
    let header = |columns: &[&str]| RUN_COLUMNS.iter().chain(columns).copied().collect::<Vec<_>>().join(",");
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push_str(end);
    };
    match contents {
        Contents::Latency(rows) => {
            line(header(&LATENCY_COLUMNS));
            rows.iter().for_each(|row| line(latency(row)));
        }
        Contents::Bandwidth(rows) => {
            line(header(&BANDWIDTH_COLUMNS));
            rows.iter().for_each(|row| line(bandwidth(row)));
        }
        Contents::Cdf(sections) => {
            line(CDF_COLUMNS.join(","));
            sections.iter().flat_map(cdf).for_each(line);
        }
    }
    text
}

fn run(run: &Run) -> String {
    let window = run.window.get();
    // pcie-bench computes windows from MiB; 1.5 MiB becomes a float.
    let window =
        if window > 1 << 20 && window % (1 << 20) != 0 { format!("{window}.0") } else { window.to_string() };
    format!(
        "{},{},{},{},{},{window},{}",
        run.test,
        run.pattern,
        run.cache,
        run.host_offset,
        run.device_offset,
        run.transfer.get()
    )
}

fn latency(row: &LatencyRow) -> String {
    let (c, n) = (&row.cycles, &row.ns);
    // Integers where Python has integers: the total per sample count, and single samples.
    let cycles = [
        python_number(c.total_average),
        python_float(c.average),
        python_float(c.median),
        python_number(c.minimum),
        python_number(c.maximum),
        python_float(c.p95),
        python_float(c.p999),
    ];
    let ns = n.columns().map(python_float);
    format!("{},{},{},{},{}", run(&row.run), cycles.join(","), ns.join(","), row.outliers, row.samples)
}

fn bandwidth(row: &BandwidthRow) -> String {
    format!(
        "{},{},{},{},{},{},{}",
        run(&row.run),
        row.cycles,
        python_float(row.ns),
        row.bytes,
        row.transactions,
        python_float(row.gbit_per_s),
        python_float(row.transactions_per_s)
    )
}

fn cdf(section: &Cdf) -> Vec<String> {
    let fraction = |f: f64| if f == 0.0 { "0".into() } else { python_float(f) };
    section
        .points
        .iter()
        .map(|p| format!("{},{},{}", p.cycles, python_float(p.ns), fraction(p.fraction)))
        .collect()
}
