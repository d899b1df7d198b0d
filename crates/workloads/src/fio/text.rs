//! What the original prints, in its forms. What the platform does not tell a program (user and system time, use of the
//! disk) is not there, and neither are percentiles for which there are too few samples.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::JobResult;
use super::command::ReportForm;
use super::options::JobOptions;
use super::pattern::RequestKind;
use super::tally::{RequestTally, WayTally};
use crate::latency::needed;

/// The version that is printed: not one of the original's.
const VERSION: &str = "fio-nearfar";

/// The original's percentiles.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// A block of the report: processes that are reported together.
struct ReportBlock<'a> {
    options: &'a JobOptions,
    group: usize,
    processes: usize,
    tally: RequestTally,
}

/// The report in these forms, one after the other; `None` if there are none.
pub(super) fn text(formats: &[ReportForm], jobs: &[JobOptions], measured: &[JobResult]) -> Option<String> {
    let blocks = blocks(jobs, measured);
    let one = |format: &ReportForm| match format {
        ReportForm::Normal => normal(jobs, &blocks),
        ReportForm::Terse => blocks.iter().map(terse).collect::<String>(),
        ReportForm::Json | ReportForm::JsonPlus => {
            let jobs: Vec<Value> = blocks.iter().map(json).collect();
            let all = json!({ "fio version": VERSION, "jobs": jobs });
            serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
        }
    };
    (!formats.is_empty()).then(|| formats.iter().map(one).collect())
}

/// Each process by itself, or all of a group together with `group_reporting`.
fn blocks<'a>(jobs: &'a [JobOptions], measured: &[JobResult]) -> Vec<ReportBlock<'a>> {
    let mut all: Vec<ReportBlock> = Vec::new();
    for one in measured {
        let options = &jobs[one.job];
        let joins = |last: &&mut ReportBlock| options.group_reporting == 1 && last.group == one.group;
        match all.last_mut().filter(joins) {
            Some(last) => {
                last.processes += 1;
                last.tally.add(&one.tally);
            }
            None => {
                let mut tally = RequestTally::default();
                tally.add(&one.tally);
                all.push(ReportBlock { options, group: one.group, processes: 1, tally });
            }
        }
    }
    all
}

impl ReportBlock<'_> {
    /// Percentiles that these samples can give, in nanoseconds.
    fn percentiles(&self, of: &Histogram<u64>) -> Vec<(f64, u64)> {
        let wanted = self.options.percentile_list.as_ref().map_or(&PERCENTILES[..], |list| &list.0);
        let given = wanted.iter().filter(|percent| needed(**percent) <= of.len());
        given.map(|percent| (*percent, of.value_at_percentile(*percent))).collect()
    }

    /// Share of all requests with a latency from `from` to below `to` nanoseconds, in percent.
    fn share(&self, from: u64, to: u64) -> f64 {
        let (mut within, mut all) = (0, 0);
        for tally in &self.tally.ways {
            all += tally.count;
            let counted = tally
                .latency
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()));
            within +=
                counted.filter(|(value, _)| (from..to).contains(value)).map(|(_, count)| count).sum::<u64>();
        }
        if all == 0 { 0.0 } else { within as f64 * 100.0 / all as f64 }
    }

    /// The shares of the original's classes of latency, in this unit.
    fn shares(&self, unit_ns: u64, bounds: &[u64]) -> Vec<(String, f64)> {
        let mut from = if unit_ns == 1 { 0 } else { unit_ns };
        let mut shares = Vec::new();
        for bound in bounds {
            shares.push((bound.to_string(), self.share(from, bound * unit_ns)));
            from = bound * unit_ns;
        }
        if unit_ns == 1_000_000 {
            shares.push((">=2000".into(), self.share(from, u64::MAX)));
        }
        shares
    }

    /// Shares of submissions by requests in flight, in percent.
    fn depths(&self) -> [f64; 7] {
        let all = self.tally.depths.iter().sum::<u64>().max(1);
        self.tally.depths.map(|count| count as f64 * 100.0 / all as f64)
    }
}

/// Upper bounds of classes of latency: nanoseconds and microseconds; milliseconds have another.
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const LONG_BOUNDS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

