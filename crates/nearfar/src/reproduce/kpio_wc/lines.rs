//! What a core does when it writes line after line: the rate, the interval, the link's efficiency, the number of
//! buffers. By hand, beside a driver that has started the card's queue: frames of up to 1 KiB in the paper's format, one
//! behind the other, as the paper's writes of 4 KB were.

use std::rc::Rc;

use drivers::nic::{KpioParams, NicDriver, NicDriverParams};
use platform::cpu::Cpu;
use platform::mmio::{MemoryType, Mmio};
use wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use wire::kpio::signature;
use wire::nic::registers::{KPIO_QUEUES, kpio as register};

use super::analyser::{Card, FPGA, NOBODY, PacketKind, SLOW, SeenPacket, Watched};
use super::window::WindowDriver;
use super::{Values, newer};
use crate::reproduce::Options;

const LINE: usize = 64;
/// Lines of 4 KB, as in section III.A.
const LINES: usize = 64;
/// Most lines of a frame.
const FRAME: usize = 16;
/// What the paper's link carries each way.
const LINK_GBIT: f64 = 8.0;
/// Buffers of the paper's core.
const BUFFERS: usize = 10;

/// How a core stores a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    /// Eight bytes at a time.
    Word,
    /// 16 bytes at a time, as the paper's `movntdq`.
    Double,
}

/// When a core goes on to the next line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// When its stores are in the store buffer.
    AsItGoes,
    /// When the line has been accepted.
    Fenced,
}

/// The lines of frames for nobody, one behind the other.
fn lines(count: usize) -> Vec<[u8; LINE]> {
    let mut bytes = Vec::new();
    for begin in (0..count).step_by(FRAME) {
        let mut frame = vec![0x11; (count - begin).min(FRAME) * LINE - signature::EOP.to_le_bytes().len()];
        EthernetHeader::new(MacAddr::local(1), NOBODY, EtherType::EXPERIMENTAL).emit(&mut frame);
        signature::encode(&frame, signature::EOP, &mut bytes);
    }
    bytes.as_chunks::<LINE>().0.to_vec()
}

/// Starts the queue anew, at its first line.
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

/// A card whose queue runs, and its window.
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

/// Writes `count` lines; gives the writes on the link.
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
    // The driver's own writes to registers have four bytes.
    seen.retain(|seen| seen.is_down && seen.kind == PacketKind::Write && seen.payload >= 8);
    Ok(seen)
}

fn combining(options: &Options, card: Card<'_>, count: usize) -> Result<Vec<SeenPacket>, String> {
    write(options, card, MemoryType::WriteCombining, (Width::Double, count), Pace::AsItGoes)
}

/// Share of data among the bytes on the lanes, in percent.
fn efficiency(seen: &[SeenPacket]) -> f64 {
    let (payload, wire) = seen.iter().fold((0, 0), |sum, seen| (sum.0 + seen.payload, sum.1 + seen.wire));
    payload as f64 / wire as f64 * 100.0
}

fn interval(seen: &[SeenPacket]) -> f64 {
    let (first, last) = (seen[0].at, seen[seen.len() - 1].at);
    last.since(first).as_ns_f64() / (seen.len() - 1).max(1) as f64
}

fn gbit_per_s(seen: &[SeenPacket]) -> f64 {
    // From line to line, so that the first one's way does not count.
    LINE as f64 * 8.0 / interval(seen)
}

/// Share of data in the time that their packets take of the link, in percent of what the paper's carries.
fn share_of_time(seen: &[SeenPacket]) -> f64 {
    let time: f64 = seen.iter().map(|seen| seen.until.since(seen.at).as_ns_f64()).sum();
    let payload: u64 = seen.iter().map(|seen| seen.payload).sum();
    payload as f64 * 8.0 / time / LINK_GBIT * 100.0
}

/// Rate at which a core fills its buffers with as many lines as the paper's has, in GB/s: until the last store is in one.
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

/// Single lines and 4 KB of them.
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

/// A core with so many buffers.
fn buffers_of_core(number: u32) -> String {
    format!(
        "change.host.core.line_fill_buffers = {number}\nchange.host.core.write_combining_buffers = {number}"
    )
}

/// Throughput of lines by other ways than through all buffers, in Gbit/s: one line at a time, on the paper's host and on one
/// that accepts them slowly, and uncached; then lines and uncached on a card that is short of nothing.
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

/// Lines to the paper's card through so many buffers, in Gbit/s.
pub fn papers_gbit(options: &Options, buffers: u32, change_host: &str) -> Result<f64, String> {
    let change_host = format!("{}\n{change_host}", buffers_of_core(buffers));
    Ok(gbit_per_s(&combining(options, Card { change_host: &change_host, ..FPGA }, 4 * LINES)?))
}

/// From one buffer to ten, and on a faster link to twenty.
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

/// Lines to a newer card on a link, in Gbit/s.
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

/// Throughput of lines to a newer card on a link, in Gbit/s: all ten buffers, and one.
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
        let options =
            Options { library: machine::Library::built_in(), data: ".".into(), seed: 1, only: None };
        let values = single_and_many(&options).unwrap();
        // It is free 91 ns after its line left, where ten need not wait for that.
        assert!(values["fill/rate-one"] < 1.0, "{values:#?}");
        assert!(values["fill/rate"] > 15.0, "{values:#?}");
    }
}
