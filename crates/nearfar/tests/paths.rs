//! What is said to bind a program is on its way, whichever resource it is, and may change while it runs.

use crate::scenario::{HEAD, cable, event, host, host_with_nic, loaded, program};
use machine::{Library, Scenario, Setup};
use nearfar::computer;
use nearfar::counters::{Binding, Kind};
use nearfar::progress::Silent;

/// What binds each program that is no server, with a quantity that it reports.
fn bindings(text: &str, quantity: &str) -> Vec<(Binding, f64)> {
    let counts = computer::run_counted(&loaded(text), &Silent).unwrap();
    let of = |counted: &nearfar::computer::Counted| {
        let done = counts.done.iter().find(|done| done.number() == Some(counted.program)).unwrap();
        let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
        (counted.window.binding(&done.host), report.get(quantity).unwrap_or(f64::NAN))
    };
    counts.counted.iter().map(of).collect()
}

/// Kind, host and place of what binds.
fn what(binding: &Binding) -> Option<(Kind, &str, &str)> {
    binding.what.as_ref().map(|(host, resource)| (resource.kind, &**host, &*resource.place))
}

fn device(kind: &str, model: &str, name: &str, slot: &str) -> String {
    format!("[[host.device]]\nname = \"{name}\"\n{kind} = \"{model}\"\nslot = \"{slot}\"\n")
}

/// A host that has nothing to do with a ping, and a core of the same host that has not either, do not explain it.
#[test]
fn what_others_do_does_not_bind() {
    let stream = program("c", "5", "stream --array-size=1000000 --ntimes=2");
    let text = [
        HEAD,
        &host_with_nic("a"),
        &host_with_nic("b"),
        &host("c", "dell-t430", ""),
        &cable("a", "b", ""),
        &program("a", "0", "ping -c 5 10.0.0.2"),
        &stream,
    ];
    let all = bindings(&text.concat(), "copy");
    assert_eq!(what(&all[0].0), None, "{}", all[0].0);
    assert_eq!(what(&all[1].0), Some((Kind::Lines, "c", "core5")), "{}", all[1].0);
    let fio = "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=1 --runtime=1ms";
    let a = host("a", "dell-t430", "[[host.device]]\ndrive = \"optane-900p\"");
    let text = [HEAD, &a, &program("a", "0", fio), &stream.replace("\"c\"", "\"a\"")];
    let all = bindings(&text.concat(), "copy");
    let next = all[0].0.next.as_ref().unwrap();
    assert!(what(&all[0].0).is_none() && next.1.place != "core5", "{}", all[0].0);
    assert_eq!(what(&all[1].0), Some((Kind::Lines, "a", "core5")), "{}", all[1].0);
}

/// A receiver cannot slow who sends without asking it.
#[test]
fn a_receiver_does_not_bind_pktgen() {
    let sender = |machine: &str| {
        [
            HEAD,
            &host("a", "dell-t430", &format!("[[host.device]]\nnic = \"modern\"\n{machine}")),
            &host_with_nic("b"),
            &cable("a", "b", ""),
            &program("a", "0", "pktgen -i eth0 -s 60 -n 2000"),
        ]
        .concat()
    };
    let all = bindings(&sender(""), "rate");
    assert_eq!(what(&all[0].0), Some((Kind::Core, "a", "core0")), "{}", all[0].0);
}

