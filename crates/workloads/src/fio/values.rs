//! Values of options in fio's syntax.

use units::Duration;

use crate::options;

/// What `k`, `m`, ... multiply by: of 1024, or of 1000, with the other for `ki`, `mi`, ... (`kb_base`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitBase(pub u64);

impl UnitBase {
    /// 1024, the default.
    pub(super) const BINARY: Self = Self(1024);

    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text {
            "1024" => Ok(Self(1024)),
            "1000" => Ok(Self(1000)),
            _ => Err("it can be 1024 or 1000".into()),
        }
    }

    /// `4k`, `0x1000`, `1Gi`, `512b`: as fio reads sizes, without regard to case.
    pub(super) fn size(self, text: &str) -> Result<u64, String> {
        let help = || {
            format!(
                "`{text}` is not a size; write a number of bytes, with an optional suffix k, m, g, t or p"
            )
        };
        let lower = text.to_ascii_lowercase();
        let (radix, lower) = lower.strip_prefix("0x").map_or((10, &*lower), |digits| (16, digits));
        let end = lower.find(|c: char| !c.is_digit(radix)).unwrap_or(lower.len());
        let (digits, suffix) = lower.split_at(end);
        let suffix = suffix.strip_suffix('b').unwrap_or(suffix);
        let (prefix, is_binary) = suffix.strip_suffix('i').map_or((suffix, false), |prefix| (prefix, true));
        let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == prefix);
        let power = power.filter(|&power| power > 0 || !is_binary).ok_or_else(help)?;
        // With a base of 1024, the suffixes of powers of 1000 and 1024 are exchanged, for old job files.
        let base = if is_binary { 2024 - self.0 } else { self.0 };
        let number = u64::from_str_radix(digits, radix).map_err(|_| help())?;
        number.checked_mul(base.pow(power as u32)).ok_or_else(help)
    }
}

/// A length: in bytes, or as a share of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RangeSize {
    Bytes(u64),
    Percent(u64),
}

impl RangeSize {
    pub(super) fn read(base: UnitBase, text: &str) -> Result<Self, String> {
        match text.strip_suffix('%') {
            None => base.size(text).map(Self::Bytes),
            Some(number) => {
                let share = number.parse().ok().filter(|share| *share <= 100);
                share.map(Self::Percent).ok_or_else(|| format!("`{text}` is not a percentage, up to 100%"))
            }
        }
    }

    /// In bytes, of `whole`, rounded down to multiples of `unit` if it is a share.
    pub(super) fn of(self, whole: u64, unit: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let bytes = u128::from(whole) * u128::from(percent) / 100;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                bytes / unit.max(1) * unit.max(1)
            }
        }
    }
}

/// A value for reads, writes and trims: one for all, or `read,write,trim`. An omitted one is that before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Each<T>(pub [T; 3]);

impl<T: Clone> Each<T> {
    /// `8k,,16k`: without a first one, reads have the `usual` one.
    pub(super) fn read(
        text: &str,
        usual: T,
        one: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, String> {
        let given: Vec<&str> = text.split(',').collect();
        if given.len() > 3 {
            return Err(format!("`{text}` has more than three values: of reads, writes and trims"));
        }
        let read = if given[0].is_empty() && given.len() > 1 { usual } else { one(given[0])? };
        let or = |n: usize, default: &T| match given.get(n).filter(|text| !text.is_empty()) {
            Some(text) => one(text),
            None => Ok(default.clone()),
        };
        let write = or(1, &read)?;
        let trim = or(2, if given.len() > 1 && !given[1].is_empty() { &write } else { &read })?;
        Ok(Self([read, write, trim]))
    }
}

/// Rates, which are above 0. Of several, one that is missing is no limit: 0.
pub(super) fn rates(base: UnitBase, text: &str) -> Result<Each<u64>, String> {
    let wrong = |one: &str| {
        format!("`{one}` is not a rate, such as 40m, or 40m,10m of reads and writes, or ,10m of writes alone")
    };
    let rate = |one: &str| base.size(one).ok().filter(|rate| *rate > 0).ok_or_else(|| wrong(one));
    let given: Vec<&str> = text.split(',').collect();
    match given[..] {
        [all] => rate(all).map(|rate| Each([rate; 3])),
        [_, _] | [_, _, _] if given.iter().any(|one| !one.is_empty()) => {
            let or_none = |one: &str| if one.is_empty() { Ok(0) } else { rate(one) };
            let (read, write) = (or_none(given[0])?, or_none(given[1])?);
            Ok(Each([read, write, given.get(2).map_or(Ok(write), |trim| or_none(trim))?]))
        }
        _ => Err(wrong(text)),
    }
}

/// Sizes of requests with their shares in percent: `4k/60:64k/40` (`bssplit`), or a single one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RequestSizes(pub Vec<(u64, u64)>);

impl RequestSizes {
    /// `4k`: all of one size.
    pub(super) fn one(size: u64) -> Self {
        Self(vec![(size, 100)])
    }

