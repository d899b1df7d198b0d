//! Hosts and guests that are stopped by events: what was under way ends, what comes later runs on the new kernel.

use crate::scenario::{AtEnd, HEAD, cable, event, host, host_with_nic, loaded, program, two_hosts};
use nearfar::computer::{Computers, FinishedProgram, run_watched};
use nearfar::progress::Silent;

fn run(text: &str, look: impl FnMut(&Computers)) -> Vec<FinishedProgram> {
    run_watched(&loaded(text), &Silent, &mut AtEnd(look)).unwrap_or_else(|error| panic!("{error}"))
}

/// How a program or an event ended: in words, if it failed.
fn end_of<'d>(done: &'d [FinishedProgram], what: &str) -> Result<&'d workloads::Report, String> {
    let found = done.iter().find(|done| done.run.starts_with(what));
    let found = found.unwrap_or_else(|| panic!("{what} is reported: {done:?}"));
    found.outcome.as_ref().map_err(ToString::to_string)
}

fn received(done: &[FinishedProgram]) -> f64 {
    let report = end_of(done, "ping").unwrap_or_else(|failure| panic!("{failure}"));
    report.get("received").expect("it counts")
}

/// Echoes of the second host, one each millisecond.
fn ping(count: u32) -> String {
    program("a", "0", &format!("ping -c {count} -i 0.001 -W 0.001 10.0.0.2"))
}

fn reboot(at: &str, takes: &str) -> String {
    event(at, "reboot", "b", &format!("takes = \"{takes}\""))
}

#[test]
fn what_stops_a_host_ends_its_reboot() {
    for (deed, why) in
        [("power-off", "its host lost its power at 3 ms"), ("crash", "its host crashed at 3 ms")]
    {
        let stop = event("3 ms", deed, "b", "");
        let mut halted = false;
        let done = run(&[two_hosts(""), ping(20), reboot("1 ms", "5 ms"), stop].concat(), |computers| {
            halted = computers.hosts()[1].kernel.is_halted();
        });
        assert_eq!(end_of(&done, "reboot").unwrap_err(), why);
        assert!(halted && received(&done) <= 2.0, "{done:?}");
        assert!(done.iter().all(|done| done.failure().is_none()), "as it was meant: {done:?}");
    }
}

/// The second one comes while the power is off, or while the kernel boots.
#[test]
fn a_host_that_is_rebooted_again_boots_once() {
    for second in ["3 ms", "6020 us"] {
        let reboots = reboot("1 ms", "5 ms") + &reboot(second, "5 ms");
        let done = run(&[two_hosts(""), ping(30), reboots].concat(), |_| {});
        assert!((10.0..25.0).contains(&received(&done)), "{done:?}");
        let reboots: Vec<_> = done.iter().filter(|done| done.run.starts_with("reboot")).collect();
        assert!(reboots[0].was_stopped && reboots[1].outcome.is_ok(), "{second}: {reboots:?}");
    }
}

/// The link above a NIC with virtual functions is cut: its host boots with the other one.
#[test]
fn a_host_boots_without_what_is_behind_a_cut_link() {
    let more =
        "[[host.device]]\nnic = \"modern\"\n[[host.device]]\nname = \"more\"\nnic = \"82599\"\nvfs = 2";
    let hosts = [HEAD, &host_with_nic("a"), &host("b", "dell-t430", more), &cable("a", "b:0", "")].concat();
    let events = event("1 ms", "cut", "b:more", "") + &reboot("2 ms", "2 ms");
    let done = run(&[hosts, ping(20), events].concat(), |_| {});
    assert!(end_of(&done, "reboot").is_ok() && received(&done) > 10.0, "{done:?}");
}

#[test]
fn a_program_runs_on_the_kernel_of_its_time() {
    let later = "start = \"20 ms\"\n";
    let programs = [
        ping(40),
        program("b", "0", "netserver"),
        program("b", "1", "stream --array-size 2000 --ntimes 2") + later,
    ];
    let moves = event("15 ms", "move-task", "b:netserver", "to = \"3\"");
    let done = run(&[two_hosts(""), programs.concat(), reboot("1 ms", "2 ms"), moves].concat(), |_| {});
    assert!(end_of(&done, "stream").is_ok(), "{done:?}");
    assert_eq!(end_of(&done, "netserver").unwrap_err(), "its host rebooted at 1 ms");
    assert_eq!(end_of(&done, "move-task").unwrap_err(), "the program has ended");
}

