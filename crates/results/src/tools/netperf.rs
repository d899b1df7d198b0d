//! netperf: classic tables, and omni's keys (`-k`), lists (`-o`) and lines (`-O`).

use std::collections::BTreeMap;

use super::{ToolRead, ToolReport, ToolTask, ToolTest};

/// The names of tests in their first lines.
const BANNERS: [(&str, &str); 8] = [
    ("TCP STREAM TEST", "TCP_STREAM"),
    ("TCP MAERTS TEST", "TCP_MAERTS"),
    ("TCP SENDFILE TEST", "TCP_SENDFILE"),
    ("UDP STREAM TEST", "UDP_STREAM"),
    ("UDP UNIDIRECTIONAL SEND TEST", "UDP_STREAM"),
    ("TCP REQUEST/RESPONSE TEST", "TCP_RR"),
    ("UDP REQUEST/RESPONSE TEST", "UDP_RR"),
    ("TCP CONNECT/REQUEST/RESPONSE TEST", "TCP_CRR"),
];

/// Descriptions that `-o` and `-O` print, with the names that `-k` has.
const DESCRIBED: [(&str, &str); 16] = [
    ("throughput", "THROUGHPUT"),
    ("throughput units", "THROUGHPUT_UNITS"),
    ("protocol", "PROTOCOL"),
    ("direction", "DIRECTION"),
    ("local send size", "LOCAL_SEND_SIZE"),
    ("request size bytes", "REQUEST_SIZE"),
    ("response size bytes", "RESPONSE_SIZE"),
    ("request size", "REQUEST_SIZE"),
    ("response size", "RESPONSE_SIZE"),
    ("burst requests", "BURST_SIZE"),
    ("mean latency microseconds", "MEAN_LATENCY"),
    ("50th percentile latency microseconds", "P50_LATENCY"),
    ("90th percentile latency microseconds", "P90_LATENCY"),
    ("99th percentile latency microseconds", "P99_LATENCY"),
    ("local cpu util %", "LOCAL_CPU_UTIL"),
    ("remote cpu util %", "REMOTE_CPU_UTIL"),
];

