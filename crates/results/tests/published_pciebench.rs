//! The published claims: well-formed, and judged by the measurement itself
//! where the measured directories are present. `UPDATE_PUBLISHED=1` rewrites
//! the values of the figures from them.

use results::claims::{ClaimFile, Evidence, Role, Verdict, claims_table, count_line};
use results::pciebench::read_directory;
use std::path::{Path, PathBuf};

fn measured() -> Option<Evidence> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = std::env::var_os("NEARFAR_DATA")
        .map_or(root.join("../shared"), PathBuf::from)
        .join("measured/pcie-bench");
    let Ok(entries) = std::fs::read_dir(&data) else {
        eprintln!("skipped: no measured data at {} (set NEARFAR_DATA)", data.display());
        return None;
    };
    let mut evidence = Evidence::default();
    let mut paths: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()).collect();
    paths.sort();
    for path in paths {
        evidence.add_measured(&read_directory(&path).unwrap_or_else(|e| panic!("{e}")));
    }
    Some(evidence)
}

#[test]
fn claims_are_well_formed() {
    let file = ClaimFile::pcie_bench();
    assert!(file.claims.len() > 50);
    for claim in &file.claims {
        assert!(claim.text.ends_with('.'), "{}: a sentence ends with a full stop", claim.id);
        assert!(claim.published.is_some() || claim.role == Role::Prediction, "{}", claim.id);
        if let Some(other) = &claim.contradicts {
            assert!(file.claims.iter().any(|c| c.id == *other), "{other}");
        }
        let place = claim.id.split('/').nth(1).unwrap();
        assert!(place == "text" || place.starts_with("fig") || place.starts_with("table"), "{}", claim.id);
    }
    assert!(file.claims.iter().any(|c| c.role == Role::Prediction));
    let experiments = file.experiments();
    println!("{} claims on {} experiments", file.claims.len(), experiments.len());
    assert!(experiments.iter().any(|e| e.aggressor.is_some()) && !file.analytic().is_empty());
}

#[test]
fn nothing_known_is_nothing_modelled() {
    let results = ClaimFile::pcie_bench().judge(&Evidence::default());
    let ids: std::collections::BTreeSet<&str> = results.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), results.len(), "ids are unique");
    assert!(results.iter().all(|r| r.id.split('/').count() == 4));
    assert!(results.iter().all(|r| r.verdict == Verdict::NotModelled && r.error_pct.is_none()));
}

/// The exact fields that scripts rely on.
#[test]
fn json_has_the_promised_fields() {
    let results = ClaimFile::pcie_bench().judge(&Evidence::default());
    let json = serde_json::to_value(&results[0]).unwrap();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = vec![
        "id",
        "seed",
        "source",
        "quantity",
        "unit",
        "published",
        "simulated",
        "error_pct",
        "role",
        "tolerance_pct",
        "verdict",
        "relative_figures",
    ];
    let mut keys_sorted = keys;
    keys_sorted.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(keys_sorted, wanted);
    assert_eq!(json["verdict"], "not-modelled");
}

/// Judged by the measured files, the paper is right except where a note says otherwise.
#[test]
fn the_measurement_agrees_with_the_paper() {
    let Some(evidence) = measured() else {
        return;
    };
    let results = ClaimFile::pcie_bench().judge_claims(&evidence);
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
#[test]
fn values_of_figures_are_the_measured_ones() {
    let Some(evidence) = measured() else {
        return;
    };
    let file = ClaimFile::pcie_bench();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published/pcie-bench-figures.csv");
    let text = file.values_csv(&evidence);
    if std::env::var_os("UPDATE_PUBLISHED").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "run with UPDATE_PUBLISHED=1");
    let points = file.judge_figures(&evidence);
    assert!(points.iter().filter(|p| p.published.is_some()).count() > 250);
}
