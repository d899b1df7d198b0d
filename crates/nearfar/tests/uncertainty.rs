//! Figures that are drawn within their uncertainties, and results as intervals.

use std::sync::Arc;

use machine::{Doc, Library, Machine, figures};
use nearfar::experiment::{load_point, sample};
use nearfar::uncertainty::{Draw, Draws, intervals};
use nearfar::{Experiment, Record, Silent};

/// Cold reads of lines, of which every one takes the root complex's time.
const SCENARIO: &str = "name = \"x\"\nsummary = \"x\"\nmachine = \"mine\"\ncard = \"nfp6000\"\n\
    [pcie_bench]\ntest = \"LAT_RD\"\npattern = \"rand\"\ncache = \"cold\"\nwindow = \"64 KiB\"\n\
    transfer = \"64 B\"\nsamples = 60\n";

/// A figure of that machine.
const COMPLETION: &str = "host.root_complex.completion_latency";

/// A machine of which the first figure is uncertain and the second is exact.
const MINE: &str = "name = \"mine\"\nextends = \"dell-t430\"\nsummary = \"x\"\n\
    [host.root_complex]\ncompletion_latency = { value = \"130 ns\", source = \"fitted: a test\", uncertainty = \"40 ns\" }\n\
    [host.dram]\naccess_spread = { value = \"8 ns\", source = \"assumed: a test\", uncertainty = \"0 ns\" }\n";

fn library() -> Library {
    let texts = [("machines/mine.toml", MINE), ("scenarios/x.toml", SCENARIO)];
    Library::built_in().with_texts(texts.map(|(name, text)| (name.to_owned(), text.to_owned())))
}

fn draws(text: &str) -> Draws {
    text.parse().expect("a number of runs")
}

/// The value of a figure, in picoseconds, in each draw.
fn drawn(path: &str, draws: Draws) -> Vec<f64> {
    let value = |draw: Draw| {
        let library = library().redrawn(Arc::new(draw));
        let machine = Doc::<Machine>::load(&library, "mine").unwrap().read().unwrap();
        figures(&machine).into_iter().find(|figure| figure.path == path).unwrap().number.unwrap()
    };
    draws.all().map(value).collect()
}

#[test]
fn a_figure_varies_by_its_uncertainty_and_an_exact_one_never() {
    let latency = drawn(COMPLETION, draws("40"));
    let mean = latency.iter().sum::<f64>() / 40.0;
    let deviation = (latency.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 40.0).sqrt();
    assert!((mean - 130e3).abs() < 2e3 && (deviation - 40e3).abs() < 3e3, "{mean} {deviation}");
    let exact =
        ["host.dram.access_spread", "host.dram.row_cycle", "host.core.count", "host.llc.device_lookup"];
    for path in exact {
        let values = drawn(path, draws("12"));
        assert!(values.iter().all(|value| *value == values[0]), "{path}: {values:?}");
    }
    // What the user has set is what the user means.
    let library = library().redrawn(Arc::new(Draw::new(1, draws("2"))));
    let mut doc = Doc::<Machine>::load(&library, "mine").unwrap();
    doc.set(COMPLETION, "70 ns").unwrap();
    assert_eq!(doc.read().unwrap().host.root_complex.completion_latency.value.as_ps(), 70_000);
}

#[test]
fn draws_depend_on_their_seed_alone() {
    let first = drawn(COMPLETION, draws("8"));
    assert_eq!(first, drawn(COMPLETION, draws("8")));
    assert_ne!(first, drawn(COMPLETION, draws("8:2")));
    // The slots of a machine state the same in the same words, so they share their draws.
    let draw = Draw::new(1, draws("8"));
    let of = |path| draw.deviations(path, "50 ns", "assumed: a test");
    assert_eq!(of("host.port.slot.link_latency"), of("host.port.slot-socket1.link_latency"));
    assert_ne!(of("host.port.slot.link_latency"), of(COMPLETION));
}

/// Runs the scenario itself and its draws.
fn run(draws: Draws) -> Vec<Record> {
    let library = library();
    let own = Experiment::load(&library, "x", "set", &[]).unwrap().run(false, &Silent).unwrap();
    let load = |point: &_| load_point(&library, "x", "set", &[], point);
    let drawn = sample(draws, &[Vec::new()], load, &Silent).unwrap();
    intervals(draws, &own, &drawn, &own)
}

#[test]
fn a_result_is_an_interval_and_names_the_figure_that_it_hangs_on() {
    let on = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let records = on(1).install(|| run(draws("24")));
    assert_eq!(records, on(3).install(|| run(draws("24"))), "the number of threads does not matter");
    let median = records.iter().find(|record| record["kind"] == "interval").unwrap();
    let of = |key: &str| median[key].as_f64().unwrap();
    assert_eq!((median["quantity"].as_str(), median["unit"].as_str()), (Some("median"), Some("ns")));
    assert!(of("p05") < of("median") && of("median") < of("p95"), "{median}");
    // The middle nine tenths of a triangular distribution are 3.35 deviations wide.
    assert!((105.0..190.0).contains(&(of("p95") - of("p05"))), "{median}");
    assert_eq!(median["runs"], 24);
    let influence = records.iter().find(|record| record["kind"] == "influence").unwrap();
    assert_eq!((influence["rank"].as_u64(), influence["path"].as_str()), (Some(1), Some(COMPLETION)));
    assert_eq!((influence["file"].as_str(), influence["direction"].as_str()), (Some("mine"), Some("rises")));
    assert!(
        median["hangs_on"].as_str().unwrap().starts_with("host.root_complex.completion_latency of mine (+, "),
        "{median}"
    );
}

#[test]
fn an_interval_takes_several_runs() {
    for text in ["0", "1"] {
        let why = text.parse::<Draws>().unwrap_err();
        assert!(why.contains("takes several runs"), "{why}");
    }
    assert!("many".parse::<Draws>().is_err() && "8:x".parse::<Draws>().is_err());
    assert_eq!(draws("40:7"), Draws { runs: 40, seed: 7 });
}