/// Below a switch, its uplink is what two drives or GPUs share.
#[test]
fn an_uplink_binds() {
    let switch = |slot: &str, part: &str| {
        format!("[[host.switch]]\nname = \"sw\"\npart = \"{part}\"\nslot = \"{slot}\"\n")
    };
    let drives = device("drive", "pm1725a", "d0", "sw:1") + &device("drive", "pm1725a", "d1", "sw:2");
    let fio = |cpus: &str, drive: u8| {
        let line = format!(
            "fio --name=x --filename=/dev/nvme{drive}n1 --rw=randread --bs=64k --ioengine=libaio --iodepth=16 --numjobs=2 \
             --runtime=1500us --ramp_time=500us"
        );
        program("a", cpus, &line)
    };
    let a = host("a", "xeon-8160", &(switch("bay", "pex8733") + &drives));
    let all = bindings(&[HEAD, &a, &fio("0-1", 0), &fio("2-3", 1)].concat(), "read bw");
    for (binding, _) in &all {
        assert_eq!(what(binding), Some((Kind::Link, "a", "sw/uplink-up")), "{binding}");
    }
    // With an IOMMU, what GPUs below one switch exchange goes to the root and back.
    let gpus = device("gpu", "k40c", "g0", "sw:1") + &device("gpu", "k40c", "g1", "sw:2");
    let copies = |iommu: &str| {
        let lines = format!("iommu = \"{iommu}\"\n{}{gpus}", switch("slot", "pex8796"));
        let copy = |from: u8| {
            let line = format!("gpu-copy --from={from} --to={} --bytes=1m --count=4", 1 - from);
            program("a", &from.to_string(), &line)
        };
        [HEAD, &host("a", "xeon-8160", &lines), &copy(0), &copy(1)].concat()
    };
    let (straight, redirected) =
        (bindings(&copies("off"), "bandwidth"), bindings(&copies("pass-through"), "bandwidth"));
    for ((before, fast), (binding, slow)) in straight.iter().zip(&redirected) {
        assert!(slow < &(0.8 * fast), "{slow} {fast}");
        let (kind, host, place) = what(binding).unwrap();
        assert_eq!((kind, host, place.starts_with("sw/uplink-")), (Kind::Link, "a", true), "{binding}");
        assert!(what(before).is_none_or(|(_, _, place)| !place.starts_with("sw/")), "{before}");
    }
}

/// A program that does one thing after the other is told what bound each.
#[test]
fn phases_bind_one_after_the_other() {
    let run = |options: &str| {
        let gpu = device("gpu", "k40c", "g0", "slot");
        let line = format!("bandwidthTest --device=0 --mode=range --start=4m --end=4m {options}");
        let text =
            [HEAD, &host("a", "xeon-8160", &format!("iommu = \"off\"\n{gpu}")), &program("a", "0", &line)];
        bindings(&text.concat(), "").remove(0).0
    };
    let [there, back] = ["--htod", "--dtoh"].map(|one| {
        let binding = run(one);
        assert!(binding.phases.is_empty(), "{binding}");
        binding.what.unwrap().1.place
    });
    let both = run("");
    let mut places: Vec<&str> = both.phases.iter().map(|phase| &*phase.resource.place).collect();
    places.sort_unstable();
    assert_eq!(places, [&*there, &*back], "{both}");
    assert!(both.phases.iter().all(|phase| (0.35..0.55).contains(&phase.of_time)), "{both}");
    assert_eq!(both.to_string().matches(" % of the time ").count(), 2, "{both}");
}

/// Credits that are waited for in bursts are no cause if the drive has no time to spare.
#[test]
fn credits_of_bursts_do_not_bind() {
    let run = |change: &str| {
        let drive = format!("[[host.device]]\ndrive = \"optane-900p\"\n{change}");
        let line = "dd if=/dev/nvme0n1 of=/dev/null bs=1M count=4 iflag=direct";
        bindings(&[HEAD, &host("a", "dell-t430", &drive), &program("a", "0", line)].concat(), "rate")
            .remove(0)
    };
    let change = |key: &str, value: &str| {
        format!("change.{key} = {{ value = {value}, source = \"assumed: to see what it brings\" }}\n")
    };
    let (binding, before) = run("");
    assert_eq!(what(&binding), Some((Kind::Device, "a", "drive0/channels")), "{binding}");
    let (_, after) = run(&change("media.channel_rate", "\"4 GB/s\""));
    assert!(after > 1.2 * before, "{before} {after}");
}

