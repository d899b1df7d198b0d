//! Says whether families of files are farther off than before, and gives fitted values back, as few as needed, so that
//! none is.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use machine::Machine;
use results::compare::{median, percentile};

use super::Fitted;
use super::search::Tried;

/// Errors of a directory's families of files, in percent, without sign.
#[derive(Clone, Debug, Default)]
pub struct FamilyErrors {
    /// Median and 90th percentile, by family.
    families: BTreeMap<String, [f64; 2]>,
}

impl FamilyErrors {
    /// The errors of rows, each with its family.
    pub fn of(rows: impl IntoIterator<Item = (String, f64)>) -> Self {
        let mut families: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (family, error) in rows {
            families.entry(family).or_default().push(error.abs());
        }
        let middle_and_tail = |(family, mut errors): (String, Vec<f64>)| {
            errors.sort_by(f64::total_cmp);
            Some((family, [median(&errors)?, percentile(&errors, 90.0)?]))
        };
        Self { families: families.into_iter().filter_map(middle_and_tail).collect() }
    }

    /// Larger by the noise of each family, in percent: what may pass as not worse.
    pub fn with_noise(mut self, noise: impl Fn(&str) -> f64) -> Self {
        for (family, errors) in &mut self.families {
            *errors = errors.map(|error| error + noise(family));
        }
        self
    }

    /// How far a family's errors differ from another run's, in percent.
    pub fn apart(&self, other: &Self, family: &str) -> f64 {
        let pair = self.families.get(family).zip(other.families.get(family));
        pair.map_or(0.0, |([a, b], [c, d])| (a - c).abs().max((b - d).abs()))
    }

    /// The families with larger errors than are allowed.
    pub fn worse<'a>(&'a self, allowed: &Self) -> Vec<&'a str> {
        self.excesses(allowed).filter(|(_, excess)| *excess > 0.0).map(|(family, _)| family).collect()
    }

    /// By how much the errors of each family exceed those allowed, in percent.
    fn excesses<'a>(&'a self, allowed: &Self) -> impl Iterator<Item = (&'a str, f64)> {
        self.families.iter().map(|(family, errors)| {
            let allowed = allowed.families.get(family).unwrap_or(errors);
            let excess = errors.iter().zip(allowed).map(|(error, allowed)| (error - allowed).max(0.0));
            (family.as_str(), excess.sum())
        })
    }
}

/// What a change of parameters costs, over all directories. The lesser is the better one.
struct Harm {
    /// Sum of what exceeds the errors allowed, in percent.
    excess: f64,
    /// Sum of all errors, in percent.
    errors: f64,
}

impl Harm {
    fn of(errors: &[FamilyErrors], allowed: &[FamilyErrors]) -> Self {
        let excesses = errors.iter().zip(allowed).flat_map(|(errors, allowed)| errors.excesses(allowed));
        let all = errors.iter().flat_map(|errors| errors.families.values().flatten());
        Self { excess: excesses.map(|(_, excess)| excess).sum(), errors: all.sum() }
    }

    fn order(&self, other: &Self) -> Ordering {
        self.excess.total_cmp(&other.excess).then(self.errors.total_cmp(&other.errors))
    }
}

/// Families of files, by directory.
pub type Families = Vec<BTreeSet<String>>;

