//! `iperf3 -J`.

use serde_json::Value;

use super::{ToolError, ToolRead, ToolReport, ToolTask, ToolTest, amount};

/// Simulated seconds of a test, and those before it counts: connections open their windows.
const LASTS: &str = "-t 0.006 -O 0.002";

pub fn from_json(json: &Value) -> ToolRead {
    let start = json
        .get("start")
        .filter(|start| start.get("version").is_some() || start.get("test_start").is_some())?;
    if let Some(error) = json["error"].as_str() {
        return Some(Err(ToolError::Failed("iperf3", error.to_owned())));
    }
    let (test, end) = (&start["test_start"], &json["end"]);
    let number = |key: &str| amount(&test[key]);
    let is_udp = test["protocol"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("udp"));
    let streams = number("num_streams").unwrap_or(1.0).clamp(1.0, 128.0);
    let is_reverse = number("reverse") == Some(1.0);
    let size = number("blksize").filter(|size| (1.0..=(1 << 20) as f64).contains(size));
    let mut client = format!("iperf3 -c 10.0.0.2 {LASTS} -P {streams}");
    if let Some(size) = size {
        client += &format!(" -l {size}");
    }
    let target = number("target_bitrate").or_else(|| number("target_bandwidth")).filter(|rate| *rate > 0.0);
    if is_udp {
        // Without a rate, the original sends 1 Mbit/s.
        client += &format!(" -u -b {:.0}", target.unwrap_or(1e6));
    } else if let Some(rate) = target {
        client += &format!(" -b {rate:.0}");
    }
    if is_reverse {
        client += " -R";
    }
    let task = match number("bidir") {
        Some(1.0) => ToolTask::Nothing(
            "both directions at once (--bidir) are not simulated: run one, then --reverse".into(),
        ),
        _ => ToolTask::Network { server: "iperf3 -s".into(), client },
    };
    let protocol = if is_udp { "UDP" } else { "TCP" };
    let way = if is_reverse { ", server to client" } else { "" };
    let mut test = ToolTest::new(format!("{protocol}, {streams} streams{way}"), task);
    let mbit = |value: &Value| amount(&value["bits_per_second"]).map(|rate| rate / 1e6);
    if is_udp {
        test.add("received bandwidth", "Mbit/s", mbit(&end["sum"]).or_else(|| mbit(&end["sum_received"])));
        test.add("loss", "%", amount(&end["sum"]["lost_percent"]));
        test.add("jitter", "µs", amount(&end["sum"]["jitter_ms"]).map(|ms| ms * 1e3));
    } else {
        test.add("received bandwidth", "Mbit/s", mbit(&end["sum_received"]));
        if test.values.is_empty() {
            test.add("bandwidth", "Mbit/s", mbit(&end["sum_sent"]));
        }
    }
    let cpu = &end["cpu_utilization_percent"];
    test.add("local cpu", "% of a core", amount(&cpu["host_total"]).filter(|cpu| *cpu > 0.0));
    test.add("remote cpu", "% of a core", amount(&cpu["remote_total"]).filter(|cpu| *cpu > 0.0));
    test.notes.push("sizes of packets and rings, offloads and the cores of IRQs are not said: they are the simulated machine's".into());
    let tests = if test.values.is_empty() { Vec::new() } else { vec![test] };
    Some(Ok(ToolReport::new("iperf3", tests)))
}
