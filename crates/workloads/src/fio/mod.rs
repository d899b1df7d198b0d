//! fio, the flexible I/O tester, for block devices.
//!
//! Each job keeps `iodepth` requests in flight and submits the next as soon as one completes. With `direct=0`,
//! requests go through the page cache, one at a time, as in fio's synchronous engines. Options have fio's names.

mod job;
mod tally;
mod verify;

use std::rc::Rc;

use clap::ValueEnum;
use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use platform::sync::Completion;
use units::Duration;

use crate::options;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
pub(crate) use verify::{holds, store};

use job::Job;
use tally::Tally;

/// Maximum request size (bytes).
const LARGEST: u64 = 64 << 20;

/// A job's access pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes.
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads and writes.
    RandRw,
}

impl Pattern {
    const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }
    const fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }
    const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }
    const fn is_mixed(self) -> bool {
        self.reads() && self.writes()
    }
}

/// How written data are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Verify {
    /// Compare every byte with what was written.
    Pattern,
}

/// Reads and writes a block device in various patterns and measures rates and latencies.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "fio")]
pub struct Fio {
    /// The job's name for reports.
    #[arg(long, default_value = "job")]
    name: String,
    /// The block device.
    #[arg(long, default_value = "/dev/nvme0n1")]
    filename: String,
    /// The access pattern.
    #[arg(long, alias = "readwrite", value_enum, default_value = "read")]
    rw: Pattern,
    /// Bytes per request.
    #[arg(long, alias = "blocksize", default_value = "4k", value_parser = options::size)]
    bs: u64,
    /// Requests that a job keeps in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    iodepth: u32,
    /// Requests submitted per system call.
    #[arg(long = "iodepth_batch", alias = "iodepth_batch_submit", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Number of jobs, assigned to the program's cores in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    numjobs: u32,
    /// Bypass the page cache (1) or go through it (0).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    direct: u8,
    /// How long to run; by default, until `size` has been transferred.
    #[arg(long, value_parser = options::time)]
    runtime: Option<Duration>,
    /// Time to run before measurement starts.
    #[arg(long = "ramp_time", default_value = "0s", value_parser = options::time)]
    ramp_time: Duration,
    /// Start of the range.
    #[arg(long, default_value = "0", value_parser = options::size)]
    offset: u64,
    /// Size of the range; by default, to the end of the device.
    #[arg(long, value_parser = options::size)]
    size: Option<u64>,
    /// Percentage of reads in a mixed pattern; 50 by default.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: Option<u8>,
    /// Flush after this many writes; 0 never flushes.
    #[arg(long, default_value_t = 0)]
    fsync: u32,
    /// Writes every block of the range once, then reads all of them and compares. A read-only pattern compares with
    /// what a job with the same `randseed`, `bs` and range has written.
    #[arg(long, value_enum)]
    verify: Option<Verify>,
    /// Seed of random offsets and of block contents; by default, the scenario's seed.
    #[arg(long)]
    randseed: Option<u64>,
    /// Polls for completions instead of waiting for interrupts.
    #[arg(long)]
    hipri: bool,
    /// I/O engine; both are simulated alike.
    #[arg(long, default_value = "io_uring", value_parser = ["io_uring", "libaio"])]
    ioengine: String,
    /// Report jobs together; this is always the case.
    #[arg(long = "group_reporting")]
    group_reporting: bool,
    /// Run for `runtime`; this is always the case.
    #[arg(long = "time_based", requires = "runtime")]
    time_based: bool,
}

impl Fio {
    /// The range on a device of `end` bytes with blocks of `block`, rounded down to whole requests.
    fn range(&self, end: u64, block: u64) -> Result<core::ops::Range<u64>, Refused> {
        let least = if self.direct == 1 { block } else { 1 };
        let multiple = format!("a multiple of the device's {block} bytes");
        let (bs, offset) = (self.bs, self.offset);
        let is_size = bs > 0 && bs % least == 0 && bs <= LARGEST;
        Refused::unless(
            is_size,
            format!("fio: --bs={bs} is not a size of a direct request"),
            format!("{multiple}, up to 64m"),
        )?;
        Refused::unless(offset % least == 0, format!("fio: --offset={offset} is between blocks"), multiple)?;
        let size = self.size.unwrap_or_else(|| end.saturating_sub(offset));
        let fits = offset.checked_add(size).is_some_and(|reach| reach <= end) && size >= bs;
        let message = format!("fio: --offset={offset} and --size={size} do not fit");
        Refused::unless(fits, message, format!("the device has {end} bytes, and a request takes {bs}"))?;
        Ok(offset..offset + size / bs * bs)
    }

