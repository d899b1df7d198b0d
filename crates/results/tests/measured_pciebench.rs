//! The reader and writer against the measured directories: every file reads,
//! and writes back byte for byte. Ignored where the data are absent.

use needs::{Need, measured};
use results::pciebench::{
    Contents, PlannedFile, ResultDirectory, Run, Test, missing_rows, read_bytes, read_directory, suite,
    to_csv,
};
use std::collections::BTreeMap;

fn read_all() -> Vec<ResultDirectory> {
    measured().iter().map(|path| read_directory(path).unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn every_file_reads_and_writes_back_byte_for_byte() {
    for directory in read_all() {
        for file in &directory.files {
            let path = directory.path.join(&file.name);
            let bytes = std::fs::read(&path).unwrap();
            let written = to_csv(&file.contents, file.line_ending);
            assert!(written.as_bytes() == bytes, "{} changed on its way through", path.display());
        }
    }
}

fn every_name_is_understood() {
    for directory in read_all() {
        let setup = directory.setup.as_ref().unwrap_or_else(|| panic!("{}", directory.path.display()));
        assert_eq!(setup.card, "nfp6000-1.2GHz");
        assert!(["bdw", "hsw", "ib", "snb"].contains(&setup.generation.as_str()), "{setup:?}");
        assert!(setup.cpu.starts_with("Xeon-E"), "{setup:?}");
    }
}

/// No measured file was cut off; one that is says what it lacks, and a whole or another one says nothing.
fn files_that_end_too_early_are_told() {
    for directory in read_all() {
        assert_eq!(directory.cut_short(), Vec::<String>::new(), "{}", directory.path.display());
    }
    let planned = suite().into_iter().find(|file| file.name == "lat_dma_sizes.csv").unwrap();
    let runs = &planned.runs;
    assert_eq!(missing_rows(&planned.name, &runs[..8]), Some(22));
    assert_eq!(missing_rows(&planned.name, &[]), Some(30));
    assert_eq!(missing_rows(&planned.name, runs), None);
    assert_eq!(missing_rows(&planned.name, &runs[1..8]), None);
    assert_eq!(missing_rows("mine.csv", &runs[..8]), None);
}

/// The planned suite gives exactly the rows that stand in the measured files.
fn the_planned_suite_is_the_measured_one() {
    let planned: BTreeMap<String, PlannedFile> = suite().into_iter().map(|f| (f.name.clone(), f)).collect();
    for directory in read_all() {
        for file in &directory.files {
            if matches!(file.contents, Contents::Cdf(_)) {
                continue;
            }
            let runs: Vec<Run> = file.rows().iter().map(|r| *r.run()).collect();
            let plan = planned.get(&file.name).unwrap_or_else(|| panic!("{} is not planned", file.name));
            for (i, (a, b)) in plan.runs.iter().zip(&runs).enumerate() {
                assert_eq!(a, b, "{} row {}", file.name, i + 1);
            }
            assert_eq!(plan.runs.len(), runs.len(), "{}", file.name);
        }
    }
}

/// A distribution's median is that of its row.
fn distributions_belong_to_their_rows() {
    for directory in read_all() {
        for stem in ["lat_cmd_details", "lat_dma_details"] {
            let rows = directory.file(&format!("{stem}.csv")).map(|f| f.contents.clone());
            let sections = directory.file(&format!("{stem}_cdf.csv")).map(|f| f.contents.clone());
            let (Some(Contents::Latency(rows)), Some(Contents::Cdf(sections))) = (rows, sections) else {
                continue;
            };
            assert_eq!(rows.len(), sections.len());
            for (row, section) in rows.iter().zip(&sections) {
                assert_eq!(
                    Some(row.ns.median),
                    section.quantile_ns(0.5),
                    "{} {}",
                    directory.path.display(),
                    row.run
                );
            }
        }
    }
}

/// A measured file cut at any byte is an error, never fewer rows.
fn a_truncated_file_is_told() {
    for directory in read_all().iter().take(1) {
        let path = directory.path.join("lat_cmd_details.csv");
        let bytes = std::fs::read(&path).unwrap();
        let whole = read_bytes(&path, &bytes).unwrap();
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
        for cut in 0..bytes.len() {
            // A cut between rows cannot be seen in a file alone.
            let between_rows = ends[1..].contains(&cut);
            match read_bytes(&path, &bytes[..cut]) {
                Ok(file) => assert!(between_rows && file.rows().len() < whole.rows().len(), "cut at {cut}"),
                Err(error) => assert!(!between_rows, "cut at {cut}: {error}"),
            }
        }
    }
}

fn measured_rows_hold_both_interfaces() {
    for directory in read_all() {
        let tests: Vec<Test> = directory.files.iter().flat_map(|f| f.rows()).map(|r| r.run().test).collect();
        assert!(Test::ALL.iter().all(|t| tests.contains(t)), "{}", directory.path.display());
    }
}

needs::tests!(
    Need::Data;
    every_file_reads_and_writes_back_byte_for_byte,
    every_name_is_understood,
    files_that_end_too_early_are_told,
    the_planned_suite_is_the_measured_one,
    distributions_belong_to_their_rows,
    a_truncated_file_is_told,
    measured_rows_hold_both_interfaces,
);
