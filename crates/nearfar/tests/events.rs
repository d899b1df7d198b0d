//! What happens while programs run: who is moved is there afterwards, and who loses a cable for a while goes on.

use std::cell::{Cell, RefCell};

use crate::scenario::{AtEnd, HEAD, cable, event, host, loaded, program};
use hardware::ethernet::CableEnd;
use hardware::link::Side;
use nearfar::computer::{Computers, FinishedProgram, run_counted, run_watched};
use nearfar::progress::Silent;
use platform::cpu::{CpuId, Node};
use platform::device::FunctionIndex;
use platform::net::{Coalescing, PacketDevice};
use units::Duration;
use virt::placement::IoThreads;
use wire::nic::registers::counter;

/// Two hosts, a program on the first, a server on the other, and what happens meanwhile.
fn run(client: &str, events: &str, look: impl FnMut(&Computers)) -> Vec<FinishedProgram> {
    let nic = |name| host(name, "dell-t430", "[[host.device]]\nname = \"nic\"\nnic = \"modern\"");
    let hosts = [HEAD, &nic("a"), &nic("b"), &cable("a", "b", "")].concat();
    let programs = [program("b", "0", "netserver"), program("a", "0", client)].concat();
    let setup = loaded(&[hosts, programs, events.to_owned()].concat());
    run_watched(&setup, &Silent, &mut AtEnd(look)).unwrap_or_else(|error| panic!("{error}"))
}