/// In strict mode, cores of several drives wait for one queue of invalidations.
#[test]
fn invalidations_bind() {
    let drive = |n: u8| {
        let slot = if n == 0 { "bay".to_owned() } else { format!("bay.{n}") };
        device("drive", "pm1725a", &format!("d{n}"), &slot)
    };
    let fio = |n: u8| {
        let line = format!(
            "fio --name=x --filename=/dev/nvme{n}n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4 \
             --runtime=800us --ramp_time=200us"
        );
        program("a", &format!("{}-{}", 4 * n, 4 * n + 3), &line)
    };
    let text = |iommu: &str| {
        let a = host("a", "xeon-8160", &format!("iommu = \"{iommu}\"\n{}{}", drive(0), drive(1)));
        [HEAD, &a, &fio(0), &fio(1)].concat()
    };
    let (strict, lazy) = (bindings(&text("strict"), "read bw"), bindings(&text("lazy"), "read bw"));
    for (number, ((binding, slow), (_, fast))) in strict.iter().zip(&lazy).enumerate() {
        assert!(slow < &(0.8 * fast), "{slow} {fast}");
        let (kind, _, place) = what(binding).unwrap();
        let core: u8 = place.strip_prefix("core").unwrap().parse().unwrap();
        assert_eq!((kind, usize::from(core / 4)), (Kind::Invalidations, number), "{binding}");
    }
}

/// Credits that replays hold up are not what lacks.
#[test]
fn bit_errors_bind() {
    let drive = device("drive", "optane-900p", "d", "slot");
    let line = "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=64k --ioengine=libaio --iodepth=8 --runtime=3ms";
    let text = |rate: &str| {
        let errors = event("0 ms", "error-rate", "a:d", &format!("rate = {rate}"));
        [HEAD, &host("a", "dell-t430", &drive), &program("a", "0", line), &errors].concat()
    };
    let [(_, clean), (binding, damaged)] =
        ["1e-12", "2e-5"].map(|rate| bindings(&text(rate), "read bw").remove(0));
    assert!(damaged < 0.9 * clean, "{damaged} {clean}");
    assert_eq!(what(&binding).map(|(kind, ..)| kind), Some(Kind::Replays), "{binding}");
}

/// A test of pcie-bench has one card and one path: all of it counts.
#[test]
fn everything_of_a_bench_is_on_its_path() {
    let library = Library::built_in();
    let doc = machine::Doc::<Scenario>::load(&library, "card-bandwidth").unwrap();
    let setup = Setup::load(&library, &doc).unwrap();
    let done = nearfar::scenario::run(&setup, &Silent).unwrap();
    let hosts = done.iter().flat_map(|done| &done.outcome.window.hosts);
    assert!(hosts.flat_map(|host| &host.resources).all(|resource| resource.on_path));
}

/// A stream whose receiver lacks buffers for a burst loses packets, and takes that for congestion.
#[test]
fn receive_buffers_that_lack_bind_a_stream() {
    let stream = |ring: u32| {
        let b = format!("[host.nic_driver]\nrx_ring = {ring}\n[[host.device]]\nnic = \"modern\"");
        let text = [
            HEAD,
            &host_with_nic("a"),
            &host("b", "dell-t430", &b),
            &cable("a", "b", ""),
            &program("b", "0", "netserver"),
            &program("a", "0", "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.003"),
        ];
        bindings(&text.concat(), "throughput").remove(0)
    };
    let (binding, few) = stream(64);
    assert_eq!(what(&binding), Some((Kind::Ring, "b", "nic0/rx-rings")), "{binding}");
    assert!(binding.sentence().contains("the receive buffers of b's nic0, lacking for"), "{binding}");
    let (binding, many) = stream(128);
    assert!(many > 1.5 * few, "{few:.0} and {many:.0} Mbit/s");
    assert_ne!(what(&binding).map(|(kind, ..)| kind), Some(Kind::Ring), "{binding}");
}

