//! dd: copies blocks sequentially; can verify them afterwards.

use std::rc::Rc;

use platform::block::{BlockOp, Segment};
use platform::card::CardEngine;
use platform::cpu::{Async, Cpu};
use platform::dma::Direction;
use platform::memory::{Pages, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};

use crate::fio::{holds, store};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::content;

/// Maximum block size (bytes).
const LARGEST: u64 = 64 << 20;

/// An operand, such as `bs=128k`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Operand {
    If(String),
    Of(String),
    Bs(u64),
    InputBs(u64),
    OutputBs(u64),
    Count(Amount),
    Skip(Amount),
    Seek(Amount),
    Input(Vec<String>),
    Output(Vec<String>),
    Conversion(Vec<String>),
    PrintedLines(PrintedLines),
    Verify,
}

/// A number of blocks, or of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Amount {
    number: u64,
    is_bytes: bool,
}

/// What dd prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PrintedLines {
    None,
    /// Records, without the rate.
    NoTransfer,
    /// All; progress would be printed once a second.
    Progress,
}

/// Flags that can be. The first two change something; the others do not, for block devices and whole blocks.
const FLAGS: [&str; 15] = [
    "direct",
    "dsync",
    "sync",
    "fullblock",
    "count_bytes",
    "skip_bytes",
    "seek_bytes",
    "nonblock",
    "noatime",
    "nocache",
    "noctty",
    "nofollow",
    "nolinks",
    "binary",
    "text",
];

/// Conversions that can be. The first two change something; the others do not, for block devices and whole blocks.
const CONVERSIONS: [&str; 6] = ["fsync", "fdatasync", "notrunc", "nocreat", "noerror", "sync"];

/// A number in dd's syntax: `4096`, `128k`, `1M`, `1MB`, `2x512`; units are powers of 1024, those with a `B` of 1000.
fn number(text: &str) -> Result<u64, String> {
    let help = || {
        format!(
            "`{text}` is not a number; write one with an optional suffix c, w, b, kB, K, MB, M, GB, G, TB or T"
        )
    };
    let one = |piece: &str| {
        let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let (digits, suffix) = piece.split_at(end);
        let base: u64 = if suffix.len() == 2 && suffix.ends_with('B') { 1000 } else { 1024 };
        let unit = match suffix {
            "" | "c" => 1,
            "w" => 2,
            "b" => 512,
            _ => {
                let letter = suffix.strip_suffix("iB").or(suffix.strip_suffix('B')).unwrap_or(suffix);
                let power =
                    ["k", "m", "g", "t", "p"].iter().position(|known| known.eq_ignore_ascii_case(letter));
                base.pow(power.ok_or_else(help)? as u32 + 1)
            }
        };
        digits.parse().ok().and_then(|number: u64| number.checked_mul(unit)).ok_or_else(help)
    };
    text.split(['x', '*']).map(one).try_fold(1u64, |all, piece| all.checked_mul(piece?).ok_or_else(help))
}

/// A number of blocks; of bytes if it ends in `B` alone, as in `100B`.
fn amount(text: &str) -> Result<Amount, String> {
    let bytes = text.strip_suffix('B').filter(|rest| rest.ends_with(|c: char| c.is_ascii_digit()));
    Ok(Amount { number: number(bytes.unwrap_or(text))?, is_bytes: bytes.is_some() })
}

fn list(key: &str, value: &str, known: &[&str]) -> Result<Vec<String>, String> {
    let all: Vec<String> = value.split(',').map(ToOwned::to_owned).collect();
    match all.iter().find(|one| !known.contains(&one.as_str())) {
        Some(other) => Err(format!("{key}={other} is not simulated; it can be {}", known.join(", "))),
        None => Ok(all),
    }
}