/// What a program measured.
fn reading(done: &[FinishedProgram], program: &str, quantity: &str) -> f64 {
    let done = done
        .iter()
        .find(|done| done.run.starts_with(program))
        .unwrap_or_else(|| panic!("{program} ran: {done:?}"));
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

const STREAM: &str = "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.001";

/// Counters of a NIC and of its network device go on when its link has been cut and mended: every frame is in them.
#[test]
fn counters_of_a_device_that_comes_back_go_on() {
    let hosts =
        ["a", "b"].map(|name| host(name, "dell-t430", "[[host.device]]\nname = \"nic\"\nnic = \"modern\""));
    let ping = program("a", "0", "ping -c 600 -i 0.001 10.0.0.2");
    let cut = event("100 ms", "cut", "a:nic", "") + &event("101 ms", "mend", "a:nic", "");
    // Never met if the counter starts anew.
    let late =
        "[[event]]\nwhen = \"a:nic/tx-frames > 190\"\ndo = \"set-affinity\"\nwhat = \"a:eth0\"\nto = \"3\"\n";
    let text = [HEAD, &hosts.concat(), &cable("a", "b", ""), &ping, &cut, late].concat();
    let done = run_counted(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let window = &done.counted[0].window;
    let [a, b] = ["a", "b"].map(|name| window.host(name).unwrap());
    let sent = a.of("nic/tx-frames");
    assert!(sent >= 200 && a.of("eth0/tx-packets") >= 200, "{sent}, {}", a.of("eth0/tx-packets"));
    assert_eq!(b.of("nic/rx-frames"), sent);
    assert!(done.done.iter().any(|done| done.run.starts_with("set-affinity") && done.outcome.is_ok()));
}

/// When an event happened, in microseconds.
fn happened(done: &[FinishedProgram], event: &str) -> f64 {
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
    assert!((400.0..460.0).contains(&cut), "{cut} us");
    assert!(done[0].outcome.is_ok(), "{done:?}");
    // 100 kB had come when the cable was pulled: most came after it was back.
    assert!(bytes > 500_000, "{bytes} B");
}

/// Any counter that is published can be waited for; one that there is not is told at its line.
#[test]
fn events_wait_for_any_counter() {
    let event = |when: &str| {
        format!("[[event]]\nwhen = \"{when}\"\ndo = \"move-task\"\nwhat = \"b:netserver\"\nto = \"12\"\n")
    };
    let done = run(STREAM, &event("b:socket0/device-writes/allocated > 1000"), |_| {});
    let at = happened(&done, "move-task");
    assert!((370.0..420.0).contains(&at), "{at} us");
    let nic = |name| host(name, "dell-t430", "[[host.device]]\nname = \"nic\"\nnic = \"modern\"");
    let hosts = [HEAD, &nic("a"), &nic("b"), &cable("a", "b", "")].concat();
    let programs = [program("b", "0", "netserver"), program("a", "0", STREAM)].concat();
    let refused = |when: &str| {
        let setup = loaded(&[hosts.clone(), programs.clone(), event(when)].concat());
        let refused = run_watched(&setup, &Silent, &mut AtEnd(|_: &Computers| {}));
        format!("{:?}", refused.expect_err("there is no such counter"))
    };
    assert!(refused("b:nic/interupts > 9").contains("nic/interrupts"), "{}", refused("b:nic/interupts > 9"));
    assert!(refused("b:nick/interrupts > 9").contains("socket0"), "{}", refused("b:nick/interrupts > 9"));
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

/// Which carrier the first host's NIC has in the end.
fn carrier(computers: &Computers) -> Option<bool> {
    computers.hosts()[0].kernel.net().device("eth0").map(|device| device.has_carrier())
}

/// Twenty echoes, one each 100 us.
const PING: &str = "ping -c 20 -i 0.0001 -W 0.001 10.0.0.2";

#[test]
fn a_host_that_crashes_falls_silent_and_keeps_its_link() {
    let up = RefCell::new(None);
    let done = run(PING, &event("1 ms", "crash", "b", ""), |computers| *up.borrow_mut() = carrier(computers));
    let received = reading(&done, "ping", "received");
    assert!((5.0..15.0).contains(&received), "{received}");
    assert_eq!(up.take(), Some(true));
    let server = done.iter().find(|done| done.run == "netserver").unwrap().outcome.as_ref().unwrap_err();
    assert_eq!(server.to_string(), "its host crashed at 1 ms");
    assert!(done.iter().all(|done| done.failure().is_none()), "as it was meant: {done:?}");
}

#[test]
fn a_host_without_power_takes_its_link_down() {
    let up = RefCell::new(None);
    let done =
        run(PING, &event("1 ms", "power-off", "b", ""), |computers| *up.borrow_mut() = carrier(computers));
    let received = reading(&done, "ping", "received");
    assert!((5.0..15.0).contains(&received), "{received}");
    assert_eq!(up.take(), Some(false));
}

#[test]
fn a_host_that_reboots_answers_again() {
    let functions = RefCell::new((0, 0));
    let reboot = event("2 ms", "reboot", "b", "takes = \"5 ms\"");
    let done = run("ping -c 40 -i 0.001 -W 0.001 10.0.0.2", &reboot, |computers| {
        let driven =
            |host: usize| computers.hosts()[host].kernel.pci().iter().filter(|f| f.driver.is_some()).count();
        *functions.borrow_mut() = (driven(0), driven(1));
    });
    let received = reading(&done, "ping", "received");
    assert!((10.0..36.0).contains(&received), "{received} of 40, {done:?}");
    assert_eq!(functions.take(), (1, 1));
    assert_eq!(happened(&done, "reboot"), 2000.0);
}

#[test]
fn errors_of_links_are_seen_and_cured() {
    let events = [
        event("100 us", "error-rate", "b:nic", "rate = 1e-6"),
        event("100 us", "error-rate", "a:eth0", "rate = 1e-7"),
        event("800 us", "error-rate", "b:nic", "rate = 0"),
    ];
    let counts = RefCell::new((0, 0));
    let done = run(STREAM, &events.concat(), |computers| {
        let simulation = computers.simulation();
        *counts.borrow_mut() = simulation.with(|fabric, _| {
            let link = fabric.endpoint(computers.hosts()[1].devices[0]).links().next().unwrap();
            let link = fabric.wires.link(link);
            let replays = [Side::Upstream, Side::Downstream]
                .into_iter()
                .map(|side| link.counters(side).replays)
                .sum::<u64>();
            let ends = [0, 1].map(|end| CableEnd { cable: computers.cables[0], end });
            (replays, ends.iter().map(|&end| fabric.wires.ethernet.sent(end).corrupted).sum::<u64>())
        });
    });
    assert!(reading(&done, "netperf", "received") > 100_000.0);
    let (replays, corrupted) = counts.take();
    assert!(replays > 0 && corrupted > 0, "{replays} replays, {corrupted} frames");
}

/// What is poisoned or lost on a drive's link is reported by AER; the kernel has the function recover, and fio goes on. What a
/// sender damages is seen by nobody but who compares.
#[test]
fn poisoned_and_lost_tlps_are_reported_and_damaged_data_are_not() {
    let errors = |deed: &str, lines: &str| {
        let device = "[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"";
        let fio = "fio --rw=randwrite --bs=4k --size=256k --ioengine=libaio --iodepth=4 --verify=pattern";
        let events = event("100 us", deed, "a:d", lines) + &event("300 us", deed, "a:d", "rate = 0");
        let text = [HEAD, &host("a", "dell-t430", device), &program("a", "0", fio), &events].concat();
        let seen = RefCell::new(None);
        let mut at_end = AtEnd(|computers: &Computers| {
            *seen.borrow_mut() = Some(computers.hosts()[0].kernel.pci_errors());
        });
        let done = run_watched(&loaded(&text), &Silent, &mut at_end).unwrap();
        let fio = done.iter().find(|done| done.run.starts_with("fio")).unwrap().outcome.clone();
        (seen.take().unwrap(), fio)
    };
    for deed in ["poison", "lose-completions"] {
        let (counts, _) = errors(deed, "rate = 0.2");
        assert!(counts.non_fatal > 0 && counts.recovered > 0, "{deed}: {counts:?}");
        assert_eq!(counts.fatal, 0, "{deed}: {counts:?}");
    }
    let (counts, fio) = errors("damage-data", "rate = 0.2");
    assert_eq!((counts.non_fatal, counts.fatal), (0, 0), "{counts:?}");
    assert!(fio.is_err(), "data are wrong: {fio:?}");
}

/// A header damaged on a drive's link is a fatal error, which the port contains if it can; the drive goes on in any case.
#[test]
fn a_damaged_header_is_contained_where_a_port_can() {
    for (change, trigger, deed, contained) in [
        ("", "", "damage-headers", false),
        (CONTAINS, "", "damage-headers", true),
        (CONTAINS, "change_kernel.pci.containment = \"off\"", "damage-headers", false),
        (CONTAINS, "", "poison", false),
        (CONTAINS, "change_kernel.pci.containment = \"non-fatal\"", "poison", true),
        (CONTAINS, "", "contain", true),
    ] {
        let device = format!("{change}\n{trigger}\n[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"");
        let fio = "fio --rw=randwrite --bs=4k --size=256k --ioengine=libaio --iodepth=4 --direct=1";
        let events = match deed {
            "contain" => event("100 us", deed, "a:d", ""),
            _ => event("100 us", deed, "a:d", "rate = 0.2") + &event("115 us", deed, "a:d", "rate = 0"),
        };
        let text = [HEAD, &host("a", "dell-t430", &device), &program("a", "0", fio), &events].concat();
        let seen = RefCell::new(None);
        let mut at_end = AtEnd(|computers: &Computers| {
            *seen.borrow_mut() = Some(computers.hosts()[0].kernel.pci_errors());
        });
        let done = run_watched(&loaded(&text), &Silent, &mut at_end).unwrap();
        let counts = seen.take().unwrap();
        assert_eq!(counts.contained > 0, contained, "{deed} {trigger}: {counts:?}");
        assert!(counts.recovered > 0 && counts.failed == 0, "{deed} {trigger}: {counts:?}");
        let fio = done.iter().find(|done| done.run.starts_with("fio")).unwrap();
        assert!(fio.outcome.is_ok(), "{deed} {trigger}: {fio:?}");
    }
}

const CONTAINS: &str = "change.host.root_complex.containment = { value = true, source = \"assumed: test\" }";

/// What comes while a NIC's vectors are masked waits for their interrupt, which is pending in the NIC until they are unmasked.
#[test]
fn packets_wait_for_an_interrupt_that_is_masked() {
    let slowest = |events: &str| {
        let done = run("ping -c 20 -i 0.0001 -W 0.1 10.0.0.2", events, |_| {});
        assert_eq!(reading(&done, "ping", "received"), 20.0, "{done:?}");
        reading(&done, "ping", "round trip max")
    };
    let usual = slowest("");
    let masked =
        slowest(&(event("500 us", "mask", "b:eth0", "") + &event("1500 us", "unmask", "b:eth0", "")));
    assert!(usual < 500.0 && masked > 900.0, "{usual} us, {masked} us");
}

/// A machine whose fabric sleeps does not where a device says that it does not tolerate that.
#[test]
fn a_device_that_tolerates_little_keeps_the_fabric_awake() {
    let mean = |tolerance: &str| {
        let device = format!("[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"\n{tolerance}");
        let fio = "fio --rw=randread --bs=4k --size=400k --ioengine=libaio --iodepth=1 --direct=1";
        let text = [HEAD, &host("a", "fujitsu-tx1310", &device), &program("a", "0", fio)].concat();
        let done = run_watched(&loaded(&text), &Silent, &mut AtEnd(|_: &Computers| {})).unwrap();
        reading(&done, "fio", "read iops")
    };
    let tolerates = |time: &str| {
        mean(&format!("change.link.latency_tolerance = {{ value = \"{time}\", source = \"assumed: test\" }}"))
    };
    let (silent, much, little) = (mean(""), tolerates("1 ms"), tolerates("100 ns"));
    assert!((silent - much).abs() < silent / 100.0, "{silent}, {much}");
    assert!(little > silent * 1.03, "{silent}, {little}");
}

/// What was damaged when errors end is replayed still, and what was sent behind it.
#[test]
fn a_stream_goes_on_when_errors_end() {
    for end in ["790 us", "800 us", "900 us"] {
        let events = [
            event("200 us", "error-rate", "b:nic", "rate = 1e-5"),
            event(end, "error-rate", "b:nic", "rate = 0"),
        ];
        let done = run("netperf -H 10.0.0.2 -t TCP_STREAM -l 0.002", &events.concat(), |_| {});
        assert!(reading(&done, "netperf", "received") > 1e6, "{end}: {done:?}");
    }
}

#[test]
fn settings_change_under_way() {
    let events = [
        event("100 us", "set", "b:eth0.coalescing", "value = \"77 us\""),
        event("100 us", "set", "b:eth0.coalescing_packets", "value = \"9\""),
        event("100 us", "set", "b:eth0.adaptive", "value = \"false\""),
        event("100 us", "set", "a:eth0.mtu", "value = \"1400\""),
        event("100 us", "set", "a:netperf.memory", "value = \"node1\""),
    ];
    let seen = RefCell::new(None);
    let done = run(STREAM, &events.concat(), |computers| {
        let device = |host: usize| computers.hosts()[host].kernel.net().device("eth0").unwrap();
        *seen.borrow_mut() = Some((PacketDevice::coalescing(&*device(1), 3).unwrap(), device(0).mtu()));
    });
    assert_eq!(done.iter().filter(|done| done.run.starts_with("set ") && done.outcome.is_ok()).count(), 5);
    let coalescing = Coalescing { time: Duration::from_us(77), packets: 9, adaptive: false };
    assert_eq!(seen.take(), Some((coalescing, 1400)));
}

/// Packets that a stream's sender gives to its NIC, per MB.
fn packets_per_mb(event: &str) -> f64 {
    let counted = Cell::new(0.0);
    let done = run(STREAM, event, |computers| {
        let counters = computers.hosts()[0].kernel.net().device("eth0").unwrap().counters();
        counted.set(counters.tx_packets as f64 / counters.tx_bytes as f64 * 1e6);
    });
    assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
    counted.get()
}

#[test]
fn segmentation_offload_ends_at_its_event() {
    let at = |time: &str| packets_per_mb(&event(time, "set", "a:eth0.tso", "value = \"false\""));
    let (never, late, soon) = (packets_per_mb(""), at("900 us"), at("500 us"));
    assert!(never < late && late < soon, "{never}, {late}, {soon}");
}

/// Interrupts of the queues where echoes are asked for: they come to another one from the event on.
#[test]
fn packets_take_the_queue_of_the_table_from_an_event_on() {
    let interrupts = |events: &str| {
        let counts = RefCell::new(Vec::new());
        let done = run(PING, events, |computers| {
            let all = computers.hosts()[1].kernel.interrupts().into_iter();
            counts.replace(all.filter(|irq| irq.1.starts_with("nic-")).map(|irq| irq.3).collect());
        });
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
        counts.take()
    };
    let before = interrupts("");
    let idle = before.iter().position(|&count| count == 0).expect("echoes do not take all queues");
    let at = |time: &str| interrupts(&event(time, "set", "b:eth0.rss", &format!("value = \"{idle}\"")))[idle];
    let (late, soon) = (at("1500 us"), at("500 us"));
    assert!(0 < late && late < soon, "{late}, {soon}");
}

#[test]
fn a_stream_outlives_rings_of_another_size() {
    let events = [
        event("400 us", "set", "b:eth0.rx_ring", "value = \"64\""),
        event("400 us", "set", "b:eth0.tx_ring", "value = \"4096\""),
    ];
    let held = |events: &str| {
        let held = Cell::new((None, 0));
        let done = run("netperf -H 10.0.0.2 -t TCP_STREAM -l 0.003", events, |computers| {
            let device = computers.hosts()[1].kernel.net().device("eth0").unwrap();
            held.set((device.driver().unwrap().rx_outstanding(3), device.counters().rx_bytes));
        });
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
        held.get()
    };
    let (rings, (small, bytes)) = (held("").0, held(&events.concat()));
    assert!(small <= Some(64) && Some(256) < rings, "{small:?}, {rings:?}");
    // About 100 kB had come before the restart.
    assert!(bytes > 200_000, "{bytes} B");
}

/// Reads of a slow drive are overdue from the event on, and only then.
#[test]
fn requests_are_overdue_by_the_timeout_that_was_set() {
    let disk =
        host("a", "dell-t430", "[[host.device]]\ndrive = \"optane-900p\"\nchange.media.read = \"100 us\"");
    let read = program("a", "0", "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=40 iflag=direct");
    let timeouts = |events: &str| {
        let counted = Cell::new(0);
        let mut look = AtEnd(|computers: &Computers| {
            let device = computers.hosts()[0].kernel.block().device("nvme0n1").unwrap();
            counted.set(device.counters().timeouts);
        });
        let done = run_watched(&loaded(&[HEAD, &disk, &read, events].concat()), &Silent, &mut look);
        let done = done.unwrap_or_else(|error| panic!("{error}"));
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
        counted.get()
    };
    let at = |time: &str| timeouts(&event(time, "set", "a:nvme0n1.io_timeout", "value = \"70 us\""));
    let (never, late, soon) = (timeouts(""), at("3 ms"), at("1 ms"));
    assert!(never == 0 && 0 < late && late < soon, "{never}, {late}, {soon}");
}

/// A parameter of the NIC driver's module: from then on, packets are written into the device.
#[test]
fn packets_take_the_other_way_from_an_event_on() {
    let driver = "[host.nic_driver]\nkpio = \"off\"\nkpio_format = \"signature\"\n";
    let card = host("a", "i5-2400s", &format!("{driver}[[host.device]]\nnic = \"kpio-fpga\"\n"));
    let send = "[[program]]\ncpus = \"0\"\nrun = \"pktgen -i eth0 -s 98 -n 40 -w 20000\"\n";
    for (value, written) in [("off", false), ("all", true), ("up-to 64 B", false), ("up-to 98 B", true)] {
        let event = event("400 us", "set", "a:nic_driver.kpio", &format!("value = \"{value}\""));
        let setup = loaded(&[HEAD, &card, send, &event].concat());
        let frames = Cell::new(0);
        let mut look = AtEnd(|computers: &Computers| {
            let (_, nic) = &computers.hosts()[0].nics[0];
            frames.set(nic.counter(FunctionIndex(0), counter::KPIO_FRAMES));
        });
        let done = run_watched(&setup, &Silent, &mut look).unwrap_or_else(|error| panic!("{error}"));
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
        // Of 40 packets, 20 us apart, about half come after the event.
        let expected = if written { 10..=30 } else { 0..=0 };
        assert!(expected.contains(&frames.get()), "{value}: {frames:?}");
    }
}

/// Under a policy that knows no node, the two I/O threads are spread over the nodes; under `local`, both are at the NIC's.
#[test]
fn a_hypervisor_changes_its_policy() {
    let scenario = include_str!("../../../scenarios/numa-io.toml");
    let blind = scenario.replace("placement = \"numa\"", "placement = \"blind\"");
    let nodes = |events: &str| {
        let nodes = RefCell::new(Vec::new());
        let setup = loaded(&[&blind, events].concat());
        let mut look = AtEnd(|computers: &Computers| {
            let host = &computers.hosts()[0];
            let threads: Vec<_> = host.networks()[0].threads().into_iter().map(|(task, _)| task).collect();
            let tasks = host.kernel.tasks().into_iter().filter(|task| threads.contains(&task.id));
            nodes.replace(tasks.map(|task| host.kernel.face().node_of(task.cpus[0])).collect());
        });
        run_watched(&setup, &Silent, &mut look).unwrap_or_else(|error| panic!("{error}"));
        let mut nodes = nodes.take();
        nodes.sort_unstable();
        nodes
    };
    assert_eq!(nodes(""), [Node(0), Node(1)]);
    assert_eq!(nodes(&event("1 ms", "set", "a:hypervisor.placement", "value = \"local\"")), [Node(0); 2]);
}

/// A NIC that is taken out and put back, or comes late, has the name and the address that the scenario gives it.
#[test]
fn devices_come_and_go_by_role() {
    let nic =
        |name: &str, lines: &str| format!("[[host.device]]\nname = \"{name}\"\nnic = \"modern\"\n{lines}\n");
    let nics = [nic("late", "plugged = false"), nic("early", "")].concat();
    let hosts = [HEAD, &host("a", "dell-t430", &nics), &host("b", "dell-t430", &nics)].concat();
    let cables = [cable("a:0", "b:0", ""), cable("a:1", "b:1", "")].concat();
    // By the first pair of NICs, which comes after a while, and by the second, one of which is out for a while.
    let programs = [
        program("a", "0", "ping -c 20 -i 0.001 -W 0.005 10.0.0.2") + "start = \"250 ms\"\n",
        program("a", "1", "ping -c 40 -i 0.01 -W 0.005 10.0.1.2"),
    ];
    let events = [
        event("50 ms", "plug", "a:late", ""),
        event("50 ms", "plug", "b:late", ""),
        event("100 ms", "remove", "b:early", ""),
        event("150 ms", "plug", "b:eth1", ""),
    ];
    let setup = loaded(&[hosts, cables, programs.concat(), events.concat()].concat());
    let names = RefCell::new(Vec::new());
    let done = run_watched(
        &setup,
        &Silent,
        &mut AtEnd(|computers: &Computers| {
            for host in computers.hosts() {
                let devices = host.kernel.net().devices();
                names
                    .borrow_mut()
                    .push(devices.iter().map(|device| device.name().to_owned()).collect::<Vec<_>>());
            }
        }),
    );
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    let (late, early) = (reading(&done, "ping -c 20", "received"), reading(&done, "ping -c 40", "received"));
    assert!(late == 20.0 && (15.0..35.0).contains(&early), "{late}, {early}: {done:?}");
    let mut names = names.take();
    names.iter_mut().for_each(|names| names.sort());
    assert_eq!(names, [["eth0", "eth1"], ["eth0", "eth1"]]);
}

/// One link of a device with two goes and comes back: the function behind the other does not notice.
#[test]
fn one_of_two_links_is_cut_and_mended() {
    let links = "links = [{ slot = \"slot\", lanes = 4 }, { slot = \"slot-socket1\", lanes = 4 }]";
    let nic = format!("[[host.device]]\nname = \"nic\"\nnic = \"modern\"\n{links}");
    let b = host("b", "dell-t430", "[[host.device]]\nnic = \"modern\"");
    let hosts = [HEAD, &host("a", "dell-t430", &nic), &b, &cable("a", "b", "")].concat();
    let names = |events: &str, count: u32| {
        let ping = program("a", "0", &format!("ping -c {count} -i 0.001 -W 0.005 10.0.0.2"));
        let names = RefCell::new(Vec::new());
        let done = run_watched(
            &loaded(&[&hosts, &ping, events].concat()),
            &Silent,
            &mut AtEnd(|computers: &Computers| {
                let devices = computers.hosts()[0].kernel.net().devices();
                names.borrow_mut().extend(devices.iter().map(|device| device.name().to_owned()));
            }),
        );
        let done = done.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(reading(&done, "ping", "received"), f64::from(count), "{done:?}");
        let mut names = names.take();
        names.sort();
        names
    };
    let cut = event("1 ms", "cut", "a:nic:1", "");
    assert_eq!(names(&cut, 10), ["eth0"]);
    assert_eq!(names(&(cut + &event("20 ms", "mend", "a:nic:1", "")), 200), ["eth0", "eth1"]);
}
