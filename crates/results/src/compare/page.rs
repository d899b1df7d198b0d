//! A comparison as part of the report: errors of each series, tails, and a curve per series.

use std::collections::{BTreeMap, BTreeSet};

use super::{CompareRow, LARGE_MISS_PCT, Quantity, Summary, Tail};
use crate::claims::Sample;
use crate::pciebench::Row;
use crate::report::{Chart, Curve, DataTable, Scale, Section};
use units::Bytes;

/// Maximum number of curves; files with more appear only in the table.
const MOST_CURVES: usize = 24;
/// Minimum number of points of a curve.
const LEAST_POINTS: usize = 3;
/// Curves of tails that span more than this factor get a logarithmic axis.
const WIDE: f64 = 20.0;
/// Maximum number of large misses listed.
const MOST_MISSES: usize = 40;

/// Sections for a directory's comparison: errors, then curves. `id` is unique on the page.
pub fn sections(
    id: &str,
    title: &str,
    mut prose: Vec<String>,
    rows: &[CompareRow],
    summary: &Summary,
) -> [Section; 2] {
    if summary.is_judged() {
        prose.push(
            "Errors of medians and bandwidths are held to the targets; the 95th and 99.9th percentiles of the same rows are \
             shown, not judged."
                .into(),
        );
    }
    prose
        .push("Rows that repeat their neighbour count once, artefacts of the measurement not at all.".into());
    let mut tables = vec![families(summary)];
    if !summary.misses.is_empty() {
        tables.push(misses(summary));
    }
    let mut files: BTreeMap<&str, Vec<&CompareRow>> = BTreeMap::new();
    for row in rows {
        files.entry(&row.file).or_default().push(row);
    }
    let charts = files.iter().flat_map(|(file, rows)| charts(id, file, rows, LEAST_POINTS)).collect();
    [
        Section { title: title.into(), prose, tables, charts: residuals(id, rows) },
        Section { title: format!("Curves of {title}"), charts, ..Section::default() },
    ]
}

/// Curves of results without a comparison, all latencies or all bandwidths, over their most varied parameter: values,
/// and tails of latencies. Empty if nothing varies.
pub fn curves(name: &str, rows: &[Row]) -> Vec<Chart> {
    let rows: Vec<CompareRow> =
        (1..).zip(rows).map(|(n, row)| CompareRow::new(name, n, row, Some(row))).collect();
    let mut charts = charts("", name, &rows.iter().collect::<Vec<_>>(), 2);
    for curve in charts.iter_mut().flat_map(|chart| &mut chart.curves) {
        curve.measured.clear();
    }
    charts
}

/// Pictures of a comparison: the curves of a single file, or else the errors of all rows.
pub fn pictures(id: &str, rows: &[CompareRow]) -> Vec<Chart> {
    let all: Vec<&CompareRow> = rows.iter().collect();
    let curves = match rows {
        [first, others @ ..] if others.iter().all(|row| row.file == first.file) => {
            charts(id, &first.file, &all, LEAST_POINTS)
        }
        _ => Vec::new(),
    };
    if curves.is_empty() { residuals(id, rows) } else { curves }
}

/// Errors over transfer size and over window: a ring per row, a colour per test.
fn residuals(id: &str, rows: &[CompareRow]) -> Vec<Chart> {
    [Along::Transfer, Along::Window]
        .into_iter()
        .map(|along| {
            let mut curves: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
            for row in rows {
                if let Some(error) = row.error_pct {
                    curves.entry(row.test.to_string()).or_default().push(point(along.of(row), error));
                }
            }
            let name = along.heading().trim_end_matches(" (bytes)").to_owned();
            Chart {
                id: format!("{id}-residuals-{}", name.replace(' ', "-")),
                title: format!("Errors over {name}"),
                text: "Simulated less measured, in per cent of measured: a ring for each row.".into(),
                x: (along.heading().into(), Scale::Log2),
                names: Vec::new(),
                y: ("error (%)".into(), Scale::Linear),
                from_zero: false,
                rings: "a row".into(),
                curves: curves
                    .into_iter()
                    .map(|(label, measured)| Curve { label, simulated: Vec::new(), measured })
                    .collect(),
            }
        })
        .filter(|chart| chart.curves.iter().any(|curve| curve.measured.len() >= LEAST_POINTS))
        // An axis needs at least two positions.
        .filter(|chart| {
            let mut places = chart.curves.iter().flat_map(|curve| &curve.measured).map(|sample| sample.x);
            let first = places.next();
            places.any(|place| Some(place) != first)
        })
        .collect()
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |v| format!("{v:.2}"))
}