const UNITS: [(&str, u64, &[u64]); 3] =
    [("nsec", 1, &BOUNDS), ("usec", 1_000, &BOUNDS), ("msec", 1_000_000, &LONG_BOUNDS)];

/// A number with at most four digits and a prefix.
fn short(number: f64, base: f64, prefixes: &[&str; 6]) -> String {
    let (mut number, mut power) = (number, 0);
    while number >= 10_000.0 || (number >= base && power > 0) {
        number /= base;
        power += 1;
        if power == prefixes.len() - 1 {
            break;
        }
    }
    let decimals = match number {
        _ if power == 0 => 0,
        n if n < 10.0 => 2,
        n if n < 100.0 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}{}", prefixes[power])
}

const BINARY: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
const DECIMAL: [&str; 6] = ["", "k", "M", "G", "T", "P"];

fn binary(bytes: f64) -> String {
    short(bytes, 1024.0, &BINARY) + "B"
}

fn decimal(bytes: f64) -> String {
    short(bytes, 1000.0, &DECIMAL) + "B"
}

fn per_second(amount: u64, tally: &WayTally) -> f64 {
    let seconds = tally.seconds();
    if seconds > 0.0 { amount as f64 / seconds } else { 0.0 }
}

fn msec(tally: &WayTally) -> u64 {
    (tally.seconds() * 1e3).round() as u64
}

/// The original's text.
fn normal(jobs: &[JobOptions], blocks: &[ReportBlock]) -> String {
    let mut text = String::new();
    let processes: u32 = jobs.iter().map(|job| job.numjobs).sum();
    for job in jobs {
        let size = |way: usize| {
            let sizes = &job.sizes()[way];
            let one = |size: u64| {
                if size % 1024 == 0 && size >= 10_240 {
                    format!("{}KiB", size / 1024)
                } else {
                    format!("{size}B")
                }
            };
            format!("{}-{}", one(sizes.least()), one(sizes.most()))
        };
        text += &format!(
            "{}: (g=0): rw={}, bs=(R) {}, (W) {}, (T) {}, ioengine={}, iodepth={}\n",
            job.name,
            job.rw.name(),
            size(0),
            size(1),
            size(2),
            job.ioengine.name(),
            job.iodepth
        );
        text += if job.numjobs > 1 { "...\n" } else { "" };
    }
    let plural = if processes == 1 { "" } else { "es" };
    text += &format!("{VERSION}\nStarting {processes} process{plural}\n");
    for block in blocks {
        text += &format!(
            "\n{}: (groupid={}, jobs={}): err= 0\n",
            block.options.name, block.group, block.processes
        );
        for (way, tally) in
            RequestKind::ALL.into_iter().zip(&block.tally.ways).filter(|(_, tally)| tally.count > 0)
        {
            let rate = per_second(tally.bytes, tally);
            text += &format!(
                "  {}: IOPS={}, BW={}/s ({}/s)({}/{}msec)\n",
                way.name(),
                short(per_second(tally.count, tally), 1000.0, &DECIMAL),
                binary(rate),
                decimal(rate),
                binary(tally.bytes as f64),
                msec(tally)
            );
            text += &spread_line("clat", &tally.latency);
            text += &percentile_lines("clat", &block.percentiles(&tally.latency));
        }
        for (unit, ns, bounds) in UNITS {
            let shares = block.shares(ns, bounds);
            let shown: Vec<String> = shares
                .iter()
                .filter(|(_, share)| *share > 0.0)
                .map(|(bound, share)| format!("{bound}{}{share:.2}%", "="))
                .collect();
            for line in shown.chunks(5) {
                text += &format!("  lat ({unit})   : {}\n", line.join(", "));
            }
        }
        let flushes = &block.tally.flushes;
        if !flushes.is_empty() {
            text += "  fsync/fdatasync/sync_file_range:\n";
            text += &spread_line("sync", flushes);
            text += &percentile_lines("sync", &block.percentiles(flushes));
        }
        let [one, two, four, eight, sixteen, more, most] = block.depths();
        text += &format!(
            "  IO depths    : 1={one:.1}%, 2={two:.1}%, 4={four:.1}%, 8={eight:.1}%, 16={sixteen:.1}%, 32={more:.1}%, >=64={most:.1}%\n"
        );
        let [reads, writes, trims] = [0, 1, 2].map(|way| block.tally.ways[way].count);
        text += &format!(
            "     issued rwts: total={reads},{writes},{trims},{} short=0,0,0,0 dropped=0,0,0,0\n",
            flushes.len()
        );
        text += &format!(
            "     latency   : target=0, window=0, percentile=100.00%, depth={}\n",
            block.options.iodepth
        );
    }
    let groups: std::collections::BTreeSet<usize> = blocks.iter().map(|block| block.group).collect();
    for group in groups {
        text += &format!("\nRun status group {group} (all jobs):\n");
        for (way, label) in RequestKind::ALL.into_iter().zip(["   READ", "  WRITE", "   TRIM"]) {
            let tallies = blocks
                .iter()
                .filter(|block| block.group == group)
                .map(|block| &block.tally.ways[way as usize]);
            let tallies: Vec<&WayTally> = tallies.filter(|tally| tally.count > 0).collect();
            if tallies.is_empty() {
                continue;
            }
            let rates: Vec<f64> = tallies.iter().map(|tally| per_second(tally.bytes, tally)).collect();
            let bytes = tallies.iter().map(|tally| tally.bytes).sum::<u64>() as f64;
            let longest = tallies.iter().map(|tally| tally.seconds()).fold(0.0, f64::max);
            let all = if longest > 0.0 { bytes / longest } else { 0.0 };
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let most = rates.iter().copied().fold(0.0, f64::max);
            let times: Vec<u64> = tallies.iter().map(|tally| msec(tally)).collect();
            text += &format!(
                "{label}: bw={}/s ({}/s), {}/s-{}/s ({}/s-{}/s), io={} ({}), run={}-{}msec\n",
                binary(all),
                decimal(all),
                binary(least),
                binary(most),
                decimal(least),
                decimal(most),
                binary(bytes),
                decimal(bytes),
                times.iter().min().unwrap_or(&0),
                times.iter().max().unwrap_or(&0)
            );
        }
    }
    text
}

