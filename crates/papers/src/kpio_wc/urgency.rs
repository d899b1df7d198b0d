//! Benefit of letting the core decide what is urgent (section V: quality of service).
//!
//! One core sends large messages of one connection as fast as possible. Later an urgent message of another connection
//! arrives, which the core sends before further large ones. Measured is the latency until the message is on the
//! card's other side.

use nearfar::drivers::nic::{Flow, KpioParams, NicDriverParams, PacketSelect};
use units::Duration;

use super::Values;
use super::analyser::{FPGA, FrameSource, HEADERS, PacketKind, Watched, tcp_frame};
use crate::Options;

/// Size of a large frame.
const LARGE: usize = 1506;
/// Ports of the urgent connection and of the other.
const PORTS: (u16, u16) = (5001, 80);
/// Arrival time of the urgent message: by then, all large messages of the descriptor path are in the ring.
const AFTER: Duration = Duration::from_us(40);
/// Maximum number of large messages.
const MOST: u32 = 100;
const LOADS: [u32; 6] = [0, 10, 25, 50, 75, MOST];
/// Message sizes whose last fragment differs from a completion on the link: see [`latency`].
const SIZES: [u32; 6] = [16, 64, 128, 256, 512, 1024];

const BY_PORT: PacketSelect = PacketSelect::TcpPorts { first: PORTS.0, last: PORTS.0 };
/// What uses the line path: nothing, the urgent message, or everything; and whether one doorbell covers all large
/// messages.
const WAYS: [(&str, PacketSelect, bool); 4] = [
    ("ring", PacketSelect::None, false),
    ("lines", BY_PORT, false),
    ("lines-one-doorbell", BY_PORT, true),
    ("all-lines", PacketSelect::All, false),
];

/// Time from the arrival of the urgent message until its last fragment is written to memory, in microseconds.
fn latency(rig: &Watched, message: u32, load: u32, joined: bool) -> Result<f64, String> {
    let (kernel, device) = (rig.kernel(), rig.device()?);
    let bulk = tcp_frame(rig.nobody(), PORTS.1, LARGE);
    let urgent = tcp_frame(rig.other()?, PORTS.0, frame_of(message));
    let (due, seen) = rig.record(async move |cpu| {
        let (large, small) = (FrameSource::new(&cpu, &kernel).ok()?, FrameSource::new(&cpu, &kernel).ok()?);
        large.store(&cpu, &bulk).await;
        small.store(&cpu, &urgent).await;
        let due = cpu.now() + AFTER;
        let mut left = load;
        while left > 0 && cpu.now() < due {
            left -= 1;
            large.send_more(&cpu, &device, bulk.len() as u32, joined && left > 0).await;
        }
        if cpu.now() < due {
            cpu.sleep(due.since(cpu.now())).await;
        }
        small.send_again(&cpu, &device, urgent.len() as u32).await;
        for _ in 0..left {
            large.send_again(&cpu, &device, bulk.len() as u32).await;
        }
        large.wait(&cpu).await;
        small.wait(&cpu).await;
        Some(due)
    })?;
    let due = due.ok_or("there is no memory for frames")?;
    // Nobody receives the large messages. Apart from them, the card writes only completions of 16 B.
    let arrived = seen
        .iter()
        .find(|s| !s.is_down && s.kind == PacketKind::Write && s.payload > 16 && s.payload % 16 != 0);
    let arrived = arrived.ok_or_else(|| format!("the urgent message of {message} B did not arrive"))?;
    Ok(arrived.until.since(due).as_ns_f64() / 1e3)
}

/// A TCP segment has 54 bytes of headers.
fn frame_of(message: u32) -> usize {
    (HEADERS + message).max(54) as usize
}

/// By number of waiting messages, and by size of the urgent message.
pub fn urgency(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for (name, select, joined) in WAYS {
        let kpio = Some(KpioParams { select, flow: Flow::Link, ..KpioParams::default() });
        let driver = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
        let rig = Watched::with_nic(options, FPGA, driver)?;
        for load in LOADS {
            values.insert(format!("urgency/{name}-load/{load}"), latency(&rig, 64, load, joined)?);
        }
        for message in SIZES {
            values.insert(format!("urgency/{name}-size/{message}"), latency(&rig, message, MOST, joined)?);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_by_the_ring_waits_for_all_before_it() {
        let options = Options::whole(1);
        let values = urgency(&options).unwrap();
        let growth = |way: &str| {
            let of = |load: u32| values[&format!("urgency/{way}-load/{load}")];
            of(MOST) - of(25)
        };
        assert!(growth("ring") > 100.0, "{values:#?}");
        assert!(
            ["lines", "lines-one-doorbell", "all-lines"].iter().all(|way| growth(way) < 5.0),
            "{values:#?}"
        );
        assert!(SIZES.iter().all(|&message| frame_of(message) % 16 != 0));
    }
}