pub fn from_text(text: &str) -> ToolRead {
    let mut tests = Vec::new();
    let mut current: Option<(&'static str, Vec<&str>)> = None;
    let mut loose = Vec::new();
    for line in text.lines() {
        let upper = line.to_ascii_uppercase();
        let banner = BANNERS.iter().find(|(banner, _)| upper.contains(banner) && upper.contains(" FROM "));
        let is_omni = upper.starts_with("OMNI ") && upper.contains("TEST");
        if banner.is_some() || is_omni {
            tests.extend(current.take().and_then(|(name, lines)| of_lines(name, &lines)));
            current = Some((banner.map_or("", |(_, name)| name), Vec::new()));
        } else if let Some((_, lines)) = &mut current {
            lines.push(line);
        } else {
            loose.push(line);
        }
    }
    let has_banner = current.is_some();
    tests.extend(current.and_then(|(name, lines)| of_lines(name, &lines)));
    // Without a banner (`-P 0`), only omni's names tell what it is.
    if !has_banner {
        let keys = named(&loose);
        if !keys.contains_key("THROUGHPUT") || !keys.contains_key("THROUGHPUT_UNITS") {
            return None;
        }
        tests.extend(omni("", &keys));
    }
    Some(Ok(ToolReport::new("netperf", tests)))
}

fn of_lines(name: &'static str, lines: &[&str]) -> Option<ToolTest> {
    let mut keys = named(lines);
    if name.is_empty() && !keys.contains_key("THROUGHPUT") {
        keys = columns(lines);
    }
    if keys.contains_key("THROUGHPUT") {
        return omni(name, &keys);
    }
    classic(name, lines)
}

/// Bits per second of a unit of throughput, in Mbit/s.
fn mbit_of(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let known = [
        ("10^3bits", 1e-3),
        ("10^6bits", 1.0),
        ("10^9bits", 1e3),
        ("kbytes", 8.0 * 1024.0 / 1e6),
        ("mbytes", 8.0 * (1 << 20) as f64 / 1e6),
        ("gbytes", 8.0 * (1 << 30) as f64 / 1e6),
    ];
    known.iter().find(|(name, _)| unit.contains(name)).map(|(_, scale)| *scale)
}

/// Sizes that can stand in a command line.
fn bytes(value: f64) -> u32 {
    value.clamp(1.0, (16 << 20) as f64) as u32
}

fn stream(name: &str, send: Option<f64>, mbit: Option<f64>) -> ToolTest {
    let own =
        send.filter(|size| *size >= 1.0).map_or(String::new(), |size| format!(" -- -m {}", bytes(size)));
    let own = if name == "TCP_MAERTS" { own.replace(" -m ", " -M ") } else { own };
    let client = format!("netperf -H 10.0.0.2 -t {name} -l 0.006{own}");
    let mut test = ToolTest::new(name, ToolTask::Network { server: "netserver".into(), client });
    test.add("throughput", "Mbit/s", mbit);
    test
}

fn transactions(name: &str, [request, response]: [f64; 2], burst: f64, rate: Option<f64>) -> ToolTest {
    let burst = if burst >= 1.0 { format!(" -b {}", burst.min(65_536.0) as u32) } else { String::new() };
    let client =
        format!("netperf -H 10.0.0.2 -t {name} -l 0.004 -- -r {},{}{burst}", bytes(request), bytes(response));
    let mut test = ToolTest::new(
        format!("{name} {},{}", bytes(request), bytes(response)),
        ToolTask::Network { server: "netserver".into(), client },
    );
    test.add("rate", "transactions/s", rate);
    test
}

/// The table of a classic test: its last header has units, its first row of numbers the results.
fn classic(name: &'static str, lines: &[&str]) -> Option<ToolTest> {
    let row = lines.iter().find_map(|line| super::row(line).filter(|cells| cells.len() >= 4))?;
    let cell = |place: usize| row.get(place).copied().flatten();
    let unit = lines.iter().find_map(|line| mbit_of(line));
    let test = match name {
        "UDP_STREAM" => {
            // What was received stands on the second row.
            let rows: Vec<_> =
                lines.iter().filter_map(|line| super::row(line)).filter(|row| row.len() >= 4).collect();
            let mut test = stream(name, cell(1), None);
            let rate = |row: &Vec<Option<f64>>| Some(row.last().copied().flatten()? * unit.unwrap_or(1.0));
            test.add("sent throughput", "Mbit/s", rows.first().and_then(rate));
            test.add("throughput", "Mbit/s", rows.get(1).and_then(rate));
            test
        }
        "TCP_RR" | "UDP_RR" | "TCP_CRR" => transactions(name, [cell(2)?, cell(3)?], 0.0, cell(5)),
        _ => {
            let mut test = stream(name, cell(2), cell(4).map(|rate| rate * unit.unwrap_or(1.0)));
            test.add("local cpu utilization", "% of the host's cores", cell(5).filter(|share| *share >= 0.0));
            test.add(
                "remote cpu utilization",
                "% of the host's cores",
                cell(6).filter(|share| *share >= 0.0),
            );
            test
        }
    };
    (!test.values.is_empty()).then(|| with_cpu(test))
}

/// Utilisation is measured if it was asked for.
fn with_cpu(mut test: ToolTest) -> ToolTest {
    let asks = test.values.iter().any(|value| value.quantity.ends_with("cpu utilization"));
    if let (true, ToolTask::Network { client, .. }) = (asks, &mut test.task) {
        *client = client.replacen("netperf ", "netperf -c -C ", 1);
    }
    test
}

/// omni's table for people: sizes, time, throughput and its unit are the last columns.
fn columns(lines: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let is_unit = |word: &str| mbit_of(word).is_some() || word.to_ascii_lowercase().starts_with("trans");
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., first, second, time, rate, unit] = &words[..] else { continue };
        if !is_unit(unit) || rate.parse::<f64>().is_err() || time.parse::<f64>().is_err() {
            continue;
        }
        let sizes: &[(&str, &str)] = match mbit_of(unit) {
            Some(_) => &[("LOCAL_SEND_SIZE", second)],
            None => &[("REQUEST_SIZE", first), ("RESPONSE_SIZE", second)],
        };
        let results = [("THROUGHPUT", *rate), ("THROUGHPUT_UNITS", *unit)];
        let all = sizes.iter().chain(&results);
        found.extend(all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    }
    found
}

