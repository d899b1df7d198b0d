//! What polls or bypasses the kernel: testpmd's statistics, perftest, `ntb_perf`.

use serde_json::Value;

use super::{ToolRead, ToolReport, ToolTask, ToolTest, amount, behind};

const NO_RDMA: &str = "RDMA's queue pairs are not simulated; `nearfar model` has what the link carries";

/// perftest's tables, `ib_write_bw` and the like.
pub fn perftest(text: &str) -> ToolRead {
    let lines: Vec<&str> = text.lines().collect();
    let place = lines.iter().position(|line| line.trim_start().starts_with("#bytes"))?;
    let title = lines[..place].iter().rev().find(|line| line.trim_end().ends_with(" Test"));
    let title = title.map_or("perftest", |line| line.trim());
    let header = lines[place];
    let is_latency = header.contains("t_typical");
    let unit = if header.contains("Gb/sec") { "Gbit/s" } else { "MiB/s" };
    let mut tests = Vec::new();
    for cells in lines[place + 1..].iter().map_while(|line| super::row(line)) {
        let cell = |place: usize| cells.get(place).copied().flatten();
        let Some(bytes) = cell(0) else { break };
        let mut test = ToolTest::new(format!("{title}, {bytes} bytes"), ToolTask::Nothing(NO_RDMA.into()));
        match is_latency {
            true => {
                test.add("latency typical", "us", cell(4));
                test.add("latency 99 %", "us", cell(7));
            }
            false => {
                test.add("bandwidth", unit, cell(3));
                test.add("message rate", "M/s", cell(4));
            }
        }
        if !test.values.is_empty() {
            tests.push(test);
        }
    }
    Some(Ok(ToolReport::new("perftest", tests)))
}

/// perftest's `--out_json`.
pub fn from_json(json: &Value) -> ToolRead {
    let info = json.get("test_info")?;
    let title = info["test"].as_str().unwrap_or("perftest").trim().to_owned();
    let results = match &json["results"] {
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    };
    let mut tests = Vec::new();
    for result in &results {
        let bytes = amount(&result["MsgSize"]).unwrap_or_default();
        let mut test = ToolTest::new(format!("{title}, {bytes} bytes"), ToolTask::Nothing(NO_RDMA.into()));
        test.add("bandwidth", "Gbit/s", amount(&result["BW_average"]));
        test.add("message rate", "M/s", amount(&result["MsgRate"]));
        test.add("latency typical", "us", amount(&result["t_typical"]));
        if !test.values.is_empty() {
            tests.push(test);
        }
    }
    Some(Ok(ToolReport::new("perftest", tests)))
}

/// Linux's `ntb_perf`: copies by a core or a DMA engine through an NTB's window.
pub fn ntb_perf(text: &str) -> ToolRead {
    let mut tests = Vec::new();
    let lines = text
        .lines()
        .filter(|line| line.contains("copied") && line.contains("bytes") && line.contains("MBytes/s"));
    for (number, line) in lines.enumerate().take(1_000) {
        let rate = line.rsplit("usecs").next().and_then(|rest| {
            let digits = rest.trim_start_matches([',', ':', ' ']).split_whitespace().next()?;
            digits.parse::<f64>().ok()
        });
        let why = "no program copies through an NTB's window: `nearfar lend cost` has what a lent device pays for the way";
        let mut test = ToolTest::new(format!("thread {number}"), ToolTask::Nothing(why.into()));
        test.add("rate", "MB/s", rate);
        if !test.values.is_empty() {
            tests.push(test);
        }
    }
    (!tests.is_empty()).then(|| Ok(ToolReport::new("ntb_perf", tests)))
}

/// The forwarding modes that are simulated, as testpmd names them.
const MODES: [&str; 5] = ["macswap", "mac", "rxonly", "txonly", "io"];

/// testpmd's statistics, with what it printed when forwarding began.
pub fn testpmd(text: &str) -> ToolRead {
    if !text.contains("NIC statistics for port") && !text.contains("Forward statistics for port") {
        return None;
    }
    let mode = MODES.iter().find(|mode| text.contains(&format!("{mode} packet forwarding")));
    let mode = mode.or_else(|| MODES.iter().find(|mode| text.contains(&format!("forward-mode={mode}"))));
    let mut notes = Vec::new();
    if mode.is_none() {
        notes.push("the forwarding mode is not said: io is taken".into());
    }
    let burst = behind(text, "packets/burst").unwrap_or(32.0).clamp(1.0, 512.0);
    let cores = behind(text, "nb forwarding cores").unwrap_or(1.0).clamp(1.0, 64.0) as u32;
    let queues = behind(text, "RX queue number").unwrap_or(1.0).clamp(1.0, 64.0) as u32;
    let mut ports: Vec<(usize, Option<f64>, Option<f64>)> = Vec::new();
    for part in text.split("NIC statistics for port").skip(1) {
        let Some(port) = behind(part, "").filter(|port| (0.0..256.0).contains(port)) else { continue };
        ports.retain(|(known, ..)| *known != port as usize);
        ports.push((port as usize, behind(part, "Rx-pps"), behind(part, "Rx-bps")));
    }
    let of_frame = |rate: &(usize, Option<f64>, Option<f64>)| {
        let (packets, bits) = (rate.1.filter(|packets| *packets > 0.0)?, rate.2?);
        Some((bits / 8.0 / packets).round())
    };
    let frame = ports.iter().find_map(of_frame).filter(|bytes| (60.0..=1518.0).contains(bytes));
    if frame.is_none() {
        notes.push("the size of frames is not said: 64 bytes are taken, with their check sequence".into());
    }
    notes.push("what was offered is not said: a host sends as much as it can".into());
    let mode = mode.unwrap_or(&"io");
    let options = format!(
        "--forward-mode={mode} --burst={burst} --nb-cores={cores} --rxq={queues} --txq={queues} --time=2"
    );
    let task = match ports.len() {
        0 | 1 => ToolTask::Forwarding { options, frame_bytes: frame.unwrap_or(60.0) as u32, cores },
        count => ToolTask::Nothing(format!("{count} ports: write a scenario with as many NICs")),
    };
    let mut test = ToolTest::new(format!("{mode}, {cores} cores"), task);
    for (port, packets, _) in &ports {
        test.add(
            format!("port {port} rx rate"),
            "Mpackets/s",
            packets.filter(|rate| *rate > 0.0).map(|rate| rate / 1e6),
        );
    }
    test.notes = notes;
    if test.values.is_empty() {
        let why = super::ToolError::Empty("testpmd", "it shows no rates; `show port stats all`, twice, does");
        return Some(Err(why));
    }
    Some(Ok(ToolReport::new("testpmd", vec![test])))
}
