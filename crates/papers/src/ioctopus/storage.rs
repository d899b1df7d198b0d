//! fio reading four drives next to STREAM instances (section 5.4, Figure 15), on the paper's other server.

use std::rc::Rc;

use platform::cpu::{CpuId, Node};
use platform::memory::Policy;
use units::Duration;

use super::server::ServerBench;
use crate::rig::{self, Rig, SteadyBatches, Traffic};
use crate::runs::{Known, Values, named};

const MACHINE: &str = "xeon-8160";
/// Cores per socket.
const CORES: u16 = 24;
const DRIVES: u16 = 4;
/// Jobs per drive; eight in total.
const JOBS: u16 = 2;
/// Elements of a STREAM array: the three arrays of one instance exceed the caches.
const ELEMENTS: u64 = 2 << 20;
/// Time for STREAM to fill its arrays, and for the first full queue of requests to complete.
const FILLING: Duration = Duration::from_ms(20);
const WARMING: Duration = Duration::from_ms(4);
const BATCH: Duration = Duration::from_us(100);
const BATCHES: usize = 60;

/// Location of the drives relative to fio on socket 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drives {
    /// At fio's socket.
    Local,
    /// At the other socket.
    Remote,
    /// At both: a port of each drive at each socket, as one block device (an OctoSSD).
    Octo,
}

impl Drives {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Octo => "octo",
        }
    }

    /// Number in a block device's name: that of the drive's first controller.
    fn device(self, drive: u16) -> u16 {
        if self == Self::Octo { 2 * drive } else { drive }
    }

    fn host(self) -> String {
        let bay = |socket1: bool, n: u16| match (socket1, n) {
            (false, 0) => "bay".to_owned(),
            (false, n) => format!("bay.{n}"),
            (true, 0) => "bay-socket1".to_owned(),
            (true, n) => format!("bay-socket1.{n}"),
        };
        let drive = |n| match self {
            Self::Local | Self::Remote => {
                format!("[[host.device]]\ndrive = \"pm1725a\"\nslot = \"{}\"\n", bay(self == Self::Remote, n))
            }
            Self::Octo => format!(
                "[[host.device]]\ndrive = \"pm1725a-dual\"\nlinks = [{{ slot = \"{}\" }}, {{ slot = \"{}\" }}]\n",
                bay(false, n),
                bay(true, n)
            ),
        };
        let multipath = if self == Self::Octo { "[host.nvme_driver]\nmultipath = true\n" } else { "" };
        let drives: String = (0..DRIVES).map(drive).collect();
        format!("[[host]]\nname = \"server\"\nmachine = \"{MACHINE}\"\n{multipath}{drives}")
    }
}

/// fio next to STREAM instances: its rate in GB/s, its CPU time, and traffic of memory and interconnect.
pub fn run(bench: &ServerBench, drives: Drives, instances: u16) -> Result<Values, String> {
    let rig = loaded(bench, drives, instances)?;
    for n in 0..DRIVES {
        let cores: Vec<u16> = (0..JOBS).map(|job| n * JOBS + job).collect();
        let line = format!(
            "fio --filename=/dev/nvme{n}n1 --rw=randread --bs=128k --ioengine=libaio --iodepth=32 --numjobs={JOBS} --runtime=1s",
            n = drives.device(n)
        );
        rig.start(0, &cores, &line)?;
    }
    rig.pass(WARMING);
    let steady = steady(&rig, |counts| counts.traffic.written);
    let share = |before: &DriveCounts, after: &DriveCounts, _| {
        let [io, written] =
            [|counts: &DriveCounts| counts.traffic.link_io, |counts: &DriveCounts| counts.traffic.written]
                .map(|count| (count(after) - count(before)) as f64);
        100.0 * io / written
    };
    let cores = f64::from(DRIVES * JOBS);
    let cpu = |before: &DriveCounts, after: &DriveCounts, ns| {
        100.0 * (after.busy - before.busy).as_ns_f64() / ns / cores
    };
    let each = [
        ("gbyte", gbyte(&steady, |traffic| traffic.written)),
        ("crossed", steady.of(share)),
        ("cpu", steady.of(cpu)),
    ];
    Ok(named(
        "fio",
        &format!("{}/{instances}", drives.name()),
        each.into_iter().chain(of_links(&rig, &steady)),
    ))
}

/// The same STREAM instances without fio.
pub fn streams_alone(bench: &ServerBench, instances: u16) -> Result<Values, String> {
    let rig = loaded(bench, Drives::Remote, instances)?;
    rig.pass(WARMING);
    let steady = steady(&rig, |counts| counts.traffic.link_core);
    Ok(named("fio", &format!("none/{instances}"), of_links(&rig, &steady)))
}

/// The server with STREAM on cores of socket 1 and memory of socket 0.
fn loaded(bench: &ServerBench, drives: Drives, instances: u16) -> Result<Rig, String> {
    let rig = bench.boot(&drives.host())?;
    for n in 0..instances {
        let line = format!("stream --array-size {ELEMENTS} --ntimes 1000");
        rig::start(Rc::clone(&rig.host(0).kernel), &[CORES + n], Policy::Bind(Node(0)), &line)?;
    }
    if instances > 0 {
        rig.pass(FILLING);
    }
    Ok(rig)
}

/// Counters of the server.
struct DriveCounts {
    traffic: Traffic,
    /// CPU time of fio's cores.
    busy: Duration,
}

fn steady(rig: &Rig, amount: fn(&DriveCounts) -> u64) -> SteadyBatches<DriveCounts> {
    let face = rig.host(0).kernel.face();
    let busy = || (0..DRIVES * JOBS).flat_map(|core| face.busy(CpuId(core))).sum();
    let count = || DriveCounts { traffic: rig.traffic(0), busy: busy() };
    rig.until_steady(BATCH, BATCHES, count, amount).steady(BATCH)
}

/// A rate in GB/s.
fn gbyte(steady: &SteadyBatches<DriveCounts>, count: fn(&Traffic) -> u64) -> Known {
    steady.of(move |before, after, ns| (count(&after.traffic) - count(&before.traffic)) as f64 / ns)
}

/// Traffic of memory and interconnect in GB/s; the share of the interconnect's busier direction that is used, percent.
fn of_links(rig: &Rig, steady: &SteadyBatches<DriveCounts>) -> [(&'static str, Known); 6] {
    let bandwidth = rig.link_bandwidth(0);
    let used = |before: &DriveCounts, after: &DriveCounts, ns: f64| {
        let way = |n: usize| (after.traffic.ways[n] - before.traffic.ways[n]) as f64 / ns;
        100.0 * way(0).max(way(1)) / bandwidth
    };
    [
        ("memory", gbyte(steady, |traffic| traffic.memory)),
        ("link", gbyte(steady, |traffic| traffic.link)),
        ("link-dma", gbyte(steady, |traffic| traffic.link_dma)),
        ("link-io", gbyte(steady, |traffic| traffic.link_io)),
        // What STREAM reads and writes is in the other socket's memory.
        ("stream", gbyte(steady, |traffic| traffic.link_core)),
        ("link-used", steady.of(used)),
    ]
}
