//! What people's own tools measured: their outputs as values, and the same test as a command line that can be simulated.
//!
//! Formats are told by content. A quantity has the name and the unit that the simulated program reports it by.
//!
//! | file | tools |
//! |---|---|
//! | `fio` | fio's JSON and JSON+ |
//! | `iperf` | `iperf3 -J` |
//! | `netperf` | classic tables, omni's keys and lists |
//! | `sockperf` | summaries and percentiles |
//! | `gpu` | nvbandwidth's text and JSON, `p2pBandwidthLatencyTest` |
//! | `memory` | Intel MLC, STREAM |
//! | `core_to_core` | `core-to-core-latency`'s CSV and table |
//! | `wire` | testpmd's statistics, perftest, `ntb_perf` |

mod core_to_core;
mod fio;
mod gpu;
mod iperf;
mod memory;
mod netperf;
mod sockperf;
mod wire;

use serde_json::Value;

/// Most bytes of a tool's output.
pub const LARGEST: u64 = 64 << 20;

/// A tool's output.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReport {
    /// The tool, as its users call it.
    pub tool: &'static str,
    /// Its tests, in the order of the output.
    pub tests: Vec<ToolTest>,
    /// The first GPU's name, if it prints one.
    pub gpu: Option<String>,
}

/// One test, and what it measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolTest {
    /// The test in the tool's words.
    pub title: String,
    /// What does the same.
    pub task: ToolTask,
    /// What was measured.
    pub values: Vec<ToolValue>,
    /// What the output does not say, or says and is not simulated.
    pub notes: Vec<String>,
}

/// A measured quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolValue {
    /// As the simulated program reports it.
    pub quantity: String,
    /// Its unit there.
    pub unit: &'static str,
    /// The value in this unit.
    pub value: f64,
}

/// What does the same as a test.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolTask {
    /// A program on a host with a drive, on so many cores near it.
    Drive {
        /// Its command line.
        run: String,
        /// Cores.
        cores: u32,
    },
    /// A client and a server on two hosts that a cable joins.
    Network {
        /// The server's command line.
        server: String,
        /// The client's; the server has the address 10.0.0.2.
        client: String,
    },
    /// A program on a host with so many GPUs.
    Gpus {
        /// Its command line.
        run: String,
        /// GPUs.
        count: usize,
    },
    /// A program on the cores of a node.
    Cores {
        /// Its command line, in which `{elements}` is what three arrays need to exceed the last-level caches.
        run: String,
        /// The node of the cores.
        node: u32,
        /// The node of the memory; that of the cores if not given.
        memory: Option<u32>,
        /// How many cores; all of the node if not given.
        count: Option<u32>,
    },
    /// A program on all cores of a host.
    AllCores {
        /// Its command line.
        run: String,
    },
    /// A forwarder that polls its NIC, and a host that sends frames as fast as it can.
    Forwarding {
        /// The forwarder's options behind `--`.
        options: String,
        /// Bytes of a frame without its check sequence.
        frame_bytes: u32,
        /// Forwarding cores.
        cores: u32,
    },
    /// Nothing that is simulated, and why.
    Nothing(String),
}

/// Why a tool's output cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The format is not known.
    #[error(
        "its format is not known: a directory of pcie-bench, or an output of fio (--output-format=json), iperf3 -J, netperf, sockperf, \
         perftest, nvbandwidth, p2pBandwidthLatencyTest, Intel MLC, STREAM, core-to-core-latency, ntb_perf or testpmd"
    )]
    Unknown,
    /// It is an output of nearfar's own.
    #[error("it has records of nearfar, which `nearfar diff` compares")]
    Records,
    /// It is JSON that ends early or is damaged.
    #[error("it is damaged or cut off: {0}")]
    Damaged(String),
    /// The tool itself reports an error.
    #[error("{0} failed: {1}")]
    Failed(&'static str, String),
    /// It has outputs of two tools.
    #[error("it has outputs of {0} and of {1}: give each its file")]
    Mixed(&'static str, &'static str),
    /// It has no result.
    #[error("{0}'s output has no result: {1}")]
    Empty(&'static str, &'static str),
}

