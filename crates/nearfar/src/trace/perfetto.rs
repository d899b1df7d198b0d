//! A timeline in the trace event format, which ui.perfetto.dev and chrome://tracing read.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use units::Time;

use super::timeline::Timeline;

/// The trace as JSON.
pub fn trace(timeline: &Timeline) -> Value {
    let mut processes: Vec<&str> = Vec::new();
    let mut places = Vec::new();
    let mut events = Vec::new();
    for track in &timeline.tracks {
        let known = processes.iter().position(|&process| process == track.process);
        let process = known.unwrap_or_else(|| {
            processes.push(&track.process);
            events.push(json!({
                "ph": "M", "name": "process_name", "pid": processes.len(), "args": {"name": track.process}
            }));
            let order = processes.len();
            events.push(json!({
                "ph": "M", "name": "process_sort_index", "pid": order, "args": {"sort_index": order}
            }));
            processes.len() - 1
        });
        let place = (process + 1, places.len() + 1);
        let (pid, tid) = place;
        let named =
            [("thread_name", json!({"name": track.name})), ("thread_sort_index", json!({"sort_index": tid}))];
        for (name, args) in named {
            events.push(json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}));
        }
        places.push(place);
    }
    for (slice, end) in timeline.slices.iter().zip(ends(timeline)) {
        let (pid, tid) = places[slice.track];
        let args: serde_json::Map<String, Value> =
            slice.details.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        events.push(json!({
            "ph": "X", "cat": "nearfar", "name": slice.name, "pid": pid, "tid": tid,
            "ts": microseconds(slice.begin), "dur": microseconds_between(slice.begin, end), "args": args,
        }));
    }
    for (id, slices) in timeline.stories().into_iter().filter(|(_, slices)| slices.len() > 1) {
        let last = slices.len() - 1;
        for (step, &index) in slices.iter().enumerate() {
            let slice = &timeline.slices[index];
            let (pid, tid) = places[slice.track];
            let phase = if step == 0 {
                "s"
            } else if step == last {
                "f"
            } else {
                "t"
            };
            let mut event = json!({
                "ph": phase, "cat": "nearfar", "name": "follows", "id": id, "pid": pid, "tid": tid,
                "ts": microseconds(slice.begin),
            });
            // The last arrow ends at the slice around this time, not at the next one.
            if phase == "f" {
                event["bp"] = json!("e");
            }
            events.push(event);
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
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