fn operand(text: &str) -> Result<Operand, String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok(match (key, value) {
        ("if", _) => Operand::If(value.into()),
        ("of", _) => Operand::Of(value.into()),
        ("bs", _) => Operand::Bs(number(value)?),
        ("ibs", _) => Operand::InputBs(number(value)?),
        ("obs", _) => Operand::OutputBs(number(value)?),
        ("count", _) => Operand::Count(amount(value)?),
        ("skip" | "iseek", _) => Operand::Skip(amount(value)?),
        ("seek" | "oseek", _) => Operand::Seek(amount(value)?),
        ("iflag", _) => Operand::Input(list(key, value, &FLAGS)?),
        ("oflag", _) => Operand::Output(list(key, value, &FLAGS)?),
        ("conv", _) => Operand::Conversion(list(key, value, &CONVERSIONS)?),
        ("status", "none") => Operand::PrintedLines(PrintedLines::None),
        ("status", "noxfer") => Operand::PrintedLines(PrintedLines::NoTransfer),
        ("status", "progress") => Operand::PrintedLines(PrintedLines::Progress),
        ("status", _) => return Err("it can be none, noxfer or progress".into()),
        ("verify", "yes") => Operand::Verify,
        ("verify", _) => return Err("it can be `yes`".into()),
        _ => {
            return Err(
                "the keys are if, of, bs, ibs, obs, count, skip, seek, iflag, oflag, conv, status and verify"
                    .into(),
            );
        }
    })
}

/// Copies blocks from a file or device to another, like dd. `verify=yes` is an additional operand: reads back what
/// was written, and compares.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "dd")]
pub struct Dd {
    /// Operands, such as `if=/dev/urandom of=/dev/nvme0n1 bs=128k count=8`. `if` and `of` are block devices; `if` may
    /// also be /dev/zero or /dev/urandom, `of` /dev/null. A card with a DMA engine is /dev/xdma0_c2h_0 for `if`, which gives
    /// a counting pattern, and /dev/xdma0_h2c_0 for `of`. With `status=progress` or `status=noxfer`, dd's own lines are
    /// printed.
    #[arg(value_parser = operand)]
    operands: Vec<Operand>,
}

/// One end of the copy.
#[derive(Clone)]
enum End {
    Zero,
    Random(u64),
    Null,
    Device { file: Rc<dyn BlockFile>, direct: bool, durable: bool },
    Card { engine: Rc<dyn CardEngine>, way: Direction },
}

impl End {
    async fn read(&self, cpu: &Cpu, at: u64, memory: &[Segment]) -> Result<(), platform::Error> {
        let length: u32 = memory.iter().map(|segment| segment.length).sum();
        match self {
            Self::Zero => store(cpu, memory, &vec![0; length as usize]).await,
            Self::Random(seed) => store(cpu, memory, &content(*seed, at, length as usize)).await,
            Self::Null => {}
            Self::Device { file, direct: false, .. } => file.read(cpu, at, memory).await?,
            Self::Device { file, direct: true, .. } => {
                direct(cpu, &**file, BlockOp::Read, at, memory).await?;
            }
            Self::Card { engine, way } => engine.transfer(cpu, *way, memory).await?,
        }
        Ok(())
    }

    async fn write(&self, cpu: &Cpu, at: u64, memory: &[Segment]) -> Result<(), platform::Error> {
        match self {
            Self::Device { file, direct: false, durable } => {
                file.write(cpu, at, memory).await?;
                if *durable { file.sync(cpu).await } else { Ok(()) }
            }
            Self::Device { file, direct: true, durable } => {
                direct(cpu, &**file, BlockOp::Write { fua: *durable }, at, memory).await
            }
            Self::Card { engine, way } => engine.transfer(cpu, *way, memory).await,
            _ => Ok(()),
        }
    }
}

async fn direct(
    cpu: &Cpu,
    file: &dyn BlockFile,
    op: BlockOp,
    offset: u64,
    memory: &[Segment],
) -> Result<(), platform::Error> {
    let completions = IoCompletions::new();
    let length = memory.iter().map(|segment| u64::from(segment.length)).sum();
    file.submit(cpu, vec![IoRequest { op, offset, length, memory: memory.to_vec(), token: 0 }], &completions);
    completions.next().await.result
}

