//! Which request comes next: its direction, its place and its length.

use platform::block::BlockOp;
use rustc_hash::FxHashMap;
use units::Time;
use units::hash::spread;

use super::options::JobOptions;
use super::pace::RateLimit;
use super::values::UnitBase;
use crate::random::Random;

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    Read,
    Write,
    Trim,
}

impl RequestKind {
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }

    /// The operation; that of a write is complete once it is durable if `durable`.
    pub const fn op(self, durable: bool) -> BlockOp {
        match self {
            Self::Read => BlockOp::Read,
            Self::Write => BlockOp::Write { fua: durable },
            Self::Trim => BlockOp::Discard,
        }
    }
}

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mixture {
    Only(RequestKind),
    ReadsAndWrites,
    /// Each block is discarded, then written.
    TrimsThenWrites,
}

/// A job's access pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AccessPattern {
    mixture: Mixture,
    pub is_random: bool,
    /// Of a random pattern, requests per random place; of a sequential one, bytes left out after each.
    step: Option<u64>,
}

/// Names without `rand`.
const MIXTURES: [(&str, Mixture); 6] = [
    ("read", Mixture::Only(RequestKind::Read)),
    ("write", Mixture::Only(RequestKind::Write)),
    ("trim", Mixture::Only(RequestKind::Trim)),
    ("rw", Mixture::ReadsAndWrites),
    ("readwrite", Mixture::ReadsAndWrites),
    ("trimwrite", Mixture::TrimsThenWrites),
];

/// Most bytes, or requests, of a step.
const MOST_STEP: u64 = 1 << 62;

impl AccessPattern {
    pub fn read(text: &str) -> Result<Self, String> {
        let (name, step) = text.split_once(':').map_or((text, None), |(name, step)| (name, Some(step)));
        let step = step.map(|step| UnitBase::BINARY.size(step)).transpose()?;
        if step.is_some_and(|step| step > MOST_STEP) {
            return Err(format!("`{text}` steps over more than any drive has"));
        }
        let (is_random, plain) = name.strip_prefix("rand").map_or((false, name), |plain| (true, plain));
        let found =
            MIXTURES.iter().find(|(known, _)| *known == plain && (!is_random || *known != "readwrite"));
        let (_, mixture) = found.ok_or_else(|| {
            format!(
                "`{name}` is not a pattern; they are read, write, trim, rw, randread, randwrite, randtrim, randrw, \
                 trimwrite and randtrimwrite"
            )
        })?;
        if is_random && step == Some(0) {
            return Err(format!("`{text}` never chooses a place"));
        }
        Ok(Self { mixture: *mixture, is_random, step })
    }

    /// Whether it has requests of this kind.
    pub fn has(self, way: RequestKind) -> bool {
        match self.mixture {
            Mixture::Only(only) => only == way,
            Mixture::ReadsAndWrites => way != RequestKind::Trim,
            Mixture::TrimsThenWrites => way != RequestKind::Read,
        }
    }

    pub fn writes(self) -> bool {
        self.has(RequestKind::Write)
    }

    pub fn trims(self) -> bool {
        self.has(RequestKind::Trim)
    }

    /// Its name in fio.
    pub fn name(self) -> String {
        let (plain, _) = MIXTURES.iter().find(|(_, known)| *known == self.mixture).unwrap_or(&MIXTURES[0]);
        format!("{}{plain}", if self.is_random { "rand" } else { "" })
    }
}

/// Which blocks a random pattern prefers. Popular blocks are spread over the range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Distribution {
    Uniform,
    /// The block of rank r is used in proportion to 1/r^theta. The second number is where the popular ones begin, as a
    /// share of the range.
    Zipf(f64, Option<f64>),
    /// A share of `h` of the requests is for a share of 1 − `h` of the blocks, and so on within these (self-similar).
    Pareto(f64, Option<f64>),
}

impl Distribution {
    pub fn read(text: &str) -> Result<Self, String> {
        let mut pieces = text.split(':');
        let name = pieces.next().unwrap_or_default();
        if !["random", "zipf", "pareto"].contains(&name) {
            return Err("it can be random, zipf:THETA or pareto:H".into());
        }
        let mut number = || {
            let piece = pieces.next();
            let read = |piece: &str| {
                piece
                    .parse::<f64>()
                    .ok()
                    .filter(|n| n.is_finite())
                    .ok_or_else(|| format!("`{piece}` is not a number"))
            };
            piece.map(read).transpose()
        };
        let (parameter, center) = (number()?, number()?);
        if center.is_some_and(|center| !(0.0..=1.0).contains(&center)) {
            return Err("the center is a share of the range, from 0 to 1".into());
        }
        match name {
            "random" if parameter.is_none() => Ok(Self::Uniform),
            "zipf" => {
                let theta = parameter.unwrap_or(1.2);
                let is_one = theta > 0.0 && theta <= 5.0 && (theta - 1.0).abs() > 1e-9;
                is_one
                    .then_some(Self::Zipf(theta, center))
                    .ok_or("zipf's theta is above 0, up to 5, and not 1".into())
            }
            "pareto" => {
                let h = parameter.unwrap_or(0.2);
                (h > 0.0 && h < 1.0)
                    .then_some(Self::Pareto(h, center))
                    .ok_or("pareto's h is between 0 and 1".into())
            }
            _ => Err("it can be random, zipf:THETA or pareto:H".into()),
        }
    }
}

