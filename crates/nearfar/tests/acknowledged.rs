//! What a drive has acknowledged reads back, whatever happens to its host, its slot and its link.

use crate::scenario::{HEAD, event, host, loaded, program};
use engine::Seed;
use nearfar::Silent;
use nearfar::computer::{FinishedProgram, run};
use proptest::prelude::*;

const WRITERS: usize = 8;

/// Writers one after the other on cores of their own, something that happens meanwhile, and as many readers much later. Which
/// writers ended well, and which readers did not find something else than was written.
fn written_and_read(drive: &str, events: &str) -> [Vec<bool>; 2] {
    let job = |n: usize, rw: &str, start: String| {
        let fio = format!(
            "fio --ioengine=libaio --rw={rw} --bs=4k --size=32k --offset={n}m --iodepth=4 --verify=pattern --randseed=9"
        );
        program("a", &n.to_string(), &fio) + &format!("start = \"{start}\"\n")
    };
    let writers: String = (0..WRITERS).map(|n| job(n, "randwrite", format!("{} us", 100 * n))).collect();
    let readers: String = (0..WRITERS).map(|n| job(n, "read", "300 ms".to_owned())).collect();
    let device = format!("[[host.device]]\nname = \"d\"\ndrive = \"{drive}\"");
    let text = [HEAD, &host("a", "dell-t430", &device), &writers, &readers, events].concat();
    let done = run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let failure = |n: usize| {
        let of = |done: &&FinishedProgram| done.number() == Some(n);
        let done = done.iter().find(of).unwrap_or_else(|| panic!("{n}: {done:?}"));
        done.outcome.as_ref().err().map(ToString::to_string)
    };
    let lacks = |n: usize| failure(n).is_some_and(|failure| failure.contains("was not written"));
    let written = (0..WRITERS).map(|n| failure(n).is_none()).collect();
    [written, (WRITERS..2 * WRITERS).map(|n| !lacks(n)).collect()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn what_a_drive_has_acknowledged_reads_back(seed: u64) {
        let mut rng = Seed::new(seed).component("events");
        let drive = if rng.bool() { "pm1725a" } else { "optane-900p" };
        let at = 50 + rng.below(800);
        let us = |us: u64| format!("{us} us");
        let events = match rng.below(3) {
            0 => event(&us(at), "reboot", "a", "takes = \"1 ms\""),
            1 => event(&us(at), "remove", "a:d", "") + &event(&us(at + 2_000), "plug", "a:d", ""),
            _ => event(&us(at), "cut", "a:d", "") + &event(&us(at + 2_000), "mend", "a:d", ""),
        };
        let [written, read] = written_and_read(drive, &events);
        for (writer, (written, read)) in written.iter().zip(&read).enumerate() {
            prop_assert!(!written || *read, "what writer {writer} wrote to the {drive} is lost: {events}");
        }
    }
}

/// Nothing happens, and a reboot meanwhile: some writers are stopped.
#[test]
fn a_reboot_in_the_middle_stops_some_of_the_writers() {
    assert_eq!(written_and_read("pm1725a", ""), [vec![true; WRITERS], vec![true; WRITERS]]);
    let [written, _] = written_and_read("pm1725a", &event("450 us", "reboot", "a", "takes = \"1 ms\""));
    assert!(written.contains(&true) && written.contains(&false), "{written:?}");
}
