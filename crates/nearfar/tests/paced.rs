//! Programs that go no faster because they, or who receives, ask for no more.

use crate::scenario::{HEAD, cable, event, host, host_with_drive, loaded, program, two_hosts};
use nearfar::computer;
use nearfar::progress::Silent;

/// What binds a program, in words.
fn binds(text: &str, number: usize) -> String {
    computer::run_counted(&loaded(text), &Silent).unwrap().binding_of(number)
}

#[test]
fn a_rate_that_is_asked_for_and_reached_is_what_there_is_to_do() {
    let clients = [
        ("iperf3 -s", "iperf3 -c 10.0.0.2 -u -b 1G -t 0.003", "-b"),
        ("iperf3 -s", "iperf3 -c 10.0.0.2 -u -b 500M -P 3 -t 0.003", "-b"),
        ("iperf -s -u", "iperf -c 10.0.0.2 -u -b 1G -t 0.003", "-b"),
        ("sockperf server", "sockperf under-load -i 10.0.0.2 -t 0.003 --mps=200000", "--mps"),
    ];
    for (server, client, option) in clients {
        let text = two_hosts("") + &program("b", "0", server) + &program("a", "0", client);
        assert_eq!(binds(&text, 1), format!("nothing, as `{option}` asks for no more"), "{client}");
    }
    let drive = host_with_drive("optane-900p", "off");
    let fio =
        "fio --name=x --rw=randread --bs=4k --ioengine=libaio --iodepth=16 --rate_iops=200000 --runtime=4ms";
    let text = [HEAD, &drive, &program("a", "0", fio)].concat();
    assert_eq!(binds(&text, 0), "nothing, as `--rate_iops` asks for no more");
}

/// More than the sender's core can do.
#[test]
fn a_rate_that_is_not_reached_does_not_explain() {
    let client = "iperf3 -c 10.0.0.2 -u -b 100G -t 0.003";
    let text = two_hosts("") + &program("b", "0", "iperf3 -s") + &program("a", "0", client);
    assert!(!binds(&text, 1).contains("asks for no more"));
}

#[test]
fn who_pauses_the_sender_binds_it() {
    let nic = |lines: &str| format!("[[host.device]]\nnic = \"connectx4\"\n{lines}");
    let narrow = [
        HEAD,
        &host("a", "xeon-8160", &nic("")),
        &host("b", "xeon-8160", &nic("change.link.width = 4")),
        &cable("a", "b", ""),
        &program("a", "0-3", "pktgen -i eth0 -s 1500 -n 6000 -t 4 -c 1000 -b 32"),
    ];
    let said = binds(&narrow.concat(), 0);
    assert!(said.starts_with("the link of b's nic0, to the host"), "{said}");
}

#[test]
fn bit_errors_are_not_taken_for_a_lack_of_tags() {
    let gpu = "[[host.device]]\ngpu = \"k40c\"\nname = \"g\"\n";
    let text = [
        HEAD,
        &host("a", "xeon-8160", gpu),
        &program("a", "0", "bandwidthTest --htod --mode=range --start=4m --end=4m"),
        &event("10 us", "error-rate", "a:g", "rate = 1e-5"),
    ];
    let said = binds(&text.concat(), 0);
    assert!(said.starts_with("bit errors on the link of a's g, to the device"), "{said}");
}

#[test]
fn a_short_ring_that_is_told_late_of_what_has_left_binds() {
    let late = "[host.nic_driver]\ntx_ring = 64\n[[host.device]]\nnic = \"modern\"\n\
                change.tx.write_back_delay = \"20 us\"\nchange.tx.write_back = 32";
    let plain = "[[host.device]]\nnic = \"modern\"";
    let text = [
        HEAD,
        &host("a", "dell-t430", late),
        &host("b", "dell-t430", plain),
        &cable("a", "b", ""),
        &program("a", "0", "pktgen -i eth0 -s 60 -n 10000 -c 1000 -b 8"),
    ];
    let said = binds(&text.concat(), 0);
    assert!(said.starts_with("a's eth0, its tx ring 0"), "{said}");
}
