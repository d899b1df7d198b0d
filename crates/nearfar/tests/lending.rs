//! Devices lent between hosts of a scenario: programs use them, and see what becomes of cables, hosts and leases meanwhile.

use crate::scenario::{self, HEAD, host, loaded, program};
use machine::Library;
use nearfar::computer::{ComputerError, FinishedProgram, run};
use nearfar::lend_cost;
use nearfar::progress::Silent;
use units::Duration;
use workloads::Report;

const FIO: &str = "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=1 --runtime=1ms";

/// Without an IOMMU all of the borrower's memory is in the lender's window.
fn with(devices: &str, iommu: &str) -> String {
    let memory = "change.host.dram.size = \"8 GiB\"";
    format!("iommu = \"{iommu}\"\n{memory}\n{devices}[[host.device]]\nname = \"n\"\nntb = \"pxh830\"\n")
}

const DRIVE: &str = "[[host.device]]\nname = \"ssd\"\ndrive = \"optane-900p\"\n";

/// Host `a` borrows the drive of `b`; what else there is follows.
fn cluster(iommus: [&str; 2], borrow: &str, lines: &str) -> Vec<FinishedProgram> {
    let a = host("a", "dell-t430", &with("", iommus[0]));
    let b = host("b", "dell-t430", &with(DRIVE, iommus[1]));
    let cable = "[[ntb_cable]]\nname = \"cable\"\nends = [\"a:n\", \"b:n\"]\n";
    let borrow = format!("[[borrow]]\nfunction = \"b:ssd\"\nby = \"a\"\n{borrow}\n");
    let text = [HEAD, &a, &b, cable, &borrow, lines].concat();
    run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn report<'d>(done: &'d [FinishedProgram], run: &str) -> &'d Report {
    let done =
        done.iter().find(|done| done.run.starts_with(run)).unwrap_or_else(|| panic!("{run} in {done:?}"));
    done.outcome.as_ref().unwrap_or_else(|failure| panic!("{run}: {failure}"))
}

fn latency(done: &[FinishedProgram]) -> f64 {
    report(done, "fio").get("read clat 50 %").unwrap_or_else(|| panic!("{done:?}"))
}

fn event(at: &str, deed: &str, what: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\ndo = \"{deed}\"\nwhat = \"{what}\"\n")
}

#[test]
fn a_borrowed_drive_is_read_whatever_the_iommus_do() {
    let own = [HEAD, &host("a", "dell-t430", DRIVE), &program("a", "0", FIO)].concat();
    let own = latency(&run(&loaded(&own), &Silent).unwrap());
    for iommus in [["off", "off"], ["strict", "off"], ["lazy", "strict"], ["pass-through", "strict"]] {
        let lent = latency(&cluster(iommus, "", &program("a", "0", FIO)));
        assert!(lent > own + 1.0 && lent < own + 6.0, "{iommus:?}: {lent} us, its own {own} us");
    }
}

#[test]
fn a_loan_that_cannot_be_ended_says_why() {
    let why = |borrow: &str, events: &[String], run: &str| {
        let lines = program("a", "0", "ping -c 3 -i 0.001 127.0.0.1") + &events.concat();
        let done = cluster(["strict", "off"], borrow, &lines);
        let done = done.iter().find(|done| done.run.starts_with(run)).expect("it is reported");
        done.outcome.as_ref().unwrap_err().to_string()
    };
    let (crash, revoke) = (event("100 us", "crash", "b"), event("200 us", "revoke", "b:ssd"));
    assert_eq!(why("", &[crash, revoke.clone()], "revoke"), "its host has crashed");
    assert_eq!(why("until = \"900 us\"", &[revoke], "return"), "it is no longer borrowed");
}

/// Each adapter's own memory is reached by others, wherever it is.
#[test]
fn adapters_of_any_socket_lend() {
    for slots in [["slot", "slot-socket1"], ["slot-socket1", "slot"]] {
        let [a, b] = [("a", "", slots[0]), ("b", DRIVE, slots[1])].map(|(name, devices, slot)| {
            let drive = devices.replace("[[host.device]]", "[[host.device]]\nslot = \"slot.1\"");
            host(name, "dell-t430", &format!("{}slot = \"{slot}\"\n", with(&drive, "off")))
        });
        let cable =
            "[[ntb_cable]]\nends = [\"a:n\", \"b:n\"]\n[[borrow]]\nfunction = \"b:ssd\"\nby = \"a\"\n";
        let done = run(&loaded(&[HEAD, &a, &b, cable, &program("a", "0", FIO)].concat()), &Silent);
        let done = done.unwrap_or_else(|error| panic!("{slots:?}: {error}"));
        assert!(latency(&done) > 10.0, "{slots:?}");
    }
}

