//! The pings of Figures 5 and 6, event by event, as seen by an analyser on the card's link.
//!
//! The paper's packet is a message of 64 bytes plus 36 of headers (section IV.A). It goes directly to the driver; an
//! earlier packet has warmed the caches. A packet's time is that of its first symbol. The first Ack that covers a
//! TLP's number counts as its Ack. Data have been fetched when the last completion of the request's tag has passed.

use nearfar::drivers::nic::{KpioParams, NicDriverParams};
use nearfar::hardware::link::Side;
use nearfar::trace::{Capture, Decoded, Row};
use units::Time;
use wire::pcie::{Dllp, Sequence, TlpKind};

use super::Values;
use super::analyser::{Card, FPGA, FrameSource, HEADERS, ORDINARY, SLOW, Watched};
use crate::Options;

/// Size of the paper's packet. Its kPIO+WC driver adds four bytes of padding, since its format needs a multiple of
/// eight.
const PACKET: u32 = HEADERS + 64;

/// An event on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A memory write of this many bytes.
    Write(u32),
    /// A memory read of this many bytes.
    Read(u32),
    /// A completion with data.
    Completion,
    /// An Ack of all TLPs up to a number.
    Ack(Sequence),
    /// Anything else.
    Other,
}

struct Event {
    at: Time,
    until: Time,
    /// Direction: host to card.
    is_down: bool,
    what: What,
    /// A TLP's sequence number and tag.
    sequence: Sequence,
    tag: u16,
}

/// All packets, in order.
fn events(capture: &Capture) -> Vec<Event> {
    let event = |(n, passed): (usize, &nearfar::hardware::link::Passed)| {
        let (what, sequence, tag) = match Row::of(capture, n + 1, passed, Time::ZERO).decoded {
            Decoded::Tlp { tlp, sequence, .. } => {
                let what = match tlp.kind {
                    TlpKind::MemoryWrite(request) => What::Write(request.byte_range().1),
                    TlpKind::MemoryRead(request) => What::Read(request.byte_range().1),
                    TlpKind::CompletionData(_) => What::Completion,
                    _ => What::Other,
                };
                (what, sequence, tlp.tag())
            }
            Decoded::Dllp(Dllp::Ack(upto)) => (What::Ack(upto), upto, 0),
            _ => (What::Other, Sequence::new(0), 0),
        };
        let is_down = passed.from == Side::Upstream;
        Event { at: passed.at, until: passed.until, is_down, what, sequence, tag }
    };
    capture.packets.iter().enumerate().map(event).collect()
}

/// Time of the Ack that covers a TLP.
fn ack_of(events: &[Event], tlp: &Event) -> Option<Time> {
    let covers = |upto: Sequence| upto.since(tlp.sequence) < 2048;
    let is_it = |e: &&Event| {
        e.at >= tlp.until && e.is_down != tlp.is_down && matches!(e.what, What::Ack(upto) if covers(upto))
    };
    events.iter().find(is_it).map(|e| e.at)
}

/// The completions of the card's `n`th read after a time, counted from 0.
fn completions(events: &[Event], after: Time, n: usize) -> Vec<&Event> {
    let reads = events.iter().filter(|e| e.at >= after && !e.is_down && matches!(e.what, What::Read(_)));
    let Some(read) = reads.clone().nth(n) else { return Vec::new() };
    // Ends at the next read that reuses the tag.
    let end = reads.skip(n + 1).find(|next| next.tag == read.tag).map(|next| next.at);
    let is_its = |e: &&Event| {
        let in_time = e.at > read.at && end.is_none_or(|end| e.at < end);
        e.is_down && e.what == What::Completion && e.tag == read.tag && in_time
    };
    events.iter().filter(is_its).collect()
}

/// The packets on the link while one frame goes from the first interface to the second.
fn ping(options: &Options, card: Card<'_>, kpio: Option<KpioParams>) -> Result<Vec<Event>, String> {
    let params = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
    let rig = Watched::with_nic(options, card, params)?;
    let other = rig.kernel().packet_device("eth1").ok_or("the card has no second interface")?;
    let to = other.limits().mac;
    let mut last = Vec::new();
    for _ in 0..2 {
        let (kernel, device) = (rig.kernel(), rig.device()?);
        let (sent, capture) = rig.capture(async move |cpu| {
            let frames = FrameSource::new(&cpu, &kernel).map_err(|error| error.to_string())?;
            frames.send_to(&cpu, &device, to, PACKET, 1).await;
            Ok::<(), String>(())
        })?;
        sent?;
        last = events(&capture);
    }
    Ok(last)
}