/// Credits that are waited for as long as a narrow link works do not bind.
#[test]
fn credits_of_a_busy_link_do_not_bind() {
    let card = "[[host.device]]\nnic = \"connectx4\"\nlinks = [{ slot = \"slot\", lanes = 4 }]";
    let stream = [
        HEAD,
        &host("a", "xeon-8160", "[[host.device]]\nnic = \"connectx4\""),
        &host("b", "xeon-8160", card),
        &cable("a", "b", ""),
        &program("b", "0-7", "iperf3 -s"),
        &program("a", "0-7", "iperf3 -c 10.0.0.2 -t 0.004 -P 8"),
    ];
    let (binding, _) = bindings(&stream.concat(), "received bandwidth").remove(0);
    assert_eq!(what(&binding), Some((Kind::Link, "b", "nic0/link-up")), "{binding}");
}

/// A lent GPU's reads wait for places in the lender's root, and hold their tags meanwhile.
#[test]
fn places_in_a_root_bind_before_tags() {
    let text =
        include_str!("../../../scenarios/lend-gpu.toml").replace("--mode=range", "--htod --mode=range");
    let (binding, _) = bindings(&text, "bandwidth").remove(0);
    let (kind, host, place) = what(&binding).unwrap_or_else(|| panic!("{binding}"));
    assert!((kind, host) == (Kind::Tags, "b") && place.starts_with("root/"), "{binding}");
}

/// The start and the end of a short run leave time to spare even to a core that binds it.
#[test]
fn the_busiest_core_of_a_short_run_binds() {
    let text = [
        HEAD,
        &host("a", "dell-r730", "[[host.device]]\nnic = \"82599\""),
        &host("b", "dell-r730", "[[host.device]]\nnic = \"82599\""),
        &cable("a", "b", ""),
        &program("a", "0", "pktgen -i eth0 -s 60 -n 600"),
    ];
    let (binding, _) = bindings(&text.concat(), "rate").remove(0);
    assert_eq!(what(&binding), Some((Kind::Core, "a", "core0")), "{binding}");
}

/// What GPUs below a switch write to each other is looked up in the IOMMU, less often a second than their links carry.
#[test]
fn lookups_bind_what_an_iommu_translates() {
    let copies = |lines: &str| {
        let switch = "[[host.switch]]\nname = \"sw\"\npart = \"pm50100\"\nslot = \"slot\"\n";
        let gpus = device("gpu", "rtx-pro-6000", "g0", "sw:1") + &device("gpu", "rtx-pro-6000", "g1", "sw:2");
        let copy = |from: u8| {
            let line = format!("gpu-copy --from={from} --to={} --bytes=2m --count=2", 1 - from);
            program("a", &from.to_string(), &line)
        };
        let a = host("a", "threadripper-7955wx", &format!("iommu = \"strict\"\n{lines}\n{switch}{gpus}"));
        bindings(&[HEAD, &a, &copy(0), &copy(1)].concat(), "bandwidth").remove(0)
    };
    let (binding, slow) = copies("");
    assert_eq!(what(&binding), Some((Kind::Lookups, "a", "iommu0")), "{binding}");
    let (_, fast) = copies(
        "change.host.iommu.lookup_interval = { value = \"8 ns\", source = \"assumed: to see what it brings\" }",
    );
    assert!(fast > 1.2 * slow, "{slow:.1} and {fast:.1} GB/s");
}

