//! Beyond the paper: the variants of programmed I/O and related techniques side by side, and the cost of choosing a
//! path.

use nearfar::drivers::nic::{Ending, Flow, InlineParams, KpioParams, NicDriverParams, PacketSelect, Stores};
use units::Time;

use super::Values;
use super::analyser::{Card, FPGA, FrameSource, HEADERS, PacketKind, SeenPacket, Watched, tcp_frame};
use crate::Options;

/// Message sizes for the comparison of all variants.
const SIZES: [u32; 13] = [8, 16, 20, 21, 40, 64, 84, 128, 200, 256, 512, 1024, 1472];
/// Clock of the paper's host, to convert to cycles.
const GHZ: f64 = 2.5;

/// The FPGA with doorbells that carry packets.
const CARD: Card<'static> =
    Card { change: "change.controller.inline = { value = true, source = \"assumed: to compare\" }", ..FPGA };

/// The variants, by name.
fn ways() -> [(&'static str, NicDriverParams); 8] {
    let driver =
        |kpio, inline| NicDriverParams { channels: Some(1), kpio, inline, ..NicDriverParams::default() };
    let lines = |params: KpioParams| driver(Some(params), None);
    let framed = KpioParams { flow: Flow::Link, ..KpioParams::default() };
    let doorbell = |direct| driver(None, Some(InlineParams { up_to: 240, direct }));
    [
        ("signature", lines(KpioParams::papers())),
        ("framed", lines(framed)),
        ("fenced", lines(KpioParams { ending: Ending::Fenced, ..framed })),
        ("direct", lines(KpioParams { stores: Stores::Direct, ..framed })),
        ("uncached", lines(KpioParams::uncached())),
        ("descriptor", driver(None, None)),
        ("inline", doorbell(false)),
        ("inline-direct", doorbell(true)),
    ]
}

/// When the last byte of a message was in the card, before any response of the card.
fn arrival(seen: &[SeenPacket]) -> Option<Time> {
    let said = seen.iter().filter(|s| !s.is_down && s.kind == PacketKind::Write).map(|s| s.at).min();
    let brings = |s: &&SeenPacket| s.is_down && matches!(s.kind, PacketKind::Write | PacketKind::Completion);
    seen.iter().filter(brings).filter(|s| said.is_none_or(|said| s.at < said)).map(|s| s.until).max()
}

/// Sends one message. Returns when the program started and ended, and the packets on the link.
fn send(rig: &Watched, bytes: Vec<u8>) -> Result<((Time, Time), Vec<SeenPacket>), String> {
    let (kernel, device) = (rig.kernel(), rig.device()?);
    let (times, seen) = rig.record(async move |cpu| {
        let frames = FrameSource::new(&cpu, &kernel).map_err(|error| error.to_string())?;
        frames.store(&cpu, &bytes).await;
        let begin = cpu.now();
        frames.send_again(&cpu, &device, bytes.len() as u32).await;
        Ok::<_, String>((begin, cpu.now()))
    })?;
    Ok((times?, seen))
}

/// For every variant: time from the driver's call until the message is in the card, and CPU time.
pub fn ways_by_size(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for (name, driver) in ways() {
        let rig = Watched::with_nic(options, CARD, driver)?;
        for message in SIZES {
            let frame = || tcp_frame(rig.nobody(), 5001, (HEADERS + message).max(54) as usize);
            // The first message of a size runs with cold caches.
            send(&rig, frame())?;
            let ((begin, end), seen) = send(&rig, frame())?;
            let arrived = arrival(&seen).ok_or_else(|| format!("{name}: {message} B did not arrive"))?;
            values.insert(format!("relatives/{name}/{message}"), arrived.since(begin).as_ns_f64());
            values.insert(format!("cost/{name}/{message}"), end.since(begin).as_ns_f64() * GHZ);
        }
    }
    Ok(values)
}

/// Cost per packet, in cycles, of choosing a path at run time.
pub fn selection(options: &Options) -> Result<Values, String> {
    let cycles = |select| -> Result<f64, String> {
        let kpio = Some(KpioParams { select, flow: Flow::Link, ..KpioParams::default() });
        let driver = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
        let rig = Watched::with_nic(options, FPGA, driver)?;
        let frame = || tcp_frame(rig.nobody(), 5001, 60);
        // One message at a time, so that waiting for the link hides nothing; the first runs with cold caches.
        send(&rig, frame())?;
        let ((begin, end), _) = send(&rig, frame())?;
        Ok(end.since(begin).as_ns_f64() * GHZ)
    };
    let all = cycles(PacketSelect::All)?;
    let mut values = Values::new();
    values.insert(
        "selection/by-port".into(),
        cycles(PacketSelect::TcpPorts { first: 5001, last: 5001 })? - all,
    );
    values.insert("selection/by-size".into(), cycles(PacketSelect::UpTo(2048))? - all);
    Ok(values)
}

/// The receive side: latency of a short frame into memory, with separate buffer and completion, and inline before its
/// completion in a single write.
pub fn receive_slots(options: &Options) -> Result<Values, String> {
    const SIZES: [u32; 6] = [8, 20, 40, 64, 128, 200];
    let mut values = Values::new();
    for (name, rx_slot) in [("buffer", None), ("inline", Some(8))] {
        let kpio = Some(KpioParams::papers());
        let driver = NicDriverParams { channels: Some(1), kpio, rx_slot, ..NicDriverParams::default() };
        let rig = Watched::with_nic(options, CARD, driver)?;
        for message in SIZES {
            let frame = tcp_frame(rig.other()?, 5001, (HEADERS + message).max(54) as usize);
            let (_, seen) = send(&rig, frame)?;
            // Line count updates are 4 bytes long.
            let up = || seen.iter().filter(|s| !s.is_down && s.kind == PacketKind::Write && s.payload >= 8);
            let (first, last) = (up().map(|s| s.at).min(), up().map(|s| s.until).max());
            let took = last.zip(first).map(|(last, first)| last.since(first).as_ns_f64());
            let took = took.ok_or_else(|| format!("{message} B did not come by {name}"))?;
            values.insert(format!("slots/{name}/{message}"), took);
        }
    }
    Ok(values)
}
