//! Verdicts for the terminal.

use super::{ClaimResult, Part, Role, Verdict, tally};
use crate::compare::plain_table;

/// One line per claim, misses first.
pub fn claims_table(results: &[ClaimResult]) -> String {
    let mut table =
        plain_table(&["claim", "published", "simulated", "error", "tolerance", "unit", "role", "verdict"], 1);
    for column in table.column_iter_mut().skip(5) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    let mut ordered: Vec<&ClaimResult> = results.iter().collect();
    ordered.sort_by_key(|r| match r.verdict {
        Verdict::Outside => 0,
        Verdict::NotModelled => 1,
        Verdict::Within => 2,
        Verdict::NotPublished => 3,
    });
    for r in ordered {
        table.add_row(vec![
            r.id.clone(),
            number(r.published),
            number(r.simulated),
            r.error_pct.map_or_else(|| "–".into(), |e| format!("{e:+.1}")),
            r.published.map_or_else(|| "–".into(), |_| format!("{}", r.tolerance_pct)),
            r.unit.clone(),
            match (r.role, &r.follows) {
                (_, Some(_)) => "follows".into(),
                (Role::Calibration, None) => "calibration".into(),
                (Role::Prediction, None) => "prediction".to_owned(),
            },
            r.verdict.to_string(),
        ]);
    }
    table.to_string()
}

/// How many are within, outside and not modelled, predictions apart, and what follows from others.
pub fn count_line(results: &[ClaimResult]) -> String {
    let line = |part, name: &str| {
        let [within, outside, missing] = tally(results, part);
        format!("{name}: {within} of {} within", within + outside + missing)
    };
    let mut parts = vec![
        line(Part::Own(Role::Prediction), "predictions"),
        line(Part::Own(Role::Calibration), "calibration"),
    ];
    if results.iter().any(|r| r.follows.is_some()) {
        parts.push(line(Part::Following, "following from these"));
    }
    parts.join("; ")
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), short)
}

/// A number with as many digits as it deserves.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if v.abs() >= 100.0 => format!("{v:.0}"),
        v if (v - v.round()).abs() < 0.05 => format!("{}", v.round() + 0.0),
        v => format!("{v:.1}"),
    }
}
