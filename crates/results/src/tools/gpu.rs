//! nvbandwidth's text and JSON, and `p2pBandwidthLatencyTest` of the CUDA samples.

use serde_json::Value;

use super::{ToolRead, ToolReport, ToolTask, ToolTest, amount, matrix};

/// Bytes of the shorter of two copies of which the simulated rate is.
const BYTES: &str = "--bytes=1m --count=4";

fn task(reads: bool, count: usize) -> ToolTask {
    let read = if reads { " --p2p_read" } else { "" };
    ToolTask::Gpus { run: format!("p2pBandwidthLatencyTest {BYTES}{read}"), count }
}

/// What a cell of a table of nvbandwidth is called where it is simulated, after the test's name; `None` if it is not.
fn cell(name: &str, row: usize, column: usize) -> Option<String> {
    Some(match name {
        "host_device_latency_sm" => format!("host from gpu{column}"),
        "device_to_device_latency_sm" => format!("gpu{column} from gpu{row}"),
        // Both directions of a pair, added up.
        "device_to_device_bidirectional_memcpy_read_ce_total"
        | "device_to_device_bidirectional_memcpy_write_ce_total" => {
            format!("gpu{row} and gpu{column}, total")
        }
        // The row reads from the column, or writes to it.
        "device_to_device_memcpy_read_ce" => format!("gpu{column} to gpu{row}"),
        "device_to_device_memcpy_write_ce" => format!("gpu{row} to gpu{column}"),
        "host_to_device_memcpy_ce"
        | "host_to_device_bidirectional_memcpy_ce"
        | "host_to_all_memcpy_ce"
        | "host_to_all_bidirectional_memcpy_ce" => format!("host to gpu{column}"),
        "device_to_host_memcpy_ce"
        | "device_to_host_bidirectional_memcpy_ce"
        | "all_to_host_memcpy_ce"
        | "all_to_host_bidirectional_memcpy_ce" => format!("gpu{column} to host"),
        "all_to_one_write_ce" | "all_to_one_read_ce" => format!("all to gpu{column}"),
        "one_to_all_write_ce" | "one_to_all_read_ce" => format!("gpu{column} to all"),
        _ => return None,
    })
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
    let unit = if name.contains("latency") { "ns" } else { "GB/s" };
    let test = name.trim_end_matches("_total");
    let of_pairs = name.starts_with("device_to_device_");
    let mut told = ToolTest::new(name, ToolTask::Gpus { run: format!("nvbandwidth -t {test}"), count });
    if cell(name, 0, 0).is_some() {
        for (row, column, value) in cells().filter(|(row, column, _)| !of_pairs || row != column) {
            let cell = cell(name, row, column).unwrap_or_default();
            told.add(format!("{test}: {cell}"), unit, Some(value));
        }
        if told.values.is_empty() {
            told.task = ToolTask::Nothing("no value was measured".to_owned());
        }
        return Some(told);
    }
    let why = match name {
        name if name.ends_with("_sm") => {
            "copies by kernels (SM) are not simulated, those by copy engines (CE) are"
        }
        name if name.contains("bidirectional") => {
            "one of its two directions is reported with both running: not simulated"
        }
        _ => "there is no such test among the simulated ones",
    };
    told.task = ToolTask::Nothing(why.to_owned());
    cells().for_each(|(row, column, value)| told.add(format!("{row} and {column}"), unit, Some(value)));
    Some(told)
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
    let list = json["nvbandwidth"]["GPU Device list"].as_array();
    let gpu = list.and_then(|list| list.first()?.as_str()).map(|text| named(text).to_owned());
    Some(Ok(with_gpu(ToolReport::new("nvbandwidth", tests), gpu)))
}

fn with_gpu(report: ToolReport, gpu: Option<String>) -> ToolReport {
    ToolReport { gpu, ..report }
}

/// The name in `0: NVIDIA H100 PCIe (00000000:17:00)`, or without number or address.
fn named(text: &str) -> &str {
    let text = text.split_once(": ").map_or(text, |(_, name)| name);
    text.split(['(', ',']).next().unwrap_or(text).trim()
}

/// The first GPU: `Device 0: NVIDIA H100 PCIe (..)` of nvbandwidth, `Device: 0, NVIDIA H100 PCIe, pciBusID: ..` of the samples.
fn printed_gpu(text: &str) -> Option<String> {
    text.lines().take(100).find_map(|line| {
        let rest = line.trim().strip_prefix("Device")?;
        let name = match rest.strip_prefix(": ") {
            Some(rest) => rest.split(", ").nth(1)?,
            None => rest.split_once(": ")?.1,
        };
        Some(named(name).to_owned()).filter(|name| !name.is_empty())
    })
}

pub fn from_text(text: &str) -> ToolRead {
    if text.contains("P2P=Enabled") || text.contains("GPU Bandwidth Latency Test") {
        return Some(Ok(with_gpu(
            ToolReport::new("p2pBandwidthLatencyTest", peers(text)),
            printed_gpu(text),
        )));
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
    Some(Ok(with_gpu(ToolReport::new("nvbandwidth", tests), printed_gpu(text))))
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