    /// `4k-64k`: every multiple of the smaller one, equally often (`bsrange`).
    pub(super) fn range(base: UnitBase, text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once(['-', ':']).unwrap_or((text, text));
        let (least, most) = (base.size(least)?, base.size(most)?);
        if least == 0 || least > most || most / least > 4096 {
            return Err(format!("`{text}` is not a range of sizes, such as 4k-64k"));
        }
        let all: Vec<_> = (1..=most / least).map(|n| (n * least, 0)).collect();
        Ok(Self(all).filled())
    }

    /// `4k/60:64k/40`; those without a share have an equal part of what is left.
    pub(super) fn split(base: UnitBase, text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        let (mut given, mut open) = (0u64, Vec::new());
        for piece in text.split(':').filter(|piece| !piece.is_empty()) {
            let (size, share) = piece.split_once('/').map_or((piece, ""), |(size, share)| (size, share));
            let size = base.size(size)?;
            let share = share.trim_end_matches('%');
            let share = if share.is_empty() {
                open.push(all.len());
                0
            } else {
                share.parse().map_err(|_| format!("`{piece}` is not a size with a share, such as 4k/60"))?
            };
            given = given.saturating_add(share);
            all.push((size, share));
        }
        if all.is_empty() || given > 100 || (open.is_empty() && given != 100) {
            return Err(format!("the shares of `{text}` do not add up to 100"));
        }
        for &n in &open {
            all[n].1 = (100 - given) / open.len() as u64;
        }
        Ok(Self(all))
    }

    /// Equal shares, in units of one per size: shares need not add up to 100 inside.
    fn filled(mut self) -> Self {
        self.0.iter_mut().for_each(|(_, share)| *share = 1);
        self
    }

    pub(super) fn least(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).min().unwrap_or(0)
    }

    pub(super) fn most(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).max().unwrap_or(0)
    }

    /// The size for a random number below the sum of all shares.
    pub(super) fn at(&self, mut number: u64) -> u64 {
        for (size, share) in &self.0 {
            if number < *share {
                return *size;
            }
            number -= share;
        }
        self.most()
    }

    /// The sum of all shares.
    pub(super) fn shares(&self) -> u64 {
        self.0.iter().map(|(_, share)| share).sum()
    }
}

/// `10ms`, `2s`, `1m`; a plain number is in seconds, as in fio, and `ns` are possible too.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let lower = text.to_ascii_lowercase();
    for (long, short) in [("msec", "ms"), ("usec", "us"), ("nsec", "ns"), ("sec", "s")] {
        if let Some(number) = lower.strip_suffix(long) {
            return options::time(&format!("{number}{short}"));
        }
    }
    let seconds = |number: &str, each: u64| {
        let number = number.parse().ok().and_then(|number: u64| number.checked_mul(each));
        number.map(|seconds| format!("{seconds}s")).ok_or_else(|| format!("`{text}` is not a time"))
    };
    match lower.strip_suffix('d').map(|number| (number, 86_400)) {
        Some((number, each)) => options::time(&seconds(number, each)?),
        None => match lower.strip_suffix('h') {
            Some(number) => options::time(&seconds(number, 3_600)?),
            None => options::time(&lower),
        },
    }
}

/// As [`time`], with a plain number in microseconds.
pub(super) fn short_time(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(number) => options::time(&format!("{number}us")),
        Err(_) => time(text),
    }
}

/// Percentiles, separated by colons.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Percentiles(pub Vec<f64>);

pub(super) fn percentiles(text: &str) -> Result<Percentiles, String> {
    let one = |text: &str| {
        let percent = text.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
        percent.ok_or_else(|| format!("`{text}` is not a percentile above 0, up to 100"))
    };
    let mut all: Vec<f64> = text.split([':', ',']).map(one).collect::<Result<_, _>>()?;
    all.sort_by(f64::total_cmp);
    all.dedup();
    Ok(Percentiles(all))
}

/// Numbers and ranges, such as `0-3,8`; fio also separates by colons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NumberList(pub Vec<u16>);

pub(super) fn numbers(text: &str) -> Result<NumberList, String> {
    let mut all = Vec::new();
    for piece in text.split([',', ':']) {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let number = |text: &str| {
            text.trim().parse::<u16>().map_err(|_| format!("`{text}` is not a list such as 0-3,8"))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("`{piece}` counts down"));
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Ok(NumberList(all))
}

/// A mask of cores, as a number.
pub(super) fn mask(text: &str) -> Result<NumberList, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(mask) if mask > 0 => Ok(NumberList((0..64).filter(|n| mask >> n & 1 == 1).collect())),
        _ => Err(format!("`{text}` is not a mask of cores, such as 0xf")),
    }
}

