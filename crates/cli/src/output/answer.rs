//! A command's answer in one sentence: how its programs or rows differ, and what binds.

use machine::ComputerSetup;
use nearfar::computer::FinishedProgram;
use nearfar::scenario::FinishedRun;
use results::answer::{ComparedValue, is_time, sentence, without_share};
use results::pciebench::Row;
use workloads::Reading;

use super::prose;

/// The reading that says best how fast a program was: its first rate, or else its mean latency.
pub fn headline(readings: &[Reading]) -> Option<&Reading> {
    let own = || readings.iter().filter(|reading| reading.way.is_none() && reading.value > 0.0);
    let time = |word: &'static str| {
        own().find(move |reading| is_time(&reading.unit) && reading.quantity.contains(word))
    };
    let any = || own().find(|reading| is_time(&reading.unit) && reading.quantity != "time");
    // What has arrived: a sender's rate includes what buffers hold at the end, and what was lost.
    let arrived = || own().find(|reading| reading.quantity == "received bandwidth");
    let rates =
        || own().filter(|reading| reading.unit.ends_with("/s") && !reading.quantity.starts_with("sent "));
    // Of the same for several sizes, that of the last, which is the largest.
    let of_sizes = |first: &Reading| {
        let (_, what) = first.quantity.split_once(" B: ")?;
        rates().rfind(|rate| rate.quantity.split_once(" B: ").is_some_and(|(_, own)| own == what))
    };
    rates()
        .next()
        .map(|first| arrived().or_else(|| of_sizes(first)).unwrap_or(first))
        .or_else(|| ["mean", "avg", "p50", "50 %", "median"].into_iter().find_map(time))
        .or_else(any)
}

/// The first resource that binds, from a sentence about all.
pub fn what_binds(sentence: &str) -> Option<&str> {
    let rest = sentence.strip_prefix("what binds: ")?;
    Some(rest.split_once("; ").map_or(rest, |(first, _)| first))
}

/// The answer of a scenario's programs, as a line.
pub fn of_programs(setup: &ComputerSetup, done: &[FinishedProgram]) -> Option<String> {
    let told: Vec<(&FinishedProgram, &Reading, String)> = done
        .iter()
        .filter_map(|program| {
            let (_, Ok(report)) = (program.number()?, &program.outcome) else { return None };
            let binds = report.notes.iter().filter_map(|note| what_binds(note)).collect::<Vec<_>>();
            Some((program, headline(&report.readings)?, binds.join("; ")))
        })
        .collect();
    // What taskset and others begin is told as the program that they begin.
    let tool = |program: &FinishedProgram| {
        let own = program.number().and_then(|number| setup.programs.get(number));
        tool(own.map_or(&program.run, |own| &own.command)).to_owned()
    };
    let is_alike = |a: &(&FinishedProgram, &Reading, String), b: &(&FinishedProgram, &Reading, String)| {
        (tool(a.0), &a.1.quantity, &a.1.unit) == (tool(b.0), &b.1.quantity, &b.1.unit)
    };
    let values: Vec<ComparedValue> = told
        .iter()
        .map(|one| {
            let (program, reading, binds) = one;
            let group: Vec<&FinishedProgram> =
                told.iter().filter(|other| is_alike(one, other)).map(|other| other.0).collect();
            ComparedValue {
                group: if group.len() == 1 { tool(program) } else { String::new() },
                label: label(setup, program, &group),
                quantity: reading.quantity.clone(),
                unit: reading.unit.to_string(),
                value: reading.value,
                binds: binds.clone(),
            }
        })
        .collect();
    line(&values)
}

/// A command line's first word, without a path.
fn tool(command: &str) -> &str {
    let word = command.split_whitespace().next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or(word)
}

/// A word as a label: an option's value, with its name if it is a number, which alone says little.
fn told_word(word: &str) -> &str {
    let option = word.strip_prefix("--").and_then(|option| option.split_once('='));
    match option {
        Some((_, value)) if value.parse::<f64>().is_err() => value,
        Some(_) => &word[2..],
        None => word,
    }
}

/// What tells a program from the others of its group: its name, its host, or the words of its command line.
fn label(setup: &ComputerSetup, program: &FinishedProgram, group: &[&FinishedProgram]) -> String {
    let name = |program: &FinishedProgram| -> Option<String> {
        let own = || setup.programs.get(program.number()?)?.name.clone();
        let fio = |word: &str| word.strip_prefix("--name=").map(str::to_owned);
        own().or_else(|| program.run.split_whitespace().find_map(fio))
    };
    let host = |program: &FinishedProgram| Some(program.host.clone());
    for of in [&name as &dyn Fn(&FinishedProgram) -> Option<String>, &host] {
        let labels: Vec<Option<String>> = group.iter().map(|program| of(program)).collect();
        let is_unique =
            |(n, label): (usize, &Option<String>)| label.is_some() && !labels[..n].contains(label);
        if labels.iter().enumerate().all(is_unique) {
            return of(program).unwrap_or_default();
        }
    }
    let words = |program: &FinishedProgram| -> Vec<String> {
        let is_common =
            |word: &&str| group.iter().all(|other| other.run.split_whitespace().any(|w| w == *word));
        let own = program.run.split_whitespace().filter(|word| !is_common(word));
        own.map(|word| told_word(word).to_owned()).collect()
    };
    let (own, all) = (words(program).join(" "), group.iter().map(|other| words(other).join(" ")));
    let is_only = all.filter(|other| *other == own).count() == 1;
    match own.is_empty() || !is_only {
        false => own,
        true => match is_only || group.iter().filter(|other| other.run == program.run).count() == 1 {
            true => format!("`{}`", program.run),
            false => format!("program {}", program.number().unwrap_or_default()),
        },
    }
}

