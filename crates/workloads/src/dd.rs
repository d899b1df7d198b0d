//! dd: copies blocks sequentially; can verify them afterwards.

use std::rc::Rc;

use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu};
use platform::memory::{Pages, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};

use crate::fio::{holds, store};
use crate::options;
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
    Count(u64),
    Skip(u64),
    Seek(u64),
    InputDirect,
    OutputDirect,
    Fsync,
    Verify,
}

fn operand(text: &str) -> Result<Operand, String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    let number = || options::size(value);
    Ok(match (key, value) {
        ("if", _) => Operand::If(value.into()),
        ("of", _) => Operand::Of(value.into()),
        ("bs", _) => Operand::Bs(number()?),
        ("count", _) => Operand::Count(number()?),
        ("skip", _) => Operand::Skip(number()?),
        ("seek", _) => Operand::Seek(number()?),
        ("iflag", "direct") => Operand::InputDirect,
        ("oflag", "direct") => Operand::OutputDirect,
        ("conv", "fsync") => Operand::Fsync,
        ("verify", "yes") => Operand::Verify,
        ("iflag" | "oflag", _) => return Err("it can be `direct`".into()),
        ("conv", _) => return Err("it can be `fsync`".into()),
        ("verify", _) => return Err("it can be `yes`".into()),
        _ => {
            return Err("the keys are if, of, bs, count, skip, seek, iflag, oflag, conv and verify".into());
        }
    })
}

/// Copies blocks from a file or device to another, like dd. `verify=yes` is an additional operand: reads back what
/// was written, and compares.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "dd")]
pub struct Dd {
    /// Operands, such as `if=/dev/urandom of=/dev/nvme0n1 bs=128k count=8`. `if` and `of` are block devices; `if` may
    /// also be /dev/zero or /dev/urandom, `of` /dev/null.
    #[arg(value_parser = operand)]
    operands: Vec<Operand>,
}

/// One end of the copy.
#[derive(Clone)]
enum End {
    Zero,
    Random(u64),
    Null,
    Device { file: Rc<dyn BlockFile>, direct: bool },
}

impl End {
    async fn read(&self, cpu: &Cpu, at: u64, memory: &[Segment]) -> Result<(), platform::Error> {
        let length: u32 = memory.iter().map(|segment| segment.length).sum();
        match self {
            Self::Zero => store(cpu, memory, &vec![0; length as usize]).await,
            Self::Random(seed) => store(cpu, memory, &content(*seed, at, length as usize)).await,
            Self::Null => {}
            Self::Device { file, direct: false } => file.read(cpu, at, memory).await?,
            Self::Device { file, direct: true } => direct(cpu, &**file, BlockOp::Read, at, memory).await?,
        }
        Ok(())
    }

    async fn write(&self, cpu: &Cpu, at: u64, memory: &[Segment]) -> Result<(), platform::Error> {
        match self {
            Self::Device { file, direct: false } => file.write(cpu, at, memory).await,
            Self::Device { file, direct: true } => {
                direct(cpu, &**file, BlockOp::Write { fua: false }, at, memory).await
            }
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
    count: u64,
    skip: u64,
    seek: u64,
    fsync: bool,
    verify: bool,
}

/// An end of the copy before it is opened.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    direct: bool,
    /// Size and block size of a device, in bytes; `None` for a stream.
    device: Option<(u64, u64)>,
}

impl Named<'_> {
    /// Number of whole blocks of `bs` bytes after `first`.
    fn holds(&self, bs: u64, first: u64) -> Option<u64> {
        self.device.map(|(bytes, _)| (bytes / bs).saturating_sub(first))
    }

    /// Checks that it supports direct requests of this size.
    fn check(&self, flag: &str, bs: u64) -> Result<(), Refused> {
        let Some((_, block)) = self.device else {
            let message = format!("dd: {flag}=direct is for a device, not for {}", self.name);
            return Refused::unless(!self.direct, message, format!("leave {flag} out"));
        };
        let message = format!("dd: bs={bs} is not a size of a direct request to {}", self.name);
        Refused::unless(!self.direct || bs % block == 0, message, format!("a multiple of {block}"))
    }

    fn open(&self, environment: &Environment) -> Result<End, Failure> {
        let none = || Failure(format!("dd: failed to open '{}': no such device", self.name));
        Ok(match self.name {
            "/dev/zero" => End::Zero,
            "/dev/urandom" => End::Random(environment.seed),
            "/dev/null" => End::Null,
            name => {
                let file = environment.kernel.open_block(name).ok_or_else(none)?;
                End::Device { file, direct: self.direct }
            }
        })
    }
}