    /// Checks that the options are compatible.
    fn agree(&self) -> Result<(), Refused> {
        let (verifies, is_direct) = (self.verify.is_some(), self.direct == 1);
        let runtime = self.runtime.map(|time| time > Duration::ZERO);
        for (holds, message, help) in [
            (runtime != Some(false), "--runtime=0 ends before it begins", "such as --runtime=10ms"),
            (runtime.is_some() || self.size.is_some(), "it would not end", "give --runtime or --size"),
            (
                runtime.is_some() || self.ramp_time == Duration::ZERO,
                "--ramp_time comes before --runtime",
                "give --runtime",
            ),
            (!verifies || self.size.is_some(), "--verify looks at the whole range", "give --size"),
            (
                !verifies || self.numjobs == 1,
                "jobs that write the same range cannot verify it",
                "--numjobs=1",
            ),
            (
                !verifies || self.rw.writes() || self.randseed.is_some(),
                "--verify needs a pattern that writes, or the seed of what was written",
                "--rw=write or --rw=randwrite, or --randseed",
            ),
            (
                is_direct || self.iodepth == 1,
                "through the page cache requests go one at a time",
                "--direct=1, or --iodepth=1",
            ),
            (is_direct || !self.hipri, "--hipri polls the device, not the page cache", "--direct=1"),
            (self.batch <= self.iodepth, "--iodepth_batch is more than is under way", "up to --iodepth"),
            (
                self.rwmixread.is_none() || self.rw.is_mixed(),
                "--rwmixread is for mixtures",
                "--rw=rw or --rw=randrw",
            ),
            (
                self.fsync == 0 || self.rw.writes(),
                "--fsync comes after writes, of which there are none",
                "--fsync=0",
            ),
        ] {
            Refused::unless(holds, format!("fio: {message}"), help)?;
        }
        Ok(())
    }
}

impl Program for Fio {
    fn lasts(&self) -> Option<Duration> {
        self.runtime.map(|runtime| self.ramp_time + runtime)
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let disk = premises.disk("fio", &self.filename)?;
        self.agree()?;
        self.range(disk.bytes, disk.block)?;
        let buffers = [self.iodepth.into(), self.numjobs.into(), u128::from(self.bs)].into_iter().product();
        premises.holds("fio", "buffers of --bs for --iodepth and --numjobs", buffers)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let file = environment.kernel.open_block(&self.filename);
            let file = file.ok_or_else(|| Failure(format!("fio: {}: no such device", self.filename)))?;
            self.agree()?;
            let environment = Environment { seed: self.randseed.unwrap_or(environment.seed), ..environment };
            let range = self.range(file.bytes(), file.block_bytes().into())?;
            if self.verify.is_some() {
                return verify::run(&self, &cpu, &environment, &*file, range).await;
            }
            let (began, before) = (cpu.now(), file.counters());
            let jobs: Vec<Completion<Result<Tally, Failure>>> = (0..self.numjobs)
                .map(|n| {
                    let job = Job::new(&self, &environment, n, Rc::clone(&file), range.clone(), began);
                    let on = environment.cpus[n as usize % environment.cpus.len()];
                    let params = TaskParams::named(format!("fio/{n}")).on(on).of(&cpu);
                    environment.kernel.run(params, async move |cpu: Cpu| {
                        let result = job.run(&cpu).await;
                        cpu.sync().await;
                        result
                    })
                })
                .collect();
            let mut all = Tally::new();
            for job in jobs {
                all.add(&job.wait().await?);
            }
            let mut report = all.report();
            let after = file.counters();
            report.add("merged requests", "", (after.merges - before.merges) as f64);
            Ok(report)
        })
    }
}
