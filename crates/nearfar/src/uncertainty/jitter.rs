//! Latencies that are off by little.

use machine::{AnyFigure, Kind, Redraw};

use super::{Draw, Draws};

/// One standard deviation: some nanoseconds of a way across a host, less than anyone knows them.
const SHARE: f64 = 0.005;

/// Moves every time that is assumed, a relative's or fitted by hand by about half a percent, at most 1.2: a result that
/// changes with it hangs on a phase of what runs at once.
#[derive(Clone, Copy, Debug)]
pub struct Jitter(Draw);

impl Jitter {
    /// One of many, by its number from one.
    pub fn new(number: u32) -> Self {
        Self(Draw::new(number, Draws { runs: number.max(2), seed: u64::from(number) }))
    }
}

impl Redraw for Jitter {
    fn redraw(&self, path: &str, figure: &dyn AnyFigure) -> Option<String> {
        let (provenance, own) = (figure.provenance(), figure.to_toml().to_string());
        let little_known = matches!(provenance.kind, Kind::Assumed | Kind::Relative | Kind::FittedByHand);
        let unit = own.trim().trim_matches('"').rsplit(' ').next().unwrap_or_default().to_owned();
        if !little_known || !["ps", "ns", "us", "ms"].contains(&unit.as_str()) {
            return None;
        }
        let share = SHARE * self.0.deviations(path, &own, &provenance.source);
        figure.spelled(figure.number()? * (1.0 + share)).map(|value| value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Doc, Library, Machine, figures};
    use std::sync::Arc;

    /// Of a machine with assumed times, those move, each a little; nothing else does.
    #[test]
    fn only_times_that_are_little_known_move() {
        let doc = Doc::<Machine>::load(&Library::built_in(), "dell-r730").unwrap();
        let own = figures(&doc.read().unwrap());
        let moved = figures(&doc.redrawn(Arc::new(Jitter::new(3))).read().unwrap());
        let mut count = 0;
        for (before, after) in own.iter().zip(&moved).filter(|(before, after)| before.value != after.value) {
            let (Some(was), Some(is)) = (before.number, after.number) else { panic!("{}", before.path) };
            assert!((is / was - 1.0).abs() < 0.015, "{}: {was} {is}", before.path);
            assert!(matches!(before.provenance.kind, Kind::Assumed | Kind::Relative | Kind::FittedByHand));
            assert!(before.value.ends_with("s\""), "{}", before.value);
            count += 1;
        }
        assert!(count > 10, "{count}");
    }
}