/// Where a job's memory comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MemoryPlace {
    Local,
    Bind(Vec<u16>),
    Preferred(u16),
    Interleave,
}

pub(super) fn memory(text: &str) -> Result<MemoryPlace, String> {
    let (mode, nodes) = text.split_once(':').map_or((text, None), |(mode, nodes)| (mode, Some(nodes)));
    let need = || format!("`{mode}` needs nodes, such as `{mode}:0`");
    match mode {
        "default" | "local" => Ok(MemoryPlace::Local),
        "bind" => Ok(MemoryPlace::Bind(numbers(nodes.ok_or_else(need)?)?.0)),
        "prefer" => match &numbers(nodes.ok_or_else(need)?)?.0[..] {
            [node] => Ok(MemoryPlace::Preferred(*node)),
            _ => Err("`prefer` takes one node, such as `prefer:0`".into()),
        },
        "interleave" => Ok(MemoryPlace::Interleave),
        _ => Err("it can be local, bind:NODES, prefer:NODE or interleave:NODES".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_beyond_all_numbers_do_not_add_up_to_100() {
        for text in ["4k/18446744073709551615:64k/40", "4k/9223372036854775807:64k/9223372036854775807:8k/5"]
        {
            assert!(RequestSizes::split(UnitBase::BINARY, text).is_err(), "{text}");
        }
    }

    /// The examples of fio's HOWTO.
    #[test]
    fn sizes_are_those_of_the_original() {
        for text in ["4096", "4096b", "4096B", "4k", "4kb", "4kB", "4K", "4KB", "0x1000"] {
            assert_eq!(UnitBase(1024).size(text), Ok(4096), "{text}");
        }
        for text in ["1000000", "1mi", "1000ki", "1MiB"] {
            assert_eq!(UnitBase(1024).size(text), Ok(1_000_000), "{text}");
        }
        for text in ["4096", "4096b", "4ki", "4kib", "4kiB", "4Ki", "4KiB"] {
            assert_eq!(UnitBase(1000).size(text), Ok(4096), "{text}");
        }
        assert_eq!(UnitBase(1000).size("1m"), Ok(1_000_000));
        assert_eq!(UnitBase(1024).size("1p"), Ok(1 << 50));
        for text in ["", "k", "4q", "4ii", "-1", "1.5k", "99999999p", "4i"] {
            assert!(UnitBase(1024).size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_of_values_are_read() {
        let each = |text| Each::read(text, 512, |text| UnitBase(1024).size(text)).unwrap().0;
        assert_eq!(each("4k"), [4096; 3]);
        assert_eq!(each("4k,8k"), [4096, 8192, 8192]);
        assert_eq!(each("4k,,8k"), [4096, 4096, 8192]);
        assert_eq!(each(",8k"), [512, 8192, 8192]);
        let limits = |text| rates(UnitBase(1024), text).map(|rates| rates.0);
        assert_eq!(limits("1m"), Ok([1 << 20; 3]));
        assert_eq!(limits("1m,"), Ok([1 << 20, 0, 0]));
        assert_eq!(limits(",1m"), Ok([0, 1 << 20, 1 << 20]));
        assert!([",", "0", "", "1,2,3,4", "x,1"].into_iter().all(|wrong| limits(wrong).is_err()));
        let split = |text| RequestSizes::split(UnitBase(1024), text);
        assert_eq!(split("4k/60:64k/40").unwrap().0, [(4096, 60), (65536, 40)]);
        assert_eq!(split("4k/50:64k:32k").unwrap().0, [(4096, 50), (65536, 25), (32768, 25)]);
        assert!(["4k/60", "4k/60:8k/60", "", "4k/x"].iter().all(|text| split(text).is_err()));
        assert_eq!(split("4k/60:64k/40").map(|sizes| (sizes.at(59), sizes.at(60))), Ok((4096, 65536)));
        assert_eq!(RequestSizes::range(UnitBase(1024), "4k-16k").unwrap().0.len(), 4);
        assert_eq!(numbers("0,2-3").unwrap().0, [0, 2, 3]);
        assert_eq!(mask("0x5").unwrap().0, [0, 2]);
        assert_eq!(memory("bind:0"), Ok(MemoryPlace::Bind(vec![0])));
        assert_eq!(RangeSize::read(UnitBase(1024), "50%").unwrap().of(1001, 100), 500);
        assert_eq!(time("1h").unwrap(), time("3600").unwrap());
        assert_eq!(time("10msec"), Ok(Duration::from_ms(10)));
        assert_eq!(short_time("10"), Ok(Duration::from_us(10)));
    }
}
