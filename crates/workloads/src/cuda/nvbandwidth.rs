//! Bandwidths between host memory and GPUs, and between GPUs, by the names of NVIDIA's nvbandwidth.
//!
//! Tests by copy engines (`_ce`) and of latency are carried out. Copies by kernels (`_sm`) are not: the GPU has no programs
//! that copy.

use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use serde_json::json;
use wire::gpu::{CHASE_BYTES, Launch, Program as GpuProgram};

use super::HostMemory;
use super::flows::{CopiedBy, CopyEnd, CopyFlow, CopyRig, PairTable};
use super::stream::CudaStream;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// MiB of the shorter of the two copies whose difference is the rate of long ones.
const MOST_MIB: u64 = 1;
/// Loads of a latency.
const LOADS: u32 = 200;

/// What a test measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NvTest {
    /// Copies between the host and one GPU.
    Host {
        /// Into the GPU.
        into: bool,
        /// With a copy in the other direction beside it.
        both: bool,
    },
    /// Copies between two GPUs.
    Pair { by: CopiedBy, both: bool },
    /// Copies between the host and one GPU, while all others do so, too.
    All { into: bool, both: bool },
    /// Copies of all GPUs to one, added up.
    ToOne(CopiedBy),
    /// Copies of one GPU to all, added up.
    FromOne(CopiedBy),
    /// A kernel's load from host memory.
    HostLatency,
    /// A kernel's load from another GPU's memory.
    PairLatency,
}

/// All tests in the original's order, with the title of their table.
const TESTS: [(&str, NvTest, &str); 18] = {
    use CopiedBy::{Destination, Source};
    use NvTest::{All, FromOne, Host, HostLatency, Pair, PairLatency, ToOne};
    let (into, out) = ("memcpy CE CPU(row) -> GPU(column)", "memcpy CE CPU(row) <- GPU(column)");
    let (read, write) = ("memcpy CE GPU(row) <- GPU(column)", "memcpy CE GPU(row) -> GPU(column)");
    [
        ("host_to_device_memcpy_ce", Host { into: true, both: false }, into),
        ("device_to_host_memcpy_ce", Host { into: false, both: false }, out),
        ("host_to_device_bidirectional_memcpy_ce", Host { into: true, both: true }, into),
        ("device_to_host_bidirectional_memcpy_ce", Host { into: false, both: true }, out),
        ("device_to_device_memcpy_read_ce", Pair { by: Destination, both: false }, read),
        ("device_to_device_memcpy_write_ce", Pair { by: Source, both: false }, write),
        ("device_to_device_bidirectional_memcpy_read_ce", Pair { by: Destination, both: true }, read),
        ("device_to_device_bidirectional_memcpy_write_ce", Pair { by: Source, both: true }, write),
        ("all_to_host_memcpy_ce", All { into: false, both: false }, out),
        ("all_to_host_bidirectional_memcpy_ce", All { into: false, both: true }, out),
        ("host_to_all_memcpy_ce", All { into: true, both: false }, into),
        ("host_to_all_bidirectional_memcpy_ce", All { into: true, both: true }, into),
        ("all_to_one_write_ce", ToOne(Source), "memcpy CE All Gpus -> GPU(column) total"),
        ("all_to_one_read_ce", ToOne(Destination), "memcpy CE All Gpus -> GPU(column) total"),
        ("one_to_all_write_ce", FromOne(Source), "memcpy CE GPU(column) -> All GPUs total"),
        ("one_to_all_read_ce", FromOne(Destination), "memcpy CE GPU(column) -> All GPUs total"),
        ("host_device_latency_sm", HostLatency, "memory latency SM CPU(row) <-> GPU(column)"),
        ("device_to_device_latency_sm", PairLatency, "Device to Device Latency SM GPU(row) <-> GPU(column)"),
    ]
};

