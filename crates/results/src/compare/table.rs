//! The summary for the terminal.

use super::{CompareRow, LARGE_MISS_PCT, Summary};
use crate::table::{Fit, TextTable, wrapped};

/// Explains the columns of [`summary_table`].
const HEADINGS: &str = "Errors of medians and bandwidths in % of the measured value, without their sign: the median, the 90th \
    percentile and the worst of the rows that are counted, then the median error of the same rows' 95th and 99.9th percentiles.";
/// Explains the further columns if there are targets.
const JUDGED: &str = " `allowed` is for median and 90th; tails are not judged.";

fn verdict(within: Option<bool>) -> String {
    match within {
        Some(false) => "OUTSIDE",
        None => "not judged",
        Some(true) => "within",
    }
    .to_owned()
}

/// The families with errors and targets, the excluded artefacts, and up to `misses` of the largest misses, in tables
/// that fit `width`.
pub fn summary_table(summary: &Summary, misses: usize, width: Option<usize>) -> String {
    let percent = |v: Option<f64>| v.map_or_else(|| "–".into(), |v| format!("{v:.2}"));
    let is_judged = summary.is_judged();
    let judged = |cells: [&'static str; 2]| cells.into_iter().filter(move |_| is_judged);
    let header = ["series", "rows", "counted", "median", "90th", "worst", "95 %", "99.9 %"];
    let header = header.into_iter().chain(judged(["allowed", "verdict"]));
    let mut table = TextTable::new(header, Fit::Fold(1)).numbers(1..8 + usize::from(is_judged));
    for family in &summary.families {
        let line = [
            family.family.clone(),
            family.rows.to_string(),
            family.counted.to_string(),
            percent(family.median_pct),
            percent(family.p90_pct),
            percent(family.worst_pct),
            percent(family.p95_error_pct),
            percent(family.p999_error_pct),
        ];
        let target = family
            .target
            .map(|target| [format!("{} / {}", target.median_pct, target.p90_pct), verdict(family.within)]);
        table.add(line.into_iter().chain(target.into_iter().flatten()).collect());
    }
    let headings = format!("{HEADINGS}{}", if is_judged { JUDGED } else { "" });
    let mut text = match width {
        Some(width) => wrapped(&headings, 0, width).join("\n"),
        None => headings,
    };
    text += &format!("\n\n{}\n", table.render(width));
    if !summary.modes.is_empty() {
        text.push_str("\nModes of the latencies:\n");
        let header = ["property", "rows", "measured", "simulated", "error %"];
        let header = header.into_iter().chain(judged(["allowed %", "verdict"]));
        let mut table = TextTable::new(header, Fit::FirstAbove).numbers(1..5 + usize::from(is_judged));
        for mode in &summary.modes {
            let line = [
                mode.property.clone(),
                mode.rows.to_string(),
                format!("{:.1} {}", mode.measured, mode.unit),
                format!("{:.1} {}", mode.simulated, mode.unit),
                format!("{:+.1}", mode.error_pct),
            ];
            let tolerance = mode.tolerance_pct.map(|allowed| [allowed.to_string(), verdict(mode.within)]);
            table.add(line.into_iter().chain(tolerance.into_iter().flatten()).collect());
        }
        text.push_str(&table.render(width));
        text.push('\n');
    }
    if !summary.artefacts.is_empty() {
        text.push_str("\nLeft out as artefacts of the measurement:\n");
        for (name, rows) in &summary.artefacts {
            text.push_str(&format!("  {name}: {rows} rows\n"));
        }
    }
    let not_simulated: usize = summary.families.iter().map(|f| f.not_simulated).sum();
    if not_simulated > 0 {
        text.push_str(&format!("\n{not_simulated} rows were not simulated.\n"));
    }
    if summary.misses.is_empty() {
        text.push_str(&format!("\nNo row misses by more than {LARGE_MISS_PCT} %.\n"));
        return text;
    }
    text.push_str(&format!("\n{} rows miss by more than {LARGE_MISS_PCT} %:\n", summary.misses.len()));
    let shown = || summary.misses.iter().take(misses);
    let offsets = Offsets::of(shown().map(|miss| &miss.row));
    let mut header = vec!["file", "row", "cache", "window", "size"];
    header.extend(offsets.header());
    header.extend(["measured", "simulated", "error %", "cause"]);
    let numbers = [1].into_iter().chain(3..header.len() - 1);
    let mut table = TextTable::new(header.iter().copied(), Fit::LastBelow).numbers(numbers);
    for miss in shown() {
        let row = &miss.row;
        let mut line = vec![
            row.file.trim_end_matches(".csv").to_owned(),
            row.row.to_string(),
            row.cache.to_string(),
            units::Bytes::new(row.window_bytes).to_string(),
            row.transfer_bytes.to_string(),
        ];
        line.extend(offsets.cells(row));
        line.extend([
            format!("{:.1} {}", row.measured, row.unit),
            row.simulated.map_or_else(String::new, |s| format!("{s:.1}")),
            row.error_pct.map_or_else(String::new, |e| format!("{e:+.1}")),
            miss.cause.clone().unwrap_or_else(|| "not known".into()),
        ]);
        table.add(line);
    }
    text.push_str(&table.render(width));
    text.push('\n');
    if summary.misses.len() > misses {
        text.push_str(&format!("… and {} more\n", summary.misses.len() - misses));
    }
    text
}

/// Which of the two offsets any row has; columns of zeros are omitted.
pub(super) struct Offsets {
    host: bool,
    device: bool,
}

impl Offsets {
    pub(super) fn of<'a>(rows: impl Iterator<Item = &'a CompareRow> + Clone) -> Self {
        Self {
            host: rows.clone().any(|row| row.host_offset != 0),
            device: rows.clone().any(|row| row.device_offset != 0),
        }
    }

    /// Headings of the columns.
    pub(super) fn header(&self) -> impl Iterator<Item = &'static str> {
        let name = |shown: bool, name| shown.then_some(name);
        [name(self.host, "host offset"), name(self.device, "device offset")].into_iter().flatten()
    }

    /// The columns' values for a row.
    pub(super) fn cells(&self, row: &CompareRow) -> impl Iterator<Item = String> {
        let cell = |shown: bool, offset: u64| shown.then(|| offset.to_string());
        [cell(self.host, row.host_offset), cell(self.device, row.device_offset)].into_iter().flatten()
    }
}