fn families(summary: &Summary) -> DataTable {
    let verdicts = if summary.is_judged() { &["verdict"][..] } else { &[] };
    let header = ["series", "rows", "counted", "median %", "90th %", "worst %", "at 95 %", "at 99.9 %"];
    let row = |f: &super::FamilySummary| {
        let errors = [f.median_pct, f.p90_pct, f.worst_pct, f.p95_error_pct, f.p999_error_pct].map(percent);
        let verdict = match f.within {
            None => "not judged",
            Some(true) => "within",
            Some(false) => "outside",
        };
        let first = [f.family.clone(), f.rows.to_string(), f.counted.to_string()];
        let verdict = f.target.map(|_| verdict.to_owned());
        first.into_iter().chain(errors).chain(verdict).collect()
    };
    DataTable {
        title:
            "Errors by series, in % of the measured value and without sign; at 95 % and 99.9 %: of the tails"
                .into(),
        header: header.iter().chain(verdicts).map(ToString::to_string).collect(),
        rows: summary.families.iter().map(row).collect(),
        numbers_from: 1,
    }
}

fn misses(summary: &Summary) -> DataTable {
    let header = ["row", "cause", "measured", "simulated", "error %"];
    let row = |miss: &super::Miss| {
        let of = &miss.row;
        let window = Bytes::new(of.window_bytes);
        let offset = |of: &str, bytes: u64| match bytes {
            0 => String::new(),
            _ => format!(", {of} offset {bytes} B"),
        };
        let offsets = offset("host", of.host_offset) + &offset("device", of.device_offset);
        vec![
            format!(
                "{}, row {}: {}, {} B of {window}{offsets}",
                of.file, of.row, of.cache, of.transfer_bytes
            ),
            miss.cause.clone().unwrap_or_else(|| "not known".into()),
            format!("{:.1} {}", of.measured, of.unit),
            of.simulated.map_or_else(String::new, |s| format!("{s:.1}")),
            of.error_pct.map_or_else(String::new, |e| format!("{e:+.1}")),
        ]
    };
    let (all, some) = (summary.misses.len(), summary.misses.len().min(MOST_MISSES));
    DataTable {
        title: format!("Rows that miss by more than {LARGE_MISS_PCT} %: {some} of {all}, worst first"),
        header: header.map(String::from).to_vec(),
        rows: summary.misses.iter().take(MOST_MISSES).map(row).collect(),
        numbers_from: 2,
    }
}

/// The parameter that varies along a file's curves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Window,
    Transfer,
    HostOffset,
    DeviceOffset,
}

impl Along {
    const ALL: [Self; 4] = [Self::Window, Self::Transfer, Self::HostOffset, Self::DeviceOffset];

    fn of(self, row: &CompareRow) -> u64 {
        match self {
            Self::Window => row.window_bytes,
            Self::Transfer => row.transfer_bytes,
            Self::HostOffset => row.host_offset,
            Self::DeviceOffset => row.device_offset,
        }
    }
    const fn heading(self) -> &'static str {
        match self {
            Self::Window => "window (bytes)",
            Self::Transfer => "transfer size (bytes)",
            Self::HostOffset => "host offset (bytes)",
            Self::DeviceOffset => "device offset (bytes)",
        }
    }
}

/// A row's other parameters.
fn kinds(row: &CompareRow, along: Along) -> Vec<String> {
    let mut parts = vec![row.test.to_string(), row.pattern.to_string(), row.cache.to_string()];
    for other in Along::ALL.into_iter().filter(|&other| other != along) {
        parts.push(Bytes::new(other.of(row)).to_string());
    }
    parts
}

