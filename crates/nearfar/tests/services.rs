//! Programs that others are run beside: a key-value store, messages there and back, a graph, loops over memory.

use crate::scenario::{HEAD, cable, host_with_nic, loaded, program};
use nearfar::computer::{self, FinishedProgram};
use nearfar::progress::Silent;

fn run(programs: &[(&str, &str, &str)]) -> Vec<FinishedProgram> {
    let text = [HEAD, &host_with_nic("a"), &host_with_nic("b"), &cable("a", "b", "")].concat();
    let programs = programs.iter().map(|(host, cpus, run)| program(host, cpus, run));
    let text: String = [text].into_iter().chain(programs).collect();
    computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn reading(done: &[FinishedProgram], program: &str, quantity: &str) -> f64 {
    let done = done.iter().find(|done| done.run.starts_with(program)).expect("it ran");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", done.run));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

/// Every value comes back as it was put, whatever the mix.
#[test]
fn a_store_keeps_what_it_is_given() {
    for (set, size) in [("0", "40k"), ("0.5", "3000"), ("1", "40k")] {
        let client = format!("memaslap -s 10.0.0.1:11211 -c 4 -t 500us -X {size} -w 5 --key 256 --set {set}");
        let done = run(&[("a", "0-1", "memcached -t 2"), ("b", "0-3", &client)]);
        let of = |quantity| reading(&done, "memaslap", quantity);
        assert_eq!((of("get_misses"), of("verify_failed")), (0.0, 0.0));
        let (gets, sets) = (of("cmd_get"), of("cmd_set"));
        assert!(gets + sets > 32.0, "{gets} GET, {sets} SET");
        match set {
            "0" => assert_eq!(sets, 0.0),
            "1" => assert_eq!(gets, 0.0),
            _ => assert!((0.8..1.25).contains(&(gets / sets)), "{gets} GET, {sets} SET"),
        }
    }
}

/// What finds no room any more is not there, and nothing else comes in its place.
#[test]
fn the_oldest_items_make_room() {
    let client = "memaslap -s 10.0.0.1:11211 -c 2 -t 500us -X 60000 -w 20 --set 0.2";
    let done = run(&[("a", "0-1", "memcached -t 2 -m 1"), ("b", "0-1", client)]);
    let of = |quantity| reading(&done, "memaslap", quantity);
    assert!(of("get_misses") > 15.0 && of("get_misses") < of("cmd_get"));
    assert_eq!(of("verify_failed"), 0.0);
}

#[test]
fn messages_go_there_and_back() {
    let client = "sockperf ping-pong -i 10.0.0.1 -m 64 -t 0.0005";
    let done = run(&[("a", "0", "sockperf server"), ("b", "0", client)]);
    let (mean, most) =
        (reading(&done, "sockperf", "latency mean"), reading(&done, "sockperf", "latency max"));
    assert!((13.0..16.5).contains(&mean) && most < 100.0, "{mean} us, {most} us");
    let messages = reading(&done, "sockperf", "messages");
    assert!((0.98..1.03).contains(&(messages * mean * 2.0 / 500.0)), "{messages} of {mean} us");
    assert_eq!(reading(&done, "sockperf", "wrong"), 0.0);
}

/// The program itself holds its ranks against those that the graph has; more threads are faster.
#[test]
fn ranks_are_the_graphs() {
    let time = |cpus| reading(&run(&[("a", cpus, "pr -g 10 -i 3")]), "pr", "trial time");
    let [one, four] = ["0", "0,1,10,11"].map(time);
    assert!(four < 0.36 * one, "{four} us against {one} us");
}

#[test]
fn loops_in_one_direction_move_what_memory_allows() {
    for (only, expected) in [("read", 43_000.0), ("write", 23_000.0)] {
        let line = format!("stream --only {only} --array-size 500000 --ntimes 2");
        let rate = reading(&run(&[("a", "0", &line)]), "stream", only);
        assert!((0.9..1.1).contains(&(rate / expected)), "{only}: {rate} MB/s");
    }
}

/// A program is told where its own interrupts arrive, and not those of a program beside it.
#[test]
fn interrupts_of_others_are_not_told() {
    let netperf = "netperf -H 10.0.0.2 -t TCP_RR -l 0.001";
    let stream = "stream --array-size 20000 --ntimes 4";
    let done = run(&[("b", "0", "netserver"), ("a", "0", netperf), ("a", "2", stream)]);
    let tells = |program: &str| {
        let done = done.iter().find(|done| done.run.starts_with(program)).expect("it ran");
        let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", done.run));
        ["a", "b"]
            .map(|host| report.notes.iter().any(|note| note.starts_with(&format!("interrupts at {host}:"))))
    };
    assert_eq!(tells("netperf"), [true, true], "{done:?}");
    assert_eq!(tells("stream"), [true, false], "{done:?}");
}
