//! Text as iperf prints it.

use units::Duration;

use super::stream::StreamTally;

/// Which program prints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum IperfVersion {
    Two,
    Three,
}

/// Bytes in units of 1024, as `1.09 GBytes`.
fn transfer(bytes: u64) -> String {
    let mut value = bytes as f64;
    let units = ["Bytes", "KBytes", "MBytes", "GBytes", "TBytes"];
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

/// Bits per second in units of 1000, as `9.37 Gbits/sec`.
fn bandwidth(bits_per_s: f64) -> String {
    let mut value = bits_per_s;
    let units = ["bits/sec", "Kbits/sec", "Mbits/sec", "Gbits/sec", "Tbits/sec"];
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:4.2}"),
        value if value < 99.95 => format!("{value:4.1}"),
        value => format!("{value:4.0}"),
    }
}

/// A stream's line for a part of a test.
fn line(version: IperfVersion, id: &str, from: Duration, to: Duration, bytes: u64, rest: &str) -> String {
    let seconds = to.as_s_f64() - from.as_s_f64();
    // The originals print two digits of seconds; a simulated test is shorter.
    let (from, to) = (from.as_s_f64(), to.as_s_f64());
    let digits = if seconds < 0.1 { 6 } else { 2 };
    let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
    let space = if version == IperfVersion::Two { "" } else { "  " };
    let line = format!(
        "[{id:>3}] {from:.digits$}-{to:.digits$}{space} sec  {}  {}  {rest}",
        transfer(bytes),
        bandwidth(rate)
    );
    line.trim_end().to_owned()
}

/// Lines of the intervals and of the whole test.
pub fn lines(version: IperfVersion, interval: Duration, streams: &[StreamTally], udp: bool) -> Vec<String> {
    let head = match (version, udp) {
        (IperfVersion::Two, _) => "[ ID] Interval       Transfer     Bandwidth",
        (IperfVersion::Three, false) => "[ ID] Interval           Transfer     Bitrate         Retr",
        (IperfVersion::Three, true) => {
            "[ ID] Interval           Transfer     Bitrate         Total Datagrams"
        }
    };
    let mut lines = vec![head.to_owned()];
    // The first descriptors that are free for streams in the originals.
    let first = if version == IperfVersion::Two { 3 } else { 5 };
    let ids: Vec<String> = (0..streams.len()).map(|n| format!("{}", first + n)).collect();
    let took = streams.iter().map(|tally| tally.took).max().unwrap_or_default();
    let count = took.as_ps().div_ceil(interval.as_ps().max(1)).min(super::stream::INTERVALS);
    let mut add = |from: Duration,
                   to: Duration,
                   of: &dyn Fn(&StreamTally) -> u64,
                   rest: &dyn Fn(&StreamTally) -> String| {
        for (tally, id) in streams.iter().zip(&ids) {
            lines.push(line(version, id, from, to, of(tally), &rest(tally)));
        }
        if streams.len() > 1 {
            lines.push(line(version, "SUM", from, to, streams.iter().map(of).sum(), ""));
        }
    };
    for n in 0..count {
        let (from, to) = (interval * n, (interval * (n + 1)).min(took));
        let bytes = |tally: &StreamTally| tally.intervals.get(n as usize).copied().unwrap_or(0);
        add(from, to, &bytes, &|_| String::new());
    }
    let rest = |tally: &StreamTally| match (version, udp) {
        (_, true) => format!(
            "{:.3} ms  {}/{} ({:.2}%)",
            tally.jitter.as_s_f64() * 1e3,
            tally.lost,
            tally.lost + tally.datagrams,
            100.0 * tally.lost as f64 / ((tally.lost + tally.datagrams) as f64).max(1.0)
        ),
        (IperfVersion::Three, false) => format!("{}", tally.again),
        (IperfVersion::Two, false) => String::new(),
    };
    add(Duration::ZERO, took, &|tally| tally.bytes, &rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_iperf_prints_it() {
        let second = Duration::from_ms(1000);
        let text = line(IperfVersion::Two, "3", Duration::ZERO, second, 1_170_000_000, "");
        assert_eq!(text, "[  3] 0.00-1.00 sec  1.09 GBytes  9.36 Gbits/sec");
        assert_eq!(
            (transfer(512), bandwidth(99_960.0)),
            (" 512 Bytes".to_owned(), " 100 Kbits/sec".to_owned())
        );
    }
}