/// Number of a test in [`TESTS`], by name.
fn test(text: &str) -> Result<usize, String> {
    if let Some(number) = TESTS.iter().position(|(name, ..)| *name == text) {
        return Ok(number);
    }
    if text.ends_with("_sm") {
        let engine = text.trim_end_matches("_sm").to_owned() + "_ce";
        return Err(match TESTS.iter().any(|(name, ..)| *name == engine) {
            true => format!("a GPU here copies by its engines alone: `{engine}`"),
            false => "a GPU here copies by its engines alone".to_owned(),
        });
    }
    Err(format!("the tests are {}", TESTS.map(|(name, ..)| name).join(", ")))
}

/// Measures bandwidths between host memory and GPUs, and between GPUs, and latencies of loads by kernels, like NVIDIA's
/// nvbandwidth. Without `-t`, all tests run.
///
/// Rates are those of long copies: what a copy of three times the bytes takes longer, or of nine times if more than two run
/// at once.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "nvbandwidth", after_help = format!("Tests: {}", TESTS.map(|(name, ..)| name).join(", ")))]
pub struct NvBandwidth {
    /// Tests, by name.
    #[arg(short = 't', long = "testcase", num_args = 1.., value_parser = test)]
    tests: Vec<usize>,
    /// Tests, by the beginnings of their names.
    #[arg(short = 'p', long = "testcasePrefixes", num_args = 1.., conflicts_with = "tests")]
    prefixes: Vec<String>,
    /// MiB that are copied; more than one is as one.
    #[arg(short = 'b', long = "bufferSize", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    mib: u64,
    /// Prints JSON.
    #[arg(short = 'j', long = "json")]
    json: bool,
}

/// Options that are not carried out.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-i, --testSamples COUNT", "a simulated copy takes as long every time"),
    Unmodelled::harmless("-m, --useMean", "there is one sample"),
    Unmodelled::harmless("-s, --skipVerification", "nothing is verified; `bandwidthTest --verify` does so"),
    Unmodelled::harmless("-d, --disableAffinity", "the scenario says where the program runs"),
    Unmodelled::harmless("-v, --verbose", "everything is reported"),
    Unmodelled::refused("-l, --list", "`nearfar programs nvbandwidth` names the tests"),
];

/// What a test has measured.
struct NvTable {
    test: usize,
    table: PairTable,
}

/// A running program.
struct NvRun<'a> {
    cpu: &'a Cpu,
    kernel: &'a dyn Kernel,
    rig: CopyRig,
}

