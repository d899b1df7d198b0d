//! Program results and CPU times.

use std::collections::{BTreeMap, BTreeSet};

use nearfar::computer::{Account, FinishedProgram, Subject, Warning};
use units::Duration;
use workloads::Reading;

use super::{Fit, TextTable, prose, width};

/// Results of a scenario's programs, one block per program.
pub fn program_table<'a>(done: impl Iterator<Item = &'a FinishedProgram>) -> String {
    let mut text = String::new();
    // Texts about a link are printed only once.
    let mut said = BTreeSet::new();
    for program in done {
        let took = nearfar::trace::human(program.took);
        text += &(prose(&format!("{}: {} ({took})", program.host, program.run)) + "\n");
        match &program.outcome {
            Ok(report) => {
                text += &link_table(&report.readings);
                // What the program itself prints says the same in its own form.
                if let Some(own) = &report.text {
                    text += &format!("{}\n", own.trim_end());
                }
                let is_shown = |r: &&Reading| r.way.is_none() && report.text.is_none();
                let others: Vec<&Reading> = report.readings.iter().filter(is_shown).collect();
                let widest = |of: fn(&Reading) -> String| {
                    others.iter().map(|r| of(r).chars().count()).max().unwrap_or(0)
                };
                let (name, value) = (widest(|r| r.quantity.clone()), widest(|r| number(r.value)));
                for reading in others {
                    let line = format!(
                        "  {:<name$}  {:>value$}  {}",
                        reading.quantity,
                        number(reading.value),
                        reading.unit
                    );
                    text += &format!("{}\n", line.trim_end());
                }
                for note in report
                    .notes
                    .iter()
                    .filter(|note| program.subject != Subject::Link || said.insert(&**note))
                {
                    text += &(prose(&format!("  {note}")) + "\n");
                }
            }
            Err(why) => {
                let how = if program.was_stopped { "stopped" } else { "failed" };
                text += &(prose(&format!("  {how}: {why}")) + "\n");
            }
        }
        text += "\n";
    }
    text
}

/// Warnings of kernels shown without `--counters`.
const WARNINGS: usize = 8;

/// Warnings of kernels, the first ones or `all`.
pub fn warning_lines(warnings: &[Warning], all: bool) -> String {
    let shown = if all { warnings.len() } else { WARNINGS };
    let mut text: String =
        warnings.iter().take(shown).map(|warning| prose(&format!("{warning}")) + "\n").collect();
    if warnings.len() > shown {
        text += &format!("and {} more warnings (--counters shows all)\n", warnings.len() - shown);
    }
    text
}

/// Readings for a link's two directions as a table with a line each, next to the model's values; empty if there are
/// none.
fn link_table(readings: &[Reading]) -> String {
    let (mut kinds, mut ways) = (Vec::new(), Vec::new());
    let mut values = BTreeMap::new();
    for reading in readings {
        let (Some(way), kind) = (&reading.way, &*reading.quantity) else { continue };
        if !ways.contains(&&way.direction) {
            ways.push(&way.direction);
        }
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        values.insert((&way.direction, kind, way.is_model), reading);
    }
    if ways.is_empty() {
        return String::new();
    }
    // Totals come last.
    kinds.sort_by_key(|kind| {
        ["all", "busy"].iter().position(|last| *last == *kind).map_or(0, |place| place + 1)
    });
    let cell = |way, kind| {
        let of = |is_model| values.get(&(way, kind, is_model));
        match (of(false), of(true)) {
            (None, _) => String::new(),
            (Some(reading), _) if reading.unit.starts_with('%') => format!("{:.1} %", reading.value),
            (Some(reading), Some(model)) if model.value > 0.0 => {
                format!("{:.1} ({:.1})", reading.value, model.value)
            }
            (Some(reading), _) => format!("{:.1}", reading.value),
        }
    };
    let header = ["  B/frame (model)"].into_iter().chain(kinds.iter().copied());
    let mut table = TextTable::new(header, Fit::Fold(1));
    for way in ways {
        table
            .add([format!("  {way}")].into_iter().chain(kinds.iter().map(|kind| cell(way, *kind))).collect());
    }
    table.render(width()) + "\n"
}

/// CPU times: a line per account, a column per part with any time. Idle time is separate.
pub fn account_table(accounts: &[Account]) -> String {
    let (idle, busy): (Vec<&Account>, Vec<&Account>) =
        accounts.iter().partition(|account| account.name == Account::IDLE);
    let all = busy.first().map_or(&[][..], |account| &account.parts);
    let used = |part: &&str| busy.iter().any(|account| !account.of(part).is_zero());
    let parts: Vec<&str> = all.iter().map(|(part, _)| &**part).filter(used).collect();
    let has_packets = busy.iter().any(|account| account.packets.0 > 0);
    let mut header = vec!["account", "host", "tasks", "switches", "% of a core"];
    header.extend(if has_packets { &["ns/packet", "ps/byte"][..] } else { &[] });
    header.extend(&parts);
    let percent = |account: &Account, time: Duration| match time.is_zero() {
        true => String::new(),
        false => format!("{:.2}", account.share_pct(time)),
    };
    let each = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
    let columns = header.len();
    let mut table = TextTable::new(header, Fit::Fold(2)).numbers(2..columns);
    for account in busy {
        let total = account.total();
        let mut row = vec![account.name.clone(), account.host.clone()];
        row.extend([count(account.tasks), count(account.switches), percent(account, total)]);
        if has_packets {
            row.extend([each(account.ns_per_packet(total)), each(account.ps_per_byte(total))]);
        }
        row.extend(parts.iter().map(|part| percent(account, account.of(part))));
        table.add(row);
    }
    let mut text = table.render(width()) + "\n";
    for account in idle {
        let (share, span) = (account.share_pct(account.total()), nearfar::trace::human(account.span));
        let packets = match account.packets {
            (0, _) => String::new(),
            (packets, bytes) => format!("; its NICs sent and received {packets} packets with {bytes} B"),
        };
        let line = format!(
            "{}: cores were (idle) for {:.2} of one core's time in {span}{packets}",
            account.host,
            share / 100.0
        );
        text += &(prose(&line) + "\n");
    }
    text
}

/// CPU times for flame graph tools: host, account and part with nanoseconds, one per line.
pub fn folded(accounts: &[Account]) -> String {
    let mut text = String::new();
    for account in accounts.iter().filter(|account| account.name != Account::IDLE) {
        for (part, time) in account.parts.iter().filter(|(_, time)| !time.is_zero()) {
            let name = account.name.replace([';', ' '], "_");
            text += &format!("{};{name};{part} {}\n", account.host, time.as_ps() / 1000);
        }
    }
    files::shown(&text).into_owned()
}

/// A number with only its significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1000.0 || value == value.trunc() => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
