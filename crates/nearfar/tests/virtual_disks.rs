//! Guests' disks on a drive of the host: is every byte where it was written, do machines and I/O threads go to the drive?

use std::cell::RefCell;

use crate::scenario::{AtEnd, HEAD, host, load, loaded, program};
use nearfar::computer::{Computers, FinishedProgram, run_watched};
use nearfar::progress::Silent;
use platform::cpu::Node;
use platform::memory::PhysAddr;

/// The drive's node.
const NEAR: u8 = 1;

/// A host with a drive and a virtual machine with a part of it at each of `homes`.
fn guests(homes: &[u8], hypervisor: &str) -> String {
    let mut lines = format!(
        "{hypervisor}\n[[host.device]]\nname = \"drive\"\ndrive = \"optane-900p\"\nslot = \"slot-socket{NEAR}\"\n"
    );
    for (n, &home) in homes.iter().enumerate() {
        let core = 6 * usize::from(home) + n / 2 + 1;
        lines += &format!(
            "[[host.vm]]\nname = \"v{n}\"\nvcpus = \"{core}\"\nmemory = \"64 MiB\"\ndisk = \"drive\"\n"
        );
    }
    HEAD.to_owned() + &host("a", "dell-r720", &lines)
}

/// What [`run`] gives.
type Outcome = (Vec<FinishedProgram>, Option<(u64, u64, u64)>, Vec<Option<Node>>);

/// What came of the programs, how often machines were moved, modes changed and moves refused, and where the machines are.
fn run(text: &str) -> Outcome {
    let seen = RefCell::default();
    let done = run_watched(
        &loaded(text),
        &Silent,
        &mut AtEnd(|computers: &Computers| {
            let host = &computers.hosts()[0];
            let done = host.manager().map(|manager| manager.done());
            let homes = host.vms().iter().map(|vm| vm.memory().node_of(PhysAddr(0))).collect();
            *seen.borrow_mut() = (done.map(|done| (done.moves, done.switches, done.refused)), homes);
        }),
    );
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    let (moved, homes) = seen.take();
    (done, moved, homes)
}