/// Times beyond the link: from the packet's arrival in the card to its first write to memory on the other side, and
/// from there to the end of the completion for the driver.
fn beyond(events: &[Event], name: &str, in_card: Time) -> Result<Values, String> {
    let mut up = events.iter().filter_map(|e| match e.what {
        What::Write(bytes) if !e.is_down && e.at >= in_card => Some((e, bytes)),
        _ => None,
    });
    let first = up.find(|(_, bytes)| *bytes >= 32).map(|(e, _)| e);
    let told = up.find(|(_, bytes)| *bytes == 16).map(|(e, _)| e);
    let (Some(first), Some(told)) = (first, told) else {
        return Err("nothing is written to memory on the other side".to_owned());
    };
    let through = (format!("{name}/through"), first.at.since(in_card).as_ns_f64());
    let to_memory = (format!("{name}/to-memory"), told.until.since(first.at).as_ns_f64());
    Ok(Values::from([through, to_memory]))
}

fn values(of: &[(&str, Option<Time>)], origin: Time) -> Result<Values, String> {
    of.iter()
        .map(|&(key, at)| {
            let at = at.ok_or_else(|| format!("there is no `{key}` on the link"))?;
            Ok((key.to_owned(), at.since(origin).as_ns_f64()))
        })
        .collect()
}

/// Figure 5.
pub fn kpio(options: &Options) -> Result<Values, String> {
    by_lines(options, FPGA, KpioParams::papers())
}

/// Figure 5, if its driver wrote one line at a time to a host that accepts lines as slowly as its Acks suggest.
pub fn kpio_one_at_a_time(options: &Options) -> Result<Values, String> {
    by_lines(options, SLOW, KpioParams { fence_every: 1, ..KpioParams::papers() })
}

fn by_lines(options: &Options, card: Card<'_>, params: KpioParams) -> Result<Values, String> {
    let events = ping(options, card, Some(params))?;
    let lines: Vec<&Event> = events.iter().filter(|e| e.is_down && e.what == What::Write(64)).collect();
    let [one, two] = lines[..] else { return Err(format!("{} lines on the link", lines.len())) };
    let in_memory: Vec<&Event> =
        events.iter().filter(|e| !e.is_down && matches!(e.what, What::Write(32..))).collect();
    let beside = |e: &&Event| e.at > one.at && in_memory.first().is_none_or(|back| e.at < back.at);
    let is_doorbell = |e: &&Event| e.is_down && matches!(e.what, What::Write(bytes) if bytes != 64);
    let is_read = |e: &&Event| !e.is_down && matches!(e.what, What::Read(_));
    let doorbells = events.iter().filter(beside).filter(is_doorbell).count();
    let reads = events.iter().filter(beside).filter(is_read).count();
    let mut found = values(
        &[
            ("kpio-ping/first-ack", ack_of(&events, one)),
            ("kpio-ping/second-ack", ack_of(&events, two)),
            ("kpio-ping/payload-begins", Some(two.at)),
            ("kpio-ping/payload", Some(two.until)),
            ("kpio-ping/received-first", in_memory.first().map(|e| e.at)),
            ("kpio-ping/received-second", in_memory.get(1).map(|e| e.at)),
        ],
        one.at,
    )?;
    found.insert("kpio-ping/doorbells".into(), doorbells as f64);
    found.insert("kpio-ping/reads".into(), reads as f64);
    found.extend(beyond(&events, "kpio-ping", two.until)?);
    Ok(found)
}

/// Figure 6.
pub fn dma(options: &Options) -> Result<Values, String> {
    let events = ping(options, ORDINARY, None)?;
    let doorbell = events.iter().find(|e| e.is_down && matches!(e.what, What::Write(_)));
    let doorbell = doorbell.ok_or("there is no doorbell on the link")?;
    // The card fetches the descriptor, then the data it points to.
    let [descriptor, payload] = [0, 1].map(|n| completions(&events, doorbell.at, n));
    let (descriptor, begin, end) = (descriptor.last(), payload.first(), payload.last());
    let mut found = values(
        &[
            ("dma-ping/doorbell", Some(doorbell.at)),
            ("dma-ping/doorbell-ack", ack_of(&events, doorbell)),
            ("dma-ping/descriptor-ack", descriptor.and_then(|e| ack_of(&events, e))),
            ("dma-ping/payload-begins", begin.map(|e| e.at)),
            ("dma-ping/payload", end.map(|e| e.until)),
            ("dma-ping/payload-ack", end.and_then(|e| ack_of(&events, e))),
        ],
        doorbell.at,
    )?;
    if let Some(payload) = end {
        found.extend(beyond(&events, "dma-ping", payload.until)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part files were fitted to these events.
    #[test]
    fn the_events_of_figures_5_and_6_come_when_they_did() {
        let options = Options::whole(1);
        let mut seen = kpio(&options).unwrap();
        seen.extend(dma(&options).unwrap());
        let published = [
            ("kpio-ping/first-ack", 492.0),
            ("kpio-ping/received-first", 1292.0),
            ("kpio-ping/received-second", 1388.0),
            ("dma-ping/doorbell-ack", 184.0),
            ("dma-ping/descriptor-ack", 1064.0),
            ("dma-ping/payload-ack", 2048.0),
        ];
        for (key, published) in published {
            assert!((seen[key] / published - 1.0).abs() < 0.02, "{key}: {} for {published} ns", seen[key]);
        }
    }
}
