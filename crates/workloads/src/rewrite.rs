//! Command lines with one option changed, for sweeps over options of programs.

use crate::premises::Refused;
use crate::registry::{Command, PROGRAMS};

/// A command line's words, and the program that they are of.
struct EditedLine {
    words: Vec<String>,
    /// Place of the program's name: tools such as taskset stand before it.
    program: usize,
    command: &'static Command,
}

impl EditedLine {
    fn read(line: &str) -> Result<Self, Refused> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let find = |(n, word): (usize, &String)| {
            let command = PROGRAMS.iter().find(|command| command.name == *word)?;
            Some((n, command))
        };
        let Some((program, command)) = words.iter().enumerate().find_map(find) else {
            return Err(Refused::new(format!("`{line}` names no program"), "`nearfar programs` lists them"));
        };
        Ok(Self { words, program, command })
    }

    /// The option as its program knows it; `None` if it does not.
    fn argument(&self, option: &str) -> Option<clap::Arg> {
        let mut letters = option.chars();
        let letter = letters.next().filter(|_| letters.next().is_none());
        let is_it = |argument: &&clap::Arg| {
            let names =
                argument.get_long().into_iter().chain(argument.get_all_aliases().into_iter().flatten());
            let is_letter = letter.is_some() && argument.get_short() == letter;
            is_letter || names.chain([argument.get_id().as_str()]).any(|name| name == option)
        };
        self.command.options().get_arguments().find(is_it).cloned()
    }

    /// Words with which the option can begin.
    fn spellings(&self, option: &str) -> Vec<String> {
        let dashes = |name: &str| format!("{}{name}", if name.chars().count() == 1 { "-" } else { "--" });
        let mut all = vec![dashes(option)];
        if let Some(argument) = self.argument(option) {
            let names =
                argument.get_long().into_iter().chain(argument.get_all_aliases().into_iter().flatten());
            all.extend(names.map(|name| format!("--{name}")));
            all.extend(argument.get_short().map(|letter| format!("-{letter}")));
        }
        all.push(format!("-{option}"));
        all
    }
}

/// A command line with this option set to `value`. The option is a name or a letter of its program's, with or without
/// dashes.
///
/// # Errors
/// If the line names no program, or the program has no such option.
pub fn with_option(line: &str, option: &str, value: &str) -> Result<String, Refused> {
    let option = option.trim_start_matches('-');
    let mut line = EditedLine::read(line)?;
    let spellings = line.spellings(option);
    // The last of several counts, as in the tools.
    for place in (line.program + 1..line.words.len()).rev() {
        let word = line.words[place].clone();
        let is_letter = |start: &str| start.len() == 2 && word[2..].starts_with(|c: char| c.is_ascii_digit());
        let joined = |start: &String| {
            let rest = word.strip_prefix(start.as_str())?;
            (rest.starts_with('=') || (is_letter(start) && start.starts_with('-')))
                .then(|| format!("{start}{}{value}", if rest.starts_with('=') { "=" } else { "" }))
        };
        let named = word.strip_prefix(option).filter(|rest| rest.starts_with('='));
        if let Some(changed) = spellings.iter().find_map(joined) {
            line.words[place] = changed;
        } else if named.is_some() {
            // dd's `bs=4k`.
            line.words[place] = format!("{option}={value}");
        } else if spellings.contains(&word) && place + 1 < line.words.len() {
            line.words[place + 1] = value.to_owned();
        } else {
            continue;
        }
        return Ok(line.words.join(" "));
    }
    let end = line.words.iter().position(|word| word == "--").unwrap_or(line.words.len());
    let options = line.command.options();
    match line.argument(option) {
        Some(argument) => {
            let word = match (argument.get_long(), argument.get_short()) {
                (Some(long), _) => vec![format!("--{long}={value}")],
                (None, Some(letter)) => vec![format!("-{letter}"), value.to_owned()],
                (None, None) => vec![format!("{option}={value}")],
            };
            line.words.splice(end..end, word);
        }
        // Options of netperf's tests follow a `--`.
        None if options.get_arguments().any(clap::Arg::is_last_set) && option.len() == 1 => {
            if end == line.words.len() {
                line.words.push("--".to_owned());
            }
            line.words.extend([format!("-{option}"), value.to_owned()]);
        }
        None => {
            let name = line.command.name;
            let names = options.get_arguments().filter_map(|argument| {
                let letter = argument.get_short().map(|letter| letter.to_string());
                argument.get_long().map(str::to_owned).or(letter)
            });
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(Refused::new(format!("{name} has no option `{option}`"), format!("it has {names}")));
        }
    }
    Ok(line.words.join(" "))
}

