//! The options of a job.

use clap::ValueEnum;
use units::Duration;

use super::pattern::{AccessPattern, Distribution, RequestKind};
use super::values::{
    Each, MemoryPlace, NumberList, Percentiles, RangeSize, RequestSizes, UnitBase, mask, memory, numbers,
    percentiles, rates, short_time, time,
};
use crate::premises::Refused;

/// Maximum request size (bytes).
const LARGEST: u64 = 64 << 20;

/// How requests are submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "lower")]
pub(super) enum IoEngine {
    /// read(2) and write(2): one request at a time.
    Sync,
    /// pread(2) and pwrite(2), fio's default on Linux: one request at a time.
    Psync,
    /// readv(2) and writev(2): one request at a time.
    Vsync,
    /// preadv(2) and pwritev(2): one request at a time.
    Pvsync,
    /// preadv2(2) and pwritev2(2): one request at a time.
    Pvsync2,
    /// Linux's asynchronous I/O.
    Libaio,
    /// Linux's submission and completion rings.
    #[value(name = "io_uring")]
    IoUring,
    /// POSIX asynchronous I/O; the threads of the C library are not simulated.
    Posixaio,
}

impl IoEngine {
    const fn is_asynchronous(self) -> bool {
        matches!(self, Self::Libaio | Self::IoUring | Self::Posixaio)
    }

    const fn can_poll(self) -> bool {
        matches!(self, Self::IoUring | Self::Pvsync2)
    }

    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How the processes of a job are placed on its cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "lower")]
pub(super) enum Sharing {
    /// All may run on all.
    Shared,
    /// Each has one of its own, in turn.
    Split,
}

/// When requests of a limited rate are submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "lower")]
pub(super) enum RateProcess {
    /// At equal distances.
    Linear,
    /// At random, independently of each other.
    Poisson,
}

/// Whether writes are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Durability(pub bool);

/// Which requests may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tolerance {
    reads: bool,
    writes: bool,
}

impl Tolerance {
    fn read(text: &str) -> Result<Self, String> {
        let (reads, writes) = match text {
            "none" | "0" | "verify" => (false, false),
            "read" => (true, false),
            "write" => (false, true),
            "io" | "all" | "1" => (true, true),
            _ => return Err("it can be none, read, write, io, verify or all".into()),
        };
        Ok(Self { reads, writes })
    }

    pub fn covers(self, way: RequestKind) -> bool {
        if way == RequestKind::Read { self.reads } else { self.writes }
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "0" | "none" => Ok(Durability(false)),
        "1" | "sync" | "dsync" => Ok(Durability(true)),
        _ => Err("it can be none, sync or dsync".into()),
    }
}

/// Parameters of a job's options: a flag is given alone or as `=1`, `=0`.
macro_rules! switch {
    () => {
        clap::value_parser!(u8).range(0..=1)
    };
}

