//! Parsers for sizes and times in the tools' syntax.

use std::net::Ipv4Addr;

use units::Duration;

/// Maximum duration in seconds: a simulated day takes a year to simulate.
const LONGEST: f64 = 86_400.0;

/// `4k`, `128K`, `1g`, `512`: units are powers of 1024, as in fio and dd.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let help =
        || format!("`{text}` is not a size; write a number of bytes, with an optional suffix k, m, g or t");
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(help()),
    };
    let number: u64 = digits.parse().map_err(|_| help())?;
    number.checked_mul(1 << shift).ok_or_else(help)
}

/// `10ms`, `500us`, `2s`; a plain number is in seconds, as in fio.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let help = || format!("`{text}` is not a time; write a number with a suffix m, s, ms, us or ns");
    let digits = text.trim_end_matches(char::is_alphabetic);
    let ps: u64 = match &text[digits.len()..] {
        "" | "s" => 1_000_000_000_000,
        "ms" => 1_000_000_000,
        "us" | "µs" => 1_000_000,
        "ns" => 1_000,
        "m" => 60_000_000_000_000,
        _ => return Err(help()),
    };
    let number: u64 = digits.parse().map_err(|_| help())?;
    let time = number.checked_mul(ps).map(Duration::from_ps).ok_or_else(help)?;
    let long = format!("`{text}` is too long to simulate: a day at most");
    if time.as_s_f64() <= LONGEST { Ok(time) } else { Err(long) }
}

/// Seconds with a fraction, as in iperf, netperf and ping.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|seconds| (0.0..=LONGEST).contains(seconds));
    number.ok_or_else(|| format!("`{text}` is not a number of seconds from 0 to {LONGEST}"))
}

/// A duration in seconds.
pub(crate) fn length(text: &str) -> Result<f64, String> {
    // Less than a nanosecond counts as zero.
    let long = |seconds: &f64| *seconds >= 1e-9;
    seconds(text)
        .ok()
        .filter(long)
        .ok_or_else(|| format!("`{text}` is not a number of seconds above 0, up to {LONGEST}"))
}

/// The IPv4 address of a peer.
pub(crate) fn peer(text: &str) -> Result<Ipv4Addr, String> {
    let address: Option<Ipv4Addr> = text.parse().ok();
    let is_one = |a: &Ipv4Addr| !(a.is_unspecified() || a.is_multicast() || a.is_broadcast());
    address
        .filter(is_one)
        .ok_or_else(|| format!("`{text}` is not an IPv4 address of a host, such as 10.0.0.2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_the_tools_do() {
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert_eq!(size("512"), Ok(512));
        assert!(size("4q").is_err() && size("").is_err() && size("99999999t").is_err());
        assert_eq!(time("10ms"), Ok(Duration::from_ms(10)));
        assert_eq!(time("2"), Ok(Duration::from_ms(2000)));
        assert!(time("ms").is_err() && time("1h").is_err());
        assert_eq!(seconds("0.002"), Ok(0.002));
        assert!(["nan", "inf", "-1", "1e9", ""].iter().all(|text| seconds(text).is_err()));
        assert!(["0", "1e-12", "-0", "1e9"].iter().all(|text| length(text).is_err()));
        assert!(time("1500m").is_err());
        assert!(
            ["0.0.0.0", "224.0.0.1", "255.255.255.255", "b", "10.0.0"].iter().all(|text| peer(text).is_err())
        );
    }
}
