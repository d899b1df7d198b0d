//! How many block requests per second one core simulates where each host reads from a drive that it has borrowed of the next, by a
//! cluster switch: a cluster of 64 is to cost no more than 1.5 times as much for each request as one of 2. It is printed, not
//! asserted. `cargo bench -p nearfar --bench clusters -- QUICK` takes a tenth of the time.

#[path = "clock/mod.rs"]
mod clock;
#[path = "computers/mod.rs"]
mod computers;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use computers::run;
use scenario::{HEAD, host, program};

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    println!("block requests per wall-clock second of one core, from borrowed drives");
    let ms = if quick { 1 } else { 10 };
    // Hosts have to boot, too: what more time costs is what counts.
    let cost = |hosts: usize| {
        let (short, long) = (time(hosts, ms), time(hosts, 3 * ms));
        let (seconds, requests) = (long.0 - short.0, long.1 - short.1);
        println!("{:>9.0} /s  {hosts} hosts  ({requests:.0} requests)", requests / seconds);
        seconds / requests
    };
    let costs = [2, 8, 64].map(cost);
    println!("64 hosts cost {:.2} times as much for each request as 2", costs[2] / costs[0]);
}

/// Seconds and requests of so many hosts that read for so long.
fn time(hosts: usize, ms: u64) -> (f64, f64) {
    let name = |n: usize| format!("h{}", n % hosts);
    let mut text = HEAD.to_owned();
    for n in 0..hosts {
        let ntb = "[[host.device]]\nname = \"n\"\nntb = \"pxh830\"\nchange.requesters = 128\n";
        let lines =
            format!("iommu = \"strict\"\n{ntb}[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"\n");
        text += &host(&name(n), "dolphin-e5-2603v4", &lines);
        text += &format!("[[ntb_cable]]\nends = [\"{}:n\", \"cs\"]\n", name(n));
        text += &format!("[[borrow]]\nfunction = \"{}:d\"\nby = \"{}\"\n", name(n + 1), name(n));
        let fio = format!(
            "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=4 --runtime={ms}ms"
        );
        text += &program(&name(n), "0", &fio);
    }
    text += "[[cluster_switch]]\nname = \"cs\"\npart = \"ixs600\"\nchange.ports = 64\n";
    let done = run(&text);
    let readings = done.report.readings.iter().filter(|reading| reading.quantity == "read requests");
    let requests: f64 = readings.map(|reading| reading.value).sum();
    (done.seconds, requests * hosts as f64)
}
