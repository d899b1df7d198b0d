//! Parses the CSV files.

use super::error::{Problem, ReadError};
use super::number::parse_number;
use super::row::{BandwidthRow, Cdf, CdfPoint, LatencyRow, LatencyStats};
use super::{Row, Run};
use std::path::Path;
use units::Bytes;

/// Leading columns of all rows.
pub(super) const RUN_COLUMNS: [&str; 7] = ["Test", "PAT", "Cache", "HO", "DO", "WinSZ", "SZ"];
/// Columns of latency statistics.
pub(super) const LATENCY_COLUMNS: [&str; 16] = [
    "TAvg",
    "Avg",
    "Med",
    "Min",
    "Max",
    "95%",
    "99.9%",
    "TAvg(ns)",
    "Avg(ns)",
    "Med(ns)",
    "Min(ns)",
    "Max(ns)",
    "95%(ns)",
    "99.9%(ns)",
    "#outliers",
    "#samples",
];
/// Columns of bandwidths. `BW (GB/s)` holds Gbit/s.
pub(super) const BANDWIDTH_COLUMNS: [&str; 6] =
    ["Time(cyc)", "Time", "Bytes", "Trans", "BW (GB/s)", "Trans/s"];
/// Columns of distributions.
pub(super) const CDF_COLUMNS: [&str; 3] = ["cycles", "ns", "cdf"];

/// The contents of one file.
#[derive(Debug, Clone, PartialEq)]
pub enum Contents {
    /// Rows of latency tests.
    Latency(Vec<LatencyRow>),
    /// Rows of bandwidth tests.
    Bandwidth(Vec<BandwidthRow>),
    /// Distributions, one per row of the details file of the same name.
    Cdf(Vec<Cdf>),
}

/// Line ending. pcie-bench writes CR LF; files that were edited or converted since have LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineEnding {
    /// Carriage return and line feed, as Python's csv module writes.
    #[default]
    CrLf,
    /// Line feed alone.
    Lf,
}

/// A parsed file.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultFile {
    /// The file's name without its directory.
    pub name: String,
    /// What it holds.
    pub contents: Contents,
    /// How its lines end, so that it can be written back unchanged.
    pub line_ending: LineEnding,
}

impl ResultFile {
    /// Its rows in order; empty for a distribution.
    pub fn rows(&self) -> Vec<Row> {
        match &self.contents {
            Contents::Latency(rows) => rows.iter().copied().map(Row::Latency).collect(),
            Contents::Bandwidth(rows) => rows.iter().copied().map(Row::Bandwidth).collect(),
            Contents::Cdf(_) => Vec::new(),
        }
    }
}

/// Reads one file.
///
/// # Errors
/// If the file is not exactly a result file of pcie-bench: empty, truncated, wrong header, wrong number of columns,
/// malformed number, or a row that contradicts itself or the file's name. Nothing is skipped.
pub fn read_file(path: &Path) -> Result<ResultFile, ReadError> {
    let bytes = files::read(path).map_err(|e| ReadError::new(path, None, e.into()))?;
    read_bytes(path, &bytes)
}

/// Parses the bytes of a file; `path` is used for its name and for messages.
///
/// # Errors
/// As [`read_file`].
pub fn read_bytes(path: &Path, bytes: &[u8]) -> Result<ResultFile, ReadError> {
    let fail = |row, problem| Err(ReadError::new(path, row, problem));
    let text = match core::str::from_utf8(files::unmarked(bytes)) {
        Ok(text) => text,
        Err(e) => return fail(None, Problem::NotText(e.valid_up_to())),
    };
    if text.trim().is_empty() {
        return fail(None, Problem::Empty);
    }
    let line_ending = if text.contains("\r\n") { LineEnding::CrLf } else { LineEnding::Lf };
    let mut lines = text.split_inclusive('\n').enumerate();
    let header: Vec<&str> = lines.next().map(|l| strip(l.1)).unwrap_or_default().split(',').collect();
    let kind = match Kind::of(&header) {
        Ok(kind) => kind,
        Err(problem) => return fail(None, problem),
    };
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let promise = super::name::Promise::of(&name);

    let mut contents = kind.empty();
    for (row, line) in lines {
        let at = |problem| ReadError::new(path, Some(row), problem);
        let fields: Vec<&str> = strip(line).split(',').collect();
        if !line.ends_with('\n') {
            return Err(at(Problem::Truncated));
        }
        if fields.len() != header.len() {
            return Err(at(Problem::Columns { found: fields.len(), expected: header.len() }));
        }
        match &mut contents {
            Contents::Latency(rows) => rows.push(latency_row(&fields).map_err(at)?),
            Contents::Bandwidth(rows) => rows.push(bandwidth_row(&fields).map_err(at)?),
            Contents::Cdf(sections) => add_cdf_point(sections, &fields).map_err(at)?,
        }
        match &contents {
            Contents::Latency(rows) => promise.check(rows.last().map(|r| &r.run)).map_err(at)?,
            Contents::Bandwidth(rows) => promise.check(rows.last().map(|r| &r.run)).map_err(at)?,
            Contents::Cdf(_) => {}
        }
    }
    let (rows, matches) = match &contents {
        Contents::Latency(rows) => (rows.len(), promise.latency()),
        Contents::Bandwidth(rows) => (rows.len(), promise.bandwidth()),
        Contents::Cdf(sections) => (sections.len(), promise.distribution()),
    };
    if rows == 0 {
        return fail(None, Problem::NoRows);
    }
    if !matches {
        let found = kind.describe().to_owned();
        return fail(None, Problem::Mislabelled { promised: promise.describe(), found });
    }
    if let Contents::Cdf(sections) = &contents {
        let unfinished =
            sections.last().and_then(|s| s.points.last()).is_none_or(|p| p.fraction < 1.0 - 1e-6);
        if unfinished {
            let row = sections.iter().map(|s| s.points.len()).sum();
            return fail(Some(row), Problem::Inconsistent("the last distribution does not reach 1".into()));
        }
    }
    Ok(ResultFile { name, contents, line_ending })
}

