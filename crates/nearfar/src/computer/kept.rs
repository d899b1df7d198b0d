//! Results of programs on computers in the [`cache`].

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use machine::{ComputerSetup, DeviceFile};
use serde::{Deserialize, Serialize};
use units::Duration;
use wire::pcie::{Generation, Width};
use workloads::{Reading, Report, TrafficKind};

use super::{Account, Arrival, Counted, Counts, FinishedProgram, Subject, Warning};
use crate::cache;
use crate::counters::Window;
use crate::links::LinkState;

/// Whether a scenario has no side effects, such as captures or a drive's backing file.
pub(crate) fn is_repeatable(setup: &ComputerSetup) -> bool {
    let keeps = |device: &DeviceFile| device.drive().is_some_and(|drive| drive.backing.is_some());
    let mut devices = setup.hosts.iter().flat_map(|host| &host.devices);
    setup.network.captures.is_empty() && !devices.any(|device| keeps(&device.kind))
}

/// Cache key of a scenario's results; `None` if it has side effects.
pub(super) fn key(setup: &ComputerSetup) -> Option<String> {
    if !is_repeatable(setup) {
        return None;
    }
    let mut setup = setup.clone();
    // The command line does not affect results.
    setup.network.comment.clear();
    // Nor does a folder in which nothing is written.
    setup.folder = files::Folder::default();
    cache::key("computers", &[&cache::digest(&setup)])
}

/// Gets the results for a key.
pub(super) fn get(key: Option<&str>) -> Option<Counts> {
    cache::get::<Kept>(key)?.counts()
}

/// Reads an entry that may be damaged.
pub(crate) fn try_kept(entry: impl FnOnce() -> Option<Kept>) {
    let _ = entry().and_then(Kept::counts);
}

/// Stores results, unless a program failed.
pub(super) fn put(key: Option<&str>, counts: &Counts) {
    if let (Some(key), Some(kept)) = (key, Kept::of(counts)) {
        cache::put(Some(key), &kept);
    }
}

/// Results as the cache has them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    done: Vec<KeptDone>,
    accounts: Vec<KeptAccount>,
    counted: Vec<(usize, Window, Vec<KeptArrival>)>,
    links: Vec<KeptLink>,
    warnings: Vec<Warning>,
}

#[derive(Serialize, Deserialize)]
struct KeptDone {
    subject: Subject,
    host: String,
    run: String,
    took_ps: u64,
    readings: Vec<KeptReading>,
    notes: Vec<String>,
    text: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct KeptReading {
    quantity: String,
    unit: String,
    value: f64,
    way: Option<(String, bool)>,
}

#[derive(Serialize, Deserialize)]
struct KeptAccount {
    host: String,
    name: String,
    counts: [u64; 3],
    span_ps: u64,
    packets: (u64, u64),
    parts: Vec<(String, u64)>,
}

#[derive(Serialize, Deserialize)]
struct KeptArrival {
    host: String,
    line: String,
    count: u64,
    core: u16,
    nodes: (u8, u8),
}

#[derive(Serialize, Deserialize)]
struct KeptLink {
    place: String,
    generation: u8,
    lanes: u8,
    sizes: (u32, u32),
    capable: (u32, u32),
}

impl Kept {
    fn of(counts: &Counts) -> Option<Self> {
        let reading = |reading: &Reading| KeptReading {
            quantity: reading.quantity.clone(),
            unit: reading.unit.to_owned(),
            value: reading.value,
            way: reading.way.map(|way| (way.direction.to_owned(), way.is_model)),
        };
        let done = |done: &FinishedProgram| {
            let report = done.outcome.as_ref().ok()?;
            Some(KeptDone {
                subject: done.subject,
                host: done.host.clone(),
                run: done.run.clone(),
                took_ps: done.took.as_ps(),
                readings: report.readings.iter().map(reading).collect(),
                notes: report.notes.clone(),
                text: report.text.clone(),
            })
        };
        let account = |account: &Account| KeptAccount {
            host: account.host.clone(),
            name: account.name.clone(),
            counts: [account.tasks, account.switches, account.migrations],
            span_ps: account.span.as_ps(),
            packets: account.packets,
            parts: account.parts.iter().map(|(part, time)| ((*part).to_owned(), time.as_ps())).collect(),
        };
        let arrival = |arrival: &Arrival| KeptArrival {
            host: arrival.host.clone(),
            line: arrival.line.clone(),
            count: arrival.count,
            core: arrival.core,
            nodes: (arrival.core_node, arrival.device_node),
        };
        let counted = |counted: &Counted| {
            let arrivals = counted.arrivals.iter().map(arrival).collect();
            (counted.program, counted.window.clone(), arrivals)
        };
        let link = |link: &LinkState| KeptLink {
            place: link.place.clone(),
            generation: link.generation as u8,
            lanes: link.width.lanes(),
            sizes: (link.max_payload, link.max_read_request),
            capable: link.capable,
        };
        Some(Self {
            done: counts.done.iter().map(done).collect::<Option<_>>()?,
            accounts: counts.accounts.iter().map(account).collect(),
            counted: counts.counted.iter().map(counted).collect(),
            links: counts.links.iter().map(link).collect(),
            warnings: counts.warnings.clone(),
        })
    }