/// The residuals of each series (family of files) as a Markdown table.
pub fn summary_markdown(summary: &Summary) -> String {
    let percent = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.2}"));
    let mut text =
        "| Family | Rows | Counted | Median % | 90th % | Worst % | 95 % tail % | 99.9 % tail % | Verdict |\n"
            .to_owned();
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for family in &summary.families {
        let numbers = [
            family.median_pct,
            family.p90_pct,
            family.worst_pct,
            family.p95_error_pct,
            family.p999_error_pct,
        ];
        let numbers = numbers.map(percent).join(" | ");
        let verdict = match family.within {
            Some(true) => "within",
            Some(false) => "outside",
            None => "not judged",
        };
        text += &format!(
            "| {} | {} | {} | {numbers} | {verdict} |\n",
            files::shown_code(&family.family),
            family.rows,
            family.counted
        );
    }
    text
}

/// A table of rows, measured and simulated, that fits `width`.
pub fn rows_table<'a>(rows: impl IntoIterator<Item = &'a CompareRow>, width: Option<usize>) -> String {
    let rows: Vec<&CompareRow> = rows.into_iter().collect();
    let offsets = Offsets::of(rows.iter().copied());
    let mut header = vec!["test", "access", "cache", "window", "size"];
    header.extend(offsets.header());
    header.extend(["measured", "simulated", "error %"]);
    let mut table = TextTable::new(header.iter().copied(), Fit::Wrap).numbers(3..header.len());
    for row in rows {
        let mut line = vec![
            row.test.to_string(),
            row.pattern.to_string(),
            row.cache.to_string(),
            units::Bytes::new(row.window_bytes).to_string(),
            row.transfer_bytes.to_string(),
        ];
        line.extend(offsets.cells(row));
        line.extend([
            format!("{:.1} {}", row.measured, row.unit),
            row.simulated.map_or_else(|| "–".into(), |s| format!("{s:.1} {}", row.unit)),
            row.error_pct.map_or_else(|| "–".into(), |e| format!("{e:+.1}")),
        ]);
        table.add(line);
    }
    table.render(width)
}