fn reading(done: &FinishedProgram, quantity: &str) -> f64 {
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", done.run));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

const NUMA: &str = "[host.hypervisor]\nplacement = \"numa\"\nperiod = \"1 ms\"";

/// Two guests write and compare their parts of the same drive: neither finds what the other has written.
#[test]
fn every_guest_has_a_part_of_its_own() {
    let write = |n: u8, rw: &str| {
        let line = format!(
            "fio --name=v --filename=/dev/vda --rw={rw} --bs=16k --ioengine=libaio --iodepth=4 --size=1m"
        );
        program(&format!("a/v{n}"), "0", &(line + " --verify=pattern"))
    };
    let text = guests(&[0, 1], "") + &write(0, "write") + &write(1, "randwrite");
    let (done, ..) = run(&text);
    for done in &done {
        assert_eq!(reading(done, "verified"), 1048576.0, "{done:?}");
    }
}

/// A machine that is far from its drive moves there in the middle of its requests, which wait meanwhile: each block is what was
/// written.
#[test]
fn a_machine_goes_to_its_drive_and_finds_what_it_has_written() {
    let line =
        "fio --name=v --filename=/dev/vda --rw=randwrite --bs=4k --iodepth=1 --size=8m --verify=pattern";
    let (done, moved, homes) = run(&(guests(&[0], NUMA) + &program("a/v0", "0", line)));
    assert!(done[0].outcome.is_ok(), "{done:?}");
    assert_eq!((moved, homes), (Some((1, 0, 0)), vec![Some(Node(NEAR))]));
}

/// As much as one thread and the drive's interrupts on its core cannot do: each node has a thread, and more is read.
#[test]
fn many_readers_give_each_node_a_thread() {
    let homes = [0, 1, 0, 1, 0, 1, 0, 1];
    let total = |hypervisor: &str| {
        let readers = (0..homes.len()).map(|n| {
            let line =
                "fio --name=r --filename=/dev/vda --rw=randread --bs=4k --ramp_time=36ms --runtime=6ms";
            program(&format!("a/v{n}"), "0", line)
        });
        let text: String = [guests(&homes, hypervisor)].into_iter().chain(readers).collect();
        let (done, moved, _) = run(&text);
        (done.iter().map(|done| reading(done, "read iops")).sum::<f64>(), moved)
    };
    let (light, _) = total("");
    let (heavy, moved) = total(NUMA);
    assert_eq!(moved.map(|(_, switches, refused)| (switches, refused)), Some((1, 0)));
    assert!(heavy > 1.2 * light, "{heavy} against {light} reads a second");
}

/// A machine has a disk and a NIC of devices at different nodes, and uses the disk more: it goes to the drive in the middle of its
/// writes, and finds all of them. The drive is taken out while another one writes: that one is told, the machine at its side goes on, and what
/// a third one forwards is not touched.
#[test]
fn a_disk_and_a_network_have_the_same_machine() {
    let nic = "[host.nic_driver]\nchannels = 2\nover_nodes = true\n\
               [[host.device]]\nname = \"nic\"\nnic = \"82599\"\nslot = \"slot\"\n";
    let hypervisor = format!("{NUMA}\n{nic}");
    let uplink = "uplink = \"nic\"\npolled = true\n";
    let forwarder = "[[host.vm]]\nname = \"f\"\nvcpus = \"4\"\nmemory = \"64 MiB\"\nuplink = \"nic\"\npolled = true\n\
                     [[generator]]\nname = \"t\"\nto = [\"a/f\"]\nframe = \"512 B\"\nload = 0.05\n\
                     [[cable]]\nends = [\"a\", \"t\"]\n";
    let line = |size: &str| {
        format!(
            "fio --name=v --filename=/dev/vda --rw=randwrite --bs=4k --iodepth=1 --size={size} --verify=pattern"
        )
    };
    let text = guests(&[0, 1], &hypervisor)
        + uplink
        + forwarder
        + &program("a/v0", "0", &line("8m"))
        + &program("a/f", "0", "l2fwd -t 60");
    let (done, moved, homes) = run(&text);
    assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
    assert_eq!((moved, &homes[..1]), (Some((1, 0, 0)), &[Some(Node(NEAR))][..]));

    let event = "[[event]]\nat = \"5 ms\"\ndo = \"remove\"\nwhat = \"a:drive\"\n";
    let (done, ..) = run(&(text.clone() + event));
    assert!(done[0].outcome.is_err() && done[1].outcome.is_ok(), "{done:?}");
    assert_forwarded(&done[1]);

    // While it moves it loses its power: the other one at the drive, and the third, lose nothing.
    let event = "[[event]]\nat = \"5 ms\"\ndo = \"power-off\"\nwhat = \"a/v0\"\n";
    let (done, moved, _) = run(&(text + &program("a/v1", "0", &line("8m")) + event));
    assert!(done[0].outcome.is_err() && done[2].outcome.is_ok(), "{done:?}");
    assert_eq!(reading(&done[2], "verified"), f64::from(8 << 20), "{done:?}");
    assert_forwarded(&done[1]);
    assert_eq!(moved.map(|(moves, switches, _)| (moves, switches)), Some((0, 0)));
}

/// All that was sent in 60 ms was forwarded: a twentieth of 10 Gbit/s, frames of 512 B with the 20 between them. A burst may be under way.
fn assert_forwarded(done: &FinishedProgram) {
    let sent = 0.05 * 10e9 * 0.06 / (532.0 * 8.0);
    assert!((reading(done, "frames") - sent).abs() <= 32.0, "{done:?}");
}

#[test]
fn what_is_no_disk_is_told() {
    let nic = "[[host.device]]\nname = \"nic\"\nnic = \"82599\"\n\
               [[host.vm]]\nname = \"v\"\nvcpus = \"1\"\nmemory = \"64 MiB\"\ndisk = \"nic\"\n";
    let refused = load(&(HEAD.to_owned() + &host("a", "dell-r720", nic))).expect_err("a NIC is no drive");
    assert!(refused.render(false).contains("`nic` is not a drive"), "{}", refused.render(false));
}