/// Chooses among `blocks` blocks.
#[derive(Debug)]
struct Sampler {
    distribution: Distribution,
    blocks: u64,
    /// Block of the first rank.
    first: u64,
    /// The sum of 1/r^theta over all ranks.
    zeta: f64,
}

/// Ranks whose sum is exact.
const SUMMED: u64 = 1000;

/// The sum of 1/r^theta for r from 1 to `n`: the first terms exactly, the others as the integral from midpoint to
/// midpoint, which is off by less than 1e-7.
fn zeta(n: u64, theta: f64) -> f64 {
    let exact: f64 = (1..=n.min(SUMMED)).map(|rank| (rank as f64).powf(-theta)).sum();
    let integral = |x: f64| x.powf(1.0 - theta) / (1.0 - theta);
    if n > SUMMED { exact + integral(n as f64 + 0.5) - integral(SUMMED as f64 + 0.5) } else { exact }
}

impl Sampler {
    fn new(distribution: Distribution, blocks: u64, random: &mut Random) -> Self {
        let (center, zeta) = match distribution {
            Distribution::Uniform => (Some(0.0), 0.0),
            Distribution::Zipf(theta, center) => (center, zeta(blocks, theta)),
            Distribution::Pareto(_, center) => (center, 0.0),
        };
        let first = center.map_or_else(|| random.below(blocks), |center| (blocks as f64 * center) as u64);
        Self { distribution, blocks, first, zeta }
    }

    fn next(&self, random: &mut Random) -> u64 {
        let n = self.blocks as f64;
        let rank = match self.distribution {
            Distribution::Uniform => return random.below(self.blocks),
            // Gray and others, "Quickly generating billion-record synthetic databases", SIGMOD 1994, section 2.
            Distribution::Zipf(theta, _) => {
                let (u, second) = (random.unit(), 0.5f64.powf(theta));
                let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - (1.0 + second) / self.zeta);
                match u * self.zeta {
                    below if below < 1.0 => 0,
                    below if below < 1.0 + second => 1,
                    _ => (n * (eta * u - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64,
                }
            }
            Distribution::Pareto(h, _) => ((n - 1.0) * random.unit().powf(h.ln() / (1.0 - h).ln())) as u64,
        };
        (spread(rank).wrapping_add(self.first)) % self.blocks
    }
}

/// Which blocks were used.
#[derive(Debug, Default)]
struct RandomMap {
    words: FxHashMap<u64, u64>,
    taken: u64,
}

impl RandomMap {
    /// Takes the first free block from `wanted` on. When all were taken, all are free again.
    fn take(&mut self, wanted: u64, blocks: u64) -> u64 {
        if self.taken == blocks {
            (self.taken, self.words) = (0, FxHashMap::default());
        }
        let mut block = wanted;
        loop {
            let word = self.words.entry(block / 64).or_default();
            let free = !*word & (u64::MAX << (block % 64));
            let found = block / 64 * 64 + u64::from(free.trailing_zeros());
            if free != 0 && found < blocks {
                *word |= 1 << (found % 64);
                self.taken += 1;
                return found;
            }
            block = (block / 64 + 1) * 64;
            if block >= blocks {
                block = 0;
            }
        }
    }
}

/// A device's range, and what comes next there.
#[derive(Debug)]
struct TargetRange {
    range: core::ops::Range<u64>,
    /// The next place of a sequential pattern, of each kind.
    next: [u64; 3],
    /// Requests since the last random place.
    since: u64,
    sampler: Sampler,
    map: Option<RandomMap>,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NextRequest {
    pub way: RequestKind,
    /// Number of the device.
    pub file: usize,
    pub at: u64,
    pub length: u64,
}

/// Chooses requests.
#[derive(Debug)]
pub(super) struct Chooser {
    targets: Vec<TargetRange>,
    /// The smallest size of a request (bytes), of which places and sizes are multiples.
    unit: u64,
    file: usize,
    random: Random,
    /// What is to be written after it was discarded.
    trimmed: Option<NextRequest>,
}

impl Chooser {
    pub fn new(options: &JobOptions, ranges: Vec<core::ops::Range<u64>>, mut random: Random) -> Self {
        let (distribution, unit) = (options.random_distribution, options.unit());
        let has_map = options.norandommap == 0 && distribution == Distribution::Uniform;
        let target = |range: core::ops::Range<u64>| TargetRange {
            next: [range.start; 3],
            since: 0,
            sampler: Sampler::new(distribution, (range.end - range.start) / unit, &mut random),
            map: has_map.then(RandomMap::default),
            range,
        };
        Self { targets: ranges.into_iter().map(target).collect(), unit, file: 0, random, trimmed: None }
    }