/// Least, greatest and mean latency with their spread.
fn spread_line(name: &str, of: &Histogram<u64>) -> String {
    let (unit, divisor) = match of.min() {
        min if min > 2_000_000 && of.max() > 99_999_999 => ("msec", 1e6),
        min if min > 2_000 && of.max() > 99_999 => ("usec", 1e3),
        _ => ("nsec", 1.0),
    };
    let scaled = |ns: u64| (ns as f64 / divisor) as u64;
    format!(
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}\n",
        scaled(of.min()),
        scaled(of.max()),
        of.mean() / divisor,
        of.stdev() / divisor
    )
}

fn percentile_lines(name: &str, all: &[(f64, u64)]) -> String {
    let (Some(least), Some(most)) = (all.first(), all.last()) else { return String::new() };
    let (unit, divisor) = match (least.1, most.1) {
        (least, most) if least > 2_000_000 && most > 99_999_999 => ("msec", 1_000_000),
        (least, most) if least > 2_000 && most > 99_999 => ("usec", 1_000),
        _ => ("nsec", 1),
    };
    let width = (most.1 / divisor).to_string().len().max(5);
    let per_line = 73 / (12 + width);
    let cells: Vec<String> = all
        .iter()
        .map(|(percent, ns)| format!(" {percent:5.2}th=[{:width$}]", ns.div_ceil(divisor)))
        .collect();
    let lines: Vec<String> = cells.chunks(per_line).map(|line| format!("     |{}", line.join(","))).collect();
    format!("    {name} percentiles ({unit}):\n{}\n", lines.join(",\n"))
}

