//! The summary for the terminal.

use super::{CompareRow, LARGE_MISS_PCT, Summary};
use comfy_table::{CellAlignment, Table, presets};

/// A table without borders, numbers to the right.
pub(crate) fn plain_table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied());
    table.set_style(comfy_table::TableComponent::HeaderLines, '─');
    table.set_style(comfy_table::TableComponent::MiddleHeaderIntersections, '─');
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The families with their errors and targets, the artefacts left out and the
/// largest misses (at most `misses` of them).
pub fn summary_table(summary: &Summary, misses: usize) -> String {
    let percent = |v: Option<f64>| v.map_or_else(|| "–".into(), |v| format!("{v:.2}"));
    let header = ["family", "quantity", "rows", "counted", "median %", "p90 %", "worst %", "target %", ""];
    let mut table = plain_table(&header, 2);
    for family in &summary.families {
        table.add_row(vec![
            family.family.clone(),
            family.quantity.to_string(),
            family.rows.to_string(),
            family.counted.to_string(),
            percent(family.median_pct),
            percent(family.p90_pct),
            percent(family.worst_pct),
            match family.target.p90_pct {
                Some(p90) => format!("{} / {p90}", family.target.median_pct),
                None => family.target.median_pct.to_string(),
            },
            match family.within {
                Some(false) => "OUTSIDE".to_owned(),
                None => "nothing counted".to_owned(),
                Some(true) => "within".to_owned(),
            },
        ]);
    }
    let mut text = table.to_string();
    text.push('\n');
    if !summary.modes.is_empty() {
        text.push_str("\nModes of the latencies:\n");
        let header = ["property", "rows", "measured", "simulated", "error %", "target %", ""];
        let mut table = plain_table(&header, 1);
        for mode in &summary.modes {
            table.add_row(vec![
                mode.property.clone(),
                mode.rows.to_string(),
                format!("{:.1} {}", mode.measured, mode.unit),
                format!("{:.1} {}", mode.simulated, mode.unit),
                format!("{:+.1}", mode.error_pct),
                mode.tolerance_pct.to_string(),
                if mode.within { "within" } else { "OUTSIDE" }.to_owned(),
            ]);
        }
        text.push_str(&table.to_string());
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
    let header = ["file", "row", "cache", "window", "size", "measured", "simulated", "error %", "cause"];
    let mut table = plain_table(&header, 1);
    for miss in summary.misses.iter().take(misses) {
        let row = &miss.row;
        table.add_row(vec![
            row.file.trim_end_matches(".csv").to_owned(),
            row.row.to_string(),
            row.cache.to_string(),
            units::Bytes::new(row.window_bytes).to_string(),
            row.transfer_bytes.to_string(),
            format!("{:.1} {}", row.measured, row.unit),
            row.simulated.map_or_else(String::new, |s| format!("{s:.1}")),
            row.error_pct.map_or_else(String::new, |e| format!("{e:+.1}")),
            miss.cause.clone().unwrap_or_else(|| "not known".into()),
        ]);
    }
    text.push_str(&table.to_string());
    text.push('\n');
    if summary.misses.len() > misses {
        text.push_str(&format!("… and {} more\n", summary.misses.len() - misses));
    }
    text
}

/// Rows, measured beside simulated, for a look at a few of them.
pub fn rows_table<'a>(rows: impl IntoIterator<Item = &'a CompareRow>) -> String {
    let header = ["test", "access", "cache", "window", "size", "measured", "simulated", "error %"];
    let mut table = plain_table(&header, 3);
    for row in rows {
        table.add_row(vec![
            row.test.to_string(),
            row.pattern.to_string(),
            row.cache.to_string(),
            units::Bytes::new(row.window_bytes).to_string(),
            row.transfer_bytes.to_string(),
            format!("{:.1} {}", row.measured, row.unit),
            row.simulated.map_or_else(|| "–".into(), |s| format!("{s:.1} {}", row.unit)),
            row.error_pct.map_or_else(|| "–".into(), |e| format!("{e:+.1}")),
        ]);
    }
    table.to_string()
}
