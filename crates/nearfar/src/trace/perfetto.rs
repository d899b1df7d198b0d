//! A timeline in the trace event format, which ui.perfetto.dev and chrome://tracing read.

use std::collections::BTreeMap;

use results::Provenance;
use serde::{Serialize, Serializer};
use serde_json::json;
use units::Time;

use super::timeline::Timeline;

/// The most arrows of one story: of a longer one, its beginning and its end.
const MOST_STEPS: usize = 64;

/// The trace as JSON, event after event: it may be longer than what fits into memory as values.
pub fn trace(timeline: &Timeline, provenance: &Provenance) -> String {
    let mut out = Events { text: String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":["), any: false };
    let mut processes: Vec<&str> = Vec::new();
    let mut places = Vec::new();
    for track in &timeline.tracks {
        let known = processes.iter().position(|&process| process == track.process);
        let process = known.unwrap_or_else(|| {
            processes.push(&track.process);
            let order = processes.len();
            out.add(&json!({
                "ph": "M", "name": "process_name", "pid": order, "args": {"name": track.process}
            }));
            out.add(&json!({
                "ph": "M", "name": "process_sort_index", "pid": order, "args": {"sort_index": order}
            }));
            processes.len() - 1
        });
        let place = (process + 1, places.len() + 1);
        let (pid, tid) = place;
        let named =
            [("thread_name", json!({"name": track.name})), ("thread_sort_index", json!({"sort_index": tid}))];
        for (name, args) in named {
            out.add(&json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}));
        }
        places.push(place);
    }
    for (slice, end) in timeline.slices.iter().zip(ends(timeline)) {
        out.add(&Complete {
            ph: 'X',
            cat: "nearfar",
            name: &slice.name,
            pid: places[slice.track].0,
            tid: places[slice.track].1,
            ts: microseconds(slice.begin),
            dur: microseconds_between(slice.begin, end),
            args: &slice.details,
        });
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
                // The last arrow ends at the slice around this time, not at the next one.
                bp: (ph == 'f').then_some("e"),
            });
        }
    }
    let made_from = serde_json::to_string(provenance).unwrap_or_default();
    out.text + "],\"otherData\":" + &made_from + "}\n"
}

/// Events, one a line.
struct Events {
    text: String,
    any: bool,
}

impl Events {
    fn add(&mut self, event: &impl Serialize) {
        self.text.push_str(if self.any { ",\n" } else { "\n" });
        self.any = true;
        // Neither maps without text as keys nor errors of their own: it cannot fail.
        self.text.push_str(&serde_json::to_string(event).unwrap_or_default());
    }
}

/// Something that took time.
#[derive(Serialize)]
struct Complete<'a> {
    ph: char,
    cat: &'static str,
    name: &'a str,
    pid: usize,
    tid: usize,
    ts: f64,
    dur: f64,
    #[serde(serialize_with = "pairs")]
    args: &'a [(&'static str, String)],
}

/// Names with values as an object.
fn pairs<S: Serializer>(pairs: &&[(&'static str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
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

/// Trace events count microseconds; viewers keep three digits after the point.
fn microseconds(time: Time) -> f64 {
    (time.as_ps() / 1000) as f64 / 1e3
}

/// As two of those, without what a difference of fractions leaves.
fn microseconds_between(begin: Time, end: Time) -> f64 {
    (end.as_ps() / 1000).saturating_sub(begin.as_ps() / 1000) as f64 / 1e3
}

/// Slices of a track must lie within each other or apart: what would overlap ends where the next begins.
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
