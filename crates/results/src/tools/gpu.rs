//! nvbandwidth's text and JSON, and `p2pBandwidthLatencyTest` of the CUDA samples.

use serde_json::Value;

use super::{ToolRead, ToolReport, ToolTask, ToolTest, amount, matrix};

/// Bytes of the shorter of two copies of which the simulated rate is.
const BYTES: &str = "--bytes=1m --count=4";

fn task(reads: bool, count: usize) -> ToolTask {
    let read = if reads { " --p2p_read" } else { "" };
    ToolTask::Gpus { run: format!("p2pBandwidthLatencyTest {BYTES}{read}"), count }
}

/// A table of nvbandwidth as a test.
fn bandwidth(name: &str, rows: &[(usize, Vec<Option<f64>>)]) -> Option<ToolTest> {
    let cells = || {
        let each = rows.iter().flat_map(|(row, cells)| {
            cells.iter().enumerate().map(move |(column, cell)| (*row, column, *cell))
        });
        each.filter_map(|(row, column, cell)| Some((row, column, cell.filter(|rate| *rate > 0.0)?)))
    };
    let count = rows.iter().map(|(row, cells)| cells.len().max(*row + 1)).max()?;
    let columns = rows.iter().map(|(_, cells)| cells.len()).max()?;
    let nothing = |why: &str| ToolTask::Nothing(why.to_owned());
    let pairs = |test: &mut ToolTest, name: &dyn Fn(usize, usize) -> String| {
        cells()
            .filter(|(row, column, _)| row != column)
            .for_each(|(row, column, rate)| test.add(name(row, column), "GB/s", Some(rate)));
    };
    let mut test = match name {
        "host_to_device_memcpy_ce" | "device_to_host_memcpy_ce" => {
            let mut test = ToolTest::new(name, task(false, columns));
            for (_, gpu, rate) in cells() {
                let quantity = if name.starts_with("host") {
                    format!("host to gpu{gpu}")
                } else {
                    format!("gpu{gpu} to host")
                };
                test.add(quantity, "GB/s", Some(rate));
            }
            test
        }
        // The row reads from the column, or writes to it.
        "device_to_device_memcpy_read_ce" => {
            let mut test = ToolTest::new(name, task(true, count));
            pairs(&mut test, &|row, column| format!("gpu{column} to gpu{row}"));
            test
        }
        "device_to_device_memcpy_write_ce" => {
            let mut test = ToolTest::new(name, task(false, count));
            pairs(&mut test, &|row, column| format!("gpu{row} to gpu{column}"));
            test
        }
        // Both directions of a pair, added up.
        "device_to_device_bidirectional_memcpy_read_ce_total"
        | "device_to_device_bidirectional_memcpy_write_ce_total" => {
            let mut test = ToolTest::new(name, task(name.contains("_read_"), count));
            for (row, column, rate) in cells().filter(|(row, column, _)| row < column) {
                test.add(format!("gpu{row} and gpu{column}, both ways"), "GB/s", Some(rate));
            }
            test
        }
        _ => {
            let why = match name {
                name if name.contains("latency") => "latencies of a kernel's pointer chase are not simulated",
                name if name.ends_with("_sm") => {
                    "copies by kernels (SM) are not simulated, those by copy engines (CE) are"
                }
                name if name.contains("bidirectional") && name.contains("host")
                    || name.contains("all_to")
                    || name.contains("_to_all") =>
                {
                    "`nearfar p2p` simulates all GPUs at once; this mixture is not simulated"
                }
                name if name.contains("bidirectional") => {
                    "one of its two directions is reported with both running: not simulated"
                }
                _ => "there is no such test among the simulated ones",
            };
            let mut test = ToolTest::new(name, nothing(why));
            let unit = if name.contains("latency") { "ns" } else { "GB/s" };
            cells()
                .for_each(|(row, column, value)| test.add(format!("{row} and {column}"), unit, Some(value)));
            test
        }
    };
    if test.values.is_empty() && !matches!(test.task, ToolTask::Nothing(_)) {
        test.task = nothing("no value was measured");
    }
    Some(test)
}

