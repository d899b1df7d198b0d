//! Fits what tests of memory determine: idle latencies of Intel's MLC, of a node's own memory and of another one's, and
//! those of lines that another core of the node has, also of `core-to-core-latency`.
//!
//! Latency changes with a figure by a known multiple, so a few steps of that slope end where simulated and measured agree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use machine::{Determined, Doc, Kind, Listed, Machine, Provenance, figures};
use results::tools::ToolReport;

use super::{FitError, FitOptions};
use crate::compare::{ToolComparison, ToolOptions, compare_reports, read_tool};
use crate::progress::Progress;

/// A figure that tests determine.
struct MemoryAim {
    path: &'static str,
    /// Whether a test with this title is of it.
    is_of: fn(&str) -> bool,
    /// By how much a load takes longer for each nanosecond of the figure.
    slope: f64,
    what: &'static str,
}

/// In this order: what is between nodes comes on top of what a node's own memory takes.
const AIMS: [MemoryAim; 3] = [
    MemoryAim {
        path: "host.dram.access",
        is_of: |title| nodes_of(title).is_some_and(|(node, memory)| node == memory),
        slope: 1.0,
        what: "own node",
    },
    MemoryAim {
        path: "host.interconnect.latency",
        is_of: |title| nodes_of(title).is_some_and(|(node, memory)| node != memory),
        slope: 2.0,
        what: "other nodes",
    },
    MemoryAim {
        path: "host.llc.core_snoop",
        is_of: |title| ["cache to cache, hitm", "core to core, same node"].contains(&title),
        slope: 1.0,
        what: "another core's line",
    },
];

/// Steps towards a measured latency, and what is near enough, in percent.
const STEPS: usize = 6;
const NEAR_PCT: f64 = 0.5;

/// A figure, and the latency that it was fitted to.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryFigure {
    /// The figure's path.
    pub path: String,
    /// The value before, as the file spells it.
    pub before: String,
    /// The value after.
    pub after: String,
    /// Tests that it was fitted to.
    pub tests: usize,
    /// Their mean as measured, nanoseconds.
    pub measured_ns: f64,
    /// As simulated with the value before.
    pub before_ns: f64,
    /// As simulated with the value after.
    pub after_ns: f64,
}

/// What a fit to tests of memory gives.
#[derive(Debug)]
pub struct MemoryFit {
    /// The machine's file with the new values.
    pub machine: Doc<Machine>,
    /// The figures that were fitted.
    pub figures: Vec<MemoryFigure>,
    /// What was not, and why.
    pub problems: Vec<String>,
}

/// Nodes of a core and of memory, of a title such as `idle latency, node 0 to memory of node 1`.
fn nodes_of(title: &str) -> Option<(u32, u32)> {
    let rest = title.strip_prefix("idle latency, node ")?;
    let (node, memory) = rest.split_once(" to memory of node ")?;
    Some((node.parse().ok()?, memory.parse().ok()?))
}

/// The mean of what was measured, and of what was simulated, over tests of an aim.
fn means(tests: &[ToolComparison], aim: &MemoryAim) -> Option<(usize, f64, f64)> {
    let of_aim = tests.iter().filter(|test| (aim.is_of)(&test.title));
    let both: Vec<(f64, f64)> = of_aim
        .flat_map(|test| {
            test.rows.iter().filter_map(|(_, _, measured, simulated)| Some((*measured, (*simulated)?)))
        })
        .collect();
    let count = both.len() as f64;
    let sum = both.iter().fold((0.0, 0.0), |sum, both| (sum.0 + both.0, sum.1 + both.1));
    (!both.is_empty()).then_some((both.len(), sum.0 / count, sum.1 / count))
}

