//! A program's command line: which of its options are understood, and what is wrong with the others.

use std::collections::BTreeMap;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::premises::Refused;

/// Files that a command line refers to, such as job files: texts by name.
pub type JobFiles = BTreeMap<String, String>;

/// Most problems of a line that are told.
const MOST_TOLD: usize = 8;

/// The options of a line, and all that is wrong with it: what is not understood is left out, and the rest looked at again.
pub(crate) fn forgiving(
    name: &str,
    options: &clap::Command,
    words: &[String],
) -> (Option<clap::ArgMatches>, Vec<Refused>) {
    let (mut left, mut wrong) = (words.to_vec(), Vec::new());
    loop {
        let error = match options.clone().try_get_matches_from(&left) {
            Ok(matches) => return (Some(matches), wrong),
            Err(error) => error,
        };
        // What was left out may be needed.
        if error.kind() == ErrorKind::MissingRequiredArgument && !wrong.is_empty() {
            return (None, wrong);
        }
        wrong.push(refused(name, options, &error));
        let Some(range) = culprit(&left, &error).filter(|_| wrong.len() < MOST_TOLD) else {
            return (None, wrong);
        };
        left.drain(range);
    }
}

/// The words that an error is about, if that is plain: an option that there is not, or one with a wrong value.
fn culprit(words: &[String], error: &clap::Error) -> Option<std::ops::Range<usize>> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let is_option = |word: &String| word.starts_with('-');
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let given = text(ContextKind::InvalidArg)?;
            let is_it = |word: &String| {
                word.strip_prefix(given)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || given.len() == 2)
            };
            let at = words.iter().skip(1).position(is_it)? + 1;
            // Its value, if it has one.
            let has_value = is_option(&words[at])
                && !words[at].contains('=')
                && words.get(at + 1).is_some_and(|next| !is_option(next));
            Some(at..at + 1 + usize::from(has_value))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue)?;
            let has_it = |word: &String| word == value || is_option(word) && word.ends_with(value);
            let at = words.iter().skip(1).position(has_it)? + 1;
            let is_apart = !is_option(&words[at]) && is_option(&words[at - 1]);
            Some(at - usize::from(is_apart)..at + 1)
        }
        _ => None,
    }
}

/// Shortens clap's error to a line and a hint, for a program with these options.
pub(crate) fn refused(name: &str, options: &clap::Command, error: &clap::Error) -> Refused {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("not understood");
    let message = format!("{name}: {}", first.trim_start_matches("error: "));
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
    {
        return Refused::new(message, near(name, options, given));
    }
    let rest: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(|line| line.trim_start_matches("tip: "))
        .collect();
    Refused { help: (!rest.is_empty()).then(|| rest.join("; ")), ..Refused::new(message, "") }
}

/// More options than these are not listed.
const LISTED: usize = 16;

/// The option that was probably meant, or all.
pub(crate) fn near(name: &str, options: &clap::Command, given: &str) -> String {
    let known = flags(options);
    let given = given.split('=').next().unwrap_or(given);
    let bare = |flag: &str| flag.trim_start_matches('-').replace('-', "_").to_lowercase();
    let likeness = |flag: &String| strsim::damerau_levenshtein(&bare(flag), &bare(given));
    let limit = bare(given).chars().count() / 3;
    let nearest = known.iter().map(|flag| (likeness(flag), flag)).filter(|(far, _)| *far <= limit).min();
    match nearest {
        Some((_, flag)) => format!("there is `{flag}`; `nearfar programs {name}` explains all"),
        None if known.is_empty() => format!("{name} has no options, as `nearfar programs {name}` shows"),
        None if known.len() > LISTED => format!("`nearfar programs {name}` lists its options"),
        None => format!("its options are {}", known.join(", ")),
    }
}

/// All options of a command and its subcommands, as they are written.
fn flags(options: &clap::Command) -> Vec<String> {
    let own = options.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        argument.get_short().map(|short| format!("-{short}")).or(long)
    });
    let mut all: Vec<String> = own.chain(options.get_subcommands().flat_map(flags)).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|flag| seen.insert(flag.clone()));
    all
}
