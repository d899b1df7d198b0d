//! Rate of a core that writes cache line after cache line: throughput, interval, link efficiency, effect of the
//! number of buffers. The test writes the lines itself, after the driver has started the card's queue: frames of up
//! to 1 KiB in the paper's format, back to back, like the paper's 4 KB writes.

use std::rc::Rc;

use nearfar::drivers::nic::{KpioParams, NicDriver, NicDriverParams};
use platform::cpu::Cpu;
use platform::mmio::{MemoryType, Mmio};
use wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use wire::kpio::signature;
use wire::nic::registers::{KPIO_QUEUES, kpio as register};

use super::analyser::{Card, FPGA, NOBODY, PacketKind, SLOW, SeenPacket, Watched};
use super::window::WindowDriver;
use super::{Values, newer};
use crate::Options;

const LINE: usize = 64;
/// Lines in 4 KB, as in section III.A.
const LINES: usize = 64;
/// Maximum lines per frame.
const FRAME: usize = 16;
/// Data rate of the paper's link per direction.
const LINK_GBIT: f64 = 8.0;
/// Write-combining buffers of the paper's core.
const BUFFERS: usize = 10;

/// Width of a core's stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    /// 8 bytes per store.
    Word,
    /// 16 bytes per store, like the paper's `movntdq`.
    Double,
}

/// When a core continues with the next line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// As soon as its stores are in the store buffer.
    AsItGoes,
    /// Once the host has accepted the line.
    Fenced,
}

/// The lines of frames addressed to nobody, back to back.
fn lines(count: usize) -> Vec<[u8; LINE]> {
    let mut bytes = Vec::new();
    for begin in (0..count).step_by(FRAME) {
        let mut frame = vec![0x11; (count - begin).min(FRAME) * LINE - signature::EOP.to_le_bytes().len()];
        EthernetHeader::new(MacAddr::local(1), NOBODY, EtherType::EXPERIMENTAL).emit(&mut frame);
        signature::encode(&frame, signature::EOP, &mut bytes);
    }
    bytes.as_chunks::<LINE>().0.to_vec()
}

/// Restarts the queue at its first line.
fn restart(rig: &Watched) -> Result<(), String> {
    let device = rig.device()?;
    let done = rig.spawn(1, async move |cpu| {
        device.stop(&cpu).await;
        device.open(&cpu).await
    });
    rig.wait(&done)?.map_err(|error| error.to_string())
}

async fn store(cpu: &Cpu, window: &Mmio, lines: &[[u8; LINE]], width: Width, pace: Pace) {
    let range = (LINES * LINE) as u64;
    for (n, line) in lines.iter().enumerate() {
        let at = (n * LINE) as u64 % range;
        match width {
            Width::Word => window.write(cpu, at, line),
            Width::Double => window.stream(cpu, at, line),
        }
        match pace {
            Pace::AsItGoes => cpu.sync().await,
            Pace::Fenced => {
                cpu.sfence();
                cpu.sync().await;
            }
        }
    }
    cpu.sync().await;
}

/// A card with a running queue, and its window.
fn started(
    options: &Options,
    card: Card<'_>,
    kind: MemoryType,
) -> Result<(Watched, Rc<WindowDriver>), String> {
    let params =
        NicDriverParams { channels: Some(1), kpio: Some(KpioParams::papers()), ..NicDriverParams::default() };
    let driver = WindowDriver::mapped(kind, NicDriver::new(params));
    let rig = Watched::new(options, card, vec![driver.clone()])?;
    restart(&rig)?;
    Ok((rig, driver))
}