    /// `None` if the contents are invalid, because another version wrote them.
    fn counts(self) -> Option<Counts> {
        let reading = |kept: KeptReading| Reading {
            quantity: kept.quantity,
            unit: interned(&kept.unit),
            value: kept.value,
            way: kept
                .way
                .map(|(direction, is_model)| TrafficKind { direction: interned(&direction), is_model }),
        };
        let done = |kept: KeptDone| FinishedProgram {
            subject: kept.subject,
            host: kept.host,
            run: kept.run,
            took: Duration::from_ps(kept.took_ps),
            outcome: Ok(Report {
                readings: kept.readings.into_iter().map(reading).collect(),
                notes: kept.notes,
                samples: Vec::new(),
                text: kept.text,
            }),
            was_stopped: false,
        };
        let account = |kept: KeptAccount| {
            let part = |(part, ps): (String, u64)| (interned(&part), Duration::from_ps(ps));
            let [tasks, switches, migrations] = kept.counts;
            let parts = kept.parts.into_iter().map(part).collect();
            let (span, packets) = (Duration::from_ps(kept.span_ps), kept.packets);
            let (host, name) = (kept.host, kept.name);
            Account { host, name, tasks, switches, migrations, span, packets, parts }
        };
        let arrival = |kept: KeptArrival| Arrival {
            host: kept.host,
            line: kept.line,
            count: kept.count,
            core: kept.core,
            core_node: kept.nodes.0,
            device_node: kept.nodes.1,
        };
        let counted = |(program, window, arrivals): (usize, Window, Vec<KeptArrival>)| Counted {
            program,
            window,
            arrivals: arrivals.into_iter().map(arrival).collect(),
        };
        let link = |kept: KeptLink| {
            Some(LinkState {
                place: kept.place,
                generation: Generation::from_number(kept.generation)?,
                width: Width::from_lanes(kept.lanes)?,
                max_payload: kept.sizes.0,
                max_read_request: kept.sizes.1,
                capable: kept.capable,
            })
        };
        Some(Counts {
            done: self.done.into_iter().map(done).collect(),
            accounts: self.accounts.into_iter().map(account).collect(),
            counted: self.counted.into_iter().map(counted).collect(),
            links: self.links.into_iter().map(link).collect::<Option<_>>()?,
            warnings: self.warnings,
        })
    }
}

/// Interns a text for the lifetime of the program; there are few units and part names.
fn interned(text: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.get(text) {
        return same;
    }
    let same: &'static str = Box::leak(text.into());
    known.insert(same);
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computer::run_counted;
    use crate::progress::Silent;
    use machine::{ComputerScenario, Doc, Library};

    /// Results come back bit for bit.
    #[test]
    fn results_come_back_as_they_were() {
        let library = Library::built_in();
        let doc = Doc::<ComputerScenario>::load(&library, "dd-verify").unwrap();
        let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"));
        let counts = run_counted(&setup, &Silent).unwrap();
        let bytes = postcard::to_allocvec(&Kept::of(&counts).unwrap()).unwrap();
        let back = postcard::from_bytes::<Kept>(&bytes).unwrap().counts().unwrap();
        assert!(!counts.done.is_empty() && !counts.links.is_empty());
        assert_eq!(format!("{counts:?}"), format!("{back:?}"));
        assert_eq!(key(&setup), None, "there is no cache here");
    }
}
