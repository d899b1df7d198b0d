//! Programs in virtual machines, from a scenario on.

use crate::scenario::{self, HEAD, host, loaded, program};
use nearfar::computer::{ComputerError, run, run_counted};
use nearfar::progress::Silent;

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

/// Two drives below a switch without access control are one group, of which the host's driver has one.
#[test]
fn a_device_of_a_group_in_use_is_told() {
    let below = |part: &str| {
        let switch =
            format!("iommu = \"strict\"\n[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\n{part}\n");
        let drive = |name: &str, port: u8| {
            format!("[[host.device]]\nname = \"{name}\"\ndrive = \"optane-900p\"\nslot = \"sw:{port}\"\n")
        };
        let lines = [switch, drive("disk", 1), drive("own", 2), guest("\"disk\"")].concat();
        run(&loaded(&[HEAD, &host("a", "dell-t430", &lines), &program("a/x", "0", FIO)].concat()), &Silent)
    };
    let refused = below("change.access_control = { value = false, source = \"assumed: test\" }");
    let said = match refused.expect_err("the group is in use") {
        ComputerError::Files(said) => said.render(false),
        other => panic!("{other}"),
    };
    assert!(said.contains("its IOMMU group is in use") && said.contains("(nvme)"), "{said}");
    below("").unwrap_or_else(|error| panic!("{error}"));
}

/// A host with two drives below a switch without access control, one of them in a guest.
fn with_shared_group(second: &str, lines: &str) -> String {
    let no_control = "change.access_control = { value = false, source = \"assumed: test\" }";
    let switch =
        format!("iommu = \"strict\"\n[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\n{no_control}\n");
    let drive = |name: &str, lines: &str| {
        format!("[[host.device]]\nname = \"{name}\"\ndrive = \"optane-900p\"\n{lines}\n")
    };
    let drives = drive("disk", "slot = \"sw:1\"") + &drive("own", &format!("slot = \"sw:2\"\n{second}"));
    [HEAD, &host("a", "dell-t430", &[&switch, &drives, &guest("\"disk\""), lines].concat())].concat()
}

/// Two guests cannot have devices of one group, and hear which they are.
#[test]
fn a_device_of_a_group_in_another_guest_is_told() {
    let other = guest("\"own\"").replace("\"x\"", "\"y\"").replace("2-3", "4-5");
    let refused = run(&loaded(&(with_shared_group("", &other) + &program("a/x", "0", FIO))), &Silent);
    let said = match refused.expect_err("the group is in use") {
        ComputerError::Files(said) => said.render(false),
        other => panic!("{other}"),
    };
    assert!(said.contains("its IOMMU group also has 0") && said.contains("(vfio"), "{said}");
}

