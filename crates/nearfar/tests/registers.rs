//! Loads from and stores to a card's BAR by a program.

use crate::scenario::{HEAD, host, loaded, program};
use nearfar::computer;
use nearfar::progress::Silent;

/// What `pcimem` with these words reports of the card in the machine's slot.
fn measured(words: &str, quantity: &str) -> f64 {
    let file = "/sys/bus/pci/devices/0000:01:00.0";
    let text = [
        HEAD,
        &host("a", "dell-t430", "[[host.device]]\ncard = \"nfp6000\""),
        &program("a", "0", &format!("pcimem {file}/{words}")),
    ];
    let counts = computer::run_counted(&loaded(&text.concat()), &Silent).unwrap();
    let report = counts.done[0].outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    report.get(quantity).unwrap()
}

/// A load waits for the way to the card and back; stores follow one another, and whole lines need fewer TLPs.
#[test]
fn loads_wait_and_stores_do_not() {
    let load = 1e3 * measured("resource0 0x100 w*16", "load mean");
    let store = measured("resource0 0x100 d*1 0x1234", "store mean");
    assert!(load > 2.0 * store && load > 100.0, "a load takes {load:.0} ns, a store {store:.0}");
    let single = measured("resource0 0x180 d*256 1", "stored");
    let combined = measured("resource0_wc 0x180 d*256 1", "stored");
    assert!(combined > 2.0 * single, "{single:.0} MB/s, combined {combined:.0}");
}

#[test]
fn what_is_no_function_or_outside_is_told() {
    for (file, words) in [
        ("0000:00:1f.0/resource0", "these are: 0000:01:00.0"),
        ("0000:01:00.0/resource2", "BAR 2"),
        ("0000:01:00.0/resource0 0x1000", "BAR 0 has 4096 bytes"),
    ] {
        let run = format!("pcimem /sys/bus/pci/devices/{file}");
        let card = "[[host.device]]\ncard = \"nfp6000\"";
        let text = [HEAD, &host("a", "dell-t430", card), &program("a", "0", &run)];
        let counts = computer::run_counted(&loaded(&text.concat()), &Silent).unwrap();
        let failure = counts.done[0].outcome.as_ref().err().unwrap_or_else(|| panic!("{run}"));
        assert!(failure.to_string().contains(words), "{run}: {failure}");
    }
}
