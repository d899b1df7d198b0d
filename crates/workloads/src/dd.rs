//! dd: copies blocks, one after the other, and can look afterwards whether they arrived.

use std::rc::Rc;

use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu};
use platform::memory::{Pages, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};

use crate::fio::{holds, store};
use crate::options;
use crate::program::{Environment, Failure, Program, Report};
use crate::random::content;

/// An operand, as `bs=128k`.
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

/// Copies blocks from a file or device to another, as dd does. Beside its real operands there is `verify=yes`: reads back
/// what was written, and compares.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "dd")]
pub struct Dd {
    /// As `if=/dev/urandom of=/dev/nvme0n1 bs=128k count=8`. `if` and `of` are block devices; `if` may also be
    /// /dev/zero or /dev/urandom, `of` /dev/null.
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
            Self::Zero => store(cpu, memory, &vec![0; length as usize]),
            Self::Random(seed) => store(cpu, memory, &content(*seed, at, length as usize)),
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

/// What the operands say, each with dd's own default.
struct Plan {
    from: End,
    to: End,
    to_name: String,
    bs: u64,
    count: u64,
    skip: u64,
    seek: u64,
    fsync: bool,
    verify: bool,
}

impl Dd {
    fn plan(&self, environment: &Environment) -> Result<Plan, Failure> {
        let has = |wanted: &Operand| self.operands.contains(wanted);
        let open = |name: &str, direct| match environment.kernel.open_block(name) {
            Some(file) => Ok(End::Device { file, direct }),
            None => Err(Failure(format!("dd: failed to open '{name}': no such device"))),
        };
        let (mut from, mut to, mut to_name) = (None, None, String::new());
        let (mut bs, mut count, mut skip, mut seek) = (512, None, 0, 0);
        for operand in &self.operands {
            match operand {
                Operand::If(name) => {
                    from = Some(match name.as_str() {
                        "/dev/zero" => End::Zero,
                        "/dev/urandom" => End::Random(environment.seed),
                        name => open(name, has(&Operand::InputDirect))?,
                    });
                }
                Operand::Of(name) => {
                    to_name.clone_from(name);
                    to = Some(match name.as_str() {
                        "/dev/null" => End::Null,
                        name => open(name, has(&Operand::OutputDirect))?,
                    });
                }
                Operand::Bs(value) => bs = *value,
                Operand::Count(value) => count = Some(*value),
                Operand::Skip(value) => skip = *value,
                Operand::Seek(value) => seek = *value,
                _ => {}
            }
        }
        let from = from.ok_or_else(|| Failure("dd: there is no standard input here: give if=".into()))?;
        let to = to.ok_or_else(|| Failure("dd: there is no standard output here: give of=".into()))?;
        if bs == 0 || bs > 64 << 20 {
            return Err(Failure(format!("dd: invalid number: bs={bs}")));
        }
        let end = |end: &End, first: u64| match end {
            End::Device { file, .. } => Some((file.bytes() / bs).saturating_sub(first)),
            _ => None,
        };
        let most = [count, end(&from, skip), end(&to, seek)].into_iter().flatten().min();
        let count = most.ok_or_else(|| Failure("dd: it would not end: give count=".into()))?;
        let (fsync, verify) = (has(&Operand::Fsync), has(&Operand::Verify));
        if verify && !matches!(to, End::Device { .. }) {
            return Err(Failure("dd: verify=yes needs a device to read back from".into()));
        }
        Ok(Plan { from, to, to_name, bs, count, skip, seek, fsync, verify })
    }
}

impl Program for Dd {
    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let plan = self.plan(&environment)?;
            let kernel = &environment.kernel;
            let pages = kernel.alloc_pages(&cpu, Pages::order_for(plan.bs), Policy::Task);
            let pages = pages.map_err(|error| Failure::about("dd: buffer", error))?;
            let result = copy(&cpu, &plan, pages).await;
            kernel.free_pages(&cpu, pages);
            result
        })
    }
}

async fn copy(cpu: &Cpu, plan: &Plan, pages: Pages) -> Result<Report, Failure> {
    let memory = [Segment { at: pages.start, length: plan.bs as u32 }];
    let reading = |error| Failure::about("dd: error reading", error);
    let writing = |error| Failure::about(format!("dd: error writing '{}'", plan.to_name), error);
    let began = cpu.now();
    // Nobody else sees this: what shall be read back, block by block.
    let mut written = Vec::new();
    for n in 0..plan.count {
        plan.from.read(cpu, (plan.skip + n) * plan.bs, &memory).await.map_err(reading)?;
        if plan.verify {
            let mut bytes = vec![0; plan.bs as usize];
            cpu.load(pages.start, &mut bytes);
            written.push(bytes);
        }
        plan.to.write(cpu, (plan.seek + n) * plan.bs, &memory).await.map_err(writing)?;
        cpu.sync().await;
    }
    if let End::Device { file, .. } = &plan.to
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
        if let End::Device { file, .. } = &plan.to {
            file.drop_cache(cpu).await.map_err(writing)?;
        }
        for (n, expected) in written.iter().enumerate() {
            let at = (plan.seek + n as u64) * plan.bs;
            plan.to.read(cpu, at, &memory).await.map_err(reading)?;
            if !holds(cpu, &memory, expected) {
                return Err(Failure(format!("dd: '{}' differs at byte {at}", plan.to_name)));
            }
        }
        report.add("verified", "B", bytes);
    }
    Ok(report)
}
