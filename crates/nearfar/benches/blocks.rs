//! How many block requests per second one core simulates: program, block layer, driver, IOMMU, link, controller, media.
//!
//! Each is run for half of the time and for all of it: the peaks of memory beside each other show whether it grows.
//! `cargo bench -p nearfar --bench blocks -- QUICK` takes a tenth of the time.

#[path = "clock/mod.rs"]
mod clock;
#[path = "computers/mod.rs"]
mod computers;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use computers::{Run, forget_peak, peak, run};
use scenario::{HEAD, host_with_drive, program};

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    println!("block requests per wall-clock second of one core, dell-t430 with optane-900p");
    for (iommu, options, ms) in [
        ("off", "--rw=randread --bs=4k --iodepth=1", 200),
        ("off", "--rw=randread --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4", 50),
        ("strict", "--rw=randread --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4", 50),
        ("off", "--rw=randwrite --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4", 50),
        ("off", "--rw=read --bs=128k --ioengine=libaio --iodepth=32", 100),
        ("off", "--rw=read --bs=4k --direct=0", 100),
    ] {
        measure(iommu, options, if quick { ms / 10 } else { ms });
    }
}

fn measure(iommu: &str, options: &str, ms: u64) {
    let time = |ms: u64| {
        let fio = program("a", "0-3", &format!("fio {options} --runtime={ms}ms"));
        forget_peak();
        let done = run(&[HEAD, &host_with_drive("optane-900p", iommu), &fio].concat());
        (done, peak().unwrap_or_default())
    };
    let (_, half) = time(ms / 2);
    let (Run { seconds, simulated, report }, whole) = time(ms);
    let readings = report.readings.iter().filter(|reading| reading.quantity.ends_with("requests"));
    let requests: f64 = readings.filter(|r| r.quantity != "merged requests").map(|r| r.value).sum();
    println!(
        "{:>9.0} /s, 1/{:<4.0} of real time  {options}, IOMMU {iommu}  ({requests:.0} requests; {half} kB for {} ms, {whole} kB for {ms} ms)",
        requests / seconds,
        seconds * 1e9 / simulated.as_ns_f64(),
        ms / 2
    );
}
