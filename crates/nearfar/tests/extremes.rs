//! Whatever figure of a machine, card, NIC, drive or kernel is made extreme: it is refused when it is read, or it works, or it is
//! said why not, at the latest after a simulated day. Nothing panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration as RealTime, Instant};

use crate::scenario::{self, HEAD};
use machine::{
    ComputerScenario, ComputerSetup, Doc, Drive, KernelFile, Kindred, Library, Machine, Nic, Part, Scenario,
    Setup,
};
use nearfar::bench::Effort;
use nearfar::computer::{ComputerError, Computers, run_counted};
use nearfar::{Progress, Silent};
use rayon::prelude::*;

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
    assert!(tries.len() > 20);
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

/// A minute of this is waited for.
struct Patience(Instant);

impl Progress for Patience {
    fn is_awaited(&self) -> bool {
        self.0.elapsed() < RealTime::from_secs(60)
    }
}

/// Times add up over many accesses, and never wrap.
#[test]
fn programs_run_with_the_longest_times_or_say_why_not() {
    let devices = "[[host.device]]\nname = \"n\"\nnic = \"modern\"\n[[host.device]]\ndrive = \"optane-900p\"";
    let hosts = [scenario::host("a", "dell-t430", devices), scenario::host_with_nic("b")].concat();
    let run = |run: &str| scenario::program("a", "0", run);
    let programs = [
        run("dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=2"),
        run("fio --rw=read --bs=64k --size=128k"),
        run("ping -c 2 10.0.0.2"),
        run("stream --array-size 2000 --ntimes 2"),
    ];
    let text = [HEAD, &hosts, &scenario::cable("a", "b", ""), &programs.concat()].concat();
    let all = [
        tries::<Machine>("dell-t430", "host.a.change"),
        tries::<Nic>("modern", "host.a.device.0.change"),
        tries::<Drive>("optane-900p", "host.a.device.1.change"),
        tries::<KernelFile>("linux", "host.a.change_kernel"),
    ];
    let long = |(_, value): &(String, String)| value.contains("60 s") || value.contains("1000000000 cycles");
    let long: Vec<_> = all.concat().into_iter().filter(long).collect();
    // All of them with `NEARFAR_EXTREMES=1`.
    let each = if std::env::var_os("NEARFAR_EXTREMES").is_some() { 1 } else { 4 };
    let chosen: Vec<_> = long.into_iter().step_by(each).collect();
    check(&chosen, |path, value| {
        let library = Library::built_in();
        let mut doc = Doc::<ComputerScenario>::from_text(&library, "x.toml", &text);
        doc.set(path, value).unwrap();
        let Ok(setup) = ComputerSetup::load(&library, &doc) else { return };
        let done = run_counted(&setup, &Patience(Instant::now()));
        assert!(!matches!(done, Err(ComputerError::Unwanted)), "it hangs");
    });
}

/// Sixteen pauses of a day: the run ends after the first, and says what has not ended.
#[test]
fn a_run_of_more_than_a_day_is_told() {
    let fio = "fio --rw=read --bs=4k --size=64k --thinktime=80000s";
    let text =
        [HEAD, &scenario::host_with_drive("optane-900p", "off"), &scenario::program("a", "0", fio)].concat();
    let told = run_counted(&scenario::loaded(&text), &Silent).expect_err("it is too long").to_string();
    assert!(told.contains("--thinktime=80000s` has not ended after a simulated day"), "{told}");
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
