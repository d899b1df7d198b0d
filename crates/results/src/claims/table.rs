//! Verdicts for the terminal.

use super::{ClaimResult, Part, Role, Verdict, tally};
use crate::table::{Fit, TextTable};

/// One line per claim, a table that fits `width` for each verdict, misses first; ids without the paper's name.
pub fn claims_table(results: &[ClaimResult], width: Option<usize>) -> String {
    let verdicts = [Verdict::Outside, Verdict::NotModelled, Verdict::Within, Verdict::NotPublished];
    let of = |verdict| results.iter().filter(move |r| r.verdict == verdict).collect::<Vec<_>>();
    let tables =
        verdicts.into_iter().map(|verdict| (verdict, of(verdict))).filter(|(_, rows)| !rows.is_empty());
    let text = |(verdict, rows): (Verdict, Vec<&ClaimResult>)| format!("{verdict}\n{}", table(&rows, width));
    tables.map(text).collect::<Vec<_>>().join("\n\n")
}

fn table(results: &[&ClaimResult], width: Option<usize>) -> String {
    let header = ["claim", "published", "simulated", "error", "tolerance", "unit", "role"];
    let mut table = TextTable::new(header, Fit::FirstAbove).numbers(1..5);
    for r in results {
        table.add(vec![
            r.id.split_once('/').map_or(&*r.id, |(_, rest)| rest).to_owned(),
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
        ]);
    }
    table.render(width)
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
