//! What a core does when it writes line after line: the rate, the interval, the link's efficiency, the number of
//! buffers, newer links. Without kernel or driver, as the paper's writes of 4 KB were.

use platform::mmio::MemoryType;

use super::Values;
use super::window::Window;
use super::rig::{Card, FPGA, Kind, Rig, SLOW, Seen};
use crate::reproduce::Options;

const LINE: usize = 64;
/// Lines of 4 KB, as in section III.A.
const LINES: usize = 64;

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
    /// At once: what it stores waits in the store buffer.
    AtOnce,
    /// When its stores have found a buffer.
    AsItGoes,
    /// When the line has been accepted.
    Fenced,
}

/// Writes `count` lines; gives the core's time in nanoseconds, and the writes on the link.
fn write(
    options: &Options,
    card: Card<'_>,
    kind: MemoryType,
    (width, count): (Width, usize),
    pace: Pace,
) -> Result<(f64, Vec<Seen>), String> {
    let driver = Window::new(kind);
    let rig = Rig::new(options, card, vec![driver.clone()])?;
    let window = driver.get()?;
    let (took, mut seen) = rig.record(move |cpu| {
        Box::pin(async move {
            let begin = cpu.now();
            for n in 0..count {
                let at = (n * LINE) as u64 % window.length();
                match width {
                    Width::Word => window.write(&cpu, at, &[0x11; LINE]),
                    Width::Double => window.stream(&cpu, at, &[0x11; LINE]),
                }
                match pace {
                    Pace::AtOnce => {}
                    Pace::AsItGoes => cpu.sync().await,
                    Pace::Fenced => {
                        cpu.sfence();
                        cpu.sync().await;
                    }
                }
            }
            let took = cpu.now().since(begin).as_ns_f64();
            cpu.sync().await;
            took
        })
    })?;
    seen.retain(|seen| seen.is_down && seen.kind == Kind::Write);
    if seen.is_empty() { Err("nothing was written".to_owned()) } else { Ok((took, seen)) }
}

fn combining(options: &Options, card: Card<'_>, count: usize) -> Result<Vec<Seen>, String> {
    Ok(write(options, card, MemoryType::WriteCombining, (Width::Double, count), Pace::AsItGoes)?.1)
}

/// Share of data among the bytes on the lanes, in percent.
fn efficiency(seen: &[Seen]) -> f64 {
    let (payload, wire) = seen.iter().fold((0, 0), |sum, seen| (sum.0 + seen.payload, sum.1 + seen.wire));
    payload as f64 / wire as f64 * 100.0
}

fn interval(seen: &[Seen]) -> f64 {
    let (first, last) = (seen[0].at, seen[seen.len() - 1].at);
    last.since(first).as_ns_f64() / (seen.len() - 1).max(1) as f64
}

fn gbit_per_s(seen: &[Seen]) -> f64 {
    // From line to line, so that the first one's way does not count.
    LINE as f64 * 8.0 / interval(seen)
}

/// Single lines and 4 KB of them.
pub fn single_and_many(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    let many = combining(options, FPGA, LINES)?;
    values.insert("lines/interval".into(), interval(&many));
    values.insert("lines/efficiency".into(), efficiency(&many));
    let one = combining(options, FPGA, 1)?;
    values.insert("one-line/payload".into(), one[0].until.since(one[0].at).as_ns_f64());
    let (_, uncached) = write(options, FPGA, MemoryType::Uncached, (Width::Word, LINES), Pace::AsItGoes)?;
    values.insert("uncached/efficiency".into(), efficiency(&uncached));
    // As many lines as there are buffers, which the core fills before the link holds it up.
    let buffers = 10;
    let (took, _) = write(options, FPGA, MemoryType::WriteCombining, (Width::Word, buffers), Pace::AtOnce)?;
    values.insert("fill/rate".into(), (buffers * LINE) as f64 / took);
    Ok(values)
}