/// The original's terse form, version 3.
fn terse(block: &ReportBlock) -> String {
    let mut text = format!("3;{VERSION};{};{};0", block.options.name, block.group);
    let spread = |of: &Histogram<u64>| match of.is_empty() {
        true => ";0;0;0.000000;0.000000".to_owned(),
        false => {
            format!(";{};{};{:.6};{:.6}", of.min() / 1000, of.max() / 1000, of.mean() / 1e3, of.stdev() / 1e3)
        }
    };
    for tally in &block.tally.ways[..2] {
        let (bw, iops) = (per_second(tally.bytes, tally), per_second(tally.count, tally));
        text += &format!(";{};{};{};{}", tally.bytes >> 10, bw as u64 / 1024, iops as u64, msec(tally));
        text += ";0;0;0.000000;0.000000";
        text += &spread(&tally.latency);
        let percentiles = block.percentiles(&tally.latency);
        for n in 0..20 {
            text += &match percentiles.get(n) {
                Some((percent, ns)) => format!(";{percent:.6}%={}", ns / 1000),
                None => ";0%=0".to_owned(),
            };
        }
        text += &spread(&tally.latency);
        text += ";0;0;0.000000%;0.000000;0.000000";
    }
    text += ";0.000000%;0.000000%;0;0;0";
    block.depths().iter().for_each(|share| text += &format!(";{share:.1}%"));
    // Microseconds, with all that is shorter in the first class.
    let micro = block.shares(1_000, &BOUNDS);
    let first = block.share(0, 2_000);
    let micro = micro.iter().enumerate().map(|(n, (_, share))| if n == 0 { first } else { *share });
    let milli: Vec<f64> = block.shares(1_000_000, &LONG_BOUNDS).into_iter().map(|(_, share)| share).collect();
    micro.chain(milli).for_each(|share| text += &format!(";{share:.2}%"));
    text + "\n"
}

fn latency_json(block: &ReportBlock, of: &Histogram<u64>, has_percentiles: bool) -> Value {
    let is_empty = of.is_empty();
    let or_zero = |value: f64| if is_empty { 0.0 } else { value };
    let mut all = json!({
        "min": if is_empty { 0 } else { of.min() },
        "max": of.max(),
        "mean": or_zero(of.mean()),
        "stddev": or_zero(of.stdev()),
        "N": of.len(),
    });
    if has_percentiles && !is_empty {
        let percentiles =
            block.percentiles(of).into_iter().map(|(percent, ns)| (format!("{percent:.6}"), ns.into()));
        all["percentile"] = Value::Object(percentiles.collect());
    }
    all
}

fn json(block: &ReportBlock) -> Value {
    let mut all = Map::new();
    all.insert("jobname".into(), block.options.name.clone().into());
    all.insert("groupid".into(), block.group.into());
    all.insert("error".into(), 0.into());
    let none = Histogram::<u64>::new(3).expect("three digits are supported");
    for (way, tally) in RequestKind::ALL.into_iter().zip(&block.tally.ways) {
        let (bw, iops) = (per_second(tally.bytes, tally), per_second(tally.count, tally));
        let of_way = json!({
            "io_bytes": tally.bytes,
            "io_kbytes": tally.bytes >> 10,
            "bw_bytes": bw as u64,
            "bw": bw as u64 / 1024,
            "iops": iops,
            "runtime": if tally.count > 0 { msec(tally) } else { 0 },
            "total_ios": tally.count,
            "short_ios": 0,
            "drop_ios": 0,
            "slat_ns": latency_json(block, &none, false),
            "clat_ns": latency_json(block, &tally.latency, true),
            "lat_ns": latency_json(block, &tally.latency, false),
        });
        all.insert(way.name().into(), of_way);
    }
    let flushes = &block.tally.flushes;
    let sync = json!({ "total_ios": flushes.len(), "lat_ns": latency_json(block, flushes, true) });
    all.insert("sync".into(), sync);
    let runtime = block.tally.ways.iter().filter(|tally| tally.count > 0).map(msec).max();
    all.insert("job_runtime".into(), runtime.unwrap_or(0).into());
    let levels = ["1", "2", "4", "8", "16", "32", ">=64"].into_iter().zip(block.depths());
    let levels: Map<String, Value> = levels.map(|(level, share)| (level.into(), share.into())).collect();
    all.insert("iodepth_level".into(), levels.into());
    for ((_, ns, bounds), name) in UNITS.into_iter().zip(["latency_ns", "latency_us", "latency_ms"]) {
        let shares = block.shares(ns, bounds).into_iter().map(|(bound, share)| (bound, share.into()));
        all.insert(name.into(), Value::Object(shares.collect()));
    }
    Value::Object(all)
}
