//! What happens while programs run: who is moved is there afterwards, and who loses a cable for a while goes on.

mod scenario;

use std::cell::RefCell;

use nearfar::computer::{Computers, Done, Observer, run_watched};
use nearfar::progress::Silent;
use platform::cpu::CpuId;
use scenario::{HEAD, cable, host_with_nic, loaded, program};

/// Looks at the hosts when the programs have ended.
struct AtEnd<F>(F);

impl<F: FnMut(&Computers)> Observer for AtEnd<F> {
    fn booted(&mut self, _: &Computers) {}

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        (self.0)(computers);
    }
}

/// Two hosts, a stream from one to the other, and what happens meanwhile.
fn run(stream: &str, events: &str, look: impl FnMut(&Computers)) -> Vec<Done> {
    let hosts = [HEAD, &host_with_nic("a"), &host_with_nic("b"), &cable("a", "b", "")].concat();
    let programs = [program("b", "0", "netserver"), program("a", "0", stream)].concat();
    let setup = loaded(&[hosts, programs, events.to_owned()].concat());
    run_watched(&setup, &Silent, &mut AtEnd(look)).unwrap_or_else(|error| panic!("{error}"))
}

const STREAM: &str = "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.001";

/// When an event happened, in microseconds.
fn happened(done: &[Done], event: &str) -> f64 {
    let done = done.iter().find(|done| done.run.starts_with(event)).expect("it is reported");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{event}: {failure}"));
    report.get("happened").expect("it says when")
}

#[test]
fn a_moved_program_takes_what_it_started_along() {
    let event = "[[event]]\nat = \"300 us\"\ndo = \"move-task\"\nwhat = \"b:netserver\"\nto = \"12\"\n";
    let places = RefCell::new(Vec::new());
    let done = run(STREAM, event, |computers| {
        let tasks = computers.hosts()[1].kernel.tasks();
        let servers = tasks.into_iter().filter(|task| task.name == "netserver");
        places.borrow_mut().extend(servers.map(|task| (task.cpu, task.cpus)));
    });
    assert_eq!(happened(&done, "move-task"), 300.0);
    let places = places.take();
    assert_eq!(places.len(), 2, "who listens, and who serves the client");
    assert!(places.iter().all(|(_, cpus)| *cpus == [CpuId(12)]), "{places:?}");
    // Who listens waits for a second client, and goes when it wakes.
    assert!(places.iter().any(|(cpu, ..)| *cpu == CpuId(12)), "{places:?}");
}

#[test]
fn interrupts_go_to_their_new_cores_in_turn() {
    let event = "[[event]]\nat = \"300 us\"\ndo = \"set-affinity\"\nwhat = \"b:eth0\"\nto = \"14,16\"\n\
                 [[event]]\nat = \"600 us\"\ndo = \"set-affinity\"\nwhat = \"b:eth0:1\"\nto = \"3\"\n";
    let places = RefCell::new(Vec::new());
    let done = run(STREAM, event, |computers| {
        let all = computers.hosts()[1].kernel.interrupts();
        places
            .borrow_mut()
            .extend(all.into_iter().filter(|irq| irq.1.starts_with("nic-")).map(|irq| irq.2.0));
    });
    assert_eq!(
        (happened(&done, "set-affinity b:eth0 "), happened(&done, "set-affinity b:eth0:1")),
        (300.0, 600.0)
    );
    let places = places.take();
    assert_eq!(places[..4], [14, 3, 14, 16]);
}

#[test]
fn a_stream_outlives_a_cable_that_is_pulled_and_put_back() {
    let event = "[[event]]\nwhen = \"b:eth0.rx_bytes > 1e5\"\ndo = \"cut\"\nwhat = \"a\"\n\
                 [[event]]\nat = \"600 us\"\ndo = \"mend\"\nwhat = \"b:eth0\"\n";
    let received = |events: &str| {
        let bytes = RefCell::new(0);
        let done = run("netperf -H 10.0.0.2 -t TCP_STREAM -l 0.003", events, |computers| {
            let device = computers.hosts()[1].kernel.net().device("eth0").unwrap();
            *bytes.borrow_mut() = device.counters().rx_bytes;
        });
        (done, bytes.take())
    };
    let (done, bytes) = received(event);
    let cut = happened(&done, "cut");
    assert!((10.0..600.0).contains(&cut), "{cut} us");
    assert!(done[0].outcome.is_ok(), "{done:?}");
    // 100 kB had come when the cable was pulled: most came after it was back.
    assert!(bytes > 500_000, "{bytes} B");
}

#[test]
fn what_does_not_happen_is_told() {
    let event = "[[event]]\nwhen = \"b:eth0.rx_packets > 1e9\"\ndo = \"cut\"\nwhat = \"a\"\n\
                 [[event]]\nat = \"1 s\"\ndo = \"mend\"\nwhat = \"a\"\n\
                 [[event]]\nat = \"0 ms\"\ndo = \"set-affinity\"\nwhat = \"b:eth0:99\"\nto = \"3\"\n";
    let done = run(STREAM, event, |_| {});
    let why: Vec<_> = done[1..].iter().map(|done| done.outcome.as_ref().unwrap_err().to_string()).collect();
    assert_eq!(
        why[..2],
        ["it did not happen: its condition was never met", "it did not happen: the run was over before"]
    );
    assert!(why[2].contains("eth0 has no interrupt 99"), "{why:?}");
}