/// Reads a tool's output, whichever it is.
///
/// # Errors
/// If it is none that is known, is damaged, or has no result.
pub fn read(bytes: &[u8]) -> Result<ToolReport, ToolError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let records = serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
    if records.first().is_some_and(|record| record.get("provenance").is_some()) {
        return Err(ToolError::Records);
    }
    let report = match json_in(text)? {
        None => from_text(text).unwrap_or(Err(ToolError::Unknown))?,
        // A script may have put several runs into one file.
        Some(all) => {
            let mut reports = all.iter().map(|json| from_json(json).unwrap_or(Err(ToolError::Unknown)));
            let mut first = reports.next().unwrap_or(Err(ToolError::Unknown))?;
            for other in reports {
                let other = other?;
                if other.tool != first.tool {
                    return Err(ToolError::Mixed(first.tool, other.tool));
                }
                first.tests.extend(other.tests);
            }
            first
        }
    };
    match report.tests.is_empty() {
        true => Err(ToolError::Empty(report.tool, "no test has ended")),
        false => Ok(report),
    }
}

type ToolRead = Option<Result<ToolReport, ToolError>>;

fn from_json(json: &Value) -> ToolRead {
    [fio::from_json, iperf::from_json, gpu::from_json, wire::from_json].iter().find_map(|read| read(json))
}

fn from_text(text: &str) -> ToolRead {
    [
        netperf::from_text,
        sockperf::from_text,
        gpu::from_text,
        memory::mlc,
        memory::stream,
        core_to_core::from_text,
        wire::perftest,
        wire::ntb_perf,
        wire::testpmd,
    ]
    .iter()
    .find_map(|read| read(text))
}

/// The JSON documents of a text, behind lines that a tool prints before the first; `None` if it has none.
fn json_in(text: &str) -> Result<Option<Vec<Value>>, ToolError> {
    let mut start = 0;
    // Warnings come first, each on a line of its own.
    for line in text.split_inclusive('\n').take(50) {
        if line.trim_start().starts_with('{') {
            let values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
            let all: Result<Vec<Value>, _> = values.take(1_000).collect();
            return all.map(Some).map_err(|error| ToolError::Damaged(error.to_string()));
        }
        start += line.len();
    }
    Ok(None)
}

impl ToolReport {
    fn new(tool: &'static str, tests: Vec<ToolTest>) -> Self {
        Self { tool, tests, gpu: None }
    }
}

impl ToolTest {
    fn new(title: impl Into<String>, task: ToolTask) -> Self {
        Self { title: title.into(), task, values: Vec::new(), notes: Vec::new() }
    }

    /// Adds a value, if it was measured.
    fn add(&mut self, quantity: impl Into<String>, unit: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.push(ToolValue { quantity: quantity.into(), unit, value });
        }
    }
}

/// A value as a text, whether it was quoted or not.
fn spelled(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A number, whether it was quoted or not.
fn amount(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Whether a word can stand in a command line as it is.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 100
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "._-:,/%".contains(c))
}

/// The number behind a label.
fn behind(text: &str, label: &str) -> Option<f64> {
    let rest = text[text.find(label)? + label.len()..].trim_start_matches([':', '=', ' ', '\t']);
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".-+eE".contains(c))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The numbers of a line; `None` if it has another word, `N/A` and `-` apart.
fn row(line: &str) -> Option<Vec<Option<f64>>> {
    let cell = |word: &str| match word {
        "N/A" | "-" => Some(None),
        word => word.parse().ok().map(Some),
    };
    line.split_whitespace().map(cell).collect::<Option<Vec<_>>>().filter(|cells| !cells.is_empty())
}

/// Rows of numbers with their own number first, up to another line; lines before the first row are headers.
fn matrix<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<(usize, Vec<Option<f64>>)> {
    let mut rows = Vec::new();
    let mut width = None;
    for line in lines.take(1_000) {
        let Some(cells) = row(line) else {
            match (rows.is_empty(), line.trim().is_empty()) {
                // Titles of columns.
                (true, _) => continue,
                (false, _) => break,
            }
        };
        let is_header = cells.iter().enumerate().all(|(n, cell)| *cell == Some(n as f64));
        if rows.is_empty() && is_header && width.is_none() {
            width = Some(cells.len());
            continue;
        }
        let Some(Some(number)) = cells.first().copied() else { break };
        if !(0.0..=4096.0).contains(&number) || number.fract() != 0.0 || cells.len() < 2 {
            break;
        }
        rows.push((number as usize, cells[1..].to_vec()));
    }
    rows
}
