//! fio reading four drives next to STREAM instances (section 5.4, Figure 15), on the paper's other server.

use std::rc::Rc;

use platform::cpu::Node;
use platform::memory::Policy;
use units::Duration;

use super::server::ServerBench;
use crate::reproduce::rig::{self, Traffic};
use crate::reproduce::runs::{Values, named};

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

/// fio's rate in GB/s, and the interconnect traffic for it.
pub fn run(bench: &ServerBench, drives: Drives, instances: u16) -> Result<Values, String> {
    let rig = bench.boot(&drives.host())?;
    for n in 0..instances {
        let line = format!("stream --array-size {ELEMENTS} --ntimes 1000");
        rig::start(Rc::clone(&rig.host(0).kernel), &[CORES + n], Policy::Bind(Node(0)), &line)?;
    }
    if instances > 0 {
        rig.pass(FILLING);
    }
    for n in 0..DRIVES {
        let cores: Vec<u16> = (0..JOBS).map(|job| n * JOBS + job).collect();
        let line = format!(
            "fio --filename=/dev/nvme{n}n1 --rw=randread --bs=128k --iodepth=32 --numjobs={JOBS} --runtime=1s",
            n = drives.device(n)
        );
        rig.start(0, &cores, &line)?;
    }
    rig.pass(WARMING);
    let batches = rig.until_steady(BATCH, BATCHES, || rig.traffic(0), |traffic| traffic.written);
    let steady = batches.steady(BATCH);
    let gbyte = |count: fn(&Traffic) -> u64| {
        steady.of(move |before, after, ns| (count(after) - count(before)) as f64 / ns)
    };
    let share = |before: &Traffic, after: &Traffic, _| {
        100.0 * (after.link_dma - before.link_dma) as f64 / (after.written - before.written) as f64
    };
    let each = [
        ("gbyte", gbyte(|traffic| traffic.written)),
        ("memory", gbyte(|traffic| traffic.memory)),
        ("link", gbyte(|traffic| traffic.link)),
        ("link-dma", gbyte(|traffic| traffic.link_dma)),
        ("crossed", steady.of(share)),
    ];
    Ok(named("fio", &format!("{}/{instances}", drives.name()), each))
}
