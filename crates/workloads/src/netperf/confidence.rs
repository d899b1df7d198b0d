//! Confidence in a mean of repeated tests (`-i`, `-I`): Student's t.

/// Quantiles of Student's t for two-sided confidence of 95 % and 99 %, by degrees of freedom from 1 on.
const T_95: [f64; 29] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
];
const T_99: [f64; 29] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756,
];
/// Most repetitions, as in the original.
pub const MOST: u16 = 30;

/// The confidence that is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Confidence {
    /// Level in percent: 95 or 99.
    pub level: u8,
    /// Width of the whole interval, in percent of the mean.
    pub width: f64,
}

impl Default for Confidence {
    /// The original's default.
    fn default() -> Self {
        Self { level: 99, width: 5.0 }
    }
}

impl Confidence {
    /// Reads `LEVEL,WIDTH`.
    ///
    /// # Errors
    /// If the level is not 95 or 99.
    pub fn read(text: &str) -> Result<Self, String> {
        let (level, width) = text.split_once(',').unwrap_or((text, "5"));
        let level = level.parse().ok().filter(|level| [95, 99].contains(level));
        let width = width.parse().ok().filter(|width: &f64| (0.0..=100.0).contains(width) && *width > 0.0);
        let read = level.zip(width).map(|(level, width)| Self { level, width });
        read.ok_or_else(|| {
            format!("`{text}` is not a level of 95 or 99 and a width in percent, such as `99,5`")
        })
    }

    /// Width of the interval of the mean, in percent of the mean. Infinite with one value.
    pub fn reached(self, values: &[f64]) -> f64 {
        let quantiles = if self.level == 95 { T_95 } else { T_99 };
        let Some(quantile) = values.len().checked_sub(2).and_then(|n| quantiles.get(n)) else {
            return f64::INFINITY;
        };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        200.0 * quantile * (variance / count).sqrt() / mean
    }
}

/// Reads `MAX,MIN`, the numbers of repetitions; at least 3, as in the original.
///
/// # Errors
/// If they are not in 1..=30, or the wrong way round.
pub fn repetitions(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..=MOST).contains(number));
    let (most, least) = text.split_once(',').unwrap_or((text, "3"));
    let read = number(most).zip(number(least));
    let read = read.map(|(most, least)| (most, if text.contains(',') { least } else { least.min(most) }));
    let read = read.filter(|(most, least)| least <= most);
    read.ok_or_else(|| {
        format!("`{text}` is not a highest and a lowest number of tests from 1 to {MOST}, such as `10,3`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_as_wide_as_students_t_says() {
        // Mean 10, standard deviation 1: 10 ± 4.303 / sqrt(3).
        let width = Confidence { level: 95, width: 5.0 }.reached(&[9.0, 10.0, 11.0]);
        assert!((width - 49.69).abs() < 0.01, "{width}");
        assert!(Confidence::default().reached(&[1.0]).is_infinite());
        assert_eq!(Confidence::default().reached(&[2.0, 2.0]), 0.0);
        assert_eq!((repetitions("10,3"), repetitions("2")), (Ok((10, 3)), Ok((2, 2))));
        assert!(["0", "31", "3,10", "x"].iter().all(|text| repetitions(text).is_err()));
        assert!(["90,5", "99,0", "99,x", ""].iter().all(|text| Confidence::read(text).is_err()));
    }
}
