//! The published claims: well-formed, and told as scripts rely on.

use results::claims::{ClaimFile, Evidence, Role, Verdict};

#[test]
fn claims_are_well_formed() {
    let file = ClaimFile::of("pcie-bench");
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
    let results = ClaimFile::of("pcie-bench").judge(&Evidence::default());
    let ids: std::collections::BTreeSet<&str> = results.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), results.len(), "ids are unique");
    assert!(results.iter().all(|r| r.id.split('/').count() == 4));
    assert!(results.iter().all(|r| r.verdict == Verdict::NotModelled && r.error_pct.is_none()));
}

/// The exact fields that scripts rely on.
#[test]
fn json_has_the_promised_fields() {
    let results = ClaimFile::of("pcie-bench").judge(&Evidence::default());
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
        "half_width",
        "error_pct",
        "role",
        "tolerance_pct",
        "verdict",
        "relative_figures",
        "statement",
        "structural",
        "ours",
    ];
    let mut keys_sorted = keys;
    keys_sorted.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(keys_sorted, wanted);
    assert_eq!(json["verdict"], "not-modelled");
}