/// Options of a job.
#[derive(clap::Args, Clone, PartialEq, Debug)]
pub(super) struct JobOptions {
    /// The job's name for reports. Each `--name` begins a job; options before the first, and those after
    /// `--name=global`, are for all jobs that follow.
    #[arg(long, default_value = "job")]
    pub name: String,
    /// The block device, or several, separated by `:`, which get requests in turn.
    #[arg(long, default_value = "/dev/nvme0n1")]
    pub filename: String,
    /// The access pattern: `read`, `write`, `trim`, `rw`, `trimwrite`, or the same with `rand`. `randread:8` takes a
    /// random place for every eighth request; `read:64k` leaves out as much after each.
    #[arg(long, alias = "readwrite", default_value = "read", value_parser = AccessPattern::read)]
    pub rw: AccessPattern,
    /// Bytes per request, or READ,WRITE,TRIM.
    #[arg(long, alias = "blocksize", default_value = "4k", value_parser = sizes(UnitBase::BINARY))]
    pub bs: Each<RequestSizes>,
    /// Sizes of requests with their shares in percent, such as `4k/60:64k/40`.
    #[arg(long, value_parser = split(UnitBase::BINARY))]
    pub bssplit: Option<Each<RequestSizes>>,
    /// Sizes of requests, such as `4k-64k`: each multiple of the smaller one, equally often.
    #[arg(long, alias = "blocksize_range", value_parser = range(UnitBase::BINARY))]
    pub bsrange: Option<Each<RequestSizes>>,
    /// How requests are submitted. The synchronous ones, such as `psync`, the default, have one request in flight,
    /// whatever `iodepth` says.
    #[arg(long, value_enum, default_value = "psync")]
    pub ioengine: IoEngine,
    /// Requests that a job keeps in flight with `libaio`, `io_uring` or `posixaio`.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub iodepth: u32,
    /// Requests submitted per system call.
    #[arg(long = "iodepth_batch", alias = "iodepth_batch_submit", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// Completions to wait for.
    #[arg(long = "iodepth_batch_complete_min", alias = "iodepth_batch_complete", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub complete: u32,
    /// Requests in flight down to which no new ones are submitted; by default, each is followed by the next.
    #[arg(long = "iodepth_low", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub low: Option<u32>,
    /// Number of processes of the job, assigned to the program's cores in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub numjobs: u32,
    /// Bypass the page cache (1, the default here, while fio's is 0) or go through it (0).
    #[arg(long, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub direct: Option<u8>,
    /// Go through the page cache (1) or bypass it (0).
    #[arg(long, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub buffered: Option<u8>,
    /// Drop the page cache of the device first, if requests go through it.
    #[arg(long, default_value_t = 1, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub invalidate: u8,
    /// Maximum run time. The job ends earlier when it has transferred its size, unless it is `time_based`.
    #[arg(long, alias = "timeout", value_parser = time)]
    pub runtime: Option<Duration>,
    /// Run for `runtime`, again and again over the range.
    #[arg(long = "time_based", default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub time_based: u8,
    /// Time to run before measurement starts.
    #[arg(long = "ramp_time", default_value = "0s", value_parser = time)]
    pub ramp_time: Duration,
    /// Time to wait before the job starts.
    #[arg(long, default_value = "0s", value_parser = time)]
    pub startdelay: Duration,
    /// Start of the range, in bytes or in percent of the device.
    #[arg(long, default_value = "0", value_parser = extent(UnitBase::BINARY))]
    pub offset: RangeSize,
    /// By how much the range of each further process of the job starts later.
    #[arg(long = "offset_increment", default_value = "0", value_parser = extent(UnitBase::BINARY))]
    pub offset_increment: RangeSize,
    /// Size of the ranges of all devices together, in bytes or in percent of the devices; by default, to their ends.
    #[arg(long, value_parser = extent(UnitBase::BINARY))]
    pub size: Option<RangeSize>,
    /// Bytes to transfer, or a percentage of the size; the size by default.
    #[arg(long = "io_size", alias = "io_limit", value_parser = extent(UnitBase::BINARY))]
    pub io_size: Option<RangeSize>,
    /// Number of requests after which the job ends.
    #[arg(long = "number_ios")]
    pub number_ios: Option<u64>,
    /// How often the job transfers its size.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub loops: u64,
    /// Percentage of reads in a mixed pattern; 50 by default.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: Option<u8>,
    /// Percentage of writes in a mixed pattern; 50 by default.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixwrite: Option<u8>,
    /// Percentage of a random pattern's requests that are at random places; the others follow their predecessor.
    #[arg(long = "percentage_random", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub percentage_random: u8,
    /// Take random places again. Otherwise, each block is used once, until all were.
    #[arg(long, default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub norandommap: u8,
    /// Which blocks a random pattern prefers: `random`, `zipf:THETA` or `pareto:H`, the latter two with an optional
    /// `:CENTER`.
    #[arg(long = "random_distribution", default_value = "random", value_parser = Distribution::read)]
    pub random_distribution: Distribution,
    /// Flush after this many writes; 0 never flushes.
    #[arg(long, default_value_t = 0)]
    pub fsync: u32,
    /// As `fsync`: a block device has no metadata.
    #[arg(long, default_value_t = 0)]
    pub fdatasync: u32,
    /// Whether each write is durable before it counts as complete: `none` or `0`, `sync`, `dsync` or `1`.
    #[arg(long, default_value = "none", value_parser = durability)]
    pub sync: Durability,
    /// Flush at the end.
    #[arg(long = "end_fsync", alias = "fsync_on_close", default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub end_fsync: u8,
    /// Writes every block of the range once, then reads all of them and compares every byte, whichever method is named
    /// (`pattern`, `crc32c`, `md5`, ...). A read-only pattern compares with what a job with the same `randseed`, `bs`
    /// and range has written.
    #[arg(long, value_parser = ["pattern", "meta", "md5", "crc64", "crc32c", "crc32c-intel", "crc32", "crc16", "crc7", "xxhash", "sha512", "sha256", "sha1", "sha3-224", "sha3-256", "sha3-384", "sha3-512"])]
    pub verify: Option<String>,
    /// Whether what was written is read back and compared.
    #[arg(long = "do_verify", default_value_t = 1, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub do_verify: u8,
    /// Seed of random offsets and of block contents; by default, the scenario's seed.
    #[arg(long, alias = "random_seed")]
    pub randseed: Option<u64>,
    /// Polls for completions instead of waiting for interrupts, with `io_uring` or `pvsync2`.
    #[arg(long, default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub hipri: u8,
    /// Bytes per second at most, or READ,WRITE,TRIM.
    #[arg(long, value_parser = paces(UnitBase::BINARY))]
    pub rate: Option<Each<u64>>,
    /// Requests per second at most, or READ,WRITE,TRIM.
    #[arg(long = "rate_iops", value_parser = paces(UnitBase::BINARY))]
    pub rate_iops: Option<Each<u64>>,
    /// Bytes per second below which the job fails, or READ,WRITE,TRIM.
    #[arg(long = "rate_min", alias = "ratemin", value_parser = paces(UnitBase::BINARY))]
    pub rate_min: Option<Each<u64>>,
    /// Requests per second below which the job fails, or READ,WRITE,TRIM.
    #[arg(long = "rate_iops_min", value_parser = paces(UnitBase::BINARY))]
    pub rate_iops_min: Option<Each<u64>>,
    /// Time over which the least rates must hold; a plain number is in milliseconds.
    #[arg(long = "rate_cycle", alias = "ratecycle", default_value = "1s", value_parser = cycle)]
    pub rate_cycle: Duration,
    /// When requests of a limited rate are submitted.
    #[arg(long = "rate_process", value_enum, default_value = "linear")]
    pub rate_process: RateProcess,
    /// Longest latency of a request, or of READ,WRITE,TRIM, beyond which the job fails; a plain number is in microseconds.
    #[arg(long = "max_latency", value_parser = latencies)]
    pub max_latency: Option<Each<Duration>>,
    /// Go on when requests fail: `none`, `read`, `write`, `io`, `verify` or `all`.
    #[arg(long = "continue_on_error", default_value = "none", num_args = 0..=1, default_missing_value = "all", require_equals = true, value_parser = Tolerance::read)]
    pub continue_on_error: Tolerance,
    /// The nice value of the job's processes.
    #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: Option<i8>,
    /// The part of a pause in which the core is busy; a plain number is in microseconds.
    #[arg(long = "thinktime_spin", default_value = "0s", value_parser = short_time)]
    pub thinktime_spin: Duration,
    /// Pause after requests; a plain number is in microseconds.
    #[arg(long, default_value = "0s", value_parser = short_time)]
    pub thinktime: Duration,
    /// Number of requests between pauses.
    #[arg(long = "thinktime_blocks", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub thinktime_blocks: u32,
    /// Cores of the job, out of the scenario's `cpus`.
    #[arg(long = "cpus_allowed", value_parser = numbers)]
    pub cpus_allowed: Option<NumberList>,
    /// How the processes of the job share these cores.
    #[arg(long = "cpus_allowed_policy", value_enum, default_value = "shared")]
    pub cpus_allowed_policy: Sharing,
    /// Cores of the job, as a mask.
    #[arg(long, value_parser = mask)]
    pub cpumask: Option<NumberList>,
    /// Nodes on whose cores the job runs.
    #[arg(long = "numa_cpu_nodes", value_parser = numbers)]
    pub numa_cpu_nodes: Option<NumberList>,
    /// Where the job's memory comes from: `local`, `bind:NODE`, `prefer:NODE` or `interleave:all`; by default, what the
    /// scenario's `memory` says.
    #[arg(long = "numa_mem_policy", value_parser = memory)]
    pub numa_mem_policy: Option<MemoryPlace>,
    /// Start only when all jobs before have ended.
    #[arg(long, alias = "wait_for_previous", default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub stonewall: u8,
    /// When this job ends, so do all that run with it.
    #[arg(long, default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub exitall: u8,
    /// Begin a new group of jobs that are reported together.
    #[arg(long = "new_group", default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub new_group: u8,
    /// Report all jobs together.
    #[arg(long = "group_reporting", default_value_t = 0, value_parser = switch!(), num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub group_reporting: u8,
    /// Percentiles of completion latencies, such as `50:99:99.9`.
    #[arg(long = "percentile_list", value_parser = percentiles)]
    pub percentile_list: Option<Percentiles>,
    /// Whether k means 1024 or 1000; ki means the other.
    #[arg(long = "kb_base", default_value = "1024", value_parser = UnitBase::read)]
    pub kb_base: UnitBase,
}