/// The operands' values, with dd's defaults.
struct Plan<'a> {
    from: Named<'a>,
    to: Named<'a>,
    bs: u64,
    /// Bytes to copy, and where, in bytes.
    bytes: u64,
    skip: u64,
    seek: u64,
    /// Whether the output ends first.
    is_short: bool,
    fsync: bool,
    verify: bool,
    status: Option<PrintedLines>,
}

/// An end of the copy before it is opened.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    direct: bool,
    /// Whether each write is to be durable.
    durable: bool,
    /// Size and block size of a device, in bytes; `None` for a stream.
    device: Option<(u64, u64)>,
    /// Number of a card, and which way its device moves data.
    card: Option<(u32, Direction)>,
}

/// A card's device as xdma names it: `/dev/xdma0_c2h_0`, from the card, or `/dev/xdma0_h2c_0`, to it.
fn card(name: &str) -> Option<(u32, Direction)> {
    let (number, way) = name.strip_prefix("/dev/xdma")?.split_once('_')?;
    let way = match way {
        "c2h_0" => Direction::FromDevice,
        "h2c_0" => Direction::ToDevice,
        _ => return None,
    };
    Some((number.parse().ok()?, way))
}

impl Named<'_> {
    /// Number of bytes after `first`.
    fn holds(&self, first: u64) -> Option<u64> {
        self.device.map(|(bytes, _)| bytes.saturating_sub(first))
    }

    /// Checks that it supports direct requests of this size, from this place on.
    fn check(&self, flag: &str, bs: u64, first: u64) -> Result<(), Refused> {
        let Some((_, block)) = self.device else {
            let message = format!("dd: {flag}=direct is for a block device, not for {}", self.name);
            return Refused::unless(!self.direct, message, format!("leave {flag} out"));
        };
        let message = format!("dd: bs={bs} is not a size of a direct request to {}", self.name);
        Refused::unless(!self.direct || bs % block == 0, message, format!("a multiple of {block}"))?;
        let message = format!("dd: direct requests to {} cannot begin at byte {first}", self.name);
        Refused::unless(!self.direct || first % block == 0, message, format!("a multiple of {block}"))
    }

    fn open(&self, environment: &Environment) -> Result<End, Failure> {
        let none = || Failure(format!("dd: failed to open '{}': no such device", self.name));
        if let Some((number, way)) = self.card {
            let file = environment.kernel.open_file(&format!("xdma{number}"));
            let engine = file.and_then(|file| file.downcast::<Rc<dyn CardEngine>>().ok()).ok_or_else(none)?;
            return Ok(End::Card { engine: Rc::clone(&engine), way });
        }
        Ok(match self.name {
            "/dev/zero" => End::Zero,
            "/dev/urandom" | "/dev/random" => End::Random(environment.seed),
            "/dev/null" => End::Null,
            name => {
                let file = environment.kernel.open_block(name).ok_or_else(none)?;
                End::Device { file, direct: self.direct, durable: self.durable }
            }
        })
    }
}

