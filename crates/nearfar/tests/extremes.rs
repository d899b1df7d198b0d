//! Whatever figure of a machine, card, NIC, drive or kernel is made extreme: it is refused when it is read, or it works, or it is
//! said why not. Nothing panics.

mod scenario;

use std::panic::{AssertUnwindSafe, catch_unwind};

use machine::{
    ComputerScenario, ComputerSetup, Doc, Drive, KernelFile, Kindred, Library, Machine, Nic, Part, Scenario,
    Setup,
};
use nearfar::bench::Effort;
use nearfar::computer::Computers;
use rayon::prelude::*;
use scenario::HEAD;

/// Values of the kind that `spelt` is of, which few figures can have.
fn extremes(spelt: &str) -> Vec<String> {
    let text = spelt.trim_matches('"');
    let quoted = |all: &[&str]| all.iter().map(|text| format!("\"{text}\"")).collect();
    let bare = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
    match text.rsplit_once(' ').map(|(_, unit)| unit) {
        Some("B" | "KiB" | "MiB" | "GiB") => quoted(&["0 B", "1 B", "3 B", "8191 B", "1 GiB", "5 TiB"]),
        Some("ps" | "ns" | "us" | "ms" | "s") => quoted(&["0 ns", "1 ps", "2 s", "60 s"]),
        Some("cycles") => quoted(&["0 cycles", "1000000000 cycles"]),
        Some("MHz" | "GHz") => quoted(&["1 Hz", "1 MHz", "100 GHz"]),
        Some(unit) if unit.ends_with("B/s") => quoted(&["1 MB/s", "100000 GB/s"]),
        Some(unit) if unit.ends_with("bit/s") => quoted(&["1 Mbit/s", "100000 Gbit/s"]),
        _ if text.parse::<i64>().is_ok() => bare(&["0", "1", "3", "65", "300", "65536", "4294967295"]),
        _ if text.parse::<f64>().is_ok() => bare(&["-1", "0", "1", "1e300"]),
        _ => Vec::new(),
    }
}

/// Extreme values of every figure of the file, with the path at which a scenario changes it.
fn tries<T: Kindred>(name: &str, within: &str) -> Vec<(String, String)> {
    let figures = Doc::<T>::load(&Library::built_in(), name).unwrap().list().unwrap();
    let of = |figure: machine::Listed| {
        let path = format!("{within}.{}", figure.path);
        extremes(&figure.value).into_iter().map(move |value| (path.clone(), value))
    };
    figures.into_iter().flat_map(of).collect()
}

/// Makes the tries; `attempt` reads a scenario so changed and does something with it.
fn check(tries: &[(String, String)], attempt: impl Fn(&str, &str) + Sync) {
    assert!(tries.len() > 100);
    let panics = tries.par_iter().filter_map(|(path, value)| {
        catch_unwind(AssertUnwindSafe(|| attempt(path, value))).err().map(|_| format!("{path}={value}"))
    });
    let panics: Vec<String> = panics.collect();
    assert!(panics.is_empty(), "panics with\n{}", panics.join("\n"));
}

#[test]
fn hosts_boot_or_say_why_not() {
    let host = "[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\niommu = \"strict\"\n\
                [[host.device]]\nnic = \"modern\"\n[[host.device]]\ndrive = \"pm1725a\"\n";
    let text = [HEAD, host].concat();
    let all = [
        tries::<Machine>("dell-t430", "host.a.change"),
        tries::<Nic>("kpio-fpga", "host.a.device.0.change"),
        tries::<Drive>("pm1725a", "host.a.device.1.change"),
        tries::<KernelFile>("linux", "host.a.change_kernel"),
    ];
    check(&all.concat(), |path, value| {
        let library = Library::built_in();
        let mut doc = Doc::<ComputerScenario>::from_text(&library, "x.toml", &text);
        doc.set(path, value).unwrap();
        let Ok(setup) = ComputerSetup::load(&library, &doc) else { return };
        let _ = Computers::new(&setup).and_then(|computers| computers.boot());
    });
}

#[test]
fn a_card_is_measured_or_it_is_said_why_not() {
    let text = "name = \"x\"\nsummary = \"x\"\nmachine = \"dell-t430\"\ncard = \"nfp6000\"\n\
                [pcie_bench]\ntest = [\"LAT_RD\", \"BW_RDWR\"]\npattern = \"rand\"\ncache = \"cold\"\nwindow = \"4 KiB\"\n\
                transfer = \"64 B\"\niommu = \"4k\"\n";
    let effort = Effort { samples: 20, transactions: 100 };
    check(&tries::<Part>("nfp6000", "change_card"), |path, value| {
        let library = Library::built_in();
        let mut doc = Doc::<Scenario>::from_text(&library, "x.toml", text);
        doc.set(path, value).unwrap();
        let Ok(setup) = Setup::load(&library, &doc) else { return };
        let bench = nearfar::scenario::bench_of(&setup);
        for run in nearfar::scenario::runs_of(&setup) {
            let _ = bench.run(&run, effort);
        }
    });
}
