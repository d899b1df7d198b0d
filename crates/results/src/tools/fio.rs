//! fio's JSON and JSON+.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{ToolError, ToolRead, ToolReport, ToolTask, ToolTest, amount, is_plain, spelled};

/// Simulated time of a job, and before it counts.
const RUNTIME: &str = "--ramp_time=500us --runtime=4ms";
/// Options that the simulated fio takes as they are.
const SAME: [&str; 27] = [
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "bsrange",
    "blocksize_range",
    "bssplit",
    "iodepth",
    "iodepth_batch",
    "iodepth_batch_submit",
    "iodepth_batch_complete",
    "iodepth_batch_complete_min",
    "iodepth_low",
    "numjobs",
    "direct",
    "rwmixread",
    "rwmixwrite",
    "percentage_random",
    "random_distribution",
    "norandommap",
    "hipri",
    "fsync",
    "fdatasync",
    "rate_iops",
    "rate_process",
    "thinktime",
    "thinktime_blocks",
];
/// Engines that the simulated fio has.
const ENGINES: [&str; 8] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "posixaio"];
/// Percentiles that are compared.
const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 99.99];

pub fn from_json(json: &Value) -> ToolRead {
    json.get("fio version")?;
    let jobs = json["jobs"].as_array().cloned().unwrap_or_default();
    let global = json["global options"].as_object().cloned().unwrap_or_default();
    // Jobs of one group run at the same time.
    let mut groups: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for job in &jobs {
        groups.entry(job["groupid"].as_u64().unwrap_or(0)).or_default().push(job);
    }
    let failed = jobs.iter().find(|job| amount(&job["error"]).is_some_and(|error| error != 0.0));
    if let (Some(failed), 1) = (failed, jobs.len()) {
        return Some(Err(ToolError::Failed("fio", format!("error {}", failed["error"]))));
    }
    let tests = groups.values().map(|jobs| test(&global, jobs)).filter(|test| !test.values.is_empty());
    Some(Ok(ToolReport::new("fio", tests.collect())))
}

/// The processes of a group as one command line.
fn test(global: &Map<String, Value>, jobs: &[&Value]) -> ToolTest {
    let mut notes = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let (mut cores, mut devices, mut titles) = (0, 1, Vec::new());
    for job in jobs {
        let mut options = global.clone();
        options.extend(job["job options"].as_object().cloned().unwrap_or_default());
        let line = job_line(&options, &mut notes, &mut devices);
        // Each process of a job may stand by itself.
        if !lines.contains(&line) {
            let count = options.get("numjobs").and_then(amount).unwrap_or(1.0);
            cores += count.clamp(1.0, 1024.0) as u32;
            titles.push(spelled(&job["jobname"]).unwrap_or_default());
            lines.push(line);
        }
    }
    let each = lines.iter().enumerate().map(|(n, line)| format!(" --name=job{n}{line}"));
    let run = format!("fio --group_reporting {RUNTIME}{}", each.collect::<String>());
    let task = match devices {
        1 => ToolTask::Drive { run, cores },
        devices => {
            ToolTask::Nothing(format!("a job has {devices} devices: write a scenario with as many drives"))
        }
    };
    let mut test = ToolTest::new(titles.join(", "), task);
    for way in ["read", "write", "trim"] {
        values(&mut test, way, jobs);
    }
    notes.sort();
    notes.dedup();
    test.notes = notes;
    test
}

/// A job's options behind its name.
fn job_line(options: &Map<String, Value>, notes: &mut Vec<String>, devices: &mut usize) -> String {
    let mut line = String::new();
    // What is not given is fio's default, which is not always the simulated program's.
    if !options.contains_key("direct")
        && options.get("buffered").and_then(spelled).is_none_or(|value| value == "1")
    {
        line += " --direct=0";
    }
    for (key, value) in options {
        let Some(value) = spelled(value).map(|value| value.trim().to_owned()) else { continue };
        match key.as_str() {
            "filename" => {
                *devices = (*devices).max(value.split(':').filter(|name| !name.is_empty()).count());
                if !value.starts_with("/dev/") {
                    notes.push("files of a file system are not simulated: the drive itself is used".into());
                }
            }
            "directory" => {
                notes.push("files of a file system are not simulated: the drive itself is used".into())
            }
            "ioengine" => {
                let engine = if ENGINES.contains(&value.as_str()) { value.as_str() } else { "io_uring" };
                if engine != value {
                    notes.push(format!("ioengine={value} is not simulated: io_uring stands for it"));
                }
                line += &format!(" --ioengine={engine}");
            }
            key if SAME.contains(&key) && value.is_empty() => line += &format!(" --{key}=1"),
            key if SAME.contains(&key) && is_plain(&value) => line += &format!(" --{key}={value}"),
            // These change when it ends, and where, but not what a request costs.
            _ => {}
        }
    }
    line
}

fn values(test: &mut ToolTest, way: &str, jobs: &[&Value]) {
    let sides: Vec<&Value> = jobs
        .iter()
        .map(|job| &job[way])
        .filter(|side| amount(&side["iops"]).is_some_and(|rate| rate > 0.0))
        .collect();
    if sides.is_empty() {
        return;
    }
    let sum = |of: &dyn Fn(&Value) -> Option<f64>| sides.iter().map(|side| of(side)).sum::<Option<f64>>();
    test.add(format!("{way} iops"), "1/s", sum(&|side| amount(&side["iops"])));
    // Older versions have KiB/s alone.
    let bytes = |side: &Value| amount(&side["bw_bytes"]).or_else(|| Some(amount(&side["bw"])? * 1024.0));
    test.add(format!("{way} bw"), "MB/s", sum(&bytes).map(|rate| rate / 1e6));
    let clat = |side: &Value| match side.get("clat_ns") {
        Some(clat) => (clat.clone(), 1e3),
        None => (side["clat"].clone(), 1.0),
    };
    let weight = |side: &Value| amount(&side["total_ios"]).unwrap_or(1.0);
    let all = sides.iter().map(|side| weight(side)).sum::<f64>();
    let mean = sum(&|side| {
        let (clat, unit) = clat(side);
        Some(amount(&clat["mean"])? / unit * weight(side))
    });
    test.add(format!("{way} clat mean"), "µs", mean.map(|mean| mean / all).filter(|mean| *mean > 0.0));
    for percent in PERCENTILES {
        let value = match &sides[..] {
            [side] => {
                let (clat, unit) = clat(side);
                let listed = clat["percentile"].as_object().and_then(|all| {
                    all.iter()
                        .find(|(name, _)| name.parse().is_ok_and(|name: f64| (name - percent).abs() < 1e-6))
                });
                listed.and_then(|(_, value)| amount(value)).map(|value| value / unit)
            }
            // The histograms of JSON+ can be added up.
            sides => binned(sides, percent).map(|ns| ns / 1e3),
        };
        test.add(format!("{way} clat {percent} %"), "µs", value);
    }
}

/// A percentile of several histograms, in nanoseconds.
fn binned(sides: &[&Value], percent: f64) -> Option<f64> {
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for side in sides {
        for (ns, count) in side["clat_ns"]["bins"].as_object()? {
            let bin = bins.entry(ns.parse().ok()?).or_default();
            *bin = bin.saturating_add(count.as_u64()?);
        }
    }
    let all = bins.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    let wanted = all as f64 * percent / 100.0;
    let mut below = 0.0;
    bins.iter().find_map(|(ns, count)| {
        below += *count as f64;
        (below >= wanted && all > 0).then_some(*ns as f64)
    })
}
