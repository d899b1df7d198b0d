//! The published claims judged by the measurement itself. `UPDATE_PUBLISHED=1` rewrites the values of the figures from it.

use std::path::Path;

use needs::{Need, measured};
use results::claims::{ClaimFile, Evidence, Verdict, claims_table, count_line};
use results::pciebench::read_directory;

fn evidence() -> Evidence {
    let mut evidence = Evidence::default();
    for path in measured() {
        evidence.add_measured(&read_directory(&path).unwrap_or_else(|e| panic!("{e}")));
    }
    evidence
}

/// Judged by the measured files, the paper is right except where a note says otherwise.
fn the_measurement_agrees_with_the_paper() {
    let evidence = evidence();
    let results = ClaimFile::of("pcie-bench").judge_claims(&evidence);
    println!("{}\n{}", claims_table(&results, None), count_line(&results));
    for result in &results {
        if result.verdict == Verdict::Outside {
            assert!(
                result.note.is_some(),
                "{} is outside by measurement and has no note: {result:?}",
                result.id
            );
        }
    }
}

/// The figures' values are those of the measured files.
fn values_of_figures_are_the_measured_ones() {
    let evidence = evidence();
    let file = ClaimFile::of("pcie-bench");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published/pcie-bench-figures.csv");
    let text = file.values_csv(&evidence);
    if std::env::var_os("UPDATE_PUBLISHED").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "run with UPDATE_PUBLISHED=1");
    let points = file.judge_figures(&evidence);
    assert!(points.iter().filter(|p| p.published.is_some()).count() > 250);
}

needs::tests!(
    Need::Data;
    the_measurement_agrees_with_the_paper,
    values_of_figures_are_the_measured_ones,
);
