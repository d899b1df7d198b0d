//! "Reevaluation of Programmed I/O with Write-Combining Buffers", NAS 2015.
//!
//! Every value in the claims comes from an experiment: a simulation observed from the link, as the paper's authors
//! did with an analyser.

mod analyser;
mod assumed;
mod faults;
mod lines;
mod memory;
mod newer;
mod overhead;
mod pings;
mod readings;
mod receive;
mod relatives;
mod sizes;
mod streams;
mod urgency;
mod window;

use machine::Diagnostics;
use nearfar::Progress;
use results::claims::{ClaimFile, Evidence};

use super::runs::{self as all, Values, count_relatives};
use super::{AskedClaims, Options, Reproduction, selection};

/// An experiment: one or several simulations, and the values they produce.
struct Measurement {
    /// Name, for progress reports.
    name: &'static str,
    /// Prefixes of its values' keys.
    keys: &'static [&'static str],
    run: fn(&Options) -> Result<Values, String>,
}

const MEASUREMENTS: [Measurement; 15] = [
    Measurement { name: "ping by kPIO+WC", keys: &["kpio-ping/"], run: pings::kpio },
    Measurement { name: "ping by descriptor", keys: &["dma-ping/"], run: pings::dma },
    Measurement {
        name: "lines",
        keys: &["lines/", "one-line/", "uncached/", "fill/"],
        run: lines::single_and_many,
    },
    Measurement { name: "buffers", keys: &["buffers/"], run: lines::buffers },
    Measurement { name: "generations", keys: &["generation/"], run: lines::generations },
    Measurement { name: "messages on newer links", keys: &["newer/"], run: newer::sizes },
    Measurement {
        name: "overhead of descriptors",
        keys: &["iperf-64/", "iperf-64-joined/", "iperf-64K/"],
        run: overhead::descriptors,
    },
    Measurement { name: "memory traffic", keys: &["memory/"], run: memory::traffic },
    Measurement { name: "receiving", keys: &["receive/", "receive-cpu/"], run: receive::ways },
    Measurement { name: "latencies", keys: &["latency/"], run: sizes::latencies },
    Measurement { name: "throughputs", keys: &["throughput/"], run: sizes::throughputs },
    Measurement { name: "relatives", keys: &["relatives/", "cost/"], run: relatives::ways_by_size },
    Measurement { name: "selection", keys: &["selection/"], run: relatives::selection },
    Measurement { name: "receive slots", keys: &["slots/"], run: relatives::receive_slots },
    Measurement { name: "urgency", keys: &["urgency/"], run: urgency::urgency },
];

/// Runs all experiments and judges the claims and figures by the results.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let asked = asked(options);
    let wanted: Vec<&Measurement> = MEASUREMENTS.iter().filter(|run| asked.wants(run.name)).collect();
    let mut file = asked.file;
    let made =
        all::make(("kpio-wc", options), &wanted, progress, |run| run.name, |run, options| (run.run)(options));
    selection::keep_known(&mut file, &made.values, &made.failed, options);
    let mut evidence = Evidence::default();
    for key in file.observed() {
        let place = wanted.iter().position(|experiment| gives(experiment.name, &key));
        let value = match place.map(|place| &made.outcomes[place]) {
            Some(Ok(values)) => {
                values.get(&key).copied().ok_or_else(|| "the experiment does not give it".to_owned())
            }
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("there is no experiment for it yet".to_owned()),
        };
        evidence.observed.insert(key, value);
    }
    count_relatives(&mut evidence, &made, gives);
    let (observed, mut notes) = (made.values, made.failed);
    let values = all::told(&observed, options);
    let mut sections = Vec::new();
    if options.is_part() {
        let of = Reproduction::new("kPIO+WC, simulated", file, evidence, made.count, sections, notes);
        return Ok(of.with_values(values).resting_on(made.rests));
    }
    for (name, section) in [
        ("readings", readings::section(options, &observed)),
        ("assumed figures", assumed::section(options, &observed)),
        ("overhead", Ok(overhead::section(&observed))),
        ("streams", streams::section(options)),
        ("faults", faults::section(options)),
    ] {
        match section {
            Ok(section) => sections.push(section),
            Err(reason) => notes.push(format!("{name}: {reason}.")),
        }
    }
    let of = Reproduction::new("kPIO+WC, simulated", file, evidence, made.count, sections, notes);
    Ok(of.resting_on(made.rests))
}

/// What of the paper is asked for.
pub(super) fn asked(options: &Options) -> AskedClaims {
    let names = MEASUREMENTS.iter().map(|run| run.name.to_owned()).collect();
    AskedClaims::new(ClaimFile::of("kpio-wc"), names, gives, options)
}

/// Whether an experiment gives a value.
fn gives(name: &str, key: &str) -> bool {
    let is_own = |run: &&Measurement| run.keys.iter().any(|start| key.starts_with(start));
    MEASUREMENTS.iter().find(is_own).is_some_and(|run| run.name == name)
}