impl Dd {
    /// Interprets the operands; `find` gives the size and block size of a device.
    fn plan<'a>(&'a self, find: impl Fn(&str) -> Result<(u64, u64), Refused>) -> Result<Plan<'a>, Refused> {
        let (mut from, mut to) = (None, None);
        let (mut bs, mut ibs, mut obs, mut count, mut skip, mut seek) = (None, 512, 512, None, None, None);
        let (mut input, mut output, mut conversions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut status, mut verify) = (None, false);
        for operand in &self.operands {
            match operand {
                Operand::If(name) => from = Some(name.as_str()),
                Operand::Of(name) => to = Some(name.as_str()),
                Operand::Bs(value) => bs = Some(*value),
                Operand::InputBs(value) => ibs = *value,
                Operand::OutputBs(value) => obs = *value,
                Operand::Count(value) => count = Some(*value),
                Operand::Skip(value) => skip = Some(*value),
                Operand::Seek(value) => seek = Some(*value),
                Operand::Input(flags) => input.extend(flags.iter().map(String::as_str)),
                Operand::Output(flags) => output.extend(flags.iter().map(String::as_str)),
                Operand::Conversion(names) => conversions.extend(names.iter().map(String::as_str)),
                Operand::PrintedLines(value) => status = Some(*value),
                Operand::Verify => verify = true,
            }
        }
        if bs.is_none() && ibs != obs {
            let message = format!("dd: blocks are not read with {ibs} and written with {obs} bytes here");
            return Err(Refused::new(message, "bs=, or ibs= and obs= alike"));
        }
        let bs = bs.unwrap_or(ibs);
        Refused::unless((1..=LARGEST).contains(&bs), format!("dd: bs={bs} is not a valid size"), "1 to 64m")?;
        let devices = "a block device such as /dev/nvme0n1";
        let missing = |what: &str, others| {
            Refused::new(format!("dd: it does not say {what}"), format!("{devices}, or {others}"))
        };
        let from = from.ok_or_else(|| missing("from where: give if=", "/dev/zero, /dev/urandom"))?;
        let to = to.ok_or_else(|| missing("to where: give of=", "/dev/null"))?;
        let end = |name: &'a str, others: &[&str], wanted: Direction, flags: &[&str]| {
            let card = card(name);
            let other = name.replace("c2h", "H2C").replace("h2c", "c2h").replace("H2C", "h2c");
            let message = format!("dd: {name} moves data the other way");
            Refused::unless(card.is_none_or(|(_, way)| way == wanted), message, format!("`{other}`"))?;
            let device = if card.is_some() || others.contains(&name) { None } else { Some(find(name)?) };
            let durable = flags.contains(&"dsync") || flags.contains(&"sync");
            Ok(Named { name, direct: flags.contains(&"direct"), durable, device, card })
        };
        let streams = ["/dev/zero", "/dev/urandom", "/dev/random"];
        let from = end(from, &streams, Direction::FromDevice, &input)?;
        let to = end(to, &["/dev/null"], Direction::ToDevice, &output)?;
        let in_bytes = |amount: Option<Amount>, flags: &[&str], flag: &str| {
            let has = amount.is_some_and(|amount| amount.is_bytes) || flags.contains(&flag);
            amount.map(|amount| amount.number.saturating_mul(if has { 1 } else { bs }))
        };
        let count = in_bytes(count, &input, "count_bytes");
        let skip = in_bytes(skip, &input, "skip_bytes").unwrap_or(0);
        let seek = in_bytes(seek, &output, "seek_bytes").unwrap_or(0);
        for (key, from) in [("skip", skip), ("seek", seek)] {
            let message = format!("dd: {key}= leaves out {from} bytes, and no file is as long");
            Refused::unless(i64::try_from(from).is_ok(), message, "counted in bs=")?;
        }
        from.check("iflag", bs, skip)?;
        to.check("oflag", bs, seek)?;
        let fsync = conversions.contains(&"fsync") || conversions.contains(&"fdatasync");
        for (given, operand) in [(fsync, "conv=fsync"), (verify, "verify=yes")] {
            let message = format!("dd: {operand} needs a device to write to, not {}", to.name);
            Refused::unless(
                !given || to.device.is_some(),
                message,
                format!("leave it out, or of= {devices}"),
            )?;
        }
        let wanted = [count, from.holds(skip)].into_iter().flatten().min();
        let room = to.holds(seek);
        let bytes = [wanted, room].into_iter().flatten().min();
        let bytes = bytes.ok_or_else(|| Refused::new("dd: it would not end", "give count="))?;
        let help = "count=1 or more, and skip= and seek=, counted in bs=, within the devices";
        Refused::unless(bytes > 0, "dd: nothing is to be copied", help)?;
        // Without a count, a device is filled; with one, what does not fit is missed.
        let is_short = room.is_some_and(|room| wanted.is_none_or(|wanted| wanted > room));
        Ok(Plan { from, to, bs, bytes, skip, seek, is_short, fsync, verify, status })
    }
}