/// A parser of values with units of this base.
trait Parse<T>: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {}
impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> Parse<T> for F {}

/// Bytes of a request by default.
const USUAL: u64 = 4096;

fn sizes(base: UnitBase) -> impl Parse<Each<RequestSizes>> {
    move |text: &str| Each::read(text, RequestSizes::one(USUAL), |one| base.size(one).map(RequestSizes::one))
}
fn split(base: UnitBase) -> impl Parse<Each<RequestSizes>> {
    move |text: &str| Each::read(text, RequestSizes::one(USUAL), |one| RequestSizes::split(base, one))
}
fn range(base: UnitBase) -> impl Parse<Each<RequestSizes>> {
    move |text: &str| Each::read(text, RequestSizes::one(USUAL), |one| RequestSizes::range(base, one))
}
fn extent(base: UnitBase) -> impl Parse<RangeSize> {
    move |text: &str| RangeSize::read(base, text)
}
fn paces(base: UnitBase) -> impl Parse<Each<u64>> {
    move |text: &str| rates(base, text)
}
fn latencies(text: &str) -> Result<Each<Duration>, String> {
    Each::read(text, Duration::ZERO, short_time)
}
fn cycle(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(number) => time(&format!("{number}ms")),
        Err(_) => time(text),
    }
}