impl NvRun<'_> {
    fn flow(&self, from: CopyEnd, to: CopyEnd, by: CopiedBy) -> Result<CopyFlow, Failure> {
        self.rig.flow(self.cpu, (from, to), by)
    }

    /// A copy between the host and a GPU, which moves them both.
    fn of_host(&self, gpu: usize, into: bool) -> Result<CopyFlow, Failure> {
        let gpu = CopyEnd::Gpu(gpu);
        let (from, to) = if into { (CopyEnd::Host, gpu) } else { (gpu, CopyEnd::Host) };
        self.flow(from, to, CopiedBy::Source)
    }

    fn of_pair(&self, (from, to): (usize, usize), by: CopiedBy) -> Result<CopyFlow, Failure> {
        self.flow(CopyEnd::Gpu(from), CopyEnd::Gpu(to), by)
    }

    /// Nanoseconds of a kernel's load from an end.
    async fn latency(&self, gpu: usize, of: CopyEnd) -> Result<f64, Failure> {
        let (cpu, context) = (self.cpu, self.rig.context(gpu));
        let host = HostMemory::take(self.kernel, cpu, 64)?;
        let result = context.map(cpu, &host)?;
        let polled = self.rig.seen_by(cpu, gpu, of)?;
        let launch = Launch { program: GpuProgram::Chase, polled, written: result, result, count: LOADS };
        let mut stream = CudaStream::default();
        stream.launch(cpu, context, launch).await?;
        stream.synchronise(cpu).await?;
        let took = cpu.load_u64(host.start());
        context.unmap(cpu, result);
        host.give(self.kernel, cpu);
        Ok(took as f64 / f64::from(LOADS))
    }

    async fn measure(&self, test: usize) -> Result<NvTable, Failure> {
        let ((_, subject, title), gpus) = (TESTS[test], self.rig.gpus());
        let unit = if matches!(subject, NvTest::HostLatency | NvTest::PairLatency) {
            "(ns)"
        } else {
            "bandwidth (GB/s)"
        };
        let rows =
            if matches!(subject, NvTest::Pair { .. } | NvTest::PairLatency) { gpus } else { 1.min(gpus) };
        let mut table = PairTable::new(format!("{title} {unit}"), rows, gpus);
        let (cpu, rig) = (self.cpu, &self.rig);
        match subject {
            NvTest::Host { into, both } => {
                for gpu in 0..gpus {
                    let beside = if both { vec![self.of_host(gpu, !into)?] } else { Vec::new() };
                    table.set(0, gpu, rig.rate_beside(cpu, self.of_host(gpu, into)?, &beside).await?);
                }
            }
            NvTest::All { into, both } => {
                for gpu in 0..gpus {
                    let mut beside = Vec::new();
                    for other in 0..gpus {
                        beside.extend((other != gpu).then(|| self.of_host(other, into)).transpose()?);
                        beside.extend(both.then(|| self.of_host(other, !into)).transpose()?);
                    }
                    table.set(0, gpu, rig.rate_beside(cpu, self.of_host(gpu, into)?, &beside).await?);
                }
            }
            // The row reads from the column, or writes to it.
            NvTest::Pair { by, both } => {
                for (row, column) in rig.pairs() {
                    let pair = if by == CopiedBy::Destination { (column, row) } else { (row, column) };
                    let mut flows = vec![self.of_pair(pair, by)?];
                    if both {
                        flows.push(self.of_pair((pair.1, pair.0), by)?);
                    }
                    table.set(row, column, rig.rate(cpu, &flows).await?);
                }
            }
            NvTest::ToOne(by) | NvTest::FromOne(by) => {
                for one in 0..gpus {
                    let others = (0..gpus).filter(|&other| other != one);
                    let is_to = matches!(subject, NvTest::ToOne(_));
                    let pair = |other| if is_to { (other, one) } else { (one, other) };
                    let flows =
                        others.map(|other| self.of_pair(pair(other), by)).collect::<Result<Vec<_>, _>>()?;
                    table.set(0, one, rig.rate(cpu, &flows).await?);
                }
            }
            NvTest::HostLatency => {
                for gpu in 0..gpus {
                    table.set(0, gpu, self.latency(gpu, CopyEnd::Host).await?);
                }
            }
            NvTest::PairLatency => {
                for (row, column) in rig.pairs() {
                    table.set(row, column, self.latency(row, CopyEnd::Gpu(column)).await?);
                }
            }
        }
        Ok(NvTable { test, table })
    }
}

impl NvTest {
    /// What a cell is about.
    fn cell(self, row: usize, column: usize) -> String {
        match self {
            Self::Host { into: true, .. } | Self::All { into: true, .. } => format!("host to gpu{column}"),
            Self::Host { .. } | Self::All { .. } => format!("gpu{column} to host"),
            Self::Pair { both: true, .. } => format!("gpu{row} and gpu{column}, total"),
            Self::Pair { by: CopiedBy::Source, .. } => format!("gpu{row} to gpu{column}"),
            Self::Pair { .. } => format!("gpu{column} to gpu{row}"),
            Self::ToOne(_) => format!("all to gpu{column}"),
            Self::FromOne(_) => format!("gpu{column} to all"),
            Self::HostLatency => format!("host from gpu{column}"),
            Self::PairLatency => format!("gpu{column} from gpu{row}"),
        }
    }

