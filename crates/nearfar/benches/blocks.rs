//! How many block requests per second one core simulates: program, block layer, driver, IOMMU, link, controller, media.
//!
//! `cargo bench -p nearfar --bench blocks -- QUICK` takes a tenth of the time.

#[path = "../tests/scenario/mod.rs"]
mod scenario;

use std::time::Instant;

use nearfar::computer;
use nearfar::progress::Silent;
use scenario::{HEAD, host_with_drive, loaded, program};

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    println!("block requests per wall-clock second of one core, dell-t430 with optane-900p");
    for (iommu, options, ms) in [
        ("off", "--rw=randread --bs=4k --iodepth=1", 200),
        ("off", "--rw=randread --bs=4k --iodepth=32 --numjobs=4", 50),
        ("strict", "--rw=randread --bs=4k --iodepth=32 --numjobs=4", 50),
        ("off", "--rw=randwrite --bs=4k --iodepth=32 --numjobs=4", 50),
        ("off", "--rw=read --bs=128k --iodepth=32", 100),
        ("off", "--rw=read --bs=4k --direct=0", 100),
    ] {
        measure(iommu, options, if quick { ms / 10 } else { ms });
    }
    // Linux keeps the peak of the process for those who ask.
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        println!("peak memory: {}", peak.unwrap_or("unknown").trim());
    }
}

fn measure(iommu: &str, options: &str, ms: u64) {
    let fio = program("a", "0-3", &format!("fio {options} --runtime={ms}ms"));
    let setup = loaded(&[HEAD, &host_with_drive("optane-900p", iommu), &fio].concat());
    let began = Instant::now();
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    let seconds = began.elapsed().as_secs_f64();
    let report = done[0].outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    let readings = report.readings.iter().filter(|reading| reading.quantity.ends_with("requests"));
    let requests: f64 = readings.filter(|r| r.quantity != "merged requests").map(|r| r.value).sum();
    println!("{:>9.0} /s  {options}, IOMMU {iommu}  ({:.0} requests)", requests / seconds, requests);
}