/// Label of a curve: the parameters that distinguish it from the others, or the first one.
fn label(kinds: &[String], all: &[&Vec<String>]) -> String {
    let differ = |at: &usize| all.iter().any(|other| other[*at] != kinds[*at]);
    let told: Vec<&str> = (0..kinds.len()).filter(differ).map(|at| kinds[at].as_str()).collect();
    if told.is_empty() { kinds[0].clone() } else { told.join(" ") }
}

/// Charts of a file: the judged quantity and, for latencies, the tails. Empty if no curve has `least` points, or if
/// there are too many curves.
fn charts(id: &str, file: &str, rows: &[&CompareRow], least: usize) -> Vec<Chart> {
    let distinct = |along: Along| rows.iter().map(|row| along.of(row)).collect::<BTreeSet<_>>().len();
    let Some(along) = Along::ALL.into_iter().rev().max_by_key(|&along| distinct(along)) else {
        return Vec::new();
    };
    let mut by_kind: BTreeMap<Vec<String>, Vec<&CompareRow>> = BTreeMap::new();
    for row in rows {
        by_kind.entry(kinds(row, along)).or_default().push(row);
    }
    if distinct(along) < least || by_kind.len() > MOST_CURVES {
        return Vec::new();
    }
    let all: Vec<&Vec<String>> = by_kind.keys().collect();
    let curves: Vec<(String, &Vec<&CompareRow>)> =
        by_kind.iter().map(|(kinds, rows)| (label(kinds, &all), rows)).collect();
    let name = file.trim_end_matches(".csv");
    let chart = |what: &str, text: &str, y: &str, log: bool, curves: Vec<Curve>| Chart {
        id: format!("{id}-{name}{what}"),
        title: format!(
            "{name}{}, over {}",
            what.replace('-', ": "),
            along.heading().trim_end_matches(" (bytes)")
        ),
        text: text.into(),
        x: (
            along.heading().into(),
            if matches!(along, Along::Window | Along::Transfer) { Scale::Log2 } else { Scale::Linear },
        ),
        names: Vec::new(),
        y: (
            format!("{} ({y})", if y == Quantity::Bandwidth.unit() { "goodput" } else { "latency" }),
            if log { Scale::Log10 } else { Scale::Linear },
        ),
        from_zero: y == Quantity::Bandwidth.unit(),
        rings: "measured".into(),
        curves,
    };
    let judged = curves.iter().map(|(label, rows)| Curve {
        label: label.clone(),
        simulated: rows.iter().filter_map(|row| Some(point(along.of(row), row.simulated?))).collect(),
        measured: rows.iter().map(|row| point(along.of(row), row.measured)).collect(),
    });
    let quantity = rows[0].quantity;
    let text = match quantity {
        Quantity::Median => "Medians.",
        Quantity::Bandwidth => "Goodput.",
    };
    let mut charts = vec![chart("", text, quantity.unit(), false, judged.collect())];
    for (what, text, tail) in [
        (
            "-95 %",
            "The 95th percentile of the same rows.",
            (|row| row.p95) as fn(&CompareRow) -> Option<Tail>,
        ),
        ("-99.9 %", "The 99.9th percentile of the same rows.", |row| row.p999),
    ] {
        let of = |rows: &[&CompareRow], value: fn(Tail) -> f64| {
            rows.iter().filter_map(|row| Some(point(along.of(row), value(tail(row)?)))).collect()
        };
        let tails: Vec<Curve> = curves
            .iter()
            .map(|(label, rows)| Curve {
                label: label.clone(),
                simulated: of(rows, |tail| tail.simulated),
                measured: of(rows, |tail| tail.measured),
            })
            .collect();
        if tails.iter().any(|curve| !curve.measured.is_empty()) {
            let wide = |curve: &Curve| {
                let ys = || curve.measured.iter().chain(&curve.simulated).map(|point| point.y);
                ys().fold(0.0, f64::max) > WIDE * ys().fold(f64::INFINITY, f64::min)
            };
            let wide = tails.iter().any(wide);
            charts.push(chart(what, text, "ns", wide, tails));
        }
    }
    charts
}