fn strip(line: &str) -> &str {
    line.trim_end_matches('\n').trim_end_matches('\r')
}

#[derive(Clone, Copy)]
enum Kind {
    Latency,
    Bandwidth,
    Cdf,
}

impl Kind {
    fn of(header: &[&str]) -> Result<Self, Problem> {
        let latency: Vec<&str> = RUN_COLUMNS.into_iter().chain(LATENCY_COLUMNS).collect();
        let bandwidth: Vec<&str> = RUN_COLUMNS.into_iter().chain(BANDWIDTH_COLUMNS).collect();
        for (kind, columns) in
            [(Self::Latency, &latency[..]), (Self::Bandwidth, &bandwidth[..]), (Self::Cdf, &CDF_COLUMNS[..])]
        {
            if header == columns {
                return Ok(kind);
            }
        }
        // Report the first difference from the kind with the longest common prefix.
        let agreement = |columns: &[&str]| header.iter().zip(columns).take_while(|(a, b)| a == b).count();
        let best = [&latency[..], &bandwidth[..], &CDF_COLUMNS[..]].into_iter().max_by_key(|c| agreement(c));
        let at = best.map_or(0, agreement);
        let wanted = best.and_then(|c| c.get(at)).copied().unwrap_or("nothing more");
        let found = header.get(at).copied().unwrap_or("nothing");
        Err(Problem::Header {
            found: header.join(",").chars().take(40).collect(),
            difference: format!("column {} is `{found}` where `{wanted}` belongs", at + 1),
        })
    }
    const fn empty(self) -> Contents {
        match self {
            Self::Latency => Contents::Latency(Vec::new()),
            Self::Bandwidth => Contents::Bandwidth(Vec::new()),
            Self::Cdf => Contents::Cdf(Vec::new()),
        }
    }
    const fn describe(self) -> &'static str {
        match self {
            Self::Latency => "the columns of a latency test",
            Self::Bandwidth => "the columns of a bandwidth test",
            Self::Cdf => "the columns of a distribution",
        }
    }
}

fn number(text: &str, column: &'static str) -> Result<f64, Problem> {
    let wanted = "a number that is not negative";
    parse_number(text).filter(|v| *v >= 0.0).ok_or_else(|| Problem::Number {
        column,
        text: text.into(),
        wanted,
    })
}

/// An integer, also written `1572864.0` as Python does for 1.5 MiB.
fn whole(text: &str, column: &'static str) -> Result<u64, Problem> {
    number(text, column)
        .ok()
        .filter(|v| v.fract() == 0.0 && *v < 9e15)
        .map(|v| v as u64)
        .ok_or_else(|| Problem::Number { column, text: text.into(), wanted: "a whole number" })
}

fn word<T: core::str::FromStr<Err = super::UnknownWord>>(
    text: &str,
    column: &'static str,
) -> Result<T, Problem> {
    text.parse().map_err(|word| Problem::Word { column, word })
}

fn run(fields: &[&str]) -> Result<Run, Problem> {
    let run = Run {
        test: word(fields[0], RUN_COLUMNS[0])?,
        pattern: word(fields[1], RUN_COLUMNS[1])?,
        cache: word(fields[2], RUN_COLUMNS[2])?,
        host_offset: whole(fields[3], RUN_COLUMNS[3])?,
        device_offset: whole(fields[4], RUN_COLUMNS[4])?,
        window: Bytes::new(whole(fields[5], RUN_COLUMNS[5])?),
        transfer: Bytes::new(whole(fields[6], RUN_COLUMNS[6])?),
    };
    run.check().map_err(Problem::Impossible)?;
    Ok(run)
}

