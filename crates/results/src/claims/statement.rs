//! Counts of verdicts, by claims and by the statements of which these are points.

use super::{ClaimResult, Role, TallyGroup, Verdict};
use std::collections::BTreeMap;
use std::fmt;

/// A statement of a paper: all claims that are points of it and have the same role.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement<'a> {
    /// The paper.
    pub seed: &'a str,
    /// Its name within the paper.
    pub name: &'a str,
    /// The category of its claims; on relatives if one of them is.
    pub part: TallyGroup,
    /// Whether no result of the simulated mechanism could contradict any of its claims.
    pub structural: bool,
    /// Outside if a claim is outside, else undetermined if one is, else not modelled if one is missing.
    pub verdict: Verdict,
    /// Its claims.
    pub claims: Vec<&'a ClaimResult>,
}

/// The statements of which these claims are points, in order of their first claims. Claims without a published value
/// are points of none.
pub fn statements(results: &[ClaimResult]) -> Vec<Statement<'_>> {
    let mut places: BTreeMap<(&str, &str, Role), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&ClaimResult>> = Vec::new();
    for claim in results.iter().filter(|claim| claim.published.is_some()) {
        let place = *places.entry((&claim.seed, &claim.statement, claim.role)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(claim),
            None => groups.push(vec![claim]),
        }
    }
    groups.into_iter().filter_map(statement).collect()
}

fn statement(claims: Vec<&ClaimResult>) -> Option<Statement<'_>> {
    const WORST_FIRST: [Verdict; 3] = [Verdict::Outside, Verdict::Undetermined, Verdict::NotModelled];
    let (first, has) = (*claims.first()?, |verdict| claims.iter().any(|claim| claim.verdict == verdict));
    let on_relatives = claims.iter().any(|claim| claim.part() == TallyGroup::OnRelatives);
    Some(Statement {
        seed: &first.seed,
        name: &first.statement,
        part: if on_relatives { TallyGroup::OnRelatives } else { first.part() },
        structural: claims.iter().all(|claim| claim.structural),
        verdict: WORST_FIRST.into_iter().find(|&verdict| has(verdict)).unwrap_or(Verdict::Within),
        claims,
    })
}

/// Numbers of verdicts on what is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerdictCounts {
    /// Within their tolerance.
    pub within: usize,
    /// Outside.
    pub outside: usize,
    /// Not determined by the simulated interval.
    pub undetermined: usize,
    /// Not simulated.
    pub not_modelled: usize,
}

impl FromIterator<Verdict> for VerdictCounts {
    fn from_iter<T: IntoIterator<Item = Verdict>>(verdicts: T) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Within => tally.within += 1,
                Verdict::Outside => tally.outside += 1,
                Verdict::Undetermined => tally.undetermined += 1,
                Verdict::NotModelled => tally.not_modelled += 1,
                Verdict::NotPublished => {}
            }
        }
        tally
    }
}

impl VerdictCounts {
    /// Of these claims with a published value.
    pub fn of_claims<'a>(results: impl IntoIterator<Item = &'a ClaimResult>) -> Self {
        results.into_iter().filter(|r| r.published.is_some()).map(|r| r.verdict).collect()
    }

    /// All of them.
    pub fn all(self) -> usize {
        self.simulated() + self.not_modelled
    }

    /// Those that were simulated.
    pub fn simulated(self) -> usize {
        self.within + self.outside + self.undetermined
    }
}

/// "12 of 15 within, 1 undetermined, 1 not modelled": the rest is outside.
impl fmt::Display for VerdictCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} within", self.within, self.all())?;
        for (count, what) in [(self.undetermined, "undetermined"), (self.not_modelled, "not modelled")] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{ClaimFile, Evidence};

    /// Three sizes of one ratio, one other statement, and one that could not fail.
    const CLAIMS: &str = r#"
seed = "paper"
paper = "A paper"
about = "about"
"#;

    fn claim(id: &str, value: f64, more: &str) -> String {
        format!(
            "[[claim]]\nid = \"paper/{id}\"\nsource = \"s\"\nquantity = \"q\"\nunit = \"times\"\npublished = {value}\n\
             tolerance_pct = 10\ntext = \"t\"\n{more}\n"
        )
    }

    /// Results with each claim's value in place of 1, except that those of 3 were not simulated.
    fn results(claims: &[String]) -> Vec<ClaimResult> {
        let file =
            ClaimFile::parse(&(CLAIMS.to_owned() + &claims.concat()), crate::claims::VALUES_HEADER).unwrap();
        let mut evidence = Evidence::default();
        evidence.observed.insert("v".into(), Ok(1.0));
        file.judge_claims(&evidence)
    }

    const MEASURE: &str = "observed = { v = \"v\" }\nmeasure = { kind = \"value\", of = \"v\" }";

    #[test]
    fn a_statement_is_as_good_as_its_worst_point() {
        let prediction = format!("role = \"prediction\"\n{MEASURE}");
        let claims = [
            claim("fig6/ratio/64", 1.0, &prediction),
            claim("fig6/ratio/256", 2.0, &prediction),
            claim("fig6/other", 1.05, &prediction),
            claim("fig6/other-too", 1.0, &format!("statement = \"fig6/other\"\n{prediction}")),
            claim("fig6/crosses", 1.0, &format!("structural = \"nothing can\"\n{prediction}")),
            claim("fig7/missing", 1.0, "role = \"prediction\"\nnot_modelled = \"no such part\""),
            claim("fig6/ratio/9", 1.0, &format!("role = \"calibration\"\n{MEASURE}")),
        ];
        let results = results(&claims);
        let found: Vec<_> = statements(&results)
            .into_iter()
            .map(|s| (s.name.to_owned(), s.part, s.structural, s.verdict, s.claims.len()))
            .collect();
        use TallyGroup::{Calibration, Predictions};
        assert_eq!(
            found,
            [
                ("fig6/ratio".to_owned(), Predictions, false, Verdict::Outside, 2),
                ("fig6/other".to_owned(), Predictions, false, Verdict::Within, 2),
                ("fig6/crosses".to_owned(), Predictions, true, Verdict::Within, 1),
                ("fig7/missing".to_owned(), Predictions, false, Verdict::NotModelled, 1),
                ("fig6/ratio".to_owned(), Calibration, false, Verdict::Within, 1),
            ]
        );
        let missing = results.iter().find(|r| r.verdict == Verdict::NotModelled).unwrap();
        assert_eq!(missing.note.as_deref(), Some("Not simulated: no such part."));
        let tally: VerdictCounts = statements(&results).iter().map(|s| s.verdict).collect();
        assert_eq!(tally.to_string(), "3 of 5 within, 1 not modelled");
    }

    #[test]
    fn a_claim_has_a_measure_or_says_why_not() {
        for more in
            ["role = \"prediction\"", &format!("role = \"prediction\"\nnot_modelled = \"x\"\n{MEASURE}")]
        {
            let text = CLAIMS.to_owned() + &claim("fig6/a", 1.0, more);
            let error = ClaimFile::parse(&text, crate::claims::VALUES_HEADER).unwrap_err().to_string();
            assert!(error.contains("paper/fig6/a") && error.contains("not_modelled"), "{error}");
        }
    }
}