/// Writes `count` lines. Returns the writes on the link.
fn write(
    options: &Options,
    card: Card<'_>,
    kind: MemoryType,
    (width, count): (Width, usize),
    pace: Pace,
) -> Result<Vec<SeenPacket>, String> {
    let (rig, driver) = started(options, card, kind)?;
    let (window, lines) = (driver.get()?, lines(count));
    let freed = || driver.read(&rig, KPIO_QUEUES + register::FREED);
    let before = freed()?;
    let ((), mut seen) = rig.record(async move |cpu| store(&cpu, &window, &lines, width, pace).await)?;
    let through = freed()?.wrapping_sub(before);
    if through as usize != count {
        return Err(format!("{through} of {count} lines passed the queue"));
    }
    // The driver's own register writes are 4 bytes long.
    seen.retain(|seen| seen.is_down && seen.kind == PacketKind::Write && seen.payload >= 8);
    Ok(seen)
}

fn combining(options: &Options, card: Card<'_>, count: usize) -> Result<Vec<SeenPacket>, String> {
    write(options, card, MemoryType::WriteCombining, (Width::Double, count), Pace::AsItGoes)
}

/// Data as a percentage of the bytes on the lanes.
fn efficiency(seen: &[SeenPacket]) -> f64 {
    let (payload, wire) = seen.iter().fold((0, 0), |sum, seen| (sum.0 + seen.payload, sum.1 + seen.wire));
    payload as f64 / wire as f64 * 100.0
}

fn interval(seen: &[SeenPacket]) -> f64 {
    let (first, last) = (seen[0].at, seen[seen.len() - 1].at);
    last.since(first).as_ns_f64() / (seen.len() - 1).max(1) as f64
}

fn gbit_per_s(seen: &[SeenPacket]) -> f64 {
    // From line to line, so that the first line's latency does not count.
    LINE as f64 * 8.0 / interval(seen)
}

/// Data rate over the packets' time on the link, as a percentage of the paper's link rate.
fn share_of_time(seen: &[SeenPacket]) -> f64 {
    let time: f64 = seen.iter().map(|seen| seen.until.since(seen.at).as_ns_f64()).sum();
    let payload: u64 = seen.iter().map(|seen| seen.payload).sum();
    payload as f64 * 8.0 / time / LINK_GBIT * 100.0
}

/// Rate in GB/s at which a core fills its buffers, with as many lines as the paper's core has, up to the last store.
fn fill_rate(options: &Options, card: Card<'_>) -> Result<f64, String> {
    const CORE: u16 = 1;
    let (rig, driver) = started(options, card, MemoryType::WriteCombining)?;
    let (window, lines) = (driver.get()?, lines(BUFFERS));
    let begun = rig.spawn(CORE, async move |cpu| {
        cpu.sync().await;
        let begin = cpu.now();
        for (n, line) in lines.iter().enumerate() {
            window.write(&cpu, (n * LINE) as u64, line);
        }
        cpu.sync().await;
        begin
    });
    let begin = rig.wait(&begun)?;
    let took = rig.stored(CORE)?.since(begin).as_ns_f64();
    Ok((BUFFERS * LINE) as f64 / took)
}

/// A single line, and 4 KB of lines.
pub fn single_and_many(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    let many = combining(options, FPGA, LINES)?;
    values.insert("lines/interval".into(), interval(&many));
    values.insert("lines/efficiency".into(), efficiency(&many));
    values.insert("lines/share-of-time".into(), share_of_time(&many));
    values.insert("lines/gbit".into(), gbit_per_s(&many));
    let one = combining(options, FPGA, 1)?;
    values.insert("one-line/payload".into(), one[0].until.since(one[0].at).as_ns_f64());
    let uncached = write(options, FPGA, MemoryType::Uncached, (Width::Word, LINES), Pace::AsItGoes)?;
    values.insert("uncached/efficiency".into(), efficiency(&uncached));
    values.insert("fill/rate".into(), fill_rate(options, FPGA)?);
    let single = Card { change_host: "change.host.core.write_combining_buffers = 1", ..FPGA };
    values.insert("fill/rate-one".into(), fill_rate(options, single)?);
    Ok(values)
}

/// A core with `number` write-combining buffers.
fn buffers_of_core(number: u32) -> String {
    format!(
        "change.host.core.line_fill_buffers = {number}\nchange.host.core.write_combining_buffers = {number}"
    )
}