impl Program for Dd {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let find = |name: &str| match premises.disk("dd", name) {
            Ok(disk) => Ok((disk.bytes, disk.block)),
            Err(none) if name.starts_with("/dev/") => Err(none),
            Err(none) => Err(Refused { message: format!("dd: there are no files such as `{name}`"), ..none }),
        };
        let plan = self.plan(find)?;
        for end in [&plan.from, &plan.to] {
            let message = format!("dd: there is no card `{}`", end.name);
            let help = match premises.cards {
                0 => "a `[[host.device]]` with `card`".to_owned(),
                count => format!("cards 0 to {}", count - 1),
            };
            Refused::unless(end.card.is_none_or(|(number, _)| number < premises.cards), message, help)?;
        }
        premises.holds("dd", "a buffer of bs=", plan.bs.into())
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let kernel = &environment.kernel;
            let plan = self.plan(|name| {
                let file = kernel.open_block(name);
                let file = file
                    .ok_or_else(|| Refused::new(format!("dd: failed to open '{name}'"), "no such device"));
                file.map(|file| (file.bytes(), file.block_bytes().into()))
            })?;
            let ends = (plan.from.open(&environment)?, plan.to.open(&environment)?);
            let pages = kernel.alloc_pages(&cpu, Pages::order_for(plan.bs), Policy::Task);
            let pages = pages.map_err(|error| Failure::about("dd: buffer", error))?;
            let result = copy(&cpu, &plan, &ends, pages).await;
            kernel.free_pages(&cpu, pages);
            result
        })
    }
}

async fn copy(cpu: &Cpu, plan: &Plan<'_>, (from, to): &(End, End), pages: Pages) -> Result<Report, Failure> {
    let memory = |length: u64| [Segment { at: pages.start, length: length as u32 }];
    // Places relative to the first byte, and lengths: the last block may be shorter.
    let blocks = || (0..plan.bytes).step_by(plan.bs as usize).map(|at| (at, plan.bs.min(plan.bytes - at)));
    let reading = |error| Failure::about("dd: error reading", error);
    let writing = |error| Failure::about(format!("dd: error writing '{}'", plan.to.name), error);
    let began = cpu.now();
    // Host memory of the simulator: the expected data, block by block.
    let mut written = Vec::new();
    for (at, length) in blocks() {
        from.read(cpu, plan.skip + at, &memory(length)).await.map_err(reading)?;
        if plan.verify {
            let mut bytes = vec![0; length as usize];
            cpu.load_long(pages.start, &mut bytes).await;
            written.push(bytes);
        }
        to.write(cpu, plan.seek + at, &memory(length)).await.map_err(writing)?;
        cpu.sync().await;
    }
    if let End::Device { file, .. } = to
        && plan.fsync
    {
        file.sync(cpu).await.map_err(writing)?;
    }
    let seconds = cpu.now().since(began).as_s_f64();
    let bytes = plan.bytes as f64;
    let mut report = Report::default();
    report.add("records", "", plan.bytes.div_ceil(plan.bs) as f64);
    report.add("copied", "B", bytes);
    report.add("rate", "MB/s", bytes / seconds / 1e6);
    if plan.verify {
        if let End::Device { file, .. } = to {
            file.drop_cache(cpu).await.map_err(writing)?;
        }
        for ((at, length), expected) in blocks().zip(&written) {
            let at = plan.seek + at;
            let memory = memory(length);
            to.read(cpu, at, &memory).await.map_err(reading)?;
            if !holds(cpu, &memory, expected).await {
                return Err(Failure(format!("dd: '{}' differs at byte {at}", plan.to.name)));
            }
        }
        report.add("verified", "B", bytes);
    }
    if plan.is_short {
        report.notes.push(format!("dd: error writing '{}': no space left on device", plan.to.name));
    }
    report.text = plan.status.and_then(|status| text(status, plan, seconds));
    Ok(report)
}

