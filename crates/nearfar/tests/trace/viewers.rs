//! The trace for viewers, held against what they need to show it as it is meant: names, slices that nest, arrows that
//! hang on slices. And the arrows of one packet, followed through all that it passes.

use std::collections::{BTreeMap, BTreeSet};

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::progress::Silent;
use nearfar::trace::{Span, computers, perfetto};
use results::Provenance;
use serde_json::Value;

/// A place for slices: process and thread.
type Place = (u64, u64);

/// A trace read back.
#[derive(Default)]
pub struct Trace {
    processes: BTreeMap<u64, String>,
    threads: BTreeMap<Place, String>,
    /// By place: begin and end in nanoseconds, and the name.
    slices: BTreeMap<Place, Vec<(u64, u64, String)>>,
    /// By id, in the order of the file: phase, place and time.
    arrows: BTreeMap<u64, Vec<(char, Place, u64)>>,
}

/// Nanoseconds from microseconds, of which viewers keep three digits.
fn ns(value: &Value) -> u64 {
    let micros = value.as_f64().unwrap_or_else(|| panic!("no time: {value}"));
    let ns = (micros * 1e3).round();
    assert!(micros >= 0.0 && (micros * 1e3 - ns).abs() < 1e-3, "{micros} us is no whole number of ns");
    ns as u64
}

impl Trace {
    /// Reads the events; refuses what the format does not know.
    pub fn read(trace: &Value) -> Self {
        let mut read = Self::default();
        assert_eq!(trace["displayTimeUnit"], "ns");
        for event in trace["traceEvents"].as_array().unwrap() {
            let number = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("no {key}: {event}"));
            let text =
                |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {event}")).to_owned();
            let pid = number("pid");
            let place = || (pid, number("tid"));
            match event["ph"].as_str().unwrap() {
                "M" => match event["name"].as_str().unwrap() {
                    "process_name" => {
                        let before = read.processes.insert(pid, text(&event["args"]["name"]));
                        assert_eq!(before, None, "a process named twice");
                    }
                    "thread_name" => {
                        let before = read.threads.insert(place(), text(&event["args"]["name"]));
                        assert_eq!(before, None, "a thread named twice");
                    }
                    "process_sort_index" | "thread_sort_index" => {
                        event["args"]["sort_index"].as_u64().unwrap();
                    }
                    other => panic!("unknown metadata {other}"),
                },
                "X" => {
                    let (begin, length) = (ns(&event["ts"]), ns(&event["dur"]));
                    assert!(length > 0 && event["args"].is_object(), "{event}");
                    read.slices.entry(place()).or_default().push((
                        begin,
                        begin + length,
                        text(&event["name"]),
                    ));
                }
                phase @ ("s" | "t" | "f") => {
                    assert_eq!(event.get("bp").is_some_and(|bp| bp == "e"), phase == "f", "{event}");
                    let step = (phase.chars().next().unwrap(), place(), ns(&event["ts"]));
                    read.arrows.entry(number("id")).or_default().push(step);
                }
                other => panic!("unknown phase {other}"),
            }
        }
        read
    }

    /// The innermost slice around a time, and how many begin then.
    fn slice_at(&self, place: Place, at: u64) -> (Option<&str>, usize) {
        let slices = self.slices.get(&place).map_or(&[][..], |slices| &slices[..]);
        let around = slices.iter().filter(|(begin, end, _)| *begin <= at && at < *end);
        let inner = around.max_by_key(|(begin, end, _)| (*begin, u64::MAX - *end));
        let begin = slices.iter().filter(|(begin, ..)| *begin == at).count();
        (inner.map(|(.., name)| name.as_str()), begin)
    }

    /// How many slices there are.
    pub fn count(&self) -> usize {
        self.slices.values().map(Vec::len).sum()
    }

    /// Holds them against what viewers need.
    pub fn check(&self) {
        assert!(!self.arrows.is_empty());
        let threads: BTreeSet<u64> = self.threads.keys().map(|(_, tid)| *tid).collect();
        assert_eq!(threads.len(), self.threads.len(), "a thread belongs to one process");
        for (place, slices) in &self.slices {
            assert!(self.processes.contains_key(&place.0) && self.threads.contains_key(place), "{place:?}");
            let mut sorted: Vec<(u64, u64)> = slices.iter().map(|(begin, end, _)| (*begin, *end)).collect();
            sorted.sort_by_key(|&(begin, end)| (begin, u64::MAX - end));
            let mut open: Vec<u64> = Vec::new();
            for (begin, end) in sorted {
                open.retain(|&outer| outer > begin);
                assert!(open.iter().all(|&outer| end <= outer), "{}: at {begin} ns", self.threads[place]);
                open.push(end);
            }
        }
        for (id, steps) in &self.arrows {
            let phases: String = steps.iter().map(|step| step.0).collect();
            let middle = phases.strip_prefix('s').and_then(|rest| rest.strip_suffix('f'));
            assert!(middle.is_some_and(|middle| middle.chars().all(|c| c == 't')), "arrow {id}: {phases}");
            assert!(steps.is_sorted_by_key(|step| step.2), "arrow {id} goes back in time");
            for &(_, place, at) in steps {
                let (slice, begin) = self.slice_at(place, at);
                assert!(
                    slice.is_some() && begin == 1,
                    "arrow {id} at {at} ns hangs on no slice, or on {begin}"
                );
            }
        }
    }

    /// What an arrow passes: tracks without their numbers, each once in a row.
    fn way(&self, id: u64) -> Vec<String> {
        let mut way: Vec<String> = Vec::new();
        for &(_, place, at) in &self.arrows[&id] {
            let (process, thread) = (&self.processes[&place.0], &self.threads[&place]);
            let kind = match process.split(' ').next().unwrap() {
                "host" if thread.contains("buffer") => "write-combining buffers".to_owned(),
                "host" => {
                    let level = thread.split(", ").nth(1).unwrap();
                    let is_user = self.slice_at(place, at).0 == Some("User");
                    format!("{process}: {}", if is_user { "program" } else { level })
                }
                "link" => format!("{process}: {}", thread.split(',').next().unwrap()),
                "cable" => "cable".to_owned(),
                _ => process.clone(),
            };
            if way.last() != Some(&kind) {
                way.push(kind);
            }
        }
        way
    }
}