    /// The next request, of at most `left` bytes; `None` if that is less than the smallest.
    pub fn next(
        &mut self,
        options: &JobOptions,
        left: u64,
        (pace, now): (&RateLimit, Time),
    ) -> Option<NextRequest> {
        let (order, unit, random) = (options.rw, self.unit, &mut self.random);
        if left < unit {
            return None;
        }
        if let Some(trimmed) = self.trimmed.take() {
            return Some(NextRequest { way: RequestKind::Write, ..trimmed });
        }
        let way = match order.mixture {
            Mixture::Only(way) => way,
            Mixture::ReadsAndWrites => {
                let reads = random.below(100) < options.reads().into();
                let has_both = (1..100).contains(&options.reads());
                let chosen = if reads { RequestKind::Read } else { RequestKind::Write };
                if has_both { pace.sooner(chosen, now) } else { chosen }
            }
            Mixture::TrimsThenWrites => RequestKind::Trim,
        };
        let sizes = &options.sizes()[way as usize];
        let length = if sizes.0.len() == 1 { sizes.most() } else { sizes.at(random.below(sizes.shares())) };
        let length = length.min(left / unit * unit);
        let (file, count) = (self.file, self.targets.len());
        let target = &mut self.targets[file];
        self.file = (file + 1) % count;
        let follows = order.is_random
            && (order.step.is_some_and(|each| target.since % each != 0)
                || (options.percentage_random < 100
                    && random.below(100) >= options.percentage_random.into()));
        target.since += 1;
        let next = &mut target.next[way as usize];
        let at = if order.is_random && !follows {
            let blocks = target.sampler.blocks;
            let block = target.sampler.next(random);
            let block = target.map.as_mut().map_or(block, |map| map.take(block, blocks));
            // A long request may begin only where it fits.
            (target.range.start + block * unit).min(target.range.end - length)
        } else if *next + length > target.range.end {
            target.range.start
        } else {
            *next
        };
        *next = at + length;
        if !order.is_random {
            *next += order.step.unwrap_or(0);
        }
        let chosen = NextRequest { way, file, at, length };
        if order.mixture == Mixture::TrimsThenWrites {
            self.trimmed = Some(chosen);
        }
        Some(chosen)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        self.random.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_the_names_of_the_original() {
        for name in
            ["read", "write", "trim", "rw", "randread", "randwrite", "randtrim", "randrw", "trimwrite"]
        {
            assert_eq!(AccessPattern::read(name).unwrap().name(), name);
        }
        assert_eq!(AccessPattern::read("readwrite"), AccessPattern::read("rw"));
        assert!(
            ["randreadwrite", "reads", "", "randread:0", "read:x", "read:18446744073709547520"]
                .iter()
                .all(|name| AccessPattern::read(name).is_err())
        );
    }

    /// Each block once, until all were.
    #[test]
    fn a_random_map_takes_each_block_once() {
        let mut random = Random::new(3, 0);
        for blocks in (1..300).chain([4096]) {
            let mut map = RandomMap::default();
            for _ in 0..2 {
                let mut taken: Vec<u64> =
                    (0..blocks).map(|_| map.take(random.below(blocks), blocks)).collect();
                taken.sort_unstable();
                assert_eq!(taken, (0..blocks).collect::<Vec<_>>());
            }
        }
    }

    /// The most popular block of a Zipf distribution gets its share, and pareto:0.2 gives 80 % to 20 % of the blocks.
    #[test]
    fn popular_blocks_get_their_share() {
        let mut random = Random::new(1, 0);
        let counts = |distribution, random: &mut Random| {
            let sampler = Sampler::new(distribution, 1 << 16, random);
            let mut counts = vec![0u32; 1 << 16];
            (0..200_000).for_each(|_| counts[sampler.next(random) as usize] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        let zipf = counts(Distribution::Zipf(1.2, None), &mut random);
        let first = f64::from(zipf[0]) / 200_000.0 * zeta(1 << 16, 1.2);
        assert!((0.97..1.05).contains(&first), "{first}");
        assert!(
            (zeta(100_000, 1.2) - (1..=100_000).map(|n| f64::from(n).powf(-1.2)).sum::<f64>()).abs() < 1e-6
        );
        let pareto = counts(Distribution::Pareto(0.2, None), &mut random);
        // Several ranks may fall on one block, which then is more popular.
        let part = pareto[..(1 << 16) / 5].iter().sum::<u32>();
        assert!((160_000..190_000).contains(&part), "{part}");
    }
}