/// Restores one parameter after the other until no family has larger errors than are allowed: each time the one whose
/// return leaves the least excess, and of equal ones the one whose return leaves the smallest errors. `errors` gives
/// those of a machine by directory, of some families or all.
pub fn give_back(
    fitted: &mut [Fitted],
    tried: &mut Tried,
    allowed: &[FamilyErrors],
    errors: impl Fn(&Machine, Option<&Families>) -> Vec<FamilyErrors>,
) {
    let mut now = errors(&tried.machine, None);
    while Harm::of(&now, allowed).excess > 0.0 {
        let worse = |(errors, allowed): (&FamilyErrors, &FamilyErrors)| {
            errors.worse(allowed).into_iter().map(ToOwned::to_owned).collect()
        };
        let worse: Families = now.iter().zip(allowed).map(worse).collect();
        // The excess of these families alone is the least that a return can leave, and takes few simulations.
        let changed = fitted.iter_mut().filter(|figure| figure.after != figure.before);
        let without = changed.filter_map(|figure| {
            let tried = tried.with(&figure.path, &figure.before)?;
            let least = Harm::of(&errors(&tried.machine, Some(&worse)), allowed).excess;
            Some((least, tried, figure))
        });
        let mut without: Vec<(f64, Tried, &mut Fitted)> = without.collect();
        without.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let mut best: Option<(Harm, Vec<FamilyErrors>, Tried, &mut Fitted)> = None;
        for (least, tried, figure) in without {
            if best.as_ref().is_some_and(|(cost, ..)| least > cost.excess) {
                break;
            }
            let errors = errors(&tried.machine, None);
            let cost = Harm::of(&errors, allowed);
            if best.as_ref().is_none_or(|(best, ..)| cost.order(best).is_lt()) {
                best = Some((cost, errors, tried, figure));
            }
        }
        let Some((_, left, restored, figure)) = best else { break };
        (now, *tried) = (left, restored);
        figure.given_back = Some(std::mem::replace(&mut figure.after, figure.before.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::spelt;
    use super::*;

    use machine::{Determined, Doc, Library};

    const FIGURES: [&str; 3] = ["host.dram.access", "host.llc.core_snoop", "host.llc.acquire"];

    fn errors(of: &[f64]) -> FamilyErrors {
        FamilyErrors::of(of.iter().enumerate().map(|(family, error)| (format!("family {family}"), *error)))
    }

    /// Which of the figures keep their change if it adds these errors to those of the families, 3 % each.
    fn kept(adds: [[f64; 2]; 3]) -> [bool; 3] {
        let doc = Doc::<Machine>::load(&Library::built_in(), "dell-t430").unwrap();
        let mut tried = Tried::new(doc.clone(), doc.read().unwrap());
        let mut fitted = FIGURES.map(|path| Fitted {
            path: path.to_owned(),
            before: spelt(&tried.machine, path),
            after: "77 ns".into(),
            determined: Determined::Well,
            uncertainty: None,
            files: Vec::new(),
            rows: 10,
            common: String::new(),
            given_back: None,
        });
        for path in FIGURES {
            tried = tried.with(path, "77 ns").unwrap();
        }
        give_back(&mut fitted, &mut tried, &[errors(&[3.1, 3.1])], |machine, only| {
            let is_changed = |path: &str| spelt(machine, path) == "77 ns";
            let add = |family: usize| {
                let all = FIGURES.iter().zip(adds).filter(|(path, _)| is_changed(path));
                all.map(|(_, add)| add[family]).sum::<f64>()
            };
            let all = (0..2).map(|family| (format!("family {family}"), 3.0 + add(family)));
            vec![FamilyErrors::of(all.filter(|(family, _)| only.is_none_or(|only| only[0].contains(family))))]
        });
        for figure in &fitted {
            assert_eq!(spelt(&tried.machine, &figure.path), figure.after);
            assert_eq!(figure.given_back.is_some(), figure.after == figure.before);
        }
        fitted.map(|figure| figure.given_back.is_none())
    }

    #[test]
    fn as_few_changes_as_needed_are_given_back() {
        assert_eq!(kept([[-1.0, 0.0], [0.0, 0.09], [0.0, -0.5]]), [true; 3], "none is worse");
        assert_eq!(kept([[-1.0, 0.0], [-2.0, 1.0], [0.5, 0.0]]), [true, false, true], "one does harm");
        assert_eq!(
            kept([[-2.0, 1.0], [-1.0, 1.0], [0.0, -0.9]]),
            [true, false, true],
            "the one that gained less"
        );
        assert_eq!(kept([[0.0, 1.0], [0.0, 3.0], [-1.0, 0.0]]), [false, false, true], "one is not enough");
        assert_eq!(
            kept([[-2.0, 1.2], [1.5, 1.1], [0.0, -1.15]]),
            [true, false, true],
            "another would be worse"
        );
    }

    #[test]
    fn families_are_worse_by_more_than_their_noise() {
        let noise = |family: &str| if family == "family 1" { 0.5 } else { 0.1 };
        let allowed = errors(&[1.0, 1.0, 1.0]).with_noise(noise);
        assert_eq!(errors(&[1.2, 1.3, 0.5]).worse(&allowed), ["family 0"]);
        assert_eq!(errors(&[1.0, 2.0]).apart(&errors(&[1.0, 1.75]), "family 1"), 0.25);
    }
}
