//! A machine simulated, its results fitted with another machine's file: what the other lacks is found again.

use std::path::PathBuf;

use machine::{Doc, IommuMode, Library, Machine, Part, Sockets, figures};
use nearfar::bench::Bench;
use nearfar::fit::{FitOptions, Verdict, ablate, fit};
use nearfar::progress::Silent;
use nearfar::suite;
use results::pciebench::{Test, to_csv};

/// Figures of the machine that is measured, other than the base's, and how near a fit of a few files has to come (ns).
const TRUE: [(&str, f64, f64); 3] = [
    ("host.root_complex.completion_latency", 145.0, 4.0),
    ("host.llc.core_snoop", 31.0, 4.0),
    ("host.dram.access", 81.0, 5.0),
];

/// A choice of the machine that is measured, other than the base's.
const CHOICE: (&str, &str) = ("host.root_complex.completion_split.small", "64 B");

/// The file of the machine that is measured, beside the directory.
const MEASURED: &str = "measured.toml";

/// Simulates a few files of the suite on a T430 with the true figures; gives the directory.
fn measured(folder: &str) -> PathBuf {
    let library = Library::built_in();
    let mut doc = Doc::<Machine>::load(&library, "dell-t430").unwrap();
    for (path, ns, _) in TRUE {
        doc.set(path, &format!("{ns} ns")).unwrap();
    }
    doc.set(CHOICE.0, CHOICE.1).unwrap();
    let bench = Bench {
        machine: doc.read().unwrap(),
        card: Doc::<Part>::load(&library, "nfp6000").unwrap().read().unwrap(),
        sockets: Sockets { device: 0, memory: 0, warming: 0 },
        iommu: IommuMode::Off,
        seed: 99,
    };
    let mut plan = suite::plan(false);
    const FILES: [&str; 3] =
        ["lat_cmd_sweep_rd_rnd_64.csv", "lat_dma_sweep_rd_rnd_64.csv", "bw_dma_sz_sweep.csv"];
    plan.retain(|file| FILES.contains(&file.name.as_str()));
    assert_eq!(plan.len(), FILES.len());
    for file in &mut plan {
        file.runs.retain(|run| run.test != Test::BwDmaWr && run.test != Test::BwDmaRw);
        file.runs = std::mem::take(&mut file.runs).into_iter().step_by(2).collect();
    }
    let files = suite::measure(&bench, &plan, &Silent).unwrap().files;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder).join(suite::directory_name(&bench));
    for file in &files {
        files::write(&folder.join(&file.name), to_csv(&file.contents, file.line_ending).as_bytes()).unwrap();
    }
    std::fs::write(folder.parent().unwrap().join(MEASURED), doc.to_text().unwrap()).unwrap();
    folder
}

