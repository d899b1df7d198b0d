//! Formats values, errors and tolerances of claims with their units.

use super::{ClaimResult, table::short};

/// A value with its unit; "yes" or "no" for yes/no.
pub(crate) fn value(v: Option<f64>, unit: &str) -> String {
    match (v, unit) {
        (None, _) => "–".into(),
        (Some(v), "yes/no") => if v == 0.0 { "no" } else { "yes" }.into(),
        (Some(v), unit) => format!("{} {unit}", short(v)).trim_end().to_owned(),
    }
}

/// The simulated value with its half-width, rounded to one digit of the latter.
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

/// An error; in points if the value is in per cent; none for yes/no.
pub(crate) fn error(claim: &ClaimResult) -> String {
    let unit = if claim.unit == "%" { "points" } else { "%" };
    match claim.error_pct {
        None => "–".into(),
        Some(_) if claim.unit == "yes/no" => "–".into(),
        // Values that round to zero have no sign.
        Some(e) if e.abs() < 0.05 => format!("0 {unit}"),
        Some(e) => format!("{e:+.1} {unit}"),
    }
}

/// The tolerated error.
pub(crate) fn tolerance(claim: &ClaimResult) -> String {
    match claim.unit.as_str() {
        _ if claim.published.is_none() => "–".into(),
        "yes/no" => "–".into(),
        "%" => format!("±{} points", claim.tolerance_pct),
        _ if claim.tolerance_pct == 0.0 => "exact".into(),
        _ => format!("±{} %", claim.tolerance_pct),
    }
}
