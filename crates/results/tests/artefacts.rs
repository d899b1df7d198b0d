//! The named artefacts against the measured directories: each is there, and
//! its evidence holds. Ignored where the data are absent.

use needs::{Need, measured};
use results::compare::{CompareRow, Rules, Summary, Target, compare_directory, summary_table};
use results::pciebench::{Cache, ResultDirectory, Test, read_directory};
use std::collections::BTreeMap;

fn directories() -> Vec<ResultDirectory> {
    measured().iter().map(|path| read_directory(path).unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// The rows of a directory, compared with themselves.
fn rows(directory: &ResultDirectory) -> Vec<CompareRow> {
    let mut rows = compare_directory(directory, |_, _, _| None);
    for row in &mut rows {
        (row.simulated, row.error_pct) = (Some(row.measured), Some(0.0));
    }
    rows
}

fn every_artefact_is_in_the_data() {
    let directories = directories();
    let rules = Rules::pcie_bench();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let (mut all, mut excluded) = (0, 0);
    for directory in &directories {
        let rows = rows(directory);
        let summary = Summary::of(&rows, directory.setup.as_ref(), &rules, Target::given);
        assert!(summary.within() && summary.misses.is_empty());
        all += rows.len();
        for (name, count) in &summary.artefacts {
            excluded += count;
            *found.entry(name.clone()).or_default() += count;
        }
        println!("{}\n{}", directory.path.display(), summary_table(&summary, 10, None));
    }
    for artefact in &rules.artefact {
        assert!(found.contains_key(&artefact.name), "{} excludes nothing", artefact.name);
    }
    assert!(excluded * 10 < all, "{excluded} of {all} rows left out: {found:?}");
}

/// Nine rows of each file of offset writes on Ivy and Sandy Bridge are slower than their neighbours; a cause names them and no
/// others.
fn the_cause_of_slow_partial_writes_names_the_slow_ones() {
    let rules = Rules::pcie_bench();
    let mut found = 0;
    for directory in directories() {
        let setup = directory.setup.as_ref();
        let old = setup.is_some_and(|setup| ["ib", "snb"].contains(&setup.generation.as_str()));
        for row in rows(&directory) {
            let cause =
                rules.cause(setup, &row).is_some_and(|cause| cause.name == "partial-writes-line-by-line");
            let ns = row.transfer_bytes as f64 * 8.0 / row.measured;
            let slow = row.test == Test::BwDmaWr
                && row.host_offset != 0
                && match row.transfer_bytes {
                    256 => ns > 60.0,
                    407 | 416 => ns > 100.0,
                    _ => false,
                };
            assert_eq!(cause, old && slow, "{}: {row:?}", directory.path.display());
            found += usize::from(cause);
        }
    }
    assert!(found > 0 && found % 9 == 0, "{found}");
}

/// Rows said to be warmed in vain hold the cold values.
fn evidence_of_rows_warmed_in_vain() {
    let rules = Rules::pcie_bench();
    for directory in directories() {
        let rows = rows(&directory);
        let key = |r: &CompareRow| {
            (r.file.clone(), r.test, r.pattern, r.window_bytes, r.transfer_bytes, r.host_offset)
        };
        let thrashed: BTreeMap<_, f64> =
            rows.iter().filter(|r| r.cache == Cache::DeviceThrash).map(|r| (key(r), r.measured)).collect();
        for row in &rows {
            let name = rules.artefact(directory.setup.as_ref(), row).map(|a| a.name.as_str());
            let vain = matches!(name, Some("device-warm-warms-nothing" | "host-warm-equals-cold"));
            // A write warms its line itself, so only reads tell.
            let vain = vain && matches!(row.test, Test::LatCmdRd | Test::LatDmaRd | Test::BwDmaRd);
            // Where a few of a large buffer's pieces lay low, up to a sixth was warm after all.
            if let (true, Some(cold), true) = (vain, thrashed.get(&key(row)), row.window_bytes <= 4 << 20) {
                let off = (row.measured - cold).abs() / cold;
                assert!(
                    off < 0.03,
                    "{}: {row:?} is {:.1} % from cold",
                    directory.path.display(),
                    off * 100.0
                );
            }
        }
    }
}

/// The runs of a directory are those of its rows.
fn runs_are_listed_once() {
    for directory in directories() {
        let runs = directory.runs();
        let rows = rows(&directory).len();
        assert!(runs.len() < rows && runs.len() * 2 > rows, "{} runs, {rows} rows", runs.len());
    }
}

needs::tests!(
    Need::Data;
    every_artefact_is_in_the_data,
    the_cause_of_slow_partial_writes_names_the_slow_ones,
    evidence_of_rows_warmed_in_vain,
    runs_are_listed_once,
);
