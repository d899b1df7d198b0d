//! Intel's Memory Latency Checker, and STREAM.

use super::{ToolRead, ToolReport, ToolTask, ToolTest, behind, matrix, row};

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
            let name = |node, memory| format!("idle latency {node} {memory}");
            let options = if line.contains("random") { "--latency_matrix -r" } else { "--latency_matrix" };
            tests.extend(nodes(part(), "idle latency", options, name, "ns"));
        } else if line.contains("Measuring Memory Bandwidths between nodes") {
            let name = |node, memory| format!("reads bandwidth {node} {memory}");
            tests.extend(nodes(part(), "bandwidth", "--bandwidth_matrix", name, "MB/s"));
        } else if line.contains("Measuring Peak Injection Memory Bandwidths") {
            tests.extend(part().filter_map(peak));
        } else if line.contains("Measuring Loaded Latencies") {
            tests.extend(part().filter_map(loaded));
        } else if line.contains("Measuring cache-to-cache") {
            tests.extend(cache_to_cache(&part().collect::<Vec<_>>()));
        }
    }
    Some(Ok(ToolReport::new("mlc", tests)))
}

/// A test of the same program here, on all cores.
fn checker(title: impl Into<String>, options: &str) -> ToolTest {
    ToolTest::new(title, ToolTask::AllCores { run: format!("mlc {options}") })
}

/// The cells of a matrix of nodes.
fn nodes<'t>(
    lines: impl Iterator<Item = &'t str>,
    what: &str,
    options: &str,
    name: impl Fn(usize, usize) -> String,
    unit: &'static str,
) -> Vec<ToolTest> {
    let lines = lines.filter(|line| !line.trim_start().starts_with("Numa node") && !line.contains("MB/sec"));
    let mut tests = Vec::new();
    for (row, cells) in matrix(lines) {
        for (column, value) in cells.iter().enumerate() {
            let mut test = checker(format!("{what}, node {row} to memory of node {column}"), options);
            test.add(name(row, column), unit, *value);
            if !test.values.is_empty() {
                tests.push(test);
            }
        }
    }
    tests
}

/// A mixture of reads and writes of all cores, such as `3:1 Reads-Writes : 215000.1`.
fn peak(line: &str) -> Option<ToolTest> {
    let (name, value) = line.rsplit_once(':')?;
    let value = value.trim().parse().ok()?;
    let mix = match name.trim() {
        name if name.contains("ALL Reads") => "reads",
        name if name.contains("triad") => "stream triad",
        name => name.strip_suffix("Reads-Writes")?.trim(),
    };
    if !["reads", "stream triad", "3:1", "2:1", "1:1"].contains(&mix) {
        return None;
    }
    let mut test = checker(format!("peak, {}", name.trim()), "--peak_injection_bandwidth");
    test.add(format!("peak {mix}"), "MB/s", Some(value));
    Some(test)
}

/// A delay between accesses with latency and bandwidth, such as ` 00300 101.02   61543.2`.
fn loaded(line: &str) -> Option<ToolTest> {
    let [delay, latency, bandwidth] = row(line)?[..] else { return None };
    let delay = delay.filter(|delay| delay.fract() == 0.0 && (0.0..=100_000.0).contains(delay))?;
    let mut test = checker(format!("loaded latency, delay {delay}"), &format!("--loaded_latency -d {delay}"));
    test.add(format!("delay {delay}: loaded latency"), "ns", latency);
    test.add(format!("delay {delay}: bandwidth"), "MB/s", bandwidth);
    Some(test)
}

/// Lines in caches of the same socket, and of others by where their memory is.
fn cache_to_cache(lines: &[&str]) -> Vec<ToolTest> {
    let test = |title: String, quantity: String, value: Option<f64>| {
        let mut test = checker(title, "--c2c_latency");
        test.add(quantity, "ns", value);
        test
    };
    let mut tests = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        for (label, name) in [("L2->L2 HIT", "hit"), ("L2->L2 HITM", "hitm")] {
            let is_local = line.contains("Local Socket") && line.contains(&format!("{label} "));
            if let Some(value) = behind(line, "latency").filter(|_| is_local) {
                tests.push(test(format!("cache to cache, {name}"), format!("L2 to L2 {name}"), Some(value)));
            }
        }
        let Some(home) =
            ["writer", "reader"].into_iter().find(|home| line.contains(&format!("homed in {home}")))
        else {
            continue;
        };
        let table = lines[place + 1..].iter().copied().take_while(|line| !line.contains("homed in"));
        let table = table.filter(|line| !line.contains("Numa Node"));
        for (writer, cells) in matrix(table) {
            for (reader, value) in cells.iter().enumerate().filter(|(reader, _)| *reader != writer) {
                let name = format!("writer {writer} reader {reader}, home of {home}");
                tests.push(test(format!("cache to cache, {name}"), format!("L2 to L2 hitm, {name}"), *value));
            }
        }
    }
    tests.retain(|test| !test.values.is_empty());
    tests
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
