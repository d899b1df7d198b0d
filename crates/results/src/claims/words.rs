//! Values, errors and tolerances of claims in words: each with its own unit, which is not the same for all.

use super::{ClaimResult, table::short};

/// A value with its unit, in words where it is a yes or a no.
pub(crate) fn value(v: Option<f64>, unit: &str) -> String {
    match (v, unit) {
        (None, _) => "–".into(),
        (Some(v), "yes/no") => if v == 0.0 { "no" } else { "yes" }.into(),
        (Some(v), unit) => format!("{} {unit}", short(v)).trim_end().to_owned(),
    }
}

/// The simulated value with half its 95 % interval, as far as one digit of that tells.
pub(crate) fn simulated(claim: &ClaimResult) -> String {
    let Some(half) = claim.half_width.filter(|&half| half > 0.0) else {
        return value(claim.simulated, &claim.unit);
    };
    if claim.unit == "yes/no" {
        return format!("{}, within the intervals", value(claim.simulated, &claim.unit));
    }
    let digits = (-half.log10().floor()).max(0.0) as usize;
    let of = claim.simulated.unwrap_or_default();
    format!("{of:.digits$} ± {half:.digits$} {}", claim.unit)
}

/// An error: in points where the value itself is in per cent, none of a yes or no.
pub(crate) fn error(claim: &ClaimResult) -> String {
    let unit = if claim.unit == "%" { "points" } else { "%" };
    match claim.error_pct {
        None => "–".into(),
        Some(_) if claim.unit == "yes/no" => "–".into(),
        // No sign on what rounds to nothing.
        Some(e) if e.abs() < 0.05 => format!("0 {unit}"),
        Some(e) => format!("{e:+.1} {unit}"),
    }
}

/// What error is tolerated.
pub(crate) fn tolerance(claim: &ClaimResult) -> String {
    match claim.unit.as_str() {
        _ if claim.published.is_none() => "–".into(),
        "yes/no" => "–".into(),
        "%" => format!("±{} points", claim.tolerance_pct),
        _ if claim.tolerance_pct == 0.0 => "exact".into(),
        _ => format!("±{} %", claim.tolerance_pct),
    }
}
