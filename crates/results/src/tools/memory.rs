//! Intel's Memory Latency Checker, and STREAM.

use super::{ToolRead, ToolReport, ToolTask, ToolTest, behind, matrix};

/// Loads that depend on each other, at random over more than the caches hold.
const CHASE: &str = "lat_mem_rd -t {llc_mib:3} 2048";

pub fn mlc(text: &str) -> ToolRead {
    if !text.contains("Memory Latency Checker") && !text.contains("Measuring idle latencies") {
        return None;
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut tests = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        // The next part begins with another such line.
        let part = || {
            let rest = &lines[place + 1..];
            rest.iter().copied().take_while(|line| !line.starts_with("Measuring"))
        };
        if line.contains("Measuring idle latencies") {
            tests.extend(nodes(part(), "idle latency", |node, memory| {
                (CHASE.to_owned(), node, memory, Some(1), "latency", "ns")
            }));
        } else if line.contains("Measuring Memory Bandwidths between nodes") {
            tests.extend(nodes(part(), "bandwidth", |node, memory| {
                (
                    "stream --only read --array-size {elements:3} --ntimes 2".into(),
                    node,
                    memory,
                    None,
                    "read",
                    "MB/s",
                )
            }));
        } else if line.contains("Measuring Peak Injection Memory Bandwidths") {
            tests.extend(part().filter_map(peak));
        } else if line.contains("Measuring Loaded Latencies") {
            let why = "latencies under a load that is injected are not simulated: run lat_mem_rd beside stream in a scenario";
            tests.push(ToolTest::new("loaded latencies", ToolTask::Nothing(why.into())));
        } else if line.contains("Measuring cache-to-cache") {
            let why = "transfers between caches have no program here";
            tests.push(ToolTest::new("cache-to-cache latencies", ToolTask::Nothing(why.into())));
        }
    }
    Some(Ok(ToolReport::new("mlc", tests)))
}

/// A program's line, nodes of cores and memory, cores, and the reading with its unit.
type NodeTask = (String, u32, u32, Option<u32>, &'static str, &'static str);

fn nodes<'t>(
    lines: impl Iterator<Item = &'t str>,
    what: &str,
    of: impl Fn(u32, u32) -> NodeTask,
) -> Vec<ToolTest> {
    let lines = lines.filter(|line| !line.trim_start().starts_with("Numa node") && !line.contains("MB/sec"));
    let mut tests = Vec::new();
    for (row, cells) in matrix(lines) {
        for (column, value) in cells.iter().enumerate() {
            let (run, node, memory, count, quantity, unit) = of(row as u32, column as u32);
            let task = ToolTask::Cores { run, node, memory: Some(memory), count };
            let mut test = ToolTest::new(format!("{what}, node {row} to memory of node {column}"), task);
            test.add(quantity, unit, *value);
            if !test.values.is_empty() {
                tests.push(test);
            }
        }
    }
    tests
}

fn peak(line: &str) -> Option<ToolTest> {
    let (name, value) =
        line.rsplit_once(':').filter(|(name, _)| name.contains("Read") || name.contains("triad"))?;
    let value = value.trim().parse().ok()?;
    let why =
        "all sockets at once, in this mixture of reads and writes, are not simulated: the table of nodes is";
    let mut test = ToolTest::new(format!("peak, {}", name.trim()), ToolTask::Nothing(why.into()));
    test.add("rate", "MB/s", Some(value));
    Some(test)
}

pub fn stream(text: &str) -> ToolRead {
    if !text.contains("Best Rate MB/s") && !text.contains("STREAM version") && !text.contains("Rate (MB/s)") {
        return None;
    }
    let threads =
        behind(text, "Number of Threads requested").or_else(|| behind(text, "Number of Threads counted"));
    let mut notes = Vec::new();
    if threads.is_none() {
        notes.push("the number of threads is not said: one is taken".into());
    }
    let threads = threads.unwrap_or(1.0).clamp(1.0, 4096.0) as u32;
    let run = "stream --array-size {elements} --ntimes 3".to_owned();
    let mut test = ToolTest::new(
        format!("{threads} threads"),
        ToolTask::Cores { run, node: 0, memory: None, count: Some(threads) },
    );
    for (label, quantity) in [("Copy:", "copy"), ("Scale:", "scale"), ("Add:", "add"), ("Triad:", "triad")] {
        test.add(quantity, "MB/s", behind(text, label));
    }
    notes.push("arrays are smaller than the original's, but more than the caches hold; threads are on the cores of socket 0 first".into());
    test.notes = notes;
    let tests = if test.values.is_empty() { Vec::new() } else { vec![test] };
    Some(Ok(ToolReport::new("STREAM", tests)))
}
