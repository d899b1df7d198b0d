//! Whatever a figure of a machine or of a card is set to: a complaint that says what would be right, or a machine that is
//! built, within bounded time and memory. And what is built depends on it: no figure is there for show.

use engine::Seed;
use hardware::memory::MemorySystem;
use machine::{Diagnostics, Doc, Kindred, Library, Listed, Machine, Part};
use nearfar::topology::{
    ALL_LANES, assemble, card_params, iommu_params, link_params, memory_params, negotiate, power_params,
    root_port_params, store_params,
};

/// What no shipped machine has: a snoop filter, open rows, every kind of idle state, a package controller, timeouts.
const REST: &[(&str, &str)] = &[
    ("host.iommu.iotlb.held_by_others", "0"),
    ("host.port.slot.credits.cplh", "64"),
    ("host.port.slot.credits.cpld", "1024"),
    ("host.port.slot-socket1.credits.cplh", "64"),
    ("host.port.slot-socket1.credits.cpld", "1024"),
    ("host.root_complex.completion_timeout", "10 ms"),
    ("host.root_complex.reflects_peers", "true"),
    ("host.root_complex.peer_read", "64 B"),
    ("host.root_complex.peer_reads", "16"),
    ("host.root_complex.peer_write", "64 B"),
    ("host.root_complex.peer_write_interval", "8 ns"),
    ("host.root_complex.peer_latency", "40 ns"),
    ("host.port.slot.retrain_time", "20 us"),
    ("host.port.slot-socket1.retrain_time", "20 us"),
    ("host.root_complex.completion_split.largest_from", "1985 B"),
    ("host.root_complex.completion_split.largest", "256 B"),
    ("host.root_complex.completion_split.odd_multiple_as_largest", "512 B"),
    ("host.llc.streaming_waits", "true"),
    ("host.llc.inclusion", "non-inclusive"),
    ("host.llc.snoop_filter_size", "4 MiB"),
    ("host.llc.snoop_filter_ways", "16"),
    ("host.dram.row", "8 KiB"),
    ("host.dram.row_activate", "10 ns"),
    ("host.dram.row_precharge", "10 ns"),
    ("host.dram.row_idle", "10 us"),
    ("host.iommu.same_page_shares_place", "true"),
    ("host.iommu.retry_interval", "20 ns"),
    ("host.iommu.serialised_walk_region", "2 MiB"),
    ("host.power.state.idle.after", "2 us"),
    ("host.power.state.idle.exit_latency", "1 us"),
    ("host.power.state.ticking.tick", "9 us"),
    ("host.power.state.ticking.tick_jitter", "0.1"),
    ("host.power.state.ticking.tick_below", "1 GB/s"),
    ("host.power.state.ticking.exit_latency", "1 us"),
    ("host.power.controller.period", "1 ms"),
    ("host.power.controller.transition_periods", "2"),
    ("host.power.controller.longer_share", "0.1"),
    ("host.power.controller.exit_latency", "1 us"),
    ("host.power.controller.slow_exit_latency", "2 us"),
    ("host.power.controller.slow_share", "0.1"),
    ("host.power.controller.skipped_share", "0.1"),
];

/// What a card's file need not say.
const OPTIONAL: &[(&str, &str)] = &[
    ("link.credits.cplh", "64"),
    ("link.credits.cpld", "1024"),
    ("link.latency", "40 ns"),
    ("link.ack_delay", "100 ns"),
    ("link.credit_update_delay", "100 ns"),
    ("dma_engine.completion_timeout", "10 ms"),
    ("dma_engine.config_latency", "200 ns"),
];

