//! The rule behind what binds: a tenth more of what is named improves the result by more than a tenth more of anything
//! else that the program uses, or nothing is said to bind.
//!
//! A few shipped scenarios here; all of them with `NEARFAR_ALL=1 cargo test --release -p nearfar --test all raised -- --nocapture`,
//! which prints each program and the share for which the rule holds; with another value, those whose names begin with it,
//! or those of a folder, such as `/tmp/mine/`.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer;
use nearfar::progress::Silent;
use nearfar::what_if::{Gain, what_if};

/// Whether the rule holds for each program of a scenario for which it can be tried; tells what it found.
fn holds(name: &str) -> Vec<bool> {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, name).unwrap();
    let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{name}: {error}"));
    let counts = computer::run_counted(&setup, &Silent).unwrap();
    let gain = |gain: &Gain| {
        let (host, one) = (&gain.host, &gain.resource);
        format!("{:.1} % by {host} {} {}", 100.0 * gain.gain, one.kind.name(), one.place)
    };
    let mut verdicts = Vec::new();
    for one in what_if(&setup, &counts, &Silent) {
        let gains: Vec<String> = one.gains.iter().map(gain).collect();
        let word = match one.holds() {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None if one.binding.what.is_none() => "holds",
            None => "untried",
        };
        println!("{word}: {name} {:?}: {}; {}", one.programs, one.binding, gains.join(", "));
        let verdict = one.holds().or(one.binding.what.is_none().then_some(true));
        verdicts.extend(one.programs.iter().filter_map(|_| verdict));
    }
    verdicts
}

/// The files of a folder, in order.
fn scenarios_of(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<String> = files.map(|path| path.display().to_string()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    names
}

#[test]
fn more_of_what_binds_helps_most() {
    let scenarios: Vec<String> = match std::env::var_os("NEARFAR_ALL") {
        None => ["82599-send", "fio-randread", "dd-verify", "gpu-peer", "l2fwd"].map(str::to_owned).to_vec(),
        Some(begin) => {
            let begin = begin.to_string_lossy();
            let library = Library::built_in();
            let is_of_computers = |name: &String| {
                Doc::<ComputerScenario>::load(&library, name).is_ok_and(|doc| doc.read().is_ok())
            };
            let names = match begin.ends_with('/') {
                true => scenarios_of(&begin),
                false => library.names("scenarios"),
            };
            let is_meant = |name: &String| begin == "1" || name.starts_with(&*begin);
            names.into_iter().filter(is_meant).filter(is_of_computers).collect()
        }
    };
    let verdicts: Vec<bool> = scenarios.iter().flat_map(|name| holds(name)).collect();
    let held = verdicts.iter().filter(|held| **held).count();
    println!("{held} of {} programs", verdicts.len());
    assert!(held as f64 >= 0.9 * verdicts.len() as f64);
}