impl Dd {
    /// Interprets the operands; `find` gives the size and block size of a device.
    fn plan<'a>(&'a self, find: impl Fn(&str) -> Result<(u64, u64), Refused>) -> Result<Plan<'a>, Refused> {
        let has = |wanted: &Operand| self.operands.contains(wanted);
        let (mut from, mut to) = (None, None);
        let (mut bs, mut count, mut skip, mut seek) = (512, None, 0, 0);
        for operand in &self.operands {
            match operand {
                Operand::If(name) => from = Some(name.as_str()),
                Operand::Of(name) => to = Some(name.as_str()),
                Operand::Bs(value) => bs = *value,
                Operand::Count(value) => count = Some(*value),
                Operand::Skip(value) => skip = *value,
                Operand::Seek(value) => seek = *value,
                _ => {}
            }
        }
        Refused::unless((1..=LARGEST).contains(&bs), format!("dd: bs={bs} is not a valid size"), "1 to 64m")?;
        let devices = "a block device such as /dev/nvme0n1";
        let missing = |what: &str, others| {
            Refused::new(format!("dd: it does not say {what}"), format!("{devices}, or {others}"))
        };
        let from = from.ok_or_else(|| missing("from where: give if=", "/dev/zero, /dev/urandom"))?;
        let to = to.ok_or_else(|| missing("to where: give of=", "/dev/null"))?;
        let end = |name: &'a str, others: &[&str], direct| {
            let device = if others.contains(&name) { None } else { Some(find(name)?) };
            Ok(Named { name, direct, device })
        };
        let from = end(from, &["/dev/zero", "/dev/urandom"], has(&Operand::InputDirect))?;
        let to = end(to, &["/dev/null"], has(&Operand::OutputDirect))?;
        from.check("iflag", bs)?;
        to.check("oflag", bs)?;
        let (fsync, verify) = (has(&Operand::Fsync), has(&Operand::Verify));
        for (given, operand) in [(fsync, "conv=fsync"), (verify, "verify=yes")] {
            let message = format!("dd: {operand} needs a device to write to, not {}", to.name);
            Refused::unless(
                !given || to.device.is_some(),
                message,
                format!("leave it out, or of= {devices}"),
            )?;
        }
        let most = [count, from.holds(bs, skip), to.holds(bs, seek)].into_iter().flatten().min();
        let count = most.ok_or_else(|| Refused::new("dd: it would not end", "give count="))?;
        let help = "count=1 or more, and skip= and seek=, counted in bs=, within the devices";
        Refused::unless(count > 0, "dd: nothing is to be copied", help)?;
        Ok(Plan { from, to, bs, count, skip, seek, fsync, verify })
    }
}

impl Program for Dd {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let plan = self.plan(|name| premises.disk("dd", name).map(|disk| (disk.bytes, disk.block)))?;
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
    let memory = [Segment { at: pages.start, length: plan.bs as u32 }];
    let reading = |error| Failure::about("dd: error reading", error);
    let writing = |error| Failure::about(format!("dd: error writing '{}'", plan.to.name), error);
    let began = cpu.now();
    // Host memory of the simulator: the expected data, block by block.
    let mut written = Vec::new();
    for n in 0..plan.count {
        from.read(cpu, (plan.skip + n) * plan.bs, &memory).await.map_err(reading)?;
        if plan.verify {
            let mut bytes = vec![0; plan.bs as usize];
            cpu.load_long(pages.start, &mut bytes).await;
            written.push(bytes);
        }
        to.write(cpu, (plan.seek + n) * plan.bs, &memory).await.map_err(writing)?;
        cpu.sync().await;
    }
    if let End::Device { file, .. } = to
        && plan.fsync
    {
        file.sync(cpu).await.map_err(writing)?;
    }
    let seconds = cpu.now().since(began).as_s_f64();
    let bytes = (plan.count * plan.bs) as f64;
    let mut report = Report::default();
    report.add("records", "", plan.count as f64);
    report.add("copied", "B", bytes);
    report.add("rate", "MB/s", bytes / seconds / 1e6);
    if plan.verify {
        if let End::Device { file, .. } = to {
            file.drop_cache(cpu).await.map_err(writing)?;
        }
        for (n, expected) in written.iter().enumerate() {
            let at = (plan.seek + n as u64) * plan.bs;
            to.read(cpu, at, &memory).await.map_err(reading)?;
            if !holds(cpu, &memory, expected).await {
                return Err(Failure(format!("dd: '{}' differs at byte {at}", plan.to.name)));
            }
        }
        report.add("verified", "B", bytes);
    }
    Ok(report)
}