/// omni's results by name.
fn named(lines: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in lines.iter().take(500) {
        if let Some((key, value)) = line.split_once('=') {
            found.insert(key.trim().to_ascii_uppercase(), value.trim().to_owned());
        }
    }
    if found.contains_key("THROUGHPUT") {
        return found;
    }
    let name = |text: &str| {
        let text = text.trim().to_ascii_lowercase();
        DESCRIBED.iter().find(|(described, _)| *described == text).map(|(_, name)| (*name).to_owned())
    };
    // A line of descriptions, then one of values.
    for pair in lines.windows(2) {
        let (header, values): (Vec<&str>, Vec<&str>) =
            (pair[0].split(',').collect(), pair[1].split(',').collect());
        if header.len() == values.len() && header.iter().any(|text| name(text).is_some()) {
            let each = header.iter().zip(values);
            found.extend(each.filter_map(|(text, value)| Some((name(text)?, value.trim().to_owned()))));
        }
    }
    found
}

fn omni(banner: &str, keys: &BTreeMap<String, String>) -> Option<ToolTest> {
    let text = |key: &str| keys.get(key).map(String::as_str);
    let number = |key: &str| text(key)?.parse::<f64>().ok();
    let unit = text("THROUGHPUT_UNITS").unwrap_or("10^6bits/s");
    let mut notes = Vec::new();
    let protocol = text("PROTOCOL").unwrap_or_else(|| match banner {
        "" => {
            notes.push("the protocol is not said: TCP is taken".into());
            "TCP"
        }
        name => name.split('_').next().unwrap_or("TCP"),
    });
    let protocol = if protocol.eq_ignore_ascii_case("udp") { "UDP" } else { "TCP" };
    let rate = number("THROUGHPUT");
    let mut test = if unit.to_ascii_lowercase().starts_with("trans") {
        let sizes = [number("REQUEST_SIZE").unwrap_or(1.0), number("RESPONSE_SIZE").unwrap_or(1.0)];
        let kind = if banner == "TCP_CRR" { "TCP_CRR".to_owned() } else { format!("{protocol}_RR") };
        transactions(&kind, sizes, number("BURST_SIZE").unwrap_or(0.0), rate)
    } else {
        let is_back = text("DIRECTION").is_some_and(|way| way.eq_ignore_ascii_case("receive"))
            || banner == "TCP_MAERTS";
        let name = match (protocol, is_back) {
            ("TCP", true) => "TCP_MAERTS",
            ("UDP", _) => "UDP_STREAM",
            _ => "TCP_STREAM",
        };
        stream(name, number("LOCAL_SEND_SIZE"), rate.zip(mbit_of(unit)).map(|(rate, scale)| rate * scale))
    };
    let latencies =
        [("mean", "MEAN_LATENCY"), ("p50", "P50_LATENCY"), ("p90", "P90_LATENCY"), ("p99", "P99_LATENCY")];
    for (quantity, key) in latencies {
        test.add(format!("latency {quantity}"), "µs", number(key).filter(|us| *us > 0.0));
    }
    for (quantity, key) in [("local", "LOCAL_CPU_UTIL"), ("remote", "REMOTE_CPU_UTIL")] {
        test.add(
            format!("{quantity} cpu utilization"),
            "% of the host's cores",
            number(key).filter(|share| *share >= 0.0),
        );
    }
    test.notes = notes;
    (!test.values.is_empty()).then(|| with_cpu(test))
}