/// What an option of a command line is called, and its unit as its program's help tells it; empty if it is a number.
pub fn option_axis(line: &str, option: &str) -> (String, &'static str) {
    let option = option.trim_start_matches('-');
    let Ok(line) = EditedLine::read(line) else { return (option.to_owned(), "") };
    let argument = line.argument(option);
    let help = argument.as_ref().and_then(clap::Arg::get_help).map(|help| help.to_string().to_lowercase());
    let says =
        |words: &[&str]| words.iter().any(|word| help.as_ref().is_some_and(|help| help.contains(word)));
    let unit = match option {
        // Of netperf's tests.
        "m" | "M" if argument.is_none() => "B",
        _ if says(&["bytes", "size of"]) => "B",
        _ if says(&["nanosecond"]) => "ns",
        _ if says(&["microsecond"]) => "µs",
        _ if says(&["in seconds", "seconds between"]) => "s",
        _ if says(&["percent"]) => "%",
        _ => "",
    };
    let long = argument.as_ref().map(|argument| argument.get_id().as_str().replace('_', " "));
    let name =
        if option.len() == 1 { long.unwrap_or_else(|| option.to_owned()) } else { option.replace('_', " ") };
    (format!("{} {name}", line.command.name), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_changed_as_it_is_written_or_added() {
        for (line, option, value, wanted) in [
            ("pktgen -i eth0 -s 60 -n 100", "s", "64", "pktgen -i eth0 -s 64 -n 100"),
            ("pktgen -i eth0 -s 60 -n 100", "-s", "64", "pktgen -i eth0 -s 64 -n 100"),
            ("pktgen -s60", "size", "64", "pktgen -s64"),
            ("pktgen -i eth0", "size", "64", "pktgen -i eth0 -s 64"),
            ("fio --rw=randread --bs=4k", "bs", "8k", "fio --rw=randread --bs=8k"),
            ("fio --rw=randread --blocksize=4k", "bs", "8k", "fio --rw=randread --blocksize=8k"),
            ("fio --rw=randread --bs 4k", "--bs", "8k", "fio --rw=randread --bs 8k"),
            ("fio --rw=randread", "iodepth", "4", "fio --rw=randread --iodepth=4"),
            ("netperf -H 10.0.0.2 -l 1 -- -m 64", "m", "128", "netperf -H 10.0.0.2 -l 1 -- -m 128"),
            ("netperf -H 10.0.0.2 -l 1", "m", "128", "netperf -H 10.0.0.2 -l 1 -- -m 128"),
            ("netperf -H 10.0.0.2 -- -m 64", "l", "2", "netperf -H 10.0.0.2 -l 2 -- -m 64"),
        ] {
            assert_eq!(with_option(line, option, value).unwrap(), wanted, "{line} {option}");
        }
        let wrong = with_option("fio --bs=4k", "blok", "1").unwrap_err();
        assert!(
            wrong.message.contains("fio has no option `blok`") && wrong.help.unwrap().contains("iodepth")
        );
        assert!(with_option("sleep 1", "s", "1").is_err());
    }

    #[test]
    fn an_axis_has_its_unit() {
        assert_eq!(option_axis("pktgen -s 60", "s"), ("pktgen size".to_owned(), "B"));
        assert_eq!(option_axis("fio --bs=4k", "bs"), ("fio bs".to_owned(), "B"));
        assert_eq!(option_axis("fio --bs=4k", "iodepth"), ("fio iodepth".to_owned(), ""));
    }
}