/// A function is lent with its IOMMU group, or not at all: who refuses says with which others it is in one.
#[test]
fn a_function_of_a_group_in_use_is_not_lent() {
    let switch = "[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\n\
                  change.access_control = { value = false, source = \"assumed: test\" }\n";
    let drive = |name: &str, port: u8| {
        format!("[[host.device]]\nname = \"{name}\"\ndrive = \"optane-900p\"\nslot = \"sw:{port}\"\n")
    };
    let a = host("a", "dell-t430", &with("", "strict"));
    let b = host("b", "dell-t430", &with(&[switch, &drive("ssd", 1), &drive("own", 2)].concat(), "strict"));
    let cable = "[[ntb_cable]]\nends = [\"a:n\", \"b:n\"]\n[[borrow]]\nfunction = \"b:ssd\"\nby = \"a\"\n";
    let refused = run(&loaded(&[HEAD, &a, &b, cable, &program("a", "0", FIO)].concat()), &Silent);
    let said = match refused.expect_err("the group is in use") {
        ComputerError::Files(said) => said.render(false),
        other => panic!("{other}"),
    };
    assert!(said.contains("its IOMMU group also has") && said.contains("(nvme)"), "{said}");
    assert!(said.contains("access_control"), "{said}");
}

/// The kernel numbers drives as they come; a program that names one by its serial number gets that one.
#[test]
fn a_drive_is_found_by_its_number_whichever_came_first() {
    let flash = "[[host.device]]\nname = \"flash\"\ndrive = \"pm1725a\"\n";
    let a = host("a", "dell-t430", &with("", "strict"));
    let b = host("b", "dell-t430", &with(&[DRIVE, flash].concat(), "strict"));
    let cable = "[[ntb_cable]]\nends = [\"a:n\", \"b:n\"]\n";
    let latencies = |loans: [&str; 2]| {
        let loan = |name: &str| format!("[[borrow]]\nfunction = \"b:{name}\"\nby = \"a\"\n");
        let read =
            |name: &str| program("a", "0", &FIO.replace("nvme0n1", &format!("disk/by-id/nvme-b:{name}")));
        let text =
            [HEAD, &a, &b, cable, &loans.map(loan).concat(), &["ssd", "flash"].map(read).concat()].concat();
        let done = run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        ["ssd", "flash"].map(|name| {
            let of = |done: &&FinishedProgram| done.run.contains(&format!("b:{name} "));
            let report =
                done.iter().find(of).unwrap().outcome.as_ref().unwrap_or_else(|error| panic!("{error}"));
            report.get("read clat 50 %").unwrap()
        })
    };
    for loans in [["ssd", "flash"], ["flash", "ssd"]] {
        let [optane, flash] = latencies(loans);
        assert!(optane < 20.0 && flash > 60.0, "{loans:?}: {optane} and {flash} us");
    }
}

#[test]
fn what_is_written_through_a_lease_is_read_back() {
    let copy = "dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=16 oflag=direct verify=yes";
    let done = cluster(["strict", "strict"], "", &program("a", "0", copy));
    report(&done, "dd");
}

#[test]
fn a_drive_comes_and_goes_while_programs_run() {
    let at = |start: &str| format!("[[program]]\nhost = \"a\"\nstart = \"{start}\"\nrun = \"{FIO}\"\n");
    let lease = "from = \"100 us\"\nuntil = \"300 ms\"";
    let done = cluster(["strict", "off"], lease, &[at("150 ms"), at("600 ms")].concat());
    report(&done, "borrow b:ssd");
    report(&done, "return b:ssd");
    let outcomes: Vec<bool> =
        done.iter().filter(|done| done.run.starts_with("fio")).map(|done| done.outcome.is_ok()).collect();
    assert_eq!(outcomes, [true, false], "{done:?}");
}

#[test]
fn a_cable_that_is_cut_fails_what_is_under_way() {
    let long = FIO.replace("1ms", "20ms");
    let done = cluster(
        ["strict", "strict"],
        "",
        &[program("a", "0", &long), event("2 ms", "cut", "cable")].concat(),
    );
    let fio = done.iter().find(|done| done.run.starts_with("fio")).unwrap();
    assert!(fio.outcome.is_err(), "{fio:?}");
    report(&done, "cut");
}

