//! The pings of Figures 5 and 6, event by event, as an analyser on the card's link shows them.
//!
//! The paper's packet is 104 bytes of headers and message (section IV.A); it is given straight to the driver, a second
//! time after one that brought code and data into the caches. A packet's time is that of its first symbol.

use drivers::nic::{KpioParams, NicDriver, NicDriverParams};
use hardware::link::Side;
use units::Time;
use wire::pcie::{Dllp, TlpKind};

use super::Values;
use super::rig::{Card, FPGA, Frames, ORDINARY, Rig, SLOW};
use crate::reproduce::Options;
use crate::trace::{Capture, Decoded, Row};

/// Bytes of the paper's packet.
const PACKET: u32 = 104;

/// What happens on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A memory write, with so many bytes.
    Write(u32),
    /// A memory read of so many bytes.
    Read(u32),
    /// A completion with so many bytes.
    Completion(u32),
    /// An Ack.
    Ack,
    /// Anything else.
    Other,
}

struct Event {
    at: Time,
    until: Time,
    /// From the host to the card.
    is_down: bool,
    what: What,
}

/// All packets, in order.
fn events(capture: &Capture) -> Vec<Event> {
    let event = |(n, passed): (usize, &hardware::link::Passed)| {
        let what = match Row::of(capture, n + 1, passed, Time::ZERO).decoded {
            Decoded::Tlp { tlp, payload, .. } => match tlp.kind {
                TlpKind::MemoryWrite(request) => What::Write(request.byte_range().1),
                TlpKind::MemoryRead(request) => What::Read(request.byte_range().1),
                TlpKind::CompletionData(_) => What::Completion(payload.len() as u32),
                _ => What::Other,
            },
            Decoded::Dllp(Dllp::Ack { .. }) => What::Ack,
            _ => What::Other,
        };
        Event { at: passed.at, until: passed.until, is_down: passed.from == Side::Upstream, what }
    };
    capture.packets.iter().enumerate().map(event).collect()
}

/// What passes the link for one packet from the first interface to the second.
fn ping(options: &Options, card: Card<'_>, kpio: Option<KpioParams>) -> Result<Vec<Event>, String> {
    let params = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
    let rig = Rig::new(options, card, vec![NicDriver::new(params) as _])?;
    let other = rig.kernel().packet_device("eth1").ok_or("the card has no second interface")?;
    let to = other.limits().mac;
    let mut last = Vec::new();
    for _ in 0..2 {
        let (kernel, device) = (rig.kernel(), rig.device()?);
        let (sent, capture) = rig.capture(move |cpu| {
            Box::pin(async move {
                let frames = Frames::new(&cpu, &kernel).map_err(|error| error.to_string())?;
                frames.send_to(&cpu, &device, to, PACKET, 1).await;
                Ok::<(), String>(())
            })
        })?;
        sent?;
        last = events(&capture);
    }
    Ok(last)
}

/// The first event of a kind after a time.
fn first(events: &[Event], after: Time, is_it: impl Fn(&Event) -> bool) -> Option<&Event> {
    events.iter().find(|event| event.at >= after && is_it(event))
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

/// Figure 5, had its driver written one line at a time to a host that accepts them as slowly as its Acks suggest.
pub fn kpio_one_at_a_time(options: &Options) -> Result<Values, String> {
    by_lines(options, SLOW, KpioParams { fence_every: 1, ..KpioParams::papers() })
}

fn by_lines(options: &Options, card: Card<'_>, params: KpioParams) -> Result<Values, String> {
    let events = ping(options, card, Some(params))?;
    let lines: Vec<&Event> = events.iter().filter(|e| e.is_down && e.what == What::Write(64)).collect();
    let [one, two] = lines[..] else { return Err(format!("{} lines on the link", lines.len())) };
    let acks: Vec<&Event> = events.iter().filter(|e| !e.is_down && e.what == What::Ack).collect();
    let in_memory: Vec<&Event> =
        events.iter().filter(|e| !e.is_down && matches!(e.what, What::Write(32..))).collect();
    let ack = |n: usize| acks.get(n).map(|e| e.at);
    // One Ack may be for both.
    let before = |at: Time| in_memory.first().is_none_or(|e| at < e.at);
    let second = ack(1).filter(|&at| before(at)).or(ack(0));
    values(
        &[
            ("kpio-ping/first-ack", ack(0)),
            ("kpio-ping/second-ack", second),
            ("kpio-ping/payload-begins", Some(two.at)),
            ("kpio-ping/payload", Some(two.until)),
            ("kpio-ping/received-first", in_memory.first().map(|e| e.at)),
            ("kpio-ping/received-second", in_memory.get(1).map(|e| e.at)),
        ],
        one.at,
    )
}

/// Figure 6.
pub fn dma(options: &Options) -> Result<Values, String> {
    let events = ping(options, ORDINARY, None)?;
    let doorbell = events.iter().find(|e| e.is_down && matches!(e.what, What::Write(_)));
    let doorbell = doorbell.ok_or("there is no doorbell on the link")?;
    let ack_after = |at: Time| first(&events, at, |e| !e.is_down && e.what == What::Ack).map(|e| e.at);
    let completion = |least: u32, most: u32| {
        let is_it =
            |e: &Event| e.is_down && matches!(e.what, What::Completion(n) if (least..=most).contains(&n));
        first(&events, doorbell.at, is_it)
    };
    let (descriptor, payload) = (completion(1, 32), completion(64, 128));
    values(
        &[
            ("dma-ping/doorbell", Some(doorbell.at)),
            ("dma-ping/doorbell-ack", ack_after(doorbell.until)),
            ("dma-ping/descriptor-ack", descriptor.and_then(|e| ack_after(e.until))),
            ("dma-ping/payload-begins", payload.map(|e| e.at)),
            ("dma-ping/payload", payload.map(|e| e.until)),
            ("dma-ping/payload-ack", payload.and_then(|e| ack_after(e.until))),
        ],
        doorbell.at,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the part files were fitted to.
    #[test]
    fn the_events_of_figures_5_and_6_come_when_they_did() {
        let options = Options { library: machine::Library::built_in(), data: ".".into(), seed: 1 };
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
