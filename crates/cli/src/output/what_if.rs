//! What more of each resource gains, as a table.

use nearfar::computer::FinishedProgram;
use nearfar::what_if::WhatIf;

use super::{Fit, TextTable, prose, width};

/// The gains of programs that were judged together, greatest first, and whether the sentence on what binds holds.
pub fn what_if_table(one: &WhatIf, done: &[FinishedProgram]) -> String {
    let of_program = |number: &usize| done.iter().find(|done| done.number() == Some(*number));
    let runs: Vec<&str> = one.programs.iter().filter_map(of_program).map(|done| &*done.run).collect();
    let of = match &runs[..] {
        [] => "a source of packets".to_owned(),
        [run] => format!("`{run}`"),
        [run, others @ ..] => format!("`{run}` and {} like it, together", others.len()),
    };
    let of = if one.binding.part.is_empty() { of } else { format!("{of}, {}", one.binding.part) };
    if one.gains.is_empty() {
        return prose(&format!("Nothing that {of} uses much of can be raised.\n"));
    }
    let mut table = TextTable::new(["simulated again", "with", "gain"], Fit::Wrap).numbers(2..3);
    for gain in &one.gains {
        let named = if gain.is_named { " (named)" } else { "" };
        table.add(vec![
            gain.resource.words(&gain.host) + named,
            gain.raise.words().to_owned(),
            format!("{:+.1} %", 100.0 * gain.gain),
        ]);
    }
    let verdict = match one.holds() {
        Some(true) => "More of what is named helps most.",
        Some(false) => "What is named is not what helps most: trust this table.",
        None if one.binding.offered.is_some() => "Nothing is named, as no more is asked for.",
        None if one.binding.what.is_none() => {
            "Nothing is full: each of these has its part in each step's time."
        }
        None => "What is named cannot be raised: no figure stands for it alone.",
    };
    format!(
        "{}\n{}\n{}\n",
        prose(&format!("What more would bring {of}:")),
        table.render(width()),
        prose(verdict)
    )
}