    fn unit(self) -> &'static str {
        if matches!(self, Self::HostLatency | Self::PairLatency) { "ns" } else { "GB/s" }
    }

    /// GPUs that it takes.
    fn gpus(self) -> u32 {
        match self {
            Self::Pair { .. } | Self::ToOne(_) | Self::FromOne(_) | Self::PairLatency => 2,
            Self::Host { .. } | Self::All { .. } | Self::HostLatency => 1,
        }
    }
}

impl NvBandwidth {
    /// The tests, by number.
    fn chosen(&self) -> Vec<usize> {
        let is_meant = |name: &str| {
            self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
        };
        match self.tests.is_empty() {
            true => (0..TESTS.len()).filter(|&test| is_meant(TESTS[test].0)).collect(),
            false => self.tests.clone(),
        }
    }

    async fn measure(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let kernel = &*environment.kernel;
        let bytes = (self.mib.min(MOST_MIB) << 20).max(CHASE_BYTES);
        let session = NvRun { cpu, kernel, rig: CopyRig::open(cpu, kernel, bytes, &environment.span)? };
        let mut all = Vec::new();
        for test in self.chosen() {
            // As in the original, a test of pairs is waived where there is one GPU.
            if TESTS[test].1.gpus() as usize <= session.rig.gpus() {
                all.push(session.measure(test).await?);
            }
        }
        session.rig.close(cpu, kernel);
        let mut report = Report::default();
        for NvTable { test, table } in &all {
            let (name, subject, _) = TESTS[*test];
            for (row, column, value) in table.cells() {
                report.add(format!("{name}: {}", subject.cell(row, column)), subject.unit(), value);
            }
        }
        report.text = Some(if self.json { in_json(&all) } else { in_text(&all) });
        Ok(report)
    }
}

fn in_text(all: &[NvTable]) -> String {
    let one = |NvTable { test, table }: &NvTable| {
        let name = TESTS[*test].0;
        format!("Running {name}.\n{}\nSUM {name} {:.2}\n\n", table.text("", "N/A", 10), table.sum())
    };
    all.iter().map(one).collect()
}

fn in_json(all: &[NvTable]) -> String {
    let one = |NvTable { test, table }: &NvTable| {
        let rows = table.rows().map(|row| {
            row.iter()
                .map(|cell| cell.map_or_else(|| "N/A".to_owned(), |v| format!("{v:.6}")))
                .collect::<Vec<_>>()
        });
        let rows: Vec<_> = rows.collect();
        json!({ "name": TESTS[*test].0, "status": "Passed", "bandwidth_matrix": rows, "sum": table.sum() })
    };
    let all: Vec<_> = all.iter().map(one).collect();
    format!("{:#}\n", json!({ "nvbandwidth": { "testcases": all } }))
}

impl Program for NvBandwidth {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let all = self.chosen();
        let none = format!("nvbandwidth: no test's name begins with {}", self.prefixes.join(", "));
        Refused::unless(!all.is_empty(), none, "`nearfar programs nvbandwidth` names the tests")?;
        let needed = if self.tests.is_empty() {
            1
        } else {
            all.iter().map(|&test| TESTS[test].1.gpus()).max().unwrap_or(1)
        };
        premises.gpu("nvbandwidth", needed - 1)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { self.measure(&cpu, &environment).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_the_originals_names_and_kernels_copies_are_refused_with_what_there_is() {
        assert_eq!(test("device_to_host_memcpy_ce"), Ok(1));
        assert!(test("host_to_device_memcpy_sm").unwrap_err().contains("host_to_device_memcpy_ce"));
        assert!(test("bandwidth").unwrap_err().contains("one_to_all_read_ce"));
        let by_prefix = crate::registry::parse("nvbandwidth -p host_to_all all_to_one -b 64 -i 5");
        assert_eq!(by_prefix.unwrap().notes().len(), 1);
    }
}
