//! "Did you mean": the nearest of a list of names.

/// The name in `known` that `given` most likely stands for, if one is near.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let fold = |text: &str| text.replace('-', "_").to_ascii_lowercase();
    let limit = 1 + given.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&fold(given), &fold(name)), name))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, name)| name)
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
}