/// The answer of pcie-bench's runs, as a line.
pub fn of_runs(done: &[FinishedRun]) -> Option<String> {
    let values: Vec<ComparedValue> = done
        .iter()
        .map(|one| {
            let run = &one.run;
            let parts: [fn(&results::pciebench::Run) -> String; 6] = [
                |run| run.pattern.to_string(),
                |run| run.cache.to_string(),
                |run| format!("window {}", run.window),
                |run| run.transfer.to_string(),
                |run| format!("host offset {}", run.host_offset),
                |run| format!("device offset {}", run.device_offset),
            ];
            let is_told = |of: &&fn(&results::pciebench::Run) -> String| {
                done.iter().any(|other| other.run.test == run.test && of(&other.run) != of(run))
            };
            let label = parts.iter().filter(is_told).map(|of| of(run)).collect::<Vec<_>>().join(" ");
            let (quantity, unit, value) = match &one.outcome.row {
                Row::Latency(row) => ("median latency", "ns", row.ns.median),
                Row::Bandwidth(row) => ("goodput", "Gbit/s", row.gbit_per_s),
            };
            let binding = one.outcome.window.binding("").to_string();
            ComparedValue {
                group: run.test.to_string(),
                label,
                quantity: quantity.to_owned(),
                unit: unit.to_owned(),
                value,
                binds: what_binds(&binding).unwrap_or_default().to_owned(),
            }
        })
        .collect();
    line(&values)
}

/// What binds each row, once for rows that the same binds.
pub fn binding_lines(done: &[FinishedRun]) -> String {
    let mut groups: Vec<(Vec<usize>, String)> = Vec::new();
    for (row, one) in (1..).zip(done) {
        let binding = one.outcome.window.binding("").to_string();
        let resource = |text: &str| without_share(what_binds(text).unwrap_or(text)).to_owned();
        match groups.iter_mut().find(|(_, other)| resource(other) == resource(&binding)) {
            Some((rows, _)) => rows.push(row),
            None => groups.push((vec![row], binding)),
        }
    }
    let numbers = |rows: &[usize]| match rows {
        [row] => format!("row {row}"),
        [first, .., last] if last - first + 1 == rows.len() => format!("rows {first} to {last}"),
        rows => format!("rows {}", rows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let line = |(rows, binding): &(Vec<usize>, String)| prose(&format!("{}: {binding}", numbers(rows)));
    groups.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The sentence about values, as a line.
fn line(values: &[ComparedValue]) -> Option<String> {
    sentence(values).map(|told| prose(&format!("answer: {told}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_says_more_than_a_latency_and_a_latency_more_than_a_count() {
        let of = |readings: &[(&str, &'static str)]| {
            let readings: Vec<Reading> =
                readings.iter().map(|(name, unit)| Reading::new(*name, *unit, 1.0)).collect();
            headline(&readings).map(|reading| reading.quantity.clone())
        };
        assert_eq!(
            of(&[("time", "µs"), ("received", "bytes"), ("throughput", "Mbit/s")]).unwrap(),
            "throughput"
        );
        assert_eq!(
            of(&[("sent", "packets"), ("min", "µs"), ("round trip mean", "µs")]).unwrap(),
            "round trip mean"
        );
        assert_eq!(of(&[("time", "µs"), ("64 KiB", "ns")]).unwrap(), "64 KiB");
        let iperf = [("bandwidth", "Mbit/s"), ("received bandwidth", "Mbit/s"), ("loss", "%")];
        assert_eq!(of(&iperf[..2]).unwrap(), "received bandwidth");
        assert_eq!(of(&iperf).unwrap(), "received bandwidth");
        let sizes = [("8 B: algorithm bandwidth", "GB/s"), ("1048576 B: algorithm bandwidth", "GB/s")];
        assert_eq!(of(&sizes).unwrap(), sizes[1].0);
        assert_eq!(of(&[("sent throughput", "Mbit/s"), ("throughput", "Mbit/s")]).unwrap(), "throughput");
        assert_eq!(of(&[("sent", "packets")]), None);
    }

    #[test]
    fn a_tool_is_told_without_its_path_and_a_number_with_its_option() {
        assert_eq!((tool("./stream_c.exe -n 3"), tool("")), ("stream_c.exe", ""));
        let told = ["--from=1", "--rw=randread", "--bs=4k", "if=/dev/zero", "64"].map(told_word);
        assert_eq!(told, ["from=1", "randread", "4k", "if=/dev/zero", "64"]);
    }

    #[test]
    fn the_first_of_what_binds_is_told() {
        assert_eq!(
            what_binds("what binds: a's core0, busy 94 % of the time; next b"),
            Some("a's core0, busy 94 % of the time")
        );
        assert_eq!(what_binds("interrupts at a"), None);
    }
}
