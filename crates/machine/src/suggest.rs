//! "Did you mean": the nearest of a list of names, and what to say to an unknown one.

use std::cmp::Reverse;

/// The name in `known` that `given` most likely means, if one is close.
///
/// Of several equally close names, prefers one that contains all letters typed, in order (`llc` for `lc`, not `l1`),
/// then the one with the longest common prefix, then the shortest.
fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = fold(given);
    let limit = 1 + given.chars().count() / 4;
    let rank = |name: &str| {
        let name = fold(name);
        let distance = strsim::damerau_levenshtein(&given, &name);
        let alike = given.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
        (distance, !keeps(&given, &name), Reverse(alike), name.chars().count())
    };
    let near =
        known.into_iter().map(|name| (rank(name), name)).filter(|((distance, ..), _)| *distance <= limit);
    near.min().map(|(_, name)| name)
}

/// What to say to an unknown name: the nearest of the known ones, if one is close, on a line of its own, then `rest`.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>, rest: &str) -> String {
    match nearest(given, known) {
        Some(near) => format!("did you mean `{near}`?\n{rest}"),
        None => rest.to_owned(),
    }
}

/// As [`did_you_mean`], followed by all known names after `intro`, as in "there are `a`, `b`".
pub(crate) fn among<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    intro: &str,
) -> String {
    let rest = format!("{intro} {}", list(known.clone()));
    did_you_mean(given, known, &rest)
}

/// Normalizes case and dashes for comparison.
fn fold(text: &str) -> String {
    text.replace('-', "_").to_lowercase()
}

/// Whether `name` contains all letters of `given` in order.
fn keeps(given: &str, name: &str) -> bool {
    let mut letters = name.chars();
    given.chars().all(|wanted| letters.any(|letter| letter == wanted))
}

/// "`a`, `b`, `c`".
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["latency", "ways", "size", "ddio_ways"];
        assert_eq!(nearest("latncy", known), Some("latency"));
        assert_eq!(nearest("lantecy", known), Some("latency"));
        assert_eq!(nearest("DDIO-ways", known), Some("ddio_ways"));
        assert_eq!(nearest("frequency", known), None);
    }

    #[test]
    fn of_equally_near_names_the_one_that_was_begun_counts() {
        for (given, known, wanted) in [
            // Contains all letters typed, in order.
            ("lc", &["l1", "l2", "llc"][..], "llc"),
            ("dram", &["drum", "ddram"], "ddram"),
            ("sze", &["sue", "size"], "size"),
            // The same prefix.
            ("wayz", &["ways", "mayz"], "ways"),
            ("dell-t340", &["bell-t340", "dell-t430"], "dell-t430"),
            // The shorter one.
            ("way", &["wayss", "ways"], "ways"),
        ] {
            assert_eq!(nearest(given, known.iter().copied()), Some(wanted), "{given}");
        }
    }
}