#[test]
fn what_was_simulated_is_found_again() {
    let folder = measured("fit");
    let base = Doc::<Machine>::load(&Library::built_in(), "dell-t430").unwrap().read().unwrap();
    let options = FitOptions {
        library: Library::built_in(),
        base: Some("dell-t430".into()),
        figures: TRUE.iter().map(|(path, ..)| *path).chain([CHOICE.0]).map(ToOwned::to_owned).collect(),
        keep: false,
        name: "again".into(),
        seed: 1,
    };
    let done = fit(std::slice::from_ref(&folder), &options, &Silent).unwrap();
    let machine = done.machine.read().unwrap();
    let number = |machine: &Machine, path: &str| {
        figures(machine).into_iter().find(|f| f.path == path).and_then(|f| f.number).unwrap() / 1e3
    };
    for (path, ns, near) in TRUE {
        let (before, after) = (number(&base, path), number(&machine, path));
        assert!((before - ns).abs() > 8.0, "{path}: the base has another value, {before} ns");
        let fitted = done.figures.iter().find(|f| f.path == path).unwrap();
        assert!((after - ns).abs() <= near, "{path}: {after} ns for {ns} ns: {fitted:?}");
    }
    let choice = figures(&machine).into_iter().find(|f| f.path == CHOICE.0).unwrap();
    assert_eq!(choice.value.trim().trim_matches('"'), CHOICE.1, "{:?}", done.figures);
    assert!(choice.provenance.source.starts_with("fitted: "), "{}", choice.provenance.source);
    let worst =
        |r: &results::compare::Summary| r.families.iter().filter_map(|f| f.median_pct).fold(0.0, f64::max);
    let residuals = &done.residuals[0];
    let before = residuals.before.as_ref().unwrap();
    assert!(worst(before) > 3.0 && worst(&residuals.after) < 1.5, "residuals show it");
    // The file says from what it was fitted, and reads again.
    let series = &machine.residuals[&folder.file_name().unwrap().to_string_lossy().into_owned()];
    assert_eq!(machine.residuals.len(), 1, "those of the base are not this machine's");
    assert!(series.contains_key("bw_dma_sz_sweep") && series.contains_key("lat_dma_sweep_*"), "{series:?}");
    let known = machine.measured_as.unwrap();
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    assert!(known.directories.contains(&name), "{:?}", known.directories);
    assert!(known.directories.len() > 1, "the same box's other directories stay");
    let text = done.machine.to_text().unwrap();
    let again = Doc::<Machine>::from_text(&Library::built_in(), "again.toml", &text).read().unwrap();
    assert_eq!(again.measured_as.unwrap().directories, known.directories);
}

/// Writes do not show in these files, a read's way shows as a sum, and host-warm reads need the core's snoop. What an ended
/// run found is not looked for again.
#[test]
fn figures_that_nothing_shows_are_told_from_those_that_results_need() {
    const DEAD: &str = "host.llc.acquire";
    const PART: &str = "host.llc.device_return";
    const NEEDED: &str = "host.llc.core_snoop";
    const SUM: &str = "host.root_complex.completion_latency";
    let folder = measured("ablate");
    let state = folder.parent().unwrap().join("state.json");
    std::fs::remove_file(&state).ok();
    let options = |figures: &[&str]| FitOptions {
        library: Library::built_in(),
        base: Some(folder.parent().unwrap().join(MEASURED).to_string_lossy().into_owned()),
        figures: figures.iter().map(|&path| path.to_owned()).collect(),
        keep: false,
        name: "less".into(),
        seed: 1,
    };
    let paths = [folder.clone()];
    let run =
        |figures: &[&str]| ablate(&paths, &options(figures), &[SUM.to_owned()], &state, &Silent).unwrap();
    let first = run(&[DEAD]);
    assert_eq!(first.figures.len(), 1);
    // A verdict that no run would give: it is taken as it stands.
    let text = std::fs::read_to_string(&state).unwrap().replace("\"0 ns\"", "\"1 ns\"");
    std::fs::write(&state, text).unwrap();
    let done = run(&[DEAD, PART, NEEDED]);
    let verdicts: Vec<(&str, Verdict)> = done.figures.iter().map(|f| (f.path.as_str(), f.verdict)).collect();
    assert_eq!(verdicts, [(DEAD, Verdict::Dead), (PART, Verdict::Sum), (NEEDED, Verdict::Needed)]);
    assert_eq!(done.figures[0].neutral, "1 ns");
    assert!(done.figures[1].moved.iter().all(|(path, _)| path == SUM) && !done.figures[1].moved.is_empty());
    assert!(!done.figures[2].worse.is_empty());
    let machine = done.machine.read().unwrap();
    let value = |path: &str| figures(&machine).into_iter().find(|f| f.path == path).unwrap().value;
    assert!(value(DEAD).contains("1 ns") && value(PART).contains("\"0 "), "{} {}", value(DEAD), value(PART));
    let other = ablate(&[paths[0].join("..")], &options(&[DEAD]), &[], &state, &Silent);
    assert!(other.is_err(), "a state of other directories");
}