/// The parsers of a command with [`JobOptions`] for another base.
pub(super) fn with_base(command: clap::Command, base: UnitBase) -> clap::Command {
    let command = command
        .mut_arg("bs", |arg| arg.value_parser(sizes(base)))
        .mut_arg("bssplit", |arg| arg.value_parser(split(base)))
        .mut_arg("bsrange", |arg| arg.value_parser(range(base)));
    let extents = ["offset", "offset_increment", "size", "io_size"];
    let command = extents
        .into_iter()
        .fold(command, |command, name| command.mut_arg(name, |arg| arg.value_parser(extent(base))));
    ["rate", "rate_iops", "rate_min", "rate_iops_min"]
        .into_iter()
        .fold(command, |command, name| command.mut_arg(name, |arg| arg.value_parser(paces(base))))
}

impl JobOptions {
    /// The devices, separated by colons. In names below `/dev/disk/by-id`, which have colons of their own, only one
    /// before a path separates; `\:` never does.
    pub fn files(&self) -> Vec<String> {
        let (mut all, mut name) = (Vec::new(), String::new());
        let mut left = self.filename.chars().peekable();
        while let Some(letter) = left.next() {
            let has_own = name.starts_with("/dev/disk/by-id/");
            match (letter, left.peek()) {
                ('\\', Some(':')) => {
                    name.push(':');
                    left.next();
                }
                (':', next) if !has_own || next == Some(&'/') => all.push(std::mem::take(&mut name)),
                _ => name.push(letter),
            }
        }
        all.push(name);
        all.retain(|name| !name.is_empty());
        all
    }

    /// Sizes of reads, writes and trims.
    pub fn sizes(&self) -> &[RequestSizes; 3] {
        &self.bssplit.as_ref().or(self.bsrange.as_ref()).unwrap_or(&self.bs).0
    }

    /// The smallest size, of which all others should be multiples.
    pub fn unit(&self) -> u64 {
        self.sizes().iter().map(RequestSizes::least).min().unwrap_or(0)
    }

