//! Changes to a scenario as text: `PATH=VALUE`, and the values of a sweep.

/// Reads `PATH=VALUE`.
///
/// # Errors
/// What is wrong with it.
pub fn setting(text: &str) -> Result<(String, String), String> {
    let (path, value) = text
        .split_once('=')
        .ok_or("write PATH=VALUE, such as host.llc.ddio_ways=4 or host.dram.access=\"70 ns\"")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

/// Reads `KEY=VALUES`: values or ranges separated by commas outside brackets and quotes.
///
/// # Errors
/// What is wrong with it.
pub fn values(text: &str) -> Result<(String, Vec<String>), String> {
    let wrong = "write KEY=VALUES, such as host.llc.ddio_ways=1,2,4, host.a.iommu=off,strict or dma_engine.tags=8..64x2";
    let (key, values) = text.split_once('=').ok_or(wrong)?;
    let mut all = Vec::new();
    for value in apart(values) {
        match value.split_once("..") {
            Some((first, rest)) if !value.starts_with(['[', '"']) => all.extend(range(first, rest)?),
            _ => all.push(value.to_owned()),
        }
    }
    if key.trim().is_empty() || all.iter().any(String::is_empty) {
        return Err(wrong.into());
    }
    Ok((key.trim().to_owned(), all))
}

/// Splits at commas that are not within brackets or quotes.
fn apart(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (place, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                parts.push(text[begin..place].trim());
                begin = place + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

/// Expands a range from `first` to `LAST`, `LASTxFACTOR` or `LAST+STEP`, with a common unit.
fn range(first: &str, rest: &str) -> Result<Vec<String>, String> {
    /// Limit on the number of values.
    const MOST: usize = 10_000;
    /// A range without a step that has more values than this is doubled, so that it ends today.
    const MOST_STEPS: f64 = 100.0;
    let wrong =
        || format!("`{first}..{rest}` is not a range: write 8..12, 8..64x2, 64..256+64, or 1 us..8 us x2");
    let number = |text: &str| -> Option<(f64, String)> {
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        Some((text[..end].parse().ok()?, text[end..].trim().to_owned()))
    };
    let (last, step, factor): (_, f64, f64) = match (rest.rsplit_once('+'), rest.rsplit_once('x')) {
        (Some((last, step)), _) => (last, step.trim().parse().map_err(|_| wrong())?, 1.0),
        (_, Some((last, factor))) => (last, 0.0, factor.trim().parse::<f64>().map_err(|_| wrong())?),
        (None, None) => (rest, 1.0, 1.0),
    };
    let ((from, unit), (to, last_unit)) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
    let unit_is_same = unit == last_unit || unit.is_empty();
    if !unit_is_same || to < from || (step <= 0.0 && (factor <= 1.0 || from <= 0.0)) {
        return Err(wrong());
    }
    let mut all = Vec::new();
    let space = if last_unit.is_empty() { "" } else { " " };
    if rest.rsplit_once(['+', 'x']).is_none() && to - from > MOST_STEPS {
        // Doubled instead, up to the last.
        let doubled = std::iter::successors(Some(from.max(1.0)), |value| Some(value * 2.0));
        all.extend(doubled.take_while(|value| *value < to).map(|value| format!("{value}{space}{last_unit}")));
        all.push(format!("{to}{space}{last_unit}"));
        return Ok(all);
    }
    // Numbers whose neighbours are no numbers of their own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if step > 0.0 && to >= EXACT {
        return Err(format!(
            "`{first}..{rest}`: numbers beyond 2^53 are not counted through; list the values"
        ));
    }
    let mut value = from;
    while value <= to * (1.0 + 1e-9) {
        all.push(format!("{value}{space}{last_unit}"));
        value = value * factor + step;
        if all.len() > MOST {
            return Err(format!("`{first}..{rest}` has more than {MOST} values"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn values_are_lists_ranges_and_both() {
        let of = |text: &str| values(text).map(|(_, values)| values.join("|"));
        for (text, wanted) in [
            ("k=1,2", "1|2"),
            ("k=8..11", "8|9|10|11"),
            ("k=8..64x2,100", "8|16|32|64|100"),
            ("k=64 B..256 B+64", "64 B|128 B|192 B|256 B"),
            ("k=1..8 us x2", "1 us|2 us|4 us|8 us"),
            ("k=64..1500", "64|128|256|512|1024|1500"),
            ("k=[1,2],[3]", "[1,2]|[3]"),
            ("k=\"a,b\",c", "\"a,b\"|c"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(wanted), "{text}");
        }
        for wrong in ["k", "k=", "k=1,,2", "k=8..4", "k=0..8x2", "k=1 us..2 ns", "k=1..1e9+0", "=1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