/// A device that is plugged in beside one of a guest's has no driver, for a reason that names the guest's.
#[test]
fn a_device_plugged_into_a_group_in_use_is_told() {
    let plug = "[[event]]\nat = \"1 ms\"\ndo = \"plug\"\nwhat = \"a:own\"\n";
    let text = with_shared_group("plugged = false", "") + &program("a/x", "0", &FIO.replace("1ms", "200ms"));
    let done = run(&loaded(&(text + plug)), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let plugged = done.iter().find(|done| done.run.starts_with("plug")).unwrap();
    let notes = plugged.outcome.as_ref().unwrap().notes.concat();
    assert_eq!(notes.matches("no driver is bound").count(), 1, "{notes}");
    assert!(notes.contains("nvme failed") && notes.contains("its IOMMU group also has"), "{notes}");
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

/// Transactions from a NIC, and from a virtual function of one, to another host and to each other: no register, no configuration space
/// makes a guest leave its core, and each packet that wakes it is posted.
#[test]
fn guests_have_nics_and_virtual_functions_of_their_own() {
    let text = include_str!("../../../scenarios/nic-guest.toml");
    // Of each client: the guests that take part, its transactions, their frames and their interrupts.
    let run = |text: &str| -> Vec<(&str, f64, f64, f64)> {
        let done = run_counted(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let clients: Vec<_> = done.done.iter().filter(|done| done.run.starts_with("netperf")).collect();
        assert_eq!(clients.len(), 3);
        let mut all = Vec::new();
        for (client, (vm, far)) in clients.iter().zip([("x", None), ("y", None), ("x", Some("y"))]) {
            let report =
                client.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", client.run));
            let transactions = report.get("transactions").unwrap();
            assert!(transactions > 40.0, "{}: {transactions}", client.run);
            let window =
                done.counted.iter().find(|counted| Some(counted.program) == client.number()).unwrap();
            let counters = window.window.host("a").unwrap();
            for vm in [Some(vm), far].into_iter().flatten() {
                let of = |counter: &str| counters.of(&format!("vm-{vm}/{counter}")) as f64;
                let left = (of("exits/config"), of("exits/mmio"), of("interrupts/forwarded"));
                assert_eq!(left, (0.0, 0.0, 0.0), "{vm}");
                all.push((vm, transactions, of("packets"), of("interrupts/posted")));
            }
        }
        all
    };
    let (short, long) = (run(text), run(&text.replace("-l 0.001", "-l 0.002")));
    for (short, long) in short.into_iter().zip(long) {
        let (vm, transactions) = (short.0, long.1 - short.1);
        let (frames, posted) = (long.2 - short.2, long.3 - short.3);
        // Beyond those of the connection's beginning and end, which are the same in both, a transaction is a frame each way: the one
        // that comes interrupts, and the other does when it has been sent. One transaction may be under way at each end.
        assert!(
            transactions > 40.0 && (frames - 2.0 * transactions).abs() <= 2.0,
            "{vm}: {frames}, {transactions}"
        );
        assert!(posted <= frames && posted >= frames - 2.0, "{vm}: {posted} interrupts for {frames} frames");
    }
}

/// A borrowed NIC of a guest comes up as it comes, and is the guest's while the lease lasts.
#[test]
fn a_guest_borrows_a_nic_while_it_runs() {
    let adapter = "[[host.device]]\nname = \"n\"\nntb = \"pxh830\"\n";
    let a = format!(
        "iommu = \"strict\"\n{adapter}[[host.vm]]\nname = \"x\"\nvcpus = \"2-3\"\nmemory = \"64 MiB\"\n"
    );
    let b = format!("iommu = \"strict\"\n{adapter}[[host.device]]\nname = \"nic\"\nnic = \"modern\"\n");
    let netperf = "netperf -H 10.0.0.3 -t TCP_RR -l 0.0005";
    let at = |start: &str| {
        format!("[[program]]\nhost = \"a/x\"\ncpus = \"0\"\nstart = \"{start}\"\nrun = \"{netperf}\"\n")
    };
    let text = [
        HEAD,
        &host("a", "dell-t430", &a),
        &host("b", "dell-t430", &b),
        &scenario::host_with_nic("c"),
        "[[ntb_cable]]\nends = [\"a:n\", \"b:n\"]\n",
        "[[borrow]]\nfunction = \"b:nic\"\nby = \"a/x\"\nfrom = \"10 ms\"\nuntil = \"500 ms\"\n",
        &scenario::cable("b", "c", ""),
        &program("c", "0", "netserver"),
        &at("400 ms"),
        &at("600 ms"),
    ]
    .concat();
    let done = run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let ended: Vec<_> =
        done.iter().filter(|done| done.run == netperf).map(|done| done.outcome.is_ok()).collect();
    assert_eq!(ended, [true, false], "{done:?}");
}

/// Copies between GPUs and memory are as fast in a guest as on its host, whose IOMMU is on in both.
#[test]
fn a_guest_has_gpus_of_its_own() {
    let guest = include_str!("../../../scenarios/gpu-guest.toml");
    let native =
        guest.replace("host = \"a/x\"", "host = \"a\"").replace("devices = [\"gpu0\", \"gpu1\"]", "");
    let [guest, native] = [guest, &native].map(|text| {
        let done = run(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let report = |n: usize| done[n].outcome.clone().unwrap_or_else(|failure| panic!("{failure}"));
        [(0, "host to device 262144 B"), (0, "device to host 262144 B"), (1, "bandwidth"), (2, "round trip")]
            .map(|(n, reading)| report(n).get(reading).unwrap_or_else(|| panic!("{reading}")))
    });
    println!("guest {guest:?}, native {native:?}");
    for (guest, native) in guest.into_iter().zip(native) {
        assert!((guest / native - 1.0).abs() < 0.02, "{guest} in the guest, {native} on the host");
    }
}

/// A host, a virtual machine beside the drive and one across the cable begin from the same image on it; one without an image does not begin.
#[test]
fn three_computers_begin_from_one_root_disk() {
    let text = include_str!("../../../scenarios/root-disk.toml");
    let done = run(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let inits: Vec<_> = done.iter().filter(|done| done.run.starts_with("init")).collect();
    assert_eq!(inits.len(), 3);
    for init in inits {
        let report = init.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", init.host));
        // The image, and what the program that it names has read.
        assert_eq!(report.get("image"), Some(f64::from((256 + 4) << 10)), "{}", init.host);
        assert!(report.get("read iops").is_some_and(|iops| iops > 1000.0), "{report:?}");
    }
    let empty = text.replace("mkimage /dev/nvme0n1 --size=256k --", "");
    let done = run(&loaded(&empty), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let refused = done.iter().filter(|done| done.run.starts_with("init"));
    let refused: Vec<_> = refused.map(|done| done.outcome.as_ref().unwrap_err().to_string()).collect();
    assert!(refused.len() == 3 && refused.iter().all(|why| why.contains("has no image")), "{refused:?}");
}

/// Each that has the one disk finds what the one before has written, byte by byte.
#[test]
fn one_disk_keeps_what_each_of_its_users_writes() {
    let text = include_str!("../../../scenarios/one-disk.toml");
    let done = run(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let ended: Vec<_> = done.iter().filter(|done| done.run.starts_with("fio")).collect();
    assert_eq!(ended.len(), 5);
    for one in ended {
        let report = one.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", one.run));
        assert_eq!(report.get("verified"), Some(131_072.0), "{}", one.run);
    }
    // Who reads with another seed than it was written with is told.
    let other = text.replacen(
        "--rw=read --bs=4k --size=128k --verify=pattern --randseed=7",
        "--rw=read --bs=4k --size=128k --verify=pattern --randseed=9",
        1,
    );
    let done = run(&loaded(&other), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let failed: Vec<_> = done.iter().filter(|done| done.outcome.is_err()).collect();
    assert!(matches!(failed[..], [one] if one.host == "a/x"), "{failed:?}");
}

/// Virtual NICs above one uplink: guests talk with each other and with who is outside, and none of it makes no sense.
#[test]
fn guests_reach_each_other_by_virtual_nics() {
    let nic = "[[host.device]]\nname = \"nic\"\nnic = \"82599\"\n";
    let guest = |name: &str, core: u8| {
        format!("[[host.vm]]\nname = \"{name}\"\nvcpus = \"{core}\"\nmemory = \"64 MiB\"\nuplink = \"nic\"\n")
    };
    let vms = format!("[host.nic_driver]\nchannels = 2\n{nic}{}{}", guest("x", 1), guest("y", 2));
    let cable = "[[cable]]\nends = [\"a\", \"b\"]\n";
    let serves = program("a/y", "0", "netserver") + &program("b", "0", "netserver");
    let (inside, outside) = ("10.0.128.2", "10.0.0.2");
    for (to, test) in [(inside, "TCP_RR"), (inside, "TCP_STREAM"), (outside, "TCP_STREAM")] {
        let client = program("a/x", "0", &format!("netperf -H {to} -t {test} -l 0.001"));
        let hosts = host("a", "dell-r720", &vms) + &host("b", "dell-r720", nic);
        let text = HEAD.to_owned() + &hosts + cable + &serves + &client;
        let done = run_counted(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let client = done.done.iter().find(|done| done.run.starts_with("netperf")).unwrap();
        assert!(client.outcome.is_ok(), "{to} {test}: {:?}", client.outcome);
        let counters = done.counted[0].window.host("a").unwrap();
        for vm in ["x", "y"] {
            assert_eq!(counters.of(&format!("vm-{vm}/nic/malformed")), 0);
        }
        assert!(counters.of("vm-x/nic/sent") > 20, "{to} {test}");
    }
}
