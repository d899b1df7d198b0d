//! Verdicts for the terminal.

use super::{ClaimResult, Statement, TallyGroup, Verdict, VerdictCounts, statements, words};
use crate::table::{Fit, TextTable};

/// One line per claim, in one table per verdict that fits `width`, misses first; ids omit the paper's name.
pub fn claims_table(results: &[ClaimResult], width: Option<usize>) -> String {
    let verdicts = [
        Verdict::Outside,
        Verdict::Undetermined,
        Verdict::NotModelled,
        Verdict::Within,
        Verdict::NotPublished,
    ];
    let of = |verdict| results.iter().filter(move |r| r.verdict == verdict).collect::<Vec<_>>();
    let tables =
        verdicts.into_iter().map(|verdict| (verdict, of(verdict))).filter(|(_, rows)| !rows.is_empty());
    let text = |(verdict, rows): (Verdict, Vec<&ClaimResult>)| format!("{verdict}\n{}", table(&rows, width));
    tables.map(text).collect::<Vec<_>>().join("\n\n")
}

fn table(results: &[&ClaimResult], width: Option<usize>) -> String {
    let header = ["claim", "published", "simulated", "error", "tolerance", "role"];
    let mut table = TextTable::new(header, Fit::FirstAbove).numbers(1..5);
    for r in results {
        table.add(vec![
            r.id.split_once('/').map_or(&*r.id, |(_, rest)| rest).to_owned(),
            words::value(r.published, &r.unit),
            words::simulated(r),
            words::error(r),
            words::tolerance(r),
            match r.part() {
                TallyGroup::OnRelatives => "prediction, relative's figures".into(),
                _ => r.role.to_string(),
            },
        ]);
    }
    table.render(width)
}

/// A claim as it is published: id without the paper's name, value, tolerance, role, and what it is.
pub fn claim_cells(claim: &ClaimResult) -> Vec<String> {
    vec![
        claim.id.split_once('/').map_or(&*claim.id, |(_, rest)| rest).to_owned(),
        words::value(claim.published, &claim.unit),
        words::tolerance(claim),
        claim.role.to_string(),
        claim.quantity.clone(),
    ]
}

/// Numbers of claims within tolerance by category; empty categories are omitted.
pub fn count_line(results: &[ClaimResult]) -> String {
    by_category(|part| VerdictCounts::of_claims(results.iter().filter(|claim| claim.part() == part)))
}

/// Numbers of statements within tolerance by category, those apart that only a fault could contradict; empty categories
/// are omitted.
pub fn statements_line(results: &[ClaimResult]) -> String {
    let (structural, others): (Vec<Statement>, Vec<Statement>) =
        statements(results).into_iter().partition(|statement| statement.structural);
    let line = by_category(|part| {
        others.iter().filter(|statement| statement.part == part).map(|statement| statement.verdict).collect()
    });
    let tally: VerdictCounts = structural.iter().map(|statement| statement.verdict).collect();
    if structural.is_empty() { line } else { format!("{line}; structural: {tally}") }
}

fn by_category(tally: impl Fn(TallyGroup) -> VerdictCounts) -> String {
    let line = |part| {
        let tally = tally(part);
        let name = match part {
            TallyGroup::Predictions => "predictions",
            TallyGroup::OnRelatives => "predictions on a relative's figures",
            TallyGroup::Calibration => "calibration",
            TallyGroup::Following => "following from others or from arithmetic",
        };
        (tally.all() > 0).then(|| format!("{name}: {tally}"))
    };
    TallyGroup::ALL.into_iter().filter_map(line).collect::<Vec<_>>().join("; ")
}

/// A number with a suitable number of digits.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if v.abs() >= 100.0 => format!("{v:.0}"),
        v if (v - v.round()).abs() < 0.05 => format!("{}", v.round() + 0.0),
        v => format!("{v:.1}"),
    }
}
