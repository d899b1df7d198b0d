//! What binds where the answer follows from first principles: each case was written down before it was simulated.

use nearfar::computer;
use nearfar::progress::Silent;

use crate::scenario::{HEAD, cable, event, host, host_with_nic, loaded, program, two_hosts};

/// What binds a program, in words.
fn binds(text: &str, number: usize) -> String {
    computer::run_counted(&loaded(text), &Silent).unwrap().binding_of(number)
}

/// The host `a` with these lines, where one program runs on core 0.
fn alone(machine: &str, lines: &str, run: &str) -> String {
    [HEAD, &host("a", machine, lines), &program("a", "0", run)].concat()
}

fn starts(said: &str, with: &str) {
    assert!(said.starts_with(with), "{with}: {said}");
}

/// A core that waits for a device or for memory, or looks for an answer, would not be faster at a higher clock.
#[test]
fn who_waits_one_by_one_is_bound_by_nothing() {
    let card = "[[host.device]]\ncard = \"nfp6000\"";
    let drive = "nvme_driver.user_space = true\n[[host.device]]\ndrive = \"optane-900p\"";
    let kernels = "[[host.device]]\ndrive = \"optane-900p\"";
    let bar = "pcimem /sys/bus/pci/devices/0000:01:00.0/resource0 0x100";
    let cases = [
        (card, format!("{bar} d*64")),
        (drive, "nvm-latency --count=50".to_owned()),
        (drive, "spdk_nvme_perf -q 1 -o 4096 -w randread -t 0.001".to_owned()),
        (kernels, "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --thinktime=100us --thinktime_spin=90us --runtime=2ms".to_owned()),
        ("", "mlc --idle_latency".to_owned()),
    ];
    for (lines, run) in cases {
        starts(&binds(&alone("dell-t430", lines, &run), 0), "nothing is full");
    }
}

#[test]
fn what_joins_sockets_and_stacks_binds_who_goes_through_it() {
    let gpus = "[[host.device]]\ngpu = \"rtx-pro-6000\"\nslot = \"slot\"\n\
                [[host.device]]\ngpu = \"rtx-pro-6000\"\nslot = \"slot-socket1\"";
    let copy = binds(&alone("epyc-9575f", gpus, "gpu-copy --from=0 --to=1 --bytes=8m --count=2"), 0);
    starts(&copy, "the link between sockets that devices below a's root ");
    let bays = ["bay-socket1", "bay-socket1.1", "bay-socket1.2", "bay-socket1.3"];
    let drives = bays.map(|bay| format!("[[host.device]]\ndrive = \"pm1753\"\nslot = \"{bay}\"\n")).concat();
    let read = |n: usize| {
        let run = format!(
            "fio --filename=/dev/nvme{n}n1 --rw=read --bs=128k --ioengine=io_uring --iodepth=32 --runtime=500us"
        );
        program("a", &n.to_string(), &run)
    };
    let far =
        binds(&([HEAD, &host("a", "dell-r760", &drives)].concat() + &[0, 1, 2, 3].map(read).concat()), 0);
    starts(&far, "places for writes to memory in a's I/O stack");
}

/// What is sent again takes the credits of what is not, on a switch's links too, and is told.
#[test]
fn bit_errors_bind_behind_switches() {
    let switch = |part: &str, lanes: u8| {
        format!(
            "[[host.switch]]\nname = \"sw\"\npart = \"{part}\"\nslot = \"slot\"\nlanes = {lanes}\n\
             [[host.device]]\nname = \"d\"\ndrive = \"pm1725a\"\nslot = \"sw:1\""
        )
    };
    let run = "fio --filename=/dev/nvme0n1 --rw=read --bs=128k --ioengine=libaio --iodepth=16 --runtime=2ms";
    let cases = [
        (switch("pex8733", 4), "a:sw", "the uplink of a's sw"),
        (switch("pex8796", 8), "a:d", "the link of a's d"),
    ];
    for (switch, what, link) in cases {
        let text = alone("dell-t430", &switch, run) + &event("1 us", "error-rate", what, "rate = 1e-5");
        let counts = computer::run_counted(&loaded(&text), &Silent).unwrap();
        starts(&counts.binding_of(0), &format!("bit errors on {link}, to the host"));
        let notes =
            counts.done.iter().filter_map(|done| done.outcome.as_ref().ok()).flat_map(|report| &report.notes);
        let told = format!("bit errors on {link}, to the host: ");
        assert!(notes.clone().any(|note| note.contains(&told)), "{:?}", notes.collect::<Vec<_>>());
    }
}

#[test]
fn a_rate_that_pktgen_is_asked_for_is_what_there_is_to_do() {
    let text = two_hosts("") + &program("a", "0", "pktgen -i eth0 -s 60 -n 500 -w 5000");
    assert_eq!(binds(&text, 0), "nothing, as `-w` asks for no more");
}

/// Most of what comes is dropped for want of buffers, so that who forwards it is not kept from more by its wire.
#[test]
fn a_wire_that_brings_too_much_does_not_bind() {
    let nic = "[host.nic_driver]\nuser_space = true\n[[host.device]]\nnic = \"modern\"";
    let text = [
        HEAD,
        &host("a", "dell-t430", nic),
        &host_with_nic("b"),
        &cable("a", "b", ""),
        &program("a", "0,2", "dpdk-testpmd -l 0,2 -n 4 -- --forward-mode=macswap --time=1"),
        &program("b", "0-5", "pktgen -i eth0 -s 60 -n 8000 -t 6 -c 1000 -b 32"),
    ];
    let said = binds(&text.concat(), 0);
    assert!(!said.contains("Ethernet of a"), "{said}");
}

/// The addresses of a rule are no way of `ethtool`'s own.
#[test]
fn a_rule_for_another_host_does_not_involve_it() {
    let stream = program("b", "0-3", "stream --array-size=200000 --ntimes=2");
    let rule =
        "ethtool -N eth0 flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 5001 dst-port 5002 action 1";
    let text = two_hosts("") + &stream + &program("a", "0", rule);
    let said = binds(&text, 1);
    assert!(!said.contains("b's"), "{said}");
}
