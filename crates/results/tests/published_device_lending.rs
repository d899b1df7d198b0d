//! The claims of Device Lending: well-formed, and fitted on what the paper's local runs show, but for the adapter, which no local run
//! has: on what a second lender adds to a round trip.

use results::claims::{ClaimFile, Evidence, Role, VALUES_HEADER, Verdict};
use results::report::Report;

#[test]
fn claims_are_well_formed() {
    let file = ClaimFile::of("device-lending");
    for claim in &file.claims {
        assert!(claim.text.ends_with('.'), "{}: a sentence ends with a full stop", claim.id);
        let place = claim.id.split('/').nth(1).unwrap();
        assert!(place == "text" || place.starts_with("fig"), "{}", claim.id);
        assert!(claim.observed.values().all(|key| key.contains('/')), "{}", claim.id);
        let is_fitted_on = |key: &String| {
            let parts =
                ["/Loc", "/VMLoc", "/NatLoc", "one-way/", "ping-pong/1L-P2P-SW", "ping-pong/2L-P2P-SW"];
            parts.iter().any(|part| key.contains(part))
        };
        if claim.role == Role::Calibration {
            assert!(claim.observed.values().all(is_fitted_on), "{}", claim.id);
        }
    }
    for line in
        file.figures.iter().flat_map(|figure| &figure.line).filter(|line| line.role == Role::Calibration)
    {
        let is_seen = line.name.contains("Loc") || line.name.contains("/dma_");
        assert!(is_seen, "{}", line.name);
    }
}

#[test]
fn ids_of_claims_and_points_are_unique() {
    let results = ClaimFile::of("device-lending").judge(&Evidence::default());
    let ids: std::collections::BTreeSet<&str> = results.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), results.len());
    assert!(results.iter().all(|r| r.verdict == Verdict::NotModelled));
    for id in [
        "device-lending/fig12/2L-P2P-SW/1048576",
        "device-lending/fig10/Rem-SW/dma_read/1048576",
        "device-lending/fig14/2L-P2P-SW",
        "device-lending/fig19/NatRem/sequential",
        "device-lending/fig21/NatRem-IOMMU",
    ] {
        assert!(ids.contains(id), "{id}");
    }
}

/// Every value that was read from a figure belongs to a point, small copies may miss by more than plateaus, and the paper's own
/// numbers are within every tolerance.
#[test]
fn the_papers_own_numbers_hold_together() {
    let file = ClaimFile::of("device-lending");
    let mut evidence = Evidence::default();
    for figure in &file.figures {
        for line in &figure.line {
            for sample in file.published(figure, &line.name) {
                let (_, key) =
                    line.keys().into_iter().find(|(x, _)| *x == sample.x).unwrap_or_else(|| {
                        panic!("{}: {} has no point at {}", figure.id, line.name, sample.x)
                    });
                evidence.observed.insert(key, Ok(sample.y));
            }
        }
    }
    let known: usize = file.values.values().map(Vec::len).sum();
    let judged: Vec<_> =
        file.judge(&evidence).into_iter().filter(|c| c.verdict != Verdict::NotModelled).collect();
    assert!(judged.len() >= known, "{} of {known}", judged.len());
    assert!(judged.iter().all(|c| c.verdict == Verdict::Within), "{judged:?}");
    let tolerance = |id: &str| judged.iter().find(|c| c.id == id).map(|c| c.tolerance_pct);
    assert_eq!(tolerance("device-lending/fig12/Loc-P2P-SW/524288"), Some(15.0));
    assert_eq!(tolerance("device-lending/fig12/Loc-P2P-SW/1048576"), Some(5.0));
}

/// What the paper does not say is in its file, with a source, and in the report.
#[test]
fn what_is_assumed_is_told() {
    let file = ClaimFile::of("device-lending");
    assert!(file.assumptions.len() >= 7);
    let report = Report::of_claims("Lending", &file, &Evidence::default());
    let tables = report.sections.iter().flat_map(|section| &section.tables);
    let rows: Vec<_> =
        tables.filter(|table| table.title == "Assumptions").flat_map(|table| &table.rows).collect();
    for assumption in &file.assumptions {
        let is_told =
            |row: &&&Vec<String>| row.contains(&assumption.quantity) && row.contains(&assumption.source);
        assert!(rows.iter().any(|row| is_told(&row)), "{}", assumption.name);
    }
    let text = "seed = \"x\"\npaper = \"\"\nabout = \"\"\n[[assumption]]\nname = \"n\"\nquantity = \"q\"\nvalue = 1\nunit = \"u\"\n";
    let with = |source: &str| ClaimFile::parse(&format!("{text}source = \"{source}\"\n"), VALUES_HEADER);
    assert_eq!(with("assumed: it is round").unwrap().assumed("n"), 1.0);
    assert!(with("it is round").unwrap_err().to_string().contains("assumption `n`"));
}