/// A core with so many buffers.
fn buffers_of_core(number: u32) -> String {
    format!(
        "change.host.core.line_fill_buffers = {number}\nchange.host.core.write_combining_buffers = {number}"
    )
}

/// A card that is no FPGA: more credits, less latency (assumed for extrapolation).
const NEWER_CARD: &str =
    "change.link.latency = \"60 ns\"\nchange.link.credits.ph = 64\nchange.link.credits.pd = 512";

/// Throughput of lines by other ways than through all buffers, in Gbit/s: one line at a time, on the paper's host and on one
/// that accepts them slowly, and uncached; then lines and uncached on a card that is short of nothing.
pub fn other_ways(options: &Options) -> Result<[f64; 5], String> {
    let lines = 4 * LINES;
    let fenced = |card| -> Result<Vec<Seen>, String> {
        let ways = (Width::Double, lines);
        Ok(write(options, card, MemoryType::WriteCombining, ways, Pace::Fenced)?.1)
    };
    let uncached = |card| -> Result<f64, String> {
        let (_, words) = write(options, card, MemoryType::Uncached, (Width::Word, lines), Pace::AsItGoes)?;
        Ok(64.0 / interval(&words))
    };
    let newer = Card { change: NEWER_CARD, ..FPGA };
    Ok([
        gbit_per_s(&fenced(FPGA)?),
        gbit_per_s(&fenced(SLOW)?),
        uncached(FPGA)?,
        gbit_per_s(&combining(options, newer, lines)?),
        uncached(newer)?,
    ])
}

/// From one buffer to ten, and to twenty on a faster link.
pub fn buffers(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for buffers in 1..=10 {
        let change_host = buffers_of_core(buffers);
        let card = Card { change_host: &change_host, ..FPGA };
        values.insert(format!("buffers/gbit/{buffers}"), gbit_per_s(&combining(options, card, 4 * LINES)?));
    }
    for buffers in (1..=10).chain([12, 16, 20]) {
        let gbit = newer(options, (3, 16), buffers)?;
        values.insert(format!("buffers/gbit-newer/{buffers}"), gbit_per_s(&gbit));
    }
    Ok(values)
}

/// Lines to a newer card on a link of that generation and width.
fn newer(options: &Options, (generation, width): (u32, u32), buffers: u32) -> Result<Vec<Seen>, String> {
    let change = format!("{NEWER_CARD}\nchange.link.generation = {generation}\nchange.link.width = {width}");
    let buffers = buffers_of_core(buffers);
    let change_host = format!("change.host.port.slot.generation = {generation}\n{buffers}");
    combining(options, Card { change: &change, change_host: &change_host, ..FPGA }, 4 * LINES)
}

/// Throughput of lines to a newer card on a link of that generation and width, in Gbit/s: all ten buffers, and one.
pub fn ten_and_one(options: &Options, link: (u32, u32)) -> Result<[f64; 2], String> {
    Ok([gbit_per_s(&newer(options, link, 10)?), gbit_per_s(&newer(options, link, 1)?)])
}

/// Links of five generations.
pub fn generations(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for generation in 1..=5 {
        let change = format!("change.link.generation = {generation}");
        let change_host = format!("change.host.port.slot.generation = {generation}");
        let seen =
            combining(options, Card { change: &change, change_host: &change_host, ..FPGA }, 4 * LINES)?;
        values.insert(format!("generation/interval/{generation}"), interval(&seen));
        for (name, width, buffers) in [("x4", 4, 10), ("x16", 16, 10), ("x16-20", 16, 20)] {
            let seen = newer(options, (generation, width), buffers)?;
            values.insert(format!("generation/gbit-{name}/{generation}"), gbit_per_s(&seen));
            if name == "x4" {
                values.insert(format!("generation/interval-newer/{generation}"), interval(&seen));
            }
        }
    }
    Ok(values)
}
