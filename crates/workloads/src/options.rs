//! Parsers for sizes and times in the tools' syntax.

use std::net::Ipv4Addr;

use units::Duration;

use crate::premises::Refused;

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

/// A number, perhaps with a fraction, times what its suffix stands for. Numbers from outside never wrap.
fn scaled(text: &str, factor: impl Fn(&str) -> Option<f64>, help: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not {help}");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = factor(&text[digits.len()..]).ok_or_else(wrong)?;
    // Whole numbers are exact.
    if let Ok(number) = digits.parse::<u64>() {
        return number.checked_mul(factor as u64).ok_or_else(wrong);
    }
    let number = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    // The largest integers that a double has exactly. What is not 0 does not become it.
    if (number == 0.0 || number >= 1.0) && (0.0..=9_007_199_254_740_992.0).contains(&number) {
        Ok(number as u64)
    } else {
        Err(wrong())
    }
}

/// Power of a suffix k, m, g or t in lower case.
fn power(letter: &str) -> Option<i32> {
    ["", "k", "m", "g", "t"].iter().position(|known| *known == letter).map(|power| power as i32)
}

/// `416k` = 416,000, `416K` = 425,984: small letters are powers of 1000, capitals of 1024, as in netperf and iperf.
pub(crate) fn mixed_size(text: &str) -> Result<u64, String> {
    let factor = |suffix: &str| match power(suffix) {
        Some(power) => Some(1000f64.powi(power)),
        None => power_of_capital(suffix).map(|power| 1024f64.powi(power)),
    };
    scaled(text, factor, "a size; write a number, with an optional suffix k, m, g (1000) or K, M, G (1024)")
}

fn power_of_capital(suffix: &str) -> Option<i32> {
    let is_capital = suffix.chars().all(|c| c.is_ascii_uppercase());
    power(&suffix.to_ascii_lowercase()).filter(|_| is_capital)
}

/// `1M` = `1m` = 1,048,576, as iperf3 takes sizes.
pub(crate) fn binary_size(text: &str) -> Result<u64, String> {
    let factor = |suffix: &str| power(&suffix.to_ascii_lowercase()).map(|power| 1024f64.powi(power));
    scaled(text, factor, "a size; write a number, with an optional suffix K, M, G or T (1024)")
}

/// `1G` = `1g` = 1,000,000,000, as iperf3 takes bit rates.
pub(crate) fn decimal_rate(text: &str) -> Result<u64, String> {
    let factor = |suffix: &str| power(&suffix.to_ascii_lowercase()).map(|power| 1000f64.powi(power));
    scaled(text, factor, "a rate; write bits per second, with an optional suffix K, M, G or T (1000)")
}

/// Checks that a size is in a range, and makes it 32 bits wide.
pub(crate) fn within(size: u64, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let fits = u32::try_from(size).ok().filter(|size| range.contains(size));
    fits.ok_or_else(|| format!("{size} is not in {}..={}", range.start(), range.end()))
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

/// A number of seconds as a duration, a day at most.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::from_ps((seconds.min(LONGEST) * 1e12) as u64)
}

/// Checks that a program does not run for longer than can be simulated: `count` times `each`.
pub(crate) fn check_length(program: &str, count: u64, each: Duration) -> Result<(), Refused> {
    let seconds = count as f64 * each.as_s_f64();
    let message = format!("{program}: it would take {seconds:.0} s, which is too long to simulate");
    Refused::unless(seconds <= LONGEST, message, format!("{LONGEST} s, a day, at most"))
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
        .ok_or_else(|| {
            format!("`{text}` is no name of a host of the scenario, and not an IPv4 address of a host, such as 10.0.0.2")
        })
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
        assert_eq!((mixed_size("416k"), mixed_size("416K")), (Ok(416_000), Ok(425_984)));
        assert_eq!((binary_size("1m"), binary_size("0.5K")), (Ok(1 << 20), Ok(512)));
        assert_eq!((decimal_rate("1G"), decimal_rate("2.5g")), (Ok(1_000_000_000), Ok(2_500_000_000)));
        for wrong in
            ["", "k", "-1", "1x", "1kk", "nan", "inf", "18446744073709551616", "99999999999G", "1e30"]
        {
            assert!(
                mixed_size(wrong).is_err() && binary_size(wrong).is_err() && decimal_rate(wrong).is_err()
            );
        }
        assert!(within(1 << 40, 1..=1 << 22).is_err() && within(7, 1..=8) == Ok(7));
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
