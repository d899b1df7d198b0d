//! The claims of kPIO+WC: well-formed, and without a verdict where nothing was observed.

use results::claims::{ClaimFile, Evidence, Role, Verdict};

#[test]
fn claims_are_well_formed() {
    let file = ClaimFile::of("kpio-wc");
    for claim in &file.claims {
        assert!(claim.text.ends_with('.'), "{}: a sentence ends with a full stop", claim.id);
        assert!(claim.published.is_some() || claim.role == Role::Prediction, "{}", claim.id);
        let place = claim.id.split('/').nth(1).unwrap();
        assert!(place == "text" || place.starts_with("fig") || place.starts_with("table"), "{}", claim.id);
        assert!(claim.observed.values().all(|key| key.contains('/')), "{}", claim.id);
    }
    // Calibration is what Figures 5 and 6 say, Table 1 where it repeats them, and the interval of lines, which sets how
    // long a line takes in Figure 5.
    let fitted = |id: &str| {
        ["fig5", "fig6", "table1"].contains(&id.split('/').nth(1).unwrap())
            || id == "kpio-wc/text/lines/interval"
    };
    assert!(file.claims.iter().filter(|c| c.role == Role::Calibration).all(|c| fitted(&c.id)));
}

#[test]
fn why_nothing_was_observed_is_said() {
    let file = ClaimFile::of("kpio-wc");
    let mut evidence = Evidence::default();
    for key in file.observed() {
        evidence.observed.insert(key, Err("no card".into()));
    }
    let results = file.judge(&evidence);
    let ids: std::collections::BTreeSet<&str> = results.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), results.len(), "ids are unique");
    assert!(results.iter().all(|r| r.id.split('/').count() == 4 && r.verdict == Verdict::NotModelled));
    // What nothing simulates has a reason of its own.
    let own: Vec<&str> = file.claims.iter().filter_map(|claim| claim.not_modelled.as_deref()).collect();
    let is_reason =
        |reason: &str| reason.starts_with("no card.") || own.iter().any(|own| reason.starts_with(own));
    let said = |note: &str| note.strip_prefix("Not simulated: ").is_some_and(is_reason);
    assert!(results.iter().all(|r| r.note.as_deref().is_some_and(said)));
}

/// The paper's own numbers, observed, are within every tolerance.
#[test]
fn the_papers_own_numbers_hold_together() {
    let file = ClaimFile::of("kpio-wc");
    let mut evidence = Evidence::default();
    let values = [
        ("dma-ping/payload", 1736.0),
        ("kpio-ping/payload", 232.0),
        ("buffers/gbit/10", 6.0),
        ("buffers/gbit/1", 2.0),
        ("lines/gbit", 5.6),
        ("latency/uncached/56", 500.0),
        ("latency/dma/56", 1700.0),
    ];
    for (key, value) in values {
        evidence.observed.insert(key.into(), Ok(value));
    }
    let judged: Vec<_> =
        file.judge_claims(&evidence).into_iter().filter(|c| c.verdict != Verdict::NotModelled).collect();
    assert!(judged.len() >= 8, "{judged:?}");
    assert!(judged.iter().all(|c| c.verdict == Verdict::Within), "{judged:?}");
}
