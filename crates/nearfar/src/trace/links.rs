//! A capture as a timeline: the packets of each link, and each read with its completions.

use std::collections::BTreeMap;
use std::rc::Rc;

use hardware::link::{LinkId, Packet, Passed, Side};
use units::Time;
use wire::pcie::{Bdf, TlpKind};

use super::Capture;
use super::csv::{self, Value};
use super::row::{Decoded, Row};
use super::timeline::{Details, Timeline};

/// A read with completions outstanding.
struct Open {
    flow: u64,
    begin: Time,
    name: Rc<str>,
}

/// Adds the packets of all links to a timeline. Returns the slice of each packet.
pub(super) fn add_links(timeline: &mut Timeline, capture: &Capture) -> Vec<usize> {
    let mut open: BTreeMap<(LinkId, Bdf, u16), Open> = BTreeMap::new();
    let mut slices = Vec::with_capacity(capture.packets.len());
    for link in &capture.links {
        for name in TRACKS {
            timeline.track(&format!("link {}", link.name), name);
        }
    }
    for (index, passed) in capture.packets.iter().enumerate() {
        let row = Row::of(capture, index + 1, passed, capture.origin());
        let track = timeline.track(&format!("link {}", row.link), track_name(passed));
        let slice = timeline.slice(track, (passed.at, passed.until), name(&row));
        timeline.slices[slice].details = Details::Packet(index);
        slices.push(slice);
        let Decoded::Tlp { tlp, .. } = &row.decoded else { continue };
        let of = (passed.link, tlp.requester(), tlp.tag());
        match &tlp.kind {
            TlpKind::MemoryRead(r) => {
                let flow = timeline.flow();
                timeline.slices[slice].flows.push(flow);
                let (address, bytes) = r.byte_range();
                let name = format!("read {bytes} B at {address:#x}").into();
                open.insert(of, Open { flow, begin: passed.at, name });
            }
            TlpKind::Completion(c) | TlpKind::CompletionData(c) => {
                let Some(read) = open.get(&of) else { continue };
                timeline.slices[slice].flows.push(read.flow);
                if c.is_last() {
                    let track =
                        timeline.track(&format!("reads on {}", row.link), &format!("{} tag {}", of.1, of.2));
                    timeline.slice(track, (read.begin, passed.until), read.name.clone());
                    open.remove(&of);
                }
            }
            _ => {}
        }
    }
    slices
}

/// Tracks of a link: a DLLP can overlap a TLP in time.
const TRACKS: [&str; 4] = ["down, TLPs", "down, DLLPs", "up, TLPs", "up, DLLPs"];

fn track_name(passed: &Passed) -> &'static str {
    let dllp = matches!(passed.packet, Packet::Dllp(_));
    TRACKS[usize::from(passed.from == Side::Downstream) * 2 + usize::from(dllp)]
}

fn name(row: &Row<'_>) -> String {
    match &row.decoded {
        Decoded::Tlp { tlp, payload, .. } => match &tlp.kind {
            TlpKind::MemoryRead(r) => format!("{} {} B", row.kind(), r.byte_range().1),
            _ if !payload.is_empty() => format!("{} {} B", row.kind(), payload.len()),
            _ => row.kind(),
        },
        _ => row.kind(),
    }
}

/// The packet's fields; its data are truncated.
pub(super) fn details(row: &Row<'_>) -> Vec<(&'static str, String)> {
    /// Maximum bytes of data shown.
    const MOST_DATA: usize = 64;
    let mut fields = csv::present(row);
    // Name, track and length already show these.
    fields.retain(|(name, _)| !matches!(*name, "link" | "direction" | "type" | "duration_ns"));
    let written = |(name, value): (&'static str, Value<'_>)| match value {
        Value::Bytes(data) if data.len() > MOST_DATA => {
            (name, format!("{}...", Value::Bytes(&data[..MOST_DATA])))
        }
        value => (name, value.to_string()),
    };
    fields.into_iter().map(written).collect()
}