#[test]
fn a_lease_that_is_revoked_ends_what_is_under_way() {
    let long = FIO.replace("1ms", "20ms");
    let lines = [program("a", "0", &long), event("2 ms", "revoke", "b:ssd")].concat();
    let done = cluster(["strict", "strict"], "", &lines);
    let fio = done.iter().find(|done| done.run.starts_with("fio")).unwrap();
    assert!(fio.outcome.is_err(), "{fio:?}");
    // The run ends with its programs: the drive is still being reset.
    let revoked = done.iter().find(|done| done.run.starts_with("revoke")).unwrap();
    assert_eq!(revoked.host, "event");
}

#[test]
fn a_lender_that_loses_its_power_takes_the_drive_along() {
    let long = FIO.replace("1ms", "20ms");
    let lines = [program("a", "0", &long), event("2 ms", "power-off", "b")].concat();
    let done = cluster(["strict", "off"], "", &lines);
    let fio = done.iter().find(|done| done.run.starts_with("fio")).unwrap();
    assert!(fio.outcome.is_err(), "{fio:?}");
}

#[test]
fn a_lender_whose_kernel_stops_is_noticed_in_time() {
    // Its hardware goes on: I/O does too, until the borrower hears nothing of it any more.
    let long = FIO.replace("1ms", "5ms");
    let done =
        cluster(["strict", "off"], "", &[program("a", "0", &long), event("1 ms", "crash", "b")].concat());
    report(&done, "fio");
}

/// Borrows from the start, and once more after the adapter was lost and has come back.
const TWICE: &str = "until = \"400 ms\"\n[[borrow]]\nfunction = \"b:ssd\"\nby = \"a\"\nfrom = \"500 ms\"";

#[test]
fn hosts_lend_and_borrow_again_when_an_adapter_comes_back() {
    let start = "cpus = \"1\"\nstart = \"900 ms\"";
    let again = program("a", "0", &FIO.replace("1ms", "100us")).replace("cpus = \"0\"", start);
    for [lost, back] in [["remove", "plug"], ["cut", "mend"]] {
        for adapter in ["a:n", "b:n"] {
            let events = [event("2 ms", lost, adapter), event("12 ms", back, adapter)].concat();
            let long = program("a", "0", &FIO.replace("1ms", "20ms"));
            let done = cluster(["strict", "strict"], TWICE, &[&*long, &again, &events].concat());
            let first = done.iter().find(|done| done.run.contains("20ms")).unwrap();
            assert!(first.outcome.is_err(), "{lost} {adapter}: {first:?}");
            assert!(first.took < Duration::from_ms(3), "{lost} {adapter}: noticed after {}", first.took);
            let of = |run: &str| done.iter().rfind(|done| done.run.contains(run)).unwrap();
            for run in ["borrow", "100us"] {
                assert!(of(run).outcome.is_ok(), "{lost} {adapter}: {:?}", of(run));
            }
        }
    }
}

#[test]
fn hosts_lend_and_borrow_through_an_adapter_that_comes_late() {
    // Its window of 128 GiB needs room behind its slot.
    let room = "change_kernel.pci.hpmmioprefsize = \"256 GiB\"\n";
    let late = |devices: &str| room.to_owned() + &with(devices, "strict") + "plugged = false\n";
    let own = |late_is_here: bool, devices: &str| {
        if late_is_here { late(devices) } else { with(devices, "strict") }
    };
    for (name, adapter) in [("a", "a:n"), ("b", "b:n")] {
        let hosts =
            [host("a", "dell-t430", &own(name == "a", "")), host("b", "dell-t430", &own(name == "b", DRIVE))];
        let links = "[[ntb_cable]]\nends = [\"a:n\", \"b:n\"]\n[[borrow]]\nfunction = \"b:ssd\"\nby = \"a\"\nfrom = \"200 ms\"\n";
        let fio = program("a", "0", FIO).replace("cpus = \"0\"", "cpus = \"0\"\nstart = \"600 ms\"");
        let text = [HEAD, &hosts.concat(), links, &fio, &event("1 ms", "plug", adapter)].concat();
        let done = run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        report(&done, "borrow");
        report(&done, "fio");
    }
}