    /// The largest size.
    pub fn most(&self) -> u64 {
        self.sizes().iter().map(RequestSizes::most).max().unwrap_or(0)
    }

    /// Whether it compares what it reads with what was written.
    pub fn verifies(&self) -> bool {
        self.verify.is_some() && (self.do_verify == 1 || !self.rw.writes())
    }

    pub fn is_direct(&self) -> bool {
        match (self.direct, self.buffered) {
            (Some(direct), _) => direct == 1,
            (None, buffered) => buffered != Some(1),
        }
    }

    /// Requests in flight.
    pub fn depth(&self) -> u32 {
        if self.ioengine.is_asynchronous() && self.is_direct() { self.iodepth } else { 1 }
    }

    /// The run time, of which 0 means none.
    pub fn limit(&self) -> Option<Duration> {
        self.runtime.filter(|runtime| *runtime > Duration::ZERO)
    }

    pub fn is_time_based(&self) -> bool {
        self.time_based == 1
    }

    /// Percentage of reads in a mixture.
    pub fn reads(&self) -> u8 {
        self.rwmixread.or(self.rwmixwrite.map(|writes| 100 - writes)).unwrap_or(50)
    }

    /// Number of writes between flushes; 0 for none.
    pub fn flushes(&self) -> u32 {
        if self.fsync > 0 { self.fsync } else { self.fdatasync }
    }

    /// What differs from what a reader may expect.
    pub fn notes(&self) -> Vec<String> {
        let (engine, depth) = (self.ioengine.name(), self.iodepth);
        let mut notes = Vec::new();
        if depth > 1 && !self.ioengine.is_asynchronous() {
            notes.push(format!(
                "--ioengine={engine} is synchronous: --iodepth={depth} acts as 1, as in fio; --ioengine=libaio and \
                 io_uring keep {depth} requests in flight"
            ));
        } else if self.depth() < depth {
            notes.push(format!(
                "through the page cache requests go one at a time: --iodepth={depth} acts as 1 without --direct=1"
            ));
        }
        if self.direct.is_none() && self.buffered.is_none() {
            notes.push(
                "--direct=1 is the default here, as the device is measured; fio's is --direct=0".into(),
            );
        }
        notes
    }

    /// The range of process `number` on a device of `end` bytes with blocks of `block`, rounded down to whole requests.
    pub fn range(&self, number: u32, end: u64, block: u64) -> Result<core::ops::Range<u64>, Refused> {
        let least = if self.is_direct() || self.rw.trims() { block } else { 1 };
        let multiple = format!("a multiple of the device's {block} bytes");
        let all = || self.sizes().iter().flat_map(|sizes| &sizes.0).map(|(size, _)| *size);
        let wrong = all().find(|bs| !(*bs > 0 && bs % least == 0 && *bs <= LARGEST));
        let near = |bs: u64| match bs / least {
            _ if bs > LARGEST => String::new(),
            0 => format!(", such as {least}"),
            blocks => format!(", such as {} or {}", blocks * least, (blocks + 1) * least),
        };
        Refused::unless(
            wrong.is_none(),
            format!("fio: --bs={} is not a size of a direct request", wrong.unwrap_or(0)),
            format!("{multiple}{}, up to 64m; --direct=0 takes any", near(wrong.unwrap_or(0))),
        )?;
        let unit = self.unit();
        let message = format!("fio: not all sizes of requests are multiples of {unit} bytes");
        Refused::unless(
            all().all(|size| size % unit == 0),
            message,
            format!("such as {unit} and {}", 2 * unit),
        )?;
        let offset = self.offset.of(end, unit);
        let offset = offset.saturating_add(self.offset_increment.of(end, unit).saturating_mul(number.into()));
        Refused::unless(offset % least == 0, format!("fio: --offset={offset} is between blocks"), multiple)?;
        let left = end.saturating_sub(offset);
        let size = match self.size {
            None => left,
            Some(RangeSize::Bytes(size)) => size / self.files().len().max(1) as u64,
            Some(share) => share.of(end, unit).min(left),
        };
        let (fits, bs) = (offset.checked_add(size).is_some_and(|reach| reach <= end), self.most());
        let message = format!("fio: --offset={offset} and --size={size} do not fit");
        let help = format!("the device has {end} bytes, and a request takes {bs}");
        Refused::unless(fits && size >= bs, message, help)?;
        Ok(offset..offset + size / unit * unit)
    }

