//! Job files: sections of options.

use crate::premises::Refused;

/// Characters of a line that messages quote.
const QUOTED: usize = 60;

/// A job as it is written: its own options after those that hold for all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct JobSection {
    /// Where it is written, for messages.
    pub place: String,
    /// Options, each as `--key=value` or `--key`.
    pub words: Vec<String>,
    /// Whether it is the first of a file, which begins when the jobs before have ended.
    pub begins_file: bool,
}

/// The sections of a job file, all of which also have the options `common`.
pub(super) fn sections(file: &str, text: &str, common: &[String]) -> Result<Vec<JobSection>, Refused> {
    let (mut common, mut all): (Vec<String>, Vec<JobSection>) = (common.to_vec(), Vec::new());
    // What lines are added to: nothing before the first section, then options for all, or those of a job.
    let mut is_global = None;
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        let place = || format!("fio: {file}, line {number}");
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        // Enough of it to be found.
        let told = || line.chars().take(QUOTED).collect::<String>();
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').filter(|name| !name.is_empty()).ok_or_else(|| {
                Refused::new(
                    format!("{}: `{}` is not a section", place(), told()),
                    "a name in brackets, such as [job]",
                )
            })?;
            is_global = Some(name == "global");
            if name != "global" {
                let mut words = common.clone();
                words.push(format!("--name={name}"));
                all.push(JobSection {
                    place: format!("{file}: [{name}]"),
                    words,
                    begins_file: all.is_empty(),
                });
            }
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        let key = key.trim();
        if key == "include" || key.starts_with("include ") {
            let message = format!("{}: `include` is not supported", place());
            return Err(Refused::new(message, "copy the lines of that file"));
        }
        if key.is_empty() || key.contains(char::is_whitespace) || key.starts_with('-') {
            return Err(Refused::new(
                format!("{}: `{}` is not an option", place(), told()),
                "KEY=VALUE or KEY",
            ));
        }
        if value.is_some_and(|value| value.contains('$')) {
            let message = format!("{}: `{}` has a variable, of which there are none", place(), told());
            return Err(Refused::new(message, "write its value"));
        }
        let word = match value {
            Some(value) => format!("--{key}={}", value.trim()),
            None => format!("--{key}"),
        };
        match (is_global, all.last_mut()) {
            (Some(true), _) => common.push(word),
            (Some(false), Some(section)) => section.words.push(word),
            _ => {
                let message = format!("{}: `{}` is before the first section", place(), told());
                return Err(Refused::new(message, "begin with [global], or with a job's name in brackets"));
            }
        }
    }
    match all.is_empty() {
        true => Err(Refused::new(
            format!("fio: {file} has no job"),
            "a name in brackets, such as [job], and its options",
        )),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_global_section_is_for_the_jobs_below_it() {
        let text =
            "; two jobs\r\n[global]\nbs = 8k\n\n[a]\nrw=randread\n[global]\nthread\n[b]\n# last\nsize=1m\n";
        let found = sections("x.fio", text, &["--direct=1".into()]).unwrap();
        let words: Vec<_> = found.iter().map(|section| section.words.join(" ")).collect();
        assert_eq!(
            words,
            ["--direct=1 --bs=8k --name=a --rw=randread", "--direct=1 --bs=8k --thread --name=b --size=1m",]
        );
        assert_eq!(found.iter().map(|section| section.begins_file).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn what_is_not_a_job_file_is_refused_at_its_line() {
        for (text, words) in [
            ("", "has no job"),
            ("[global]\nbs=4k\n", "has no job"),
            ("bs=4k\n[a]\n", "line 1"),
            ("[a]\nbs 4k\n", "line 2: `bs 4k` is not an option"),
            ("[a\n", "line 1: `[a` is not a section"),
            ("[a]\nsize=${SIZE}\n", "has a variable"),
            ("[a]\ninclude b.fio\n", "`include` is not supported"),
        ] {
            let refused = sections("x.fio", text, &[]).unwrap_err();
            assert!(refused.message.contains(words), "{text}: {refused}");
        }
    }
}
