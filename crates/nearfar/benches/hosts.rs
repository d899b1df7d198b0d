//! What many hosts cost: processor time of a TCP stream between two hosts, alone and among other such pairs, and memory of a host at
//! rest with a NIC that runs.
//!
//! The aims, printed and not asserted: 1.5 times the time among 64 hosts, and 4 MB. Time is that of the processor where the system
//! tells it. `cargo bench -p nearfar --bench hosts -- QUICK` takes 16 hosts.

#[path = "clock/mod.rs"]
mod clock;
#[path = "computers/mod.rs"]
mod computers;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use computers::{Run, forget_peak, peak, run};
use scenario::{HEAD, program};

fn host(name: &str, address: &str, iommu: &str) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\nmachine = \"dell-t430\"\niommu = \"{iommu}\"\n[[host.device]]\nnic = \"modern\"\naddress = \"{address}/24\"\n"
    )
}

/// So many pairs of hosts, with a stream in each for so many seconds.
fn pairs(count: usize, seconds: f64) -> String {
    let hosts = (0..count).map(|n| {
        let ends = format!("[[cable]]\nends = [\"a{n}\", \"b{n}\"]\n");
        let side = |side, number| host(&format!("{side}{n}"), &format!("10.{n}.0.{number}"), "off");
        [side("a", 1), side("b", 2), ends].concat()
    });
    let streams = (0..count).map(|n| {
        let client = format!("netperf -H 10.{n}.0.2 -t TCP_STREAM -l {seconds}");
        [program(&format!("b{n}"), "0", "netserver"), program(&format!("a{n}"), "0", &client)].concat()
    });
    HEAD.to_owned() + &hosts.collect::<String>() + &streams.collect::<String>()
}

/// So many hosts that do nothing, but for one ping.
fn at_rest(count: usize, iommu: &str) -> String {
    let hosts = (0..count).map(|n| host(&format!("a{n}"), &format!("10.{n}.0.1"), iommu)).collect::<String>();
    HEAD.to_owned() + &hosts + &program("a0", "0", "ping -c 1 10.0.0.1")
}

/// What the second half of the time takes each pair: putting hosts together is no part of it.
fn seconds_a_pair(count: usize) -> f64 {
    let [short, long] = [0.001, 0.003].map(|length| run(&pairs(count, length)).seconds);
    (long - short) / count as f64
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    let many = if quick { 16 } else { 64 };
    // Before all else and fewer first, as memory that was had once stays.
    let (few, all) = (2, many);
    let iommus = ["off", "strict"];
    let [few_kb, all_kb] = [few, all].map(|count| {
        iommus.map(|iommu| {
            forget_peak();
            let Run { .. } = run(&at_rest(count, iommu));
            peak().unwrap_or_default() as f64
        })
    });
    for (iommu, (few_kb, all_kb)) in iommus.iter().zip(few_kb.into_iter().zip(all_kb)) {
        let mb = (all_kb - few_kb) / 1e3 / (all - few) as f64;
        println!("a host at rest, IOMMU {iommu}: {mb:.2} MB (aim: 4)");
    }
    // The first run of all finds neither memory nor caches ready.
    run(&pairs(1, 0.001));
    let alone = seconds_a_pair(1);
    for count in [4, many / 2] {
        let each = seconds_a_pair(count);
        println!(
            "a stream among {:>2} hosts: {:.0} ms of processor time for 2 ms, {:.2} times what it takes alone (aim: 1.5)",
            2 * count,
            each * 1e3,
            each / alone
        );
    }
}