#[test]
fn a_nic_serves_one_host_after_the_other() {
    let a = host("a", "dell-t430", &with("", "strict"));
    let b = host("b", "dell-t430", &with("[[host.device]]\nname = \"nic\"\nnic = \"modern\"\n", "strict"));
    let c = scenario::host_with_nic("c");
    let d = host("d", "dell-t430", &with("", "off"));
    let cable = |ends: &str| format!("[[ntb_cable]]\nends = [{ends}]\n");
    let cables =
        [cable("\"a:n\", \"b:n\""), cable("\"d:n\", \"b:n\""), scenario::cable("b", "c", "")].concat();
    let borrow = |by: &str, when: &str| format!("[[borrow]]\nfunction = \"b:nic\"\nby = \"{by}\"\n{when}\n");
    let run_at = |host: &str, start: &str| {
        let run = "netperf -H 10.0.0.3 -t TCP_RR -l 0.0005";
        format!("[[program]]\nhost = \"{host}\"\ncpus = \"0\"\nstart = \"{start}\"\nrun = \"{run}\"\n")
    };
    let programs = [program("c", "0", "netserver"), run_at("a", "10 ms"), run_at("d", "700 ms")].concat();
    let borrows = [borrow("a", "until = \"100 ms\""), borrow("d", "from = \"400 ms\"")].concat();
    let text = [HEAD, &a, &b, &c, &d, &cables, &borrows, &programs].concat();
    let done = run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let outcomes: Vec<_> =
        done.iter().filter(|done| done.run.starts_with("netperf")).map(|done| done.outcome.is_ok()).collect();
    assert_eq!(outcomes, [true, true], "{done:?}");
    report(&done, "return b:nic");
    report(&done, "borrow b:nic");
}

#[test]
fn virtual_functions_of_one_nic_serve_two_hosts() {
    let setup = loaded(include_str!("../../../scenarios/lend-vfs.toml"));
    let named = |host: usize| {
        let of = setup.hosts[host].interfaces.iter();
        of.map(|own| (own.name.as_str(), own.segment, own.is_virtual)).collect::<Vec<_>>()
    };
    assert_eq!(named(0), [("eth0", 0, false)], "the lender keeps the NIC alone");
    assert_eq!((named(1), named(2)), (vec![("eth0", 1, true)], vec![("eth0", 1, true)]));
    let done = run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    let clients: Vec<_> = done.iter().filter(|done| done.run.starts_with("netperf")).collect();
    let served: Vec<_> = clients.iter().map(|done| (done.host.as_str(), done.outcome.is_ok())).collect();
    assert_eq!(served, [("b", true), ("b", true), ("a", true)], "{done:?}");
}

#[test]
fn a_pool_of_drives_and_a_nic_serves_three_hosts_in_turn() {
    let done = run(&loaded(include_str!("../../../scenarios/lend-pool.toml")), &Silent)
        .unwrap_or_else(|error| panic!("{error}"));
    let failed: Vec<_> = done.iter().filter(|done| done.outcome.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    // Three hours of work, and what changes hands between them.
    let count = |start: &str| done.iter().filter(|done| done.run.starts_with(start)).count();
    assert_eq!([count("netperf"), count("fio"), count("dd")], [3, 3, 1], "{done:?}");
    assert_eq!([count("borrow a:nic"), count("return a:nic")], [2, 2], "{done:?}");
    assert_eq!([count("borrow a:ssd"), count("return a:ssd")], [2, 1], "{done:?}");
    assert_eq!([count("borrow b:ssd"), count("return b:ssd")], [1, 1], "{done:?}");
}

/// A drive of the borrower's own and its program cost the lent one nothing.
#[test]
fn what_lending_costs_is_of_the_programs_that_use_what_is_lent() {
    let lent = |name: &str| {
        lend_cost::cost(&Library::built_in(), name, "--set", &[], &Silent)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let cost = lent("lend-nvme");
    let [program] = &cost.programs[..] else { panic!("{:?}", cost.programs) };
    let row = |name: &str| program.rows.iter().find(|row| row.quantity == name).unwrap();
    assert!(row("read iops").lent < 0.95 * row("read iops").own, "{program:?}");
    // One core's program each time: with the other one it would be two.
    assert!(row("CPU of the host").lent < 1.3 * row("CPU of the host").own, "{program:?}");
    assert!(cost.notes.iter().any(|note| note.contains("IOMMU of a is strict")), "{:?}", cost.notes);
    assert!(program.binds.iter().all(|binds| !binds.is_empty()), "{program:?}");
    // Other borrowers' drives are there only with their loans.
    assert!(!lent("lend-pool").programs.is_empty());
    // Other NICs are lent in both runs, as one program goes to a server behind one.
    let cost = lent("lend-vfs");
    assert_eq!((cost.programs.len(), cost.failed.len()), (2, 0), "{:?}", cost.failed);
}