/// Throughput in Gbit/s of alternatives to using all buffers: one line at a time, on the paper's host and on one that
/// accepts lines slowly; uncached stores; then write-combined lines and uncached stores to a card with ample
/// resources.
pub fn other_ways(options: &Options) -> Result<[f64; 5], String> {
    let lines = 4 * LINES;
    let fenced = |card| -> Result<Vec<SeenPacket>, String> {
        let ways = (Width::Double, lines);
        write(options, card, MemoryType::WriteCombining, ways, Pace::Fenced)
    };
    let uncached = |card| -> Result<f64, String> {
        let words = write(options, card, MemoryType::Uncached, (Width::Word, lines), Pace::AsItGoes)?;
        Ok(64.0 / interval(&words))
    };
    let change = format!(
        "{}
{}",
        newer::CARD,
        newer::LOOP
    );
    let newer = Card { change: &change, ..FPGA };
    Ok([
        gbit_per_s(&fenced(FPGA)?),
        gbit_per_s(&fenced(SLOW)?),
        uncached(FPGA)?,
        gbit_per_s(&combining(options, newer, lines)?),
        uncached(newer)?,
    ])
}

/// Throughput of lines to the paper's card through a number of buffers, in Gbit/s.
pub fn papers_gbit(options: &Options, buffers: u32, change_host: &str) -> Result<f64, String> {
    let change_host = format!("{}\n{change_host}", buffers_of_core(buffers));
    Ok(gbit_per_s(&combining(options, Card { change_host: &change_host, ..FPGA }, 4 * LINES)?))
}

/// One to ten buffers, and up to twenty on a faster link.
pub fn buffers(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for buffers in 1..=10 {
        values.insert(format!("buffers/gbit/{buffers}"), papers_gbit(options, buffers, "")?);
    }
    for buffers in (1..=10).chain([12, 16, 20]) {
        let link = newer::Link { generation: 3, width: 16 };
        values.insert(format!("buffers/gbit-newer/{buffers}"), newer_gbit(options, link, buffers, "")?);
    }
    Ok(values)
}

/// Throughput of lines to a newer card, in Gbit/s.
pub fn newer_gbit(
    options: &Options,
    link: newer::Link,
    buffers: u32,
    change_host: &str,
) -> Result<f64, String> {
    let (change, port) = link.changes();
    let change_host = format!("{port}\n{}\n{change_host}", buffers_of_core(buffers));
    let card = Card { change: &change, change_host: &change_host, ..FPGA };
    Ok(gbit_per_s(&combining(options, card, 8 * LINES)?))
}

/// Throughput of lines to a newer card in Gbit/s, with ten buffers and with one.
pub fn ten_and_one(options: &Options, link: newer::Link) -> Result<[f64; 2], String> {
    Ok([newer_gbit(options, link, 10, "")?, newer_gbit(options, link, 1, "")?])
}

/// Links of five generations.
pub fn generations(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for generation in 1..=5 {
        let change = format!("change.link.generation = {generation}\n{}", newer::LOOP);
        let change_host = format!("change.host.port.slot.generation = {generation}");
        let seen =
            combining(options, Card { change: &change, change_host: &change_host, ..FPGA }, 4 * LINES)?;
        values.insert(format!("generation/interval/{generation}"), interval(&seen));
        for (name, width, buffers) in [("x4", 4, 10), ("x16", 16, 10), ("x16-20", 16, 20)] {
            let gbit = newer_gbit(options, newer::Link { generation, width }, buffers, "")?;
            values.insert(format!("generation/gbit-{name}/{generation}"), gbit);
            if name == "x4" {
                values.insert(format!("generation/interval-newer/{generation}"), (LINE * 8) as f64 / gbit);
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_buffer_fills_no_faster_than_it_empties() {
        let options = Options::whole(1);
        let values = single_and_many(&options).unwrap();
        // A single buffer is free only 91 ns after its line left; with ten, the core need not wait.
        assert!(values["fill/rate-one"] < 1.0, "{values:#?}");
        assert!(values["fill/rate"] > 15.0, "{values:#?}");
    }
}