    /// Bytes that a process transfers, over ranges of `size` bytes together.
    pub fn total(&self, size: u64) -> u64 {
        self.io_size.map_or(size, |limit| limit.of(size, 1)).saturating_mul(self.loops)
    }

    /// Checks that the options are compatible.
    pub fn agree(&self) -> Result<(), Refused> {
        let (verifies, is_direct) = (self.verifies(), self.is_direct());
        let has_end = self.size.is_some() || self.io_size.is_some() || self.number_ios.is_some();
        let is_one = |sizes: &RequestSizes| sizes.0.len() == 1 && sizes.most() == self.unit();
        let mixes = self.rwmixread.zip(self.rwmixwrite);
        let all = [
            (!self.files().is_empty(), "--filename is empty", "such as --filename=/dev/nvme0n1"),
            (
                self.limit().is_some() || (has_end && !self.is_time_based()),
                "it would not end",
                "give --runtime above 0, or --size without --time_based",
            ),
            (
                self.direct.zip(self.buffered).is_none_or(|(direct, buffered)| direct != buffered),
                "--direct and --buffered contradict each other",
                "one of them",
            ),
            (
                self.bssplit.is_none() || self.bsrange.is_none(),
                "--bssplit and --bsrange both say how long requests are",
                "one of them",
            ),
            (
                mixes.is_none_or(|(reads, writes)| reads + writes == 100),
                "--rwmixread and --rwmixwrite do not add up to 100",
                "one of them",
            ),
            (
                self.thinktime > Duration::ZERO || self.thinktime_spin == Duration::ZERO,
                "--thinktime_spin is a part of --thinktime",
                "give --thinktime, too",
            ),
            (!verifies || self.size.is_some(), "--verify looks at the whole range", "give --size"),
            (
                !verifies || self.numjobs == 1,
                "jobs that write the same range cannot verify it",
                "--numjobs=1",
            ),
            (
                !verifies || self.files().len() == 1,
                "--verify is for one device",
                "a --filename without colon",
            ),
            (
                !verifies || self.sizes().iter().all(is_one),
                "--verify needs requests of one size",
                "--bs with one number",
            ),
            (
                !verifies || !self.rw.trims(),
                "--verify compares what was written, not what was discarded",
                "--rw=write or --rw=randwrite",
            ),
            (
                !verifies || self.rw.writes() || self.randseed.is_some(),
                "--verify needs a pattern that writes, or the seed of what was written",
                "--rw=write or --rw=randwrite, or --randseed",
            ),
            (
                is_direct || self.iodepth == 1 || self.ioengine != IoEngine::IoUring,
                "through the page cache, io_uring with several requests in flight is not simulated",
                "--direct=1, or --iodepth=1",
            ),
            (is_direct || self.hipri == 0, "--hipri polls the device, not the page cache", "--direct=1"),
            (
                self.ioengine.can_poll() || self.hipri == 0,
                "--hipri is an option of other engines",
                "--ioengine=io_uring or --ioengine=pvsync2",
            ),
            (self.batch <= self.iodepth, "--iodepth_batch is more than is under way", "up to --iodepth"),
            (
                self.complete <= self.iodepth,
                "--iodepth_batch_complete_min is more than is under way",
                "up to --iodepth",
            ),
            (
                self.cpus_allowed.is_none() || self.cpumask.is_none(),
                "--cpus_allowed and --cpumask both name the cores",
                "one of them",
            ),
            (
                self.numa_cpu_nodes.is_none() || (self.cpus_allowed.is_none() && self.cpumask.is_none()),
                "--numa_cpu_nodes and --cpus_allowed both name the cores",
                "one of them",
            ),
            (
                self.rate.is_none() || self.rate_iops.is_none(),
                "--rate and --rate_iops both limit the rate",
                "one of them",
            ),
        ];
        let wrong = all.into_iter().filter(|(holds, ..)| !holds);
        let wrong = wrong.map(|(_, message, help)| Refused::new(format!("fio: {message}"), help));
        Refused::together(wrong.collect()).map_or(Ok(()), Err)
    }
}