pub fn from_json(json: &Value) -> ToolRead {
    let cases = json.get("nvbandwidth")?["testcases"].as_array().cloned().unwrap_or_default();
    let mut tests = Vec::new();
    for case in &cases {
        let Some(name) = case["name"].as_str() else { continue };
        let rows = case["bandwidth_matrix"].as_array().cloned().unwrap_or_default();
        let cells = |row: &Value| {
            row.as_array().map(|cells| cells.iter().take(4096).map(amount).collect()).unwrap_or_default()
        };
        let rows: Vec<(usize, Vec<Option<f64>>)> = rows.iter().take(4096).map(cells).enumerate().collect();
        match bandwidth(name, &rows) {
            Some(test) => tests.push(test),
            None => {
                let why = format!("it was not run: {}", case["status"].as_str().unwrap_or("no result"));
                tests.push(ToolTest::new(name, ToolTask::Nothing(why)));
            }
        }
    }
    Some(Ok(ToolReport::new("nvbandwidth", tests)))
}

pub fn from_text(text: &str) -> ToolRead {
    if text.contains("P2P=Enabled") || text.contains("GPU Bandwidth Latency Test") {
        return Some(Ok(ToolReport::new("p2pBandwidthLatencyTest", peers(text))));
    }
    if !text.contains("nvbandwidth")
        && !text.lines().any(|line| line.starts_with("Running ") && line.contains("_memcpy_"))
    {
        return None;
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut tests = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let Some(name) = line.strip_prefix("Running ").map(|name| name.trim_end().trim_end_matches('.'))
        else {
            continue;
        };
        let until = lines[place + 1..]
            .iter()
            .take_while(|line| !line.starts_with("Running ") && !line.starts_with("SUM"));
        tests.extend(bandwidth(name, &matrix(until.copied())));
    }
    Some(Ok(ToolReport::new("nvbandwidth", tests)))
}

/// The tables of `p2pBandwidthLatencyTest`.
fn peers(text: &str) -> Vec<ToolTest> {
    let lines: Vec<&str> = text.lines().collect();
    let mut tests = Vec::new();
    for (place, line) in
        lines.iter().enumerate().filter(|(_, line)| line.contains("P2P=") && line.contains("Matrix"))
    {
        let rows = matrix(lines[place + 1..].iter().copied());
        let Some(count) = rows.iter().map(|(row, cells)| cells.len().max(row + 1)).max() else { continue };
        let title = line.trim().trim_end_matches("Matrix (GB/s)").trim_end_matches("Matrix (us)").trim();
        let reads = line.contains("P2P Reads");
        let mut test = match (line.contains("P2P=Enabled"), line.contains("Latency")) {
            (true, false) => ToolTest::new(title, task(reads, count)),
            (true, true) => ToolTest::new(
                title,
                ToolTask::Nothing("a copy of 16 bytes is the driver's time, which is not simulated".into()),
            ),
            (false, _) => ToolTest::new(
                title,
                ToolTask::Nothing(
                    "copies through host memory by the driver (P2P=Disabled) are not simulated".into(),
                ),
            ),
        };
        let both = line.contains("Bidirectional");
        for (row, cells) in &rows {
            for (column, cell) in cells.iter().enumerate().filter(|(column, _)| column != row) {
                match both {
                    // Each pair stands there twice.
                    true if row < &column => {
                        test.add(format!("gpu{row} and gpu{column}, both ways"), "GB/s", *cell)
                    }
                    true => {}
                    false => test.add(
                        format!("gpu{row} to gpu{column}"),
                        if line.contains("(us)") { "us" } else { "GB/s" },
                        *cell,
                    ),
                }
            }
        }
        if !test.values.is_empty() {
            tests.push(test);
        }
    }
    tests
}
