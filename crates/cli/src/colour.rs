//! Whether messages are coloured: `--color`, `NO_COLOR` (no-color.org) and `TERM=dumb`.

use std::io::IsTerminal as _;
use std::sync::OnceLock;

/// When messages are coloured.
#[derive(clap::ValueEnum, Clone, Copy, Default, Debug, PartialEq, Eq)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What was chosen.
static CHOSEN: OnceLock<Colour> = OnceLock::new();

/// Takes `--color` of a command line before it is parsed, as errors in it are coloured, too.
pub fn choose(words: impl IntoIterator<Item = String>) -> clap::ColorChoice {
    let chosen = *CHOSEN.get_or_init(|| asked(words));
    match chosen {
        Colour::Always => clap::ColorChoice::Always,
        _ if of_errors() => clap::ColorChoice::Auto,
        _ => clap::ColorChoice::Never,
    }
}

fn asked(words: impl IntoIterator<Item = String>) -> Colour {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => continue,
        };
        // What it cannot be is refused when the line is parsed.
        return <Colour as clap::ValueEnum>::from_str(&value.unwrap_or_default(), false).unwrap_or_default();
    }
    Colour::Auto
}

/// Whether a terminal cannot move its cursor or change colours.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether messages on standard error are coloured.
pub fn of_errors() -> bool {
    match CHOSEN.get().copied().unwrap_or_default() {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            std::io::stderr().is_terminal() && !refused && !is_dumb()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_found_in_both_spellings() {
        let asked = |line: &str| asked(line.split(' ').map(str::to_owned));
        assert_eq!(asked("nearfar run x --color=never"), Colour::Never);
        assert_eq!(asked("nearfar --color always run x"), Colour::Always);
        assert_eq!(asked("nearfar run x --color=auto"), Colour::Auto);
        assert_eq!(asked("nearfar run x --color=blue"), Colour::Auto);
        assert_eq!(asked("nearfar run x"), Colour::Auto);
    }
}