fn latency_row(fields: &[&str]) -> Result<LatencyRow, Problem> {
    let run = run(fields)?;
    if !run.test.is_latency() {
        return Err(Problem::Mislabelled {
            promised: "a latency test (by its columns)".into(),
            found: run.test.to_string(),
        });
    }
    let stats = |first: usize| -> Result<LatencyStats, Problem> {
        let at = |i: usize| number(fields[RUN_COLUMNS.len() + first + i], LATENCY_COLUMNS[first + i]);
        Ok(LatencyStats {
            total_average: at(0)?,
            average: at(1)?,
            median: at(2)?,
            minimum: at(3)?,
            maximum: at(4)?,
            p95: at(5)?,
            p999: at(6)?,
        })
    };
    let row = LatencyRow {
        run,
        cycles: stats(0)?,
        ns: stats(7)?,
        outliers: whole(fields[21], LATENCY_COLUMNS[14])?,
        samples: whole(fields[22], LATENCY_COLUMNS[15])?,
    };
    let c = &row.cycles;
    let ordered = [c.minimum, c.median, c.p95, c.p999, c.maximum];
    if ordered.windows(2).any(|w| w[0] > w[1]) {
        return Err(Problem::Inconsistent("Min, Med, 95%, 99.9%, Max are not in ascending order".into()));
    }
    if c.minimum == 0.0 || row.ns.minimum == 0.0 {
        return Err(Problem::Inconsistent("a latency of zero".into()));
    }
    // All columns must have the same ratio of nanoseconds to cycles.
    let period = row.ns.maximum / c.maximum;
    for (i, (cycles, ns)) in c.columns().into_iter().zip(row.ns.columns()).enumerate() {
        if (cycles * period - ns).abs() > 1e-6 * ns.max(1.0) {
            return Err(Problem::Inconsistent(format!(
                "`{}` and `{}` do not agree on the clock",
                LATENCY_COLUMNS[i],
                LATENCY_COLUMNS[i + 7]
            )));
        }
    }
    Ok(row)
}

fn bandwidth_row(fields: &[&str]) -> Result<BandwidthRow, Problem> {
    let run = run(fields)?;
    if run.test.is_latency() {
        return Err(Problem::Mislabelled {
            promised: "a bandwidth test (by its columns)".into(),
            found: run.test.to_string(),
        });
    }
    let row = BandwidthRow {
        run,
        cycles: whole(fields[7], BANDWIDTH_COLUMNS[0])?,
        ns: number(fields[8], BANDWIDTH_COLUMNS[1])?,
        bytes: whole(fields[9], BANDWIDTH_COLUMNS[2])?,
        transactions: whole(fields[10], BANDWIDTH_COLUMNS[3])?,
        gbit_per_s: number(fields[11], BANDWIDTH_COLUMNS[4])?,
        transactions_per_s: number(fields[12], BANDWIDTH_COLUMNS[5])?,
    };
    let differs = |a: f64, b: f64| (a - b).abs() > 1e-6 * b.abs();
    if row.ns == 0.0 {
        return Err(Problem::Inconsistent("`Time` is zero".into()));
    }
    if differs(8.0 * row.bytes as f64 / row.ns, row.gbit_per_s) {
        return Err(Problem::Inconsistent("`BW (GB/s)` is not 8 · `Bytes` / `Time`".into()));
    }
    if differs((row.transactions * run.transfer.get()) as f64, row.bytes as f64) {
        return Err(Problem::Inconsistent("`Bytes` is not `Trans` · `SZ`".into()));
    }
    if differs(row.transactions as f64 / row.ns * 1e9, row.transactions_per_s) {
        return Err(Problem::Inconsistent("`Trans/s` is not `Trans` / `Time`".into()));
    }
    Ok(row)
}

/// Adds a point; a fraction of zero starts the next distribution.
fn add_cdf_point(sections: &mut Vec<Cdf>, fields: &[&str]) -> Result<(), Problem> {
    let point = CdfPoint {
        cycles: whole(fields[0], CDF_COLUMNS[0])?,
        ns: number(fields[1], CDF_COLUMNS[1])?,
        fraction: number(fields[2], CDF_COLUMNS[2])?,
    };
    let ends = |s: &Cdf| s.points.last().is_some_and(|p| p.fraction >= 1.0 - 1e-6);
    if point.fraction == 0.0 {
        if sections.last().is_some_and(|s| !ends(s)) {
            return Err(Problem::Inconsistent("a distribution begins before the one above reached 1".into()));
        }
        sections.push(Cdf { points: vec![point] });
        return Ok(());
    }
    let Some(section) = sections.last_mut() else {
        return Err(Problem::Inconsistent("the first distribution does not begin at 0".into()));
    };
    if point.fraction > 1.0 + 1e-9 {
        return Err(Problem::Inconsistent(format!("a share of {} is above 1", point.fraction)));
    }
    if section.points.last().is_some_and(|p| p.fraction > point.fraction || p.cycles > point.cycles) {
        return Err(Problem::Inconsistent("the distribution falls".into()));
    }
    section.points.push(point);
    Ok(())
}