/// Reads hold their tags while a narrow uplink carries what was read.
#[test]
fn a_narrow_uplink_binds_and_not_the_tags_that_wait_for_it() {
    let switch = "[[host.switch]]\nname = \"sw\"\npart = \"pex8796\"\nslot = \"slot\"\nlanes = 4\n";
    let gpus = device("gpu", "k40c", "g0", "sw:1") + &device("gpu", "k40c", "g1", "sw:2");
    let copy = program("a", "0", "gpu-copy --from=0 --to=1 --bytes=4m --count=4 --through=ram");
    let (binding, _) =
        bindings(&[HEAD, &host("a", "xeon-8160", &(switch.to_owned() + &gpus)), &copy].concat(), "bandwidth")
            .remove(0);
    let (kind, host, place) = what(&binding).unwrap_or_else(|| panic!("{binding}"));
    assert!((kind, host) == (Kind::Link, "a") && place.starts_with("sw/uplink-"), "{binding}");
}

/// Interrupts that are held back are what a ping waits for, unless there are none, or a core is at work meanwhile.
#[test]
fn moderation_binds_who_waits_for_its_interrupts() {
    let ping = |driver: &str, run: &str| {
        let lines = format!("[host.nic_driver]\n{driver}\n[[host.device]]\nnic = \"modern\"");
        let (a, b) = (host("a", "dell-t430", &lines), host("b", "dell-t430", &lines));
        bindings(&[HEAD, &a, &b, &cable("a", "b", ""), &program("a", "0", run)].concat(), "rate").remove(0).0
    };
    let run = "ping -c 20 -i 0.0001 10.0.0.2";
    let held = ping("coalescing = \"100 us\"\nadaptive = false", run);
    assert!(matches!(what(&held), Some((Kind::Moderation, _, "nic0"))), "{held}");
    let soon = ping("coalescing = \"0 us\"", run);
    assert!(what(&soon).is_none_or(|(kind, ..)| kind != Kind::Moderation), "{soon}");
    let busy = ping("coalescing = \"100 us\"\nadaptive = false", "pktgen -i eth0 -s 60 -n 2000");
    assert_eq!(what(&busy), Some((Kind::Core, "a", "core0")), "{busy}");
}

/// Writes that come faster than the dies take them wait for room in the write buffer, and a larger one only helps if the dies
/// have time to spare.
#[test]
fn a_small_write_buffer_binds() {
    let run = |size: &str, rw: &str| {
        let change = format!(
            "change.media.write_buffer = {{ value = \"{size}\", source = \"assumed: to see what it brings\" }}\n"
        );
        let drive = format!("[[host.device]]\ndrive = \"pm1725a\"\n{change}");
        let line = format!(
            "fio --name=x --filename=/dev/nvme0n1 --rw={rw} --bs=4k --ioengine=libaio --iodepth=32 --runtime=3ms --ramp_time=1ms"
        );
        let text = [HEAD, &host("a", "dell-t430", &drive), &program("a", "0", &line)].concat();
        bindings(&text, "write iops").remove(0)
    };
    let (small, few) = run("16 KiB", "randwrite");
    assert_eq!(what(&small), Some((Kind::Buffer, "a", "drive0/write-buffer")), "{small}");
    let (_, more) = run("20 KiB", "randwrite");
    assert!(more > 1.1 * few, "{few} and {more}");
    let (read, _) = run("16 KiB", "randread");
    assert!(what(&read).is_none_or(|(kind, ..)| kind != Kind::Buffer), "{read}");
}

/// A program that enables a drive itself takes long to do so, and is told what binds while it measures.
#[test]
fn what_binds_is_of_the_time_that_is_measured() {
    let lines =
        "[host.nvme_driver]\nuser_space = true\n[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"\n";
    let run = "spdk_nvme_perf -q 32 -o 4096 -w randread -t 0.002";
    let text = [HEAD, &host("a", "dell-t430", lines), &program("a", "0", run)].concat();
    let (binding, _) = bindings(&text, "iops").remove(0);
    let (kind, host, place) = what(&binding).unwrap_or_else(|| panic!("{binding}"));
    assert!((kind, host) == (Kind::Device, "a") && place.starts_with("d/"), "{binding}");
}