/// What to try in place of a figure's value: of its kind, from nothing to more than there can be.
fn trials(figure: &Listed) -> Vec<String> {
    let all = |units: &[&str]| units.iter().map(|&text| text.to_owned()).collect();
    if !figure.choices.is_empty() {
        return figure.choices.iter().map(|&choice| choice.to_owned()).collect();
    }
    let value = figure.value.trim_matches('"');
    let unit = value.split(' ').nth(1).unwrap_or_default();
    match unit {
        "ps" | "ns" | "us" | "µs" | "ms" | "s" => {
            all(&["0 ns", "1 ps", "1 ms", "1 s", "4294967295 ps", "18446744 s"])
        }
        "B" | "KiB" | "MiB" | "GiB" | "TiB" => all(&[
            "0 B",
            "1 B",
            "256 B",
            "65536 B",
            "30 MiB",
            "1 GiB",
            "256 GiB",
            "4294967295 B",
            "16777215 TiB",
        ]),
        "cycles" | "cycle" => all(&["0 cycles", "1 cycles", "65536 cycles", "18446744073709551615 cycles"]),
        "B/s" | "kB/s" | "MB/s" | "GB/s" | "TB/s" => all(&["0 B/s", "1 B/s", "18446744073 GB/s"]),
        "Hz" | "kHz" | "MHz" | "GHz" => all(&["0 Hz", "1 Hz", "65536 Hz", "18446744073 GHz"]),
        _ if value.starts_with('[') => {
            all(&["[]", "[0]", "[[1, 0]]", "[[0, 1], [1, 65536]]", "[\"4 KiB\"]", "[\"1 GiB\"]", "[\"3 B\"]"])
        }
        _ if value.contains('.') => all(&["0", "1", "-1.0", "256", "nan"]),
        _ => all(&["0", "1", "65", "256", "300", "65536", "65537", "4294967295"]),
    }
}

/// Builds `machine` with its IOMMU on and `part` in its first slot.
fn build(machine: &Machine, part: &Part) {
    let caches = MemorySystem::new(&memory_params(&machine.host, 1)).into_cache_state();
    let slot = machine.host.port.keys().next().expect("a machine has a slot");
    if let Err(error) = assemble(machine, part, slot, true, caches, Seed::new(1)) {
        panic!("{error}");
    }
}

/// Every complaint names a key, says what would be right, and has a place that can be shown.
fn is_of_use(path: &str, trial: &str, complaints: &Diagnostics) {
    for one in complaints {
        let context = format!("{path} = {trial}: {one}");
        let is_right_told = one.help.is_some() || one.message.contains(" takes ");
        assert!(one.message.contains('`') && is_right_told && one.line > 0, "{context}");
        assert!(one.render(false).contains("-->"), "{context}");
    }
}

/// Sets each figure of `doc` to each of its trials; `built` builds what reads.
fn try_all<T: Kindred + Clone>(doc: &Doc<T>, built: impl Fn(&T)) {
    let (mut refused, mut taken) = (0, 0);
    for figure in doc.list().unwrap_or_else(|said| panic!("{}", said.render(false))) {
        for trial in trials(&figure) {
            let mut changed = doc.clone();
            changed.set(&figure.path, &trial).unwrap();
            match changed.read() {
                Ok(content) => {
                    taken += 1;
                    let here = std::panic::AssertUnwindSafe(|| built(&content));
                    assert!(std::panic::catch_unwind(here).is_ok(), "{} = {trial}", figure.path);
                }
                Err(complaints) => {
                    refused += 1;
                    is_of_use(&figure.path, &trial, &complaints);
                }
            }
        }
    }
    assert!(refused > 50 && taken > 50, "{refused} refused, {taken} taken");
}

/// A machine with everything that one can have.
fn whole_machine() -> Doc<Machine> {
    let mut doc = Doc::load(&Library::built_in(), "dell-t430").unwrap();
    for (path, value) in REST {
        doc.set(path, value).unwrap();
    }
    doc
}

fn part(name: &str) -> Doc<Part> {
    Doc::load(&Library::built_in(), name).unwrap()
}

#[test]
fn any_figure_of_a_machine_is_refused_or_built() {
    let card = part("nfp6000").read().unwrap();
    try_all(&whole_machine(), |machine| build(machine, &card));
}

