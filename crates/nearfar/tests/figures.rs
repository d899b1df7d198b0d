//! Whatever a figure of a machine or of a card is set to: a complaint that says what would be right, or a machine that is
//! built, within bounded time and memory.

use engine::Seed;
use hardware::memory::MemorySystem;
use machine::{Diagnostics, Doc, Kindred, Library, Listed, Machine, Part};
use nearfar::topology::{assemble, memory_params};

/// What no shipped machine has: a snoop filter, open rows, every kind of idle state.
const REST: &[(&str, &str)] = &[
    ("host.llc.inclusion", "non-inclusive"),
    ("host.llc.snoop_filter_size", "4 MiB"),
    ("host.llc.snoop_filter_ways", "16"),
    ("host.dram.banks", "16"),
    ("host.dram.row", "8 KiB"),
    ("host.dram.row_hit_saves", "10 ns"),
    ("host.dram.row_conflict_adds", "10 ns"),
    ("host.iommu.same_page_shares_place", "true"),
    ("host.iommu.retry_interval", "20 ns"),
    ("host.iommu.serialised_walk_region", "2 MiB"),
    ("host.power.state.idle.after", "2 us"),
    ("host.power.state.idle.exit_latency", "1 us"),
    ("host.power.state.ticking.tick", "9 us"),
    ("host.power.state.ticking.tick_jitter", "0.1"),
    ("host.power.state.ticking.exit_latency", "1 us"),
];

/// A controller of the package.
const CONTROLLER: &[(&str, &str)] = &[
    ("period", "1 ms"),
    ("transition_periods", "2"),
    ("longer_share", "0.1"),
    ("exit_latency", "1 us"),
    ("slow_exit_latency", "2 us"),
    ("slow_share", "0.1"),
    ("forced_share", "0.1"),
    ("skipped_share", "0.1"),
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
        "ps" | "ns" | "us" | "ms" | "s" => {
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
            all(&["[]", "[0]", "[[0, 1], [1, 65536]]", "[\"1 GiB\"]", "[\"3 B\"]"])
        }
        _ if value.contains('.') => all(&["0", "1", "-1.0", "256", "nan"]),
        _ => all(&["0", "1", "65", "256", "300", "65536", "65537", "4294967295"]),
    }
}

/// Builds `part` in every slot of `machine`, without and with its IOMMU.
fn build(machine: &Machine, part: &Part) {
    let seed = Seed::new(1);
    for slot in machine.host.port.keys() {
        let caches = MemorySystem::new(&memory_params(&machine.host, 1)).into_cache_state();
        if let Err(error) = assemble(machine, part, slot, true, caches, seed) {
            panic!("{error}");
        }
    }
}

/// Every complaint names a key, says what would be right, and has a place that can be shown.
fn is_of_use(path: &str, trial: &str, complaints: &Diagnostics) {
    for one in complaints {
        let context = format!("{path} = {trial}: {one}");
        assert!(one.message.contains('`') && one.help.is_some() && one.line > 0, "{context}");
        assert!(one.render(false).contains("-->"), "{context}");
    }
}

/// Sets each figure of `doc` to each of its trials; `built` builds what reads.
fn try_all<T: Kindred>(doc: &Doc<T>, built: impl Fn(&T)) {
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

fn part(name: &str) -> Doc<Part> {
    Doc::load(&Library::built_in(), name).unwrap()
}

#[test]
fn any_figure_of_a_machine_is_refused_or_built() {
    let mut doc = Doc::<Machine>::load(&Library::built_in(), "dell-t430").unwrap();
    for (path, value) in REST {
        doc.set(path, value).unwrap();
    }
    for (key, value) in CONTROLLER {
        doc.set(&format!("host.power.controller.{key}"), value).unwrap();
    }
    // One slot tells as much as two.
    let card = part("nfp6000").read().unwrap();
    try_all(&doc, |machine| build(machine, &card));
}

#[test]
fn any_figure_of_a_card_is_refused_or_built() {
    let machine = Doc::<Machine>::load(&Library::built_in(), "fujitsu-tx1310").unwrap().read().unwrap();
    try_all(&part("nfp6000"), |card| build(&machine, card));
}