fn point(x: u64, y: f64) -> Sample {
    Sample { x: x as f64, y, low: None, high: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Rules, Target};
    use crate::pciebench::{Cache, Pattern, Test};
    use crate::report::Report;

    fn row(window_bytes: u64, cache: Cache) -> CompareRow {
        let tail = |measured: f64| Some(Tail { measured, simulated: 1.1 * measured, error_pct: 10.0 });
        CompareRow {
            file: "lat_dma_sweep_rd_rnd_64.csv".into(),
            row: 1,
            test: Test::LatDmaRd,
            pattern: Pattern::Random,
            cache,
            window_bytes,
            transfer_bytes: 64,
            host_offset: 0,
            device_offset: 0,
            quantity: Quantity::Median,
            unit: "ns".into(),
            measured: 500.0,
            simulated: Some(600.0),
            error_pct: Some(20.0),
            p95: tail(700.0),
            p999: tail(900.0),
        }
    }

    #[test]
    fn results_by_themselves_are_curves_without_rings() {
        use crate::pciebench::{BandwidthRow, Run};
        let run = |transfer: u64, test: Test| Run {
            test,
            pattern: Pattern::Random,
            cache: Cache::Cold,
            host_offset: 0,
            device_offset: 0,
            window: Bytes::kib(8),
            transfer: Bytes::new(transfer),
        };
        let rows: Vec<Row> =
            [(64, Test::BwDmaRd), (128, Test::BwDmaRd), (64, Test::BwDmaWr), (128, Test::BwDmaWr)]
                .map(|(transfer, test)| {
                    Row::Bandwidth(BandwidthRow {
                        run: run(transfer, test),
                        gbit_per_s: 20.0,
                        cycles: 0,
                        ns: 1.0,
                        bytes: 0,
                        transactions: 0,
                        transactions_per_s: 0.0,
                    })
                })
                .to_vec();
        let charts = curves("all", &rows);
        let labels: Vec<&str> = charts[0].curves.iter().map(|curve| &*curve.label).collect();
        assert_eq!((charts.len(), labels), (1, vec!["BW_DMA_RD", "BW_DMA_WR"]));
        assert!(charts[0].curves.iter().all(|c| c.simulated.len() == 2 && c.measured.is_empty()));
        assert!(curves("one", &rows[..1]).is_empty());
    }

    #[test]
    fn latencies_are_drawn_with_their_tails() {
        let caches = [Cache::Cold, Cache::HostWarm];
        let rows: Vec<CompareRow> =
            caches.into_iter().flat_map(|cache| (12..20).map(move |bit| row(1 << bit, cache))).collect();
        let summary = Summary::of(&rows, None, &Rules::default(), Target::given);
        let [tables, curves] = sections("d0", "a directory", Vec::new(), &rows, &summary);
        let ids: Vec<&str> = curves.charts.iter().map(|chart| chart.id.as_str()).collect();
        let name = "d0-lat_dma_sweep_rd_rnd_64";
        assert_eq!(ids, [name, &format!("{name}-95 %"), &format!("{name}-99.9 %")]);
        for chart in &curves.charts {
            let labels: Vec<&str> = chart.curves.iter().map(|curve| curve.label.as_str()).collect();
            assert_eq!(labels, ["Cold", "HWarm"]);
            assert!(chart.curves.iter().all(|c| c.simulated.len() == 8 && c.measured.len() == 8));
        }
        assert_eq!(curves.charts[2].curves[0].measured[0].y, 900.0);
        let page = Report { sections: vec![tables, curves], ..Report::default() }.to_html();
        assert!(page.contains("at 99.9 %") && page.contains("miss by more than"), "tables");
        // A file with many curves appears only in the table.
        let many: Vec<CompareRow> = (1..40)
            .flat_map(|size| {
                (0..30).map(move |offset| CompareRow {
                    transfer_bytes: 64 * size,
                    host_offset: offset,
                    ..row(4096, Cache::Cold)
                })
            })
            .collect();
        let summary = Summary::of(&many, None, &Rules::default(), Target::given);
        assert!(sections("d1", "many", Vec::new(), &many, &summary)[1].charts.is_empty());
    }
}