#[test]
fn any_figure_of_a_card_is_refused_or_built() {
    let machine = Doc::<Machine>::load(&Library::built_in(), "fujitsu-tx1310").unwrap().read().unwrap();
    try_all(&part("nfp6000"), |card| build(&machine, card));
}

/// Figures of a machine with which the hardware for pcie-bench does not change, and why.
const READ_ELSEWHERE: &[(&str, &str)] = &[
    ("host.sockets", "read, but slots and links go with it"),
    ("host.llc.inclusion", "read, but the snoop filter goes with it"),
    ("host.port.slot.mrrs_bytes", "the benchmark's driver, which sets cards to it"),
    ("host.port.slot-socket1.mrrs_bytes", "the benchmark's driver, which sets cards to it"),
    ("host.core.store_buffer", "a kernel's cores, in scenarios of computers"),
    ("host.core.access_interval", "a kernel's cores, in scenarios of computers"),
    ("host.core.store_interval", "a kernel's cores, in scenarios of computers"),
    ("host.core.virtual_interrupts", "guests, in scenarios of computers"),
];

/// Everything that is built of the two files, as text.
fn built(machine: &Machine, card: &Part) -> String {
    let host = &machine.host;
    let mut text = format!("{:?} {:?}", memory_params(host, 1), store_params(host));
    text +=
        &format!("{:?} {:?}", host.iommu.as_ref().map(iommu_params), host.power.as_ref().map(power_params));
    for port in host.port.values() {
        let (generation, width) = negotiate(&card.link, port, ALL_LANES);
        let payload = port.mps_bytes.value.get().min(card.link.mps_bytes.value.get());
        text += &format!("{:?}", root_port_params(host, port, payload));
        text += &format!("{:?}", link_params(port, &card.link, generation, width));
        let long_header = host.root_complex.long_header_bytes();
        text += &format!("{:?}", card_params(card, (generation, width), 127.0, long_header));
    }
    text
}

/// Changes each figure of `doc`: what `show` builds must change with it.
fn all_are_read<T: Kindred + Clone>(doc: &Doc<T>, elsewhere: &[(&str, &str)], show: impl Fn(&T) -> String) {
    let usual = show(&doc.read().unwrap_or_else(|said| panic!("{}", said.render(false))));
    for figure in doc.list().unwrap() {
        let is_read = trials(&figure).iter().chain(&near(&figure)).any(|trial| {
            let mut changed = doc.clone();
            changed.set(&figure.path, trial).unwrap();
            changed.read().is_ok_and(|content| show(&content) != usual)
        });
        let known = elsewhere.iter().any(|(path, _)| *path == figure.path);
        assert!(is_read != known, "{}: {}", figure.path, if known { "is read" } else { "is read by nobody" });
    }
}

/// Values that may stand where a figure stands, next to its own: half of it and one less, as far as it is a number.
fn near(figure: &Listed) -> Vec<String> {
    let value = figure.value.trim_matches('"');
    let Some((number, unit)) = value.split_once(' ') else {
        let number: i64 = value.parse().unwrap_or_default();
        return [number / 2, number - 1, number + 1, number * 2].map(|number| number.to_string()).to_vec();
    };
    let number: f64 = number.parse().unwrap_or_default();
    [number / 2.0, number * 2.0, number + 1.0].map(|number| format!("{number} {unit}")).to_vec()
}

#[test]
fn every_figure_of_a_machine_is_read() {
    // A card that says nothing of its own about the link.
    let card = part("ideal").read().unwrap();
    all_are_read(&whole_machine(), READ_ELSEWHERE, |machine| built(machine, &card));
}

#[test]
fn every_figure_of_a_card_is_read() {
    let machine = Doc::<Machine>::load(&Library::built_in(), "dell-t430").unwrap().read().unwrap();
    let mut doc = part("nfp6000");
    for (path, value) in OPTIONAL {
        doc.set(path, value).unwrap();
    }
    all_are_read(&doc, &[], |card| built(&machine, card));
}
