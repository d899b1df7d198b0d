//! Numbers in the format of pcie-bench's Python.

/// A floating-point number in the format of Python's `repr`: shortest digits that round-trip, always with a point, an
/// exponent of two digits below 1e-4 and from 1e16.
pub fn python_float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan".into()
        } else if value > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let magnitude = value.abs();
    let shortest = format!("{value:e}");
    let digits = shortest.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = nearest(format!("{value:.*e}", digits - 1), shortest, value);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let shortest = format!("{value}");
    match shortest.split_once('.') {
        Some((_, decimals)) => nearest(format!("{value:.*}", decimals.len()), shortest.clone(), value),
        None => shortest + ".0",
    }
}

/// Of two equally short texts, the one that Python prefers: rounded half to even, which Rust's shortest format does
/// not guarantee.
fn nearest(rounded: String, shortest: String, value: f64) -> String {
    if rounded.parse() == Ok(value) { rounded } else { shortest }
}

/// A number that Python writes as an integer if it is one.
pub fn python_number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 { format!("{}", value as i64) } else { python_float(value) }
}

/// Parses a number strictly: decimal digits, a point, an exponent; neither `inf` nor `nan` nor spaces.
pub fn parse_number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'-' | b'+'));
    if !plain || text.is_empty() {
        return None;
    }
    text.parse().ok().filter(|v: &f64| v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_are_those_of_python() {
        assert_eq!(python_float(576.0), "576.0");
        assert_eq!(python_float(0.1), "0.1");
        assert_eq!(python_float(5.960464477539063e-08), "5.960464477539063e-08");
        assert_eq!(python_float(1e16), "1e+16");
        assert_eq!(python_float(1e-100), "1e-100");
        assert_eq!(python_float(0.0001), "0.0001");
        assert_eq!(python_float(0.0), "0.0");
        // Exactly between two texts of the same length.
        assert_eq!(python_float(1.7881393432617188e-06), "1.7881393432617188e-06");
        assert_eq!(python_number(803.0), "803");
        assert_eq!(python_number(803.5), "803.5");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(parse_number(&python_float(value)), Some(value));
        }
    }
}