/// Without the host, a program cannot start; it does as soon as the host has booted.
#[test]
fn a_program_whose_host_is_off_waits_for_a_reboot_only() {
    let late = || program("b", "1", "stream --array-size 2000 --ntimes 2") + "start = \"3 ms\"\n";
    let done = run(&[two_hosts(""), ping(10), late(), reboot("1 ms", "5 ms")].concat(), |_| {});
    assert!(end_of(&done, "stream").is_ok(), "{done:?}");
    let done = run(&[two_hosts(""), late(), event("1 ms", "power-off", "b", "")].concat(), |_| {});
    assert_eq!(end_of(&done, "stream").unwrap_err(), "its host was off at 3 ms");
    assert!(done.iter().all(|done| done.failure().is_none()), "{done:?}");
}

#[test]
fn a_reboot_is_completed_when_nothing_else_runs() {
    let done = run(
        &[two_hosts(""), program("b", "0", "ping -c 9 10.0.0.1"), reboot("1 ms", "2 ms")].concat(),
        |_| {},
    );
    assert!(end_of(&done, "reboot").is_ok(), "{done:?}");
    assert_eq!(end_of(&done, "ping").unwrap_err(), "its host rebooted at 1 ms");
}

#[test]
fn software_of_a_stopped_host_does_nothing() {
    for (deed, why) in [("power-off", "its host is off"), ("crash", "its host has crashed")] {
        let events = [
            event("1 ms", deed, "b", ""),
            event("2 ms", "set", "b:eth0.mtu", "value = \"1000\""),
            event("2 ms", "set-affinity", "b:eth0", "to = \"1\""),
            event("2 ms", "move-task", "b:netserver", "to = \"1\""),
        ];
        let done =
            run(&[two_hosts(""), program("b", "0", "netserver"), ping(5), events.concat()].concat(), |_| {});
        for what in ["set ", "set-affinity", "move-task"] {
            assert_eq!(end_of(&done, what).unwrap_err(), why, "{what}");
        }
    }
}

/// Events of software end with their host.
#[test]
fn an_event_under_way_ends_with_its_host() {
    let events =
        event("1 ms", "set", "b:eth0.rx_ring", "value = \"256\"") + &event("1001 us", "crash", "b", "");
    let done = run(&[two_hosts(""), ping(3), events].concat(), |_| {});
    assert_eq!(end_of(&done, "set").unwrap_err(), "its host crashed at 1.001 ms");
    assert!(done.iter().all(|done| done.failure().is_none()), "{done:?}");
}

/// A guest goes with its host, and is not there again after a reboot.
#[test]
fn a_guest_that_is_gone_is_told() {
    let guest = "iommu = \"strict\"\n[[host.device]]\nname = \"ssd\"\ndrive = \"optane-900p\"\n\
                 [[host.vm]]\nname = \"v\"\nvcpus = \"2\"\nmemory = \"64 MiB\"\ndevices = [\"ssd\"]";
    let programs = [
        program(
            "a/v",
            "0",
            "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=4 --runtime=9ms",
        ),
        program("a", "0", "ping -c 30 -i 0.001 127.0.0.1"),
    ];
    let off = |at: &str| event(at, "power-off", "a/v", "");
    let alone = [HEAD, &host("a", "dell-t430", guest), &programs[0], &off("1 ms")].concat();
    let done = run(&alone, |_| {});
    assert!(done[0].was_stopped && end_of(&done, "power-off").is_ok(), "{done:?}");
    let text = |events: &[String]| {
        [HEAD, &host("a", "dell-t430", guest), &programs.concat(), &events.concat()].concat()
    };
    let done = run(&text(&[off("1 ms"), off("2 ms")]), |_| {});
    let ended: Vec<_> = done
        .iter()
        .map(|done| (&*done.host, done.outcome.as_ref().map_err(ToString::to_string).err()))
        .collect();
    assert_eq!(ended[0], ("a/v", Some("its virtual machine lost its power at 1 ms".to_owned())));
    assert_eq!(ended[3].1.as_deref(), Some("it is off already"), "{done:?}");
    let reboot = event("1 ms", "reboot", "a", "takes = \"1 ms\"");
    let moved = event("20 ms", "move-task", "a/v:fio", "to = \"0\"");
    let later = program("a", "1", "ping -c 30 -i 0.001 127.0.0.1") + "start = \"5 ms\"\n";
    let done = run(&(text(&[reboot, off("20 ms"), moved]) + &later), |_| {});
    assert_eq!(end_of(&done, "power-off").unwrap_err(), "it is off already");
    assert_eq!(end_of(&done, "move-task").unwrap_err(), "the program has ended");
}