/// dd's own lines.
fn text(status: PrintedLines, plan: &Plan<'_>, seconds: f64) -> Option<String> {
    if status == PrintedLines::None {
        return None;
    }
    let records = format!("{}+{}", plan.bytes / plan.bs, u64::from(plan.bytes % plan.bs != 0));
    let mut text = format!("{records} records in\n{records} records out\n");
    if status == PrintedLines::Progress {
        let bytes = plan.bytes as f64;
        let (decimal, binary) = (scaled(bytes, 1000.0, "B"), scaled(bytes, 1024.0, "iB"));
        let rate = scaled(bytes / seconds, 1000.0, "B");
        let sizes = match plan.bytes {
            0..1000 => String::new(),
            1000..1024 => format!(" ({decimal})"),
            _ => format!(" ({decimal}, {binary})"),
        };
        text += &format!("{} bytes{sizes} copied, {} s, {rate}/s\n", plan.bytes, significant(seconds));
    }
    Some(text)
}

/// A size with a prefix: one decimal below ten.
fn scaled(bytes: f64, base: f64, unit: &str) -> String {
    let (mut number, mut power) = (bytes, 0);
    while number >= base - 0.5 && power < 5 {
        number /= base;
        power += 1;
    }
    let prefix = ["", if base > 1000.0 { "K" } else { "k" }, "M", "G", "T", "P"][power];
    let unit = if power == 0 { "B" } else { unit };
    if number < 9.95 && power > 0 {
        format!("{number:.1} {prefix}{unit}")
    } else {
        format!("{number:.0} {prefix}{unit}")
    }
}

/// Six significant digits, as with printf's `%g`.
fn significant(number: f64) -> String {
    let exponent = if number > 0.0 { number.log10().floor() as i32 } else { 0 };
    if !(-4..6).contains(&exponent) {
        let mantissa = format!("{:.5}", number / 10f64.powi(exponent));
        return format!("{}e{exponent:+03}", mantissa.trim_end_matches('0').trim_end_matches('.'));
    }
    let text = format!("{number:.*}", (5 - exponent).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_original() {
        for (text, value) in [
            ("512", 512),
            ("1c", 1),
            ("2w", 4),
            ("2b", 1024),
            ("1kB", 1000),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1MB", 1_000_000),
            ("1M", 1 << 20),
            ("1GB", 1_000_000_000),
            ("1G", 1 << 30),
            ("2x512", 1024),
            ("2x2x1K", 4096),
        ] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        assert!(["", "x", "1q", "-1", "1kb2", "99999999P"].iter().all(|text| number(text).is_err()));
        assert_eq!(amount("100B"), Ok(Amount { number: 100, is_bytes: true }));
        assert_eq!(amount("1MB"), Ok(Amount { number: 1_000_000, is_bytes: false }));
    }

    /// Lines that GNU dd prints for these numbers.
    #[test]
    fn its_line_is_that_of_the_original() {
        assert_eq!(scaled(8_388_608.0, 1000.0, "B"), "8.4 MB");
        assert_eq!(scaled(8_388_608.0, 1024.0, "iB"), "8.0 MiB");
        assert_eq!(scaled(1_073_741_824.0, 1000.0, "B"), "1.1 GB");
        assert_eq!(scaled(52_428_800.0, 1000.0, "B"), "52 MB");
        assert_eq!(significant(0.001_234_567_8), "0.00123457");
        assert_eq!(significant(12.5), "12.5");
        assert_eq!(significant(0.000_001_5), "1.5e-06");
    }
}
