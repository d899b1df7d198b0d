//! Programs in virtual machines, from a scenario on.

mod scenario;

use nearfar::computer::{run, run_counted};
use nearfar::progress::Silent;
use scenario::{HEAD, host, loaded, program};

const FIO: &str = "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=1 --runtime=1ms";

/// A host with a drive and lines of its own.
fn with_drive(lines: &str) -> String {
    on("dell-t430", lines)
}

fn on(machine: &str, lines: &str) -> String {
    let drive =
        format!("iommu = \"strict\"\n[[host.device]]\nname = \"disk\"\ndrive = \"optane-900p\"\n{lines}");
    HEAD.to_owned() + &host("a", machine, &drive)
}

fn guest(devices: &str) -> String {
    format!("[[host.vm]]\nname = \"x\"\nvcpus = \"2-3\"\nmemory = \"256 MiB\"\ndevices = [{devices}]\n")
}

#[test]
fn fio_in_a_guest_pays_for_its_exits() {
    let latency = |text: &str| {
        let done = run_counted(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let report = done.done[0].outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
        let names: Vec<_> = report.readings.iter().map(|reading| reading.name()).collect();
        let mean = report.get("read clat mean").unwrap_or_else(|| panic!("{names:?}"));
        (mean, report.get("read requests").unwrap(), done)
    };
    // With posted interrupts a guest is left as it has nothing to do; without any help, for each interrupt and its end, too, behind
    // the way through the host's handler.
    for (machine, least, forwarded, posted) in
        [("dell-t430", 0.3, 0.0, 1.0), ("dell-t620-sandy", 1.0, 1.0, 0.0)]
    {
        let (native, ..) = latency(&(on(machine, "") + &program("a", "0", FIO)));
        let (guest, requests, done) = latency(&(on(machine, &guest("\"disk\"")) + &program("a/x", "0", FIO)));
        println!("{machine}: {guest} us in a guest, {native} natively");
        let more = guest - native;
        assert!((least..12.0).contains(&more), "{machine}: {guest} us in a guest, {native} natively");
        assert_eq!(done.done[0].host, "a/x");
        let counters = done.counted[0].window.host("a").unwrap();
        assert_eq!((counters.of("vm-x/exits/config"), counters.of("vm-x/exits/mmio")), (0, 0));
        for (counter, each) in [
            ("exits/interrupt", forwarded),
            ("exits/end-of-interrupt", forwarded),
            ("interrupts/forwarded", forwarded),
            ("interrupts/posted", posted),
        ] {
            let counted = counters.of(&format!("vm-x/{counter}")) as f64 / requests;
            assert!((counted - each).abs() < 0.1, "{machine}: {counted} {counter} for a request");
        }
    }
}

/// A guest goes with its host, and a host keeps what it has not passed through.
#[test]
fn a_guest_ends_with_its_host() {
    let event = "[[event]]\nat = \"300 us\"\ndo = \"power-off\"\nwhat = \"a\"\n";
    let text = with_drive(&guest("\"disk\"")) + &program("a/x", "0", FIO) + event;
    let done = run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    assert!(done[0].was_stopped, "{done:?}");
}

/// A virtual machine that loses its power takes its programs with it, and no other's.
#[test]
fn a_guest_that_loses_its_power_leaves_its_neighbour_alone() {
    let other = "[[host.vm]]\nname = \"y\"\nvcpus = \"4\"\nmemory = \"64 MiB\"\n";
    let event = "[[event]]\nat = \"300 us\"\ndo = \"power-off\"\nwhat = \"a/y\"\n";
    let programs =
        program("a/x", "0", FIO) + &program("a/y", "0", "stream --array-size 100000 --ntimes 1000");
    let done = run(&loaded(&(with_drive(&(guest("\"disk\"") + other)) + &programs + event)), &Silent);
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    assert!(done[0].outcome.is_ok() && done[1].was_stopped, "{done:?}");
}