/// Fits a machine to outputs of Intel's MLC and of `core-to-core-latency`.
///
/// # Errors
/// If an output is of another tool, no machine is named, or the machine's file is wrong.
pub fn fit_memory(
    paths: &[PathBuf],
    options: &FitOptions,
    progress: &dyn Progress,
) -> Result<MemoryFit, FitError> {
    let wrong = |path: &Path, why: String| FitError::Output { file: path.to_owned(), why };
    let Some(base) = &options.base else {
        let path = paths.first().cloned().unwrap_or_default();
        return Err(wrong(
            &path,
            "it does not name its machine: give it with --machine, by name or as an import's file".into(),
        ));
    };
    let mut reports = Vec::new();
    for path in paths {
        let report = read_tool(path).map_err(|error| wrong(path, error.to_string()))?;
        let tests: Vec<_> =
            report.tests.into_iter().filter(|test| AIMS.iter().any(|aim| (aim.is_of)(&test.title))).collect();
        if tests.is_empty() {
            let why = format!(
                "it is {}'s, which has no latencies of nodes or caches; `nearfar compare` takes it",
                report.tool
            );
            return Err(wrong(path, why));
        }
        reports.push((path.clone(), ToolReport { tests, ..report }));
    }
    let tools = reports.iter().map(|(_, report)| report.tool).collect::<BTreeSet<_>>();
    let tools = tools.into_iter().collect::<Vec<_>>().join(" and ");
    let mut doc = Doc::<Machine>::load(&options.library, base)?;
    let content = doc.read()?;
    let listed = figures(&content);
    let mut set: Vec<(String, String)> = Vec::new();
    let simulate = |set: &[(String, String)]| -> Result<Vec<ToolComparison>, FitError> {
        let options = ToolOptions {
            library: options.library.clone(),
            machine: base.clone(),
            card: None,
            set: set.to_vec(),
        };
        let first = paths.first().cloned().unwrap_or_default();
        compare_reports(reports.clone(), &options, progress).map_err(|error| wrong(&first, error.to_string()))
    };
    let (mut fitted, mut problems) = (Vec::new(), Vec::new());
    for aim in &AIMS {
        let Some((figure, now_ns)) =
            listed.iter().find(|figure| figure.path == aim.path).and_then(|figure| {
                // Figures are in picoseconds.
                Some((figure, figure.number? / 1e3))
            })
        else {
            problems.push(format!("{}: the machine has no such figure", aim.path));
            continue;
        };
        match approach(aim, figure, now_ns, &mut set, &simulate)? {
            Ok(found) => {
                doc.set_figure(aim.path, &found.after, stated(&found, &tools))?;
                fitted.push(found);
            }
            Err(why) => problems.push(format!("{}: {why}", aim.path)),
        }
    }
    if !fitted.is_empty() {
        doc.set("name", &options.name)?;
    }
    doc.read()?;
    Ok(MemoryFit { machine: doc, figures: fitted, problems })
}

/// Simulates all tests with changes to the machine.
type TestRunner<'a> = dyn Fn(&[(String, String)]) -> Result<Vec<ToolComparison>, FitError> + 'a;

/// Changes a figure until its tests are as measured; adds it to what is set.
fn approach(
    aim: &MemoryAim,
    figure: &Listed,
    now_ns: f64,
    set: &mut Vec<(String, String)>,
    simulate: &TestRunner<'_>,
) -> Result<Result<MemoryFigure, String>, FitError> {
    let Some((tests, measured_ns, before_ns)) = means(&simulate(set)?, aim) else {
        return Ok(Err(format!("no latency of {} was measured and simulated", aim.what)));
    };
    let spelt = |ns: f64| format!("{ns:.1} ns");
    let (mut value, mut latency) = (now_ns, before_ns);
    let mut slope = aim.slope;
    for _ in 0..STEPS {
        if (latency / measured_ns - 1.0).abs() * 100.0 < NEAR_PCT {
            break;
        }
        let next = (value + (measured_ns - latency) / slope).max(0.1);
        let mut with = set.clone();
        with.push((aim.path.to_owned(), spelt(next)));
        // A value that the machine cannot have ends the search.
        let Ok(tests) = simulate(&with) else { break };
        let Some((.., simulated)) = means(&tests, aim) else { break };
        // What the last step showed is the better slope, unless it showed nothing.
        let shown = (simulated - latency) / (next - value);
        if shown.is_finite() && (0.2..5.0).contains(&shown) {
            slope = shown;
        }
        (value, latency) = (next, simulated);
    }
    let off_pct = 100.0 * (latency / measured_ns - 1.0);
    if off_pct.abs() > 5.0 {
        return Ok(Err(format!(
            "{} took {measured_ns:.1} ns, and with {} it is {latency:.1} ns ({off_pct:+.1} %): the rest of the path is another one; the \
             value stays {}",
            aim.what,
            spelt(value),
            figure.value
        )));
    }
    let after = if value == now_ns { figure.value.clone() } else { spelt(value) };
    set.push((aim.path.to_owned(), after.clone()));
    Ok(Ok(MemoryFigure {
        path: aim.path.to_owned(),
        before: figure.value.clone(),
        after,
        tests,
        measured_ns,
        before_ns,
        after_ns: latency,
    }))
}

/// Where the value is from.
fn stated(found: &MemoryFigure, tools: &str) -> Provenance {
    let source = format!(
        "fitted: {tools}, {} latencies of {:.1} ns in the mean, simulated {:.1} ns",
        found.tests, found.measured_ns, found.after_ns
    );
    Provenance {
        source,
        kind: Kind::Fitted,
        determined: Some(Determined::Well),
        uncertainty: None,
        without: None,
    }
}
