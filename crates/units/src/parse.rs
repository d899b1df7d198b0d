//! Quantities as text: a number, a unit.

use thiserror::Error;

/// Why a text is not a quantity of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// The text does not begin with a number.
    #[error("`{text}` is not {what}: write a number and a unit ({units})")]
    NotANumber {
        /// The text as given.
        text: String,
        /// The wanted kind of quantity.
        what: &'static str,
        /// The units allowed.
        units: String,
    },
    /// The unit is missing or is not one of this quantity's.
    #[error("`{text}` has {unit} as its unit; {what} takes {units}")]
    UnknownUnit {
        /// The text as given.
        text: String,
        /// The unit as given, or a phrase that says there is none.
        unit: String,
        /// The wanted kind of quantity.
        what: &'static str,
        /// The units allowed.
        units: String,
    },
    /// The number is negative, infinite or too large to hold.
    #[error("`{text}` is out of range for {what}")]
    OutOfRange {
        /// The text as given.
        text: String,
        /// The wanted kind of quantity.
        what: &'static str,
    },
}

/// A unit and how many base units it stands for.
pub(crate) struct Scale {
    /// As it is typed, and listed where something else was typed.
    pub(crate) unit: &'static str,
    /// As it is shown; taken as well.
    pub(crate) shown: &'static str,
    pub(crate) factor: f64,
}

impl Scale {
    pub(crate) const fn new(unit: &'static str, factor: f64) -> Self {
        Self { unit, shown: unit, factor }
    }

    /// One that is shown otherwise than it is typed.
    pub(crate) const fn shown_as(unit: &'static str, shown: &'static str, factor: f64) -> Self {
        Self { unit, shown, factor }
    }
}

/// Reads `text` as a number with one of the units in `scales`, in base units.
pub(crate) fn parse(text: &str, what: &'static str, scales: &[Scale]) -> Result<u64, QuantityError> {
    let units = || scales.iter().map(|s| s.unit).collect::<Vec<_>>().join(", ");
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+')))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.replace('_', "").parse().map_err(|_| QuantityError::NotANumber {
        text: text.into(),
        what,
        units: units(),
    })?;
    let unit = unit.trim();
    let scale = scales.iter().find(|s| s.unit == unit || s.shown == unit).ok_or_else(|| {
        QuantityError::UnknownUnit {
            text: text.into(),
            unit: if unit.is_empty() { "nothing".into() } else { format!("`{unit}`") },
            what,
            units: units(),
        }
    })?;
    let value = (number * scale.factor).round();
    // 2^63 is far beyond any quantity that a simulation can reach.
    if !(0.0..9.2e18).contains(&value) {
        return Err(QuantityError::OutOfRange { text: text.into(), what });
    }
    Ok(value as u64)
}

/// Writes `value` with the largest unit that needs at most three decimals.
pub(crate) fn format(value: u64, scales: &[Scale], f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    for scale in scales.iter().rev() {
        let scaled = value as f64 / scale.factor;
        let shown = (scaled * 1e3).round() / 1e3;
        if shown >= 1.0 && (shown * scale.factor).round() as u64 == value {
            return write!(f, "{shown} {}", scale.shown);
        }
    }
    write!(f, "{value} {}", scales[0].shown)
}

/// Gives a wrapper of an integer its text form: `FromStr`, `Display`, `Debug` and serde.
macro_rules! text_quantity {
    ($name:ident, $int:ty, $what:literal, $scales:ident) => {
        impl core::str::FromStr for $name {
            type Err = $crate::QuantityError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::parse::parse(text, $what, $scales).map(|v| Self(v as $int))
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::parse::format(self.0 as u64, $scales, f)
            }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                        let units: Vec<_> = $scales.iter().map(|s| s.unit).collect();
                        write!(f, "{} as text with a unit ({})", $what, units.join(", "))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
pub(crate) use text_quantity;

#[cfg(test)]
mod tests {
    use crate::{Bytes, Duration};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(ps in 0u64..1_000_000_000_000_000) {
            let duration = Duration::from_ps(ps);
            prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Duration>();
            let _ = text.parse::<Bytes>();
        }
    }
}
