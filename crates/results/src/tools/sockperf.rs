//! sockperf: latencies are half the round trip, in both.

use super::{ToolRead, ToolReport, ToolTask, ToolTest, behind};

pub fn from_text(text: &str) -> ToolRead {
    if !text.contains("sockperf:") {
        return None;
    }
    let is_tcp = text.lines().any(|line| line.contains("PORT") && line.contains("# TCP"));
    let mut notes = Vec::new();
    let tcp = if is_tcp { " --tcp" } else { "" };
    let latency = behind(text, "avg-latency=").or_else(|| behind(text, "avg-lat="));
    let latency = latency.or_else(|| behind(text, "Summary: Latency is "));
    let rate = behind(text, "Summary: Message Rate is ");
    let megabytes = behind(text, "Summary: BandWidth is ");
    let told = behind(text, "--msg-size=").or_else(|| behind(text, "--msg-size "));
    // Mebibytes per second, of so many messages.
    let of_rate =
        rate.zip(megabytes).filter(|(rate, _)| *rate > 0.0).map(|(rate, all)| all * 1_048_576.0 / rate);
    let size = told.or(of_rate).filter(|size| *size >= 14.0).map(|size| (size.round() as u32).min(65_507));
    if size.is_none() {
        notes.push("the size of messages is not said: the default of 14 bytes is taken".into());
    }
    let size = size.unwrap_or(14);
    let mode = match (latency, text.contains("under-load") || text.contains("mps=")) {
        (None, _) => "throughput",
        (Some(_), true) if behind(text, "mps=").is_some() => "under-load",
        _ => "ping-pong",
    };
    let load = match (mode, behind(text, "mps=")) {
        ("under-load", Some(rate)) => format!(" --mps {:.0}", rate.clamp(1.0, 1e9)),
        _ => String::new(),
    };
    let client = format!("sockperf {mode} -i 10.0.0.2{tcp} -m {size}{load} -t 0.004");
    let task = ToolTask::Network { server: format!("sockperf server{tcp}"), client };
    let mut test = ToolTest::new(format!("{mode}, {size} bytes"), task);
    test.add("latency mean", "µs", latency);
    for (percent, name) in [("50.000", "p50"), ("90.000", "p90"), ("99.000", "p99")] {
        test.add(format!("latency {name}"), "µs", behind(text, &format!("percentile {percent}")));
    }
    if latency.is_none() {
        test.add("message rate", "messages/s", rate);
        test.add("bandwidth", "Mbit/s", megabytes.map(|all| all * 8.0 * 1.048_576));
    }
    test.notes = notes;
    let tests = if test.values.is_empty() { Vec::new() } else { vec![test] };
    Some(Ok(ToolReport::new("sockperf", tests)))
}