fn traced(scenario: &str, packets: usize) -> Trace {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, scenario).unwrap();
    let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"));
    let span = Span { packets, ..Span::default() };
    let (seen, _) = computers::trace(&setup, span, &[], &Silent).unwrap();
    // As text, which is what viewers read.
    let mut text = Vec::new();
    perfetto::write(&mut text, &seen.capture, &seen.timeline(), &Provenance::default()).unwrap();
    let trace = Trace::read(&serde_json::from_slice(&text).unwrap());
    trace.check();
    trace
}

#[test]
fn a_packet_by_lines_is_followed_through_all_that_it_passes() {
    let trace = traced("kpio-send", 400);
    let ways: Vec<_> = trace.arrows.keys().map(|&id| trace.way(id)).collect();
    let wanted = [
        "host a: tasks",
        "write-combining buffers",
        "link slot: down",
        "card at slot",
        "link slot: up",
        "host a: interrupts",
        "host a: deferred interrupts",
    ];
    assert!(ways.iter().any(|way| *way == wanted), "{ways:#?}");
}

#[test]
fn a_packet_by_descriptor_is_followed_from_the_programs_send_to_the_other_host() {
    let trace = traced("ping", 60);
    let ways: Vec<_> = trace.arrows.keys().map(|&id| trace.way(id)).collect();
    let wanted = [
        "host a: program",
        "host a: tasks",
        // Doorbell, descriptor, data.
        "link a/slot: down",
        "link a/slot: up",
        "link a/slot: down",
        "link a/slot: up",
        "link a/slot: down",
        "card at a/slot",
        "cable",
        "card at b/slot",
        "link b/slot: up",
        "host b: interrupts",
        "host b: deferred interrupts",
    ];
    assert!(ways.iter().any(|way| *way == wanted), "{ways:#?}");
}
