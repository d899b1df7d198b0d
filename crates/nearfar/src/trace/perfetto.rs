//! A timeline in the trace event format of ui.perfetto.dev and chrome://tracing.

use std::collections::BTreeMap;
use std::io::{self, Write};

use results::Provenance;
use serde::{Serialize, Serializer};
use serde_json::json;
use units::Time;

use super::links::details;
use super::timeline::{Details, Timeline};
use super::{Capture, Row};

/// Maximum arrows per story; longer ones keep only their start and end.
const MOST_STEPS: usize = 64;

/// Writes a capture's timeline as JSON, event by event, since it may exceed memory.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(
    out: impl Write,
    capture: &Capture,
    timeline: &Timeline,
    provenance: &Provenance,
) -> io::Result<()> {
    let origin = capture.origin();
    let mut out = EventWriter { out, any: false };
    out.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut processes: Vec<&str> = Vec::new();
    let (mut places, mut named) = (Vec::new(), Vec::new());
    for track in &timeline.tracks {
        let known = processes.iter().position(|&process| process == track.process);
        let process = known.unwrap_or_else(|| {
            processes.push(&track.process);
            let order = processes.len();
            named.push(json!({
                "ph": "M", "name": "process_name", "pid": order, "args": {"name": track.process}
            }));
            named.push(json!({
                "ph": "M", "name": "process_sort_index", "pid": order, "args": {"sort_index": order}
            }));
            processes.len() - 1
        });
        let place = (process + 1, places.len() + 1);
        let (pid, tid) = place;
        let about =
            [("thread_name", json!({"name": track.name})), ("thread_sort_index", json!({"sort_index": tid}))];
        for (name, args) in about {
            named.push(json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}));
        }
        places.push(place);
    }
    named.iter().try_for_each(|event| out.add(event))?;
    for (slice, end) in timeline.slices.iter().zip(ends(timeline)) {
        out.add(&Complete {
            ph: 'X',
            name: &slice.name,
            pid: places[slice.track].0,
            tid: places[slice.track].1,
            ts: microseconds(slice.begin),
            dur: microseconds_between(slice.begin, end),
            args: Arguments { capture, origin, details: &slice.details },
        })?;
    }
    for (id, slices) in timeline.stories().into_iter().filter(|(_, slices)| slices.len() > 1) {
        let (first, rest) = slices.split_at(slices.len().min(MOST_STEPS / 2));
        let shown: Vec<usize> =
            first.iter().chain(&rest[rest.len().saturating_sub(MOST_STEPS / 2)..]).copied().collect();
        let last = shown.len() - 1;
        for (step, &index) in shown.iter().enumerate() {
            let slice = &timeline.slices[index];
            let ph = match step {
                0 => 's',
                _ if step == last => 'f',
                _ => 't',
            };
            out.add(&Arrow {
                ph,
                cat: "nearfar",
                name: "follows",
                id,
                pid: places[slice.track].0,
                tid: places[slice.track].1,
                ts: microseconds(slice.begin),
                // The last arrow ends at the enclosing slice, not at the next one.
                bp: (ph == 'f').then_some("e"),
            })?;
        }
    }
    out.out.write_all(b"],\"otherData\":")?;
    serde_json::to_writer(&mut out.out, provenance)?;
    out.out.write_all(b"}\n")
}

/// Writes events, one per line.
struct EventWriter<W> {
    out: W,
    any: bool,
}

impl<W: Write> EventWriter<W> {
    fn add(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }
}

/// A slice.
#[derive(Serialize)]
struct Complete<'a> {
    ph: char,
    name: &'a str,
    pid: usize,
    tid: usize,
    ts: f64,
    dur: f64,
    args: Arguments<'a>,
}

/// Details that a viewer shows for a selected slice.
struct Arguments<'a> {
    capture: &'a Capture,
    origin: Time,
    details: &'a Details,
}

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.details {
            Details::None => serializer.collect_map(std::iter::empty::<((), ())>()),
            Details::One(name, value) => serializer.collect_map([(name, &**value)]),
            Details::Packet(index) => {
                let passed = &self.capture.packets[*index];
                serializer.collect_map(details(&Row::of(self.capture, index + 1, passed, self.origin)))
            }
        }
    }
}

/// A step of a story.
#[derive(Serialize)]
struct Arrow {
    ph: char,
    cat: &'static str,
    name: &'static str,
    id: u64,
    pid: usize,
    tid: usize,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
}

/// Trace events use microseconds; viewers keep three decimals.
fn microseconds(time: Time) -> f64 {
    (time.as_ps() / 1000) as f64 / 1e3
}

/// A difference of two such times, without floating-point residue.
fn microseconds_between(begin: Time, end: Time) -> f64 {
    (end.as_ps() / 1000).saturating_sub(begin.as_ps() / 1000) as f64 / 1e3
}

/// Slices of a track must be nested or disjoint, so an overlapping slice ends where the next starts.
fn ends(timeline: &Timeline) -> Vec<Time> {
    let mut ends: Vec<Time> = timeline.slices.iter().map(|slice| slice.end).collect();
    let mut tracks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, slice) in timeline.slices.iter().enumerate() {
        tracks.entry(slice.track).or_default().push(index);
    }
    for slices in tracks.values_mut() {
        slices.sort_by_key(|&index| {
            let slice = &timeline.slices[index];
            (slice.begin, std::cmp::Reverse(slice.end), index)
        });
        let mut open: Vec<usize> = Vec::new();
        for &index in slices.iter() {
            let begin = timeline.slices[index].begin;
            open.retain(|&outer| ends[outer] > begin);
            for &outer in &open {
                if ends[outer] < ends[index] {
                    ends[outer] = begin;
                }
            }
            open.push(index);
        }
    }
    ends
}
