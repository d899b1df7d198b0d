//! What of a paper is asked for: its claims and figures, and the experiments that give their values.

use results::claims::ClaimFile;

use super::Options;
use super::runs::Values;

/// What of a paper is asked for.
#[derive(Debug)]
pub struct AskedClaims {
    /// The claims and figures.
    pub file: ClaimFile,
    /// The names of the experiments.
    pub experiments: Vec<String>,
}

impl AskedClaims {
    /// Selects claims, figures and experiments. `gives` says whether an experiment gives the value of a key.
    pub(super) fn new(
        mut file: ClaimFile,
        experiments: Vec<String>,
        gives: impl Fn(&str, &str) -> bool,
        options: &Options,
    ) -> Self {
        keep_figure(&mut file, options);
        if options.only.is_empty() {
            let keys = file.observed();
            let is_needed = |name: &String| !options.is_part() || keys.iter().any(|key| gives(name, key));
            return Self { experiments: experiments.into_iter().filter(is_needed).collect(), file };
        }
        // An experiment's name, or the id of a claim or figure that several experiments give.
        let named: Vec<&String> = experiments.iter().filter(|name| options.is_named(name)).collect();
        let is_given = |key: &String| named.iter().any(|name| gives(name, key));
        file.claims.retain(|claim| {
            options.is_named(&claim.id)
                || (!claim.observed.is_empty() && claim.observed.values().all(is_given))
        });
        let seed = file.seed.clone();
        let is_asked = |id: &str| options.is_named(&format!("{seed}/{id}/"));
        file.figures.retain(|figure| {
            let keys = || figure.line.iter().flat_map(|line| line.keys()).map(|(_, key)| key);
            is_asked(&figure.id) || keys().any(|key| is_given(&key))
        });
        let mut by_id = file.clone();
        by_id.claims.retain(|claim| options.is_named(&claim.id));
        by_id.figures.retain(|figure| is_asked(&figure.id));
        let (keys, keys_by_id) = (file.observed(), by_id.observed());
        let is_needed = |name: &String| {
            let gives_one =
                |keys: &std::collections::BTreeSet<String>| keys.iter().any(|key| gives(name, key));
            let is_named = options.is_named(name) && (options.figure.is_none() || gives_one(&keys));
            is_named || gives_one(&keys_by_id)
        };
        Self { experiments: experiments.iter().filter(|name| is_needed(name)).cloned().collect(), file }
    }

    /// Whether an experiment is to be run.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.experiments.iter().any(|wanted| wanted == name)
    }
}

/// Keeps the claims and points of the wanted figure.
pub(super) fn keep_figure(file: &mut ClaimFile, options: &Options) {
    let Some(figure) = &options.figure else { return };
    file.claims.retain(|claim| claim.id.split('/').nth(1).is_some_and(|place| is_of(place, figure)));
    file.figures.retain(|one| is_of(&one.id, figure));
}

/// Whether a place (`fig7a`, `fig8-memory`, `table1`) belongs to a figure as it is asked for (`7`, `7a`, `fig8`, `table1`).
fn is_of(place: &str, figure: &str) -> bool {
    let wanted = match figure.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("fig{figure}"),
        _ => figure.to_owned(),
    };
    // Figure 1 is not Figure 12.
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    place.strip_prefix(wanted.as_str()).is_some_and(ends)
}

/// Drops claims and figures that the selected experiments do not give, so that only what was asked for is counted.
pub(super) fn keep_known(file: &mut ClaimFile, values: &Values, failed: &[String], options: &Options) {
    if options.only.is_empty() || !failed.is_empty() {
        return;
    }
    file.claims.retain(|claim| {
        options.is_named(&claim.id) || claim.observed.values().all(|key| values.contains_key(key))
    });
    for figure in &mut file.figures {
        figure.line.retain(|line| line.keys().iter().any(|(_, key)| values.contains_key(key)));
    }
    file.figures.retain(|figure| !figure.line.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(figure: Option<&str>, only: Option<&str>) -> Options {
        let only = only.into_iter().flat_map(|text| text.split(',')).map(str::to_owned).collect();
        Options { figure: figure.map(str::to_owned), only, ..Options::whole(1) }
    }

    #[test]
    fn a_figure_is_asked_for_by_number_or_by_id() {
        for (place, figure, is) in [
            ("fig8", "8", true),
            ("fig8-memory", "8", true),
            ("fig7a", "7", true),
            ("fig7a", "7a", true),
            ("fig7b", "7a", false),
            ("fig12", "1", false),
            ("table1", "table1", true),
            ("text", "8", false),
        ] {
            assert_eq!(is_of(place, figure), is, "{place} {figure}");
        }
    }

    #[test]
    fn experiments_are_those_that_give_what_is_asked_for() {
        let experiments = || ["packets a", "packets b", "streams a"].map(str::to_owned).to_vec();
        let gives = |name: &str, key: &str| match name.starts_with("packets") {
            true => key.starts_with("pktgen-"),
            false => key.starts_with("rx-"),
        };
        let of = |figure, only| {
            AskedClaims::new(ClaimFile::of("ioctopus"), experiments(), gives, &options(figure, only))
        };
        assert_eq!(of(None, None).experiments.len(), 3);
        let eighth = of(Some("8"), None);
        assert_eq!(eighth.experiments, ["packets a", "packets b"]);
        assert!(eighth.file.claims.iter().all(|claim| claim.id.starts_with("ioctopus/fig8/")));
        assert!(eighth.file.figures.iter().all(|figure| figure.id.starts_with("fig8")));
        assert_eq!(of(None, Some("streams")).experiments, ["streams a"]);
        assert_eq!(of(None, Some("streams,ts b")).experiments, ["packets b", "streams a"]);
        assert_eq!(of(None, Some("fig8/ratio/64")).file.claims.len(), 1);
        assert_eq!(of(None, Some("fig8/ratio/64")).experiments, ["packets a", "packets b"]);
        assert!(of(Some("99"), None).file.claims.is_empty());
    }
}
