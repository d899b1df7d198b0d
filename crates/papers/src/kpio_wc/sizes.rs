//! Latency and throughput by message size (Figures 7 and 8), on every path.
//!
//! A message follows 36 bytes of headers, as in the paper's ping of 64 B. So a message of up to 20 B fits into one
//! line with its signature (section IV.A).

use std::collections::BTreeMap;

use nearfar::drivers::nic::{KpioParams, NicDriverParams};
use wire::kpio::signature;

use super::Values;
use super::analyser::{Card, FPGA, FrameSource, HEADERS, ORDINARY, PacketKind, SeenPacket, Watched};
use crate::Options;

/// Message sizes of both figures: those of the claims, and the sizes around multiples of a line.
const SIZES: [u32; 33] = [
    8, 16, 20, 21, 24, 32, 40, 48, 56, 57, 64, 72, 84, 85, 88, 104, 120, 121, 128, 160, 192, 256, 320, 384,
    448, 512, 640, 768, 896, 1024, 1280, 1400, 1472,
];
/// Maximum message size for which latency is computed byte by byte.
const FINE: u32 = 216;
/// Messages per throughput measurement.
const COUNT: u32 = 200;

/// A transmit path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Path {
    Kpio,
    Dma,
    Uncached,
}

impl Path {
    const ALL: [Self; 3] = [Self::Kpio, Self::Dma, Self::Uncached];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kpio => "kpio",
            Self::Dma => "dma",
            Self::Uncached => "uncached",
        }
    }

    fn rig(self, options: &Options, card: Card<'_>) -> Result<Watched, String> {
        let kpio = match self {
            Self::Kpio => Some(KpioParams::papers()),
            Self::Dma => None,
            Self::Uncached => Some(KpioParams::uncached()),
        };
        let params = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
        Watched::with_nic(options, card, params)
    }

    /// Whether a TLP carries bytes of a message into the card.
    fn carries(self, seen: &SeenPacket) -> bool {
        let kind = if self == Self::Dma { PacketKind::Completion } else { PacketKind::Write };
        seen.is_down && seen.kind == kind
    }
}

/// Sends `count` messages. Returns the packets on the link.
fn send(rig: &Watched, message: u32, count: u32) -> Result<Vec<SeenPacket>, String> {
    let (kernel, device) = (rig.kernel(), rig.device()?);
    let (sent, seen) = rig.record(async move |cpu| {
        let frames = FrameSource::new(&cpu, &kernel).map_err(|error| error.to_string())?;
        frames.send(&cpu, &device, HEADERS + message, count).await;
        Ok::<(), String>(())
    })?;
    sent.map(|()| seen)
}

/// From the first symbol of a message's first TLP to the last symbol of its last one.
fn latency(path: Path, seen: &[SeenPacket]) -> Option<f64> {
    let begin = seen.iter().find(|seen| seen.is_down && seen.kind == PacketKind::Write)?.at;
    let end = seen.iter().filter(|seen| path.carries(seen)).map(|seen| seen.until).max()?;
    Some(end.since(begin).as_ns_f64())
}

/// Latency of a message with warm caches.
pub fn latency_of(rig: &Watched, path: Path, message: u32) -> Result<Option<f64>, String> {
    send(rig, message, 1)?;
    Ok(latency(path, &send(rig, message, 1)?))
}

/// Latencies of uncached writes by message size, on a modified host.
pub fn uncached_latencies(options: &Options, change_host: &str) -> Result<Vec<(u32, f64)>, String> {
    let rig = Path::Uncached.rig(options, Card { change_host, ..FPGA })?;
    let of = |message| {
        let found = latency_of(&rig, Path::Uncached, message)?;
        Ok((message, found.ok_or_else(|| format!("a message of {message} B did not leave"))?))
    };
    (8..FINE).step_by(4).map(of).collect()
}

/// Throughput of messages sent back to back.
pub fn throughput_of(rig: &Watched, path: Path, message: u32) -> Result<Option<f64>, String> {
    Ok(throughput(path, message, &send(rig, message, COUNT)?))
}

fn lines(message: u32) -> usize {
    signature::lines((HEADERS + message) as usize)
}

/// Figure 7. The descriptor path uses the 82575EB, as in Figure 6.
pub fn latencies(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    let mut all: BTreeMap<Path, BTreeMap<u32, f64>> = BTreeMap::new();
    let mut sizes: Vec<u32> = (8..FINE).chain(SIZES).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for path in Path::ALL {
        let rig = path.rig(options, if path == Path::Dma { ORDINARY } else { FPGA })?;
        for &message in &sizes {
            let found = latency(path, &send(&rig, message, 1)?);
            let found = found.ok_or_else(|| format!("a message of {message} B did not leave"))?;
            all.entry(path).or_default().insert(message, found);
            values.insert(format!("latency/{}/{message}", path.name()), found);
        }
    }
    // The paper's limit: the link's 8 Gbit/s, one byte per nanosecond.
    values.extend(sizes.iter().map(|&m| (format!("latency/limit/{m}"), f64::from(m))));
    let (kpio, dma, uncached) = (&all[&Path::Kpio], &all[&Path::Dma], &all[&Path::Uncached]);
    let growth = |of: &BTreeMap<u32, f64>| -> Vec<(u32, f64)> {
        (9..FINE).map(|m| (m, of[&m] - of[&(m - 1)])).collect()
    };
    let mean = |of: Vec<f64>| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let is_step = |m: u32| lines(m) > lines(m - 1);
    let steps = growth(kpio).into_iter().filter(|&(m, _)| is_step(m)).map(|(_, d)| d).collect();
    let within = growth(kpio).into_iter().filter(|&(m, _)| !is_step(m)).map(|(_, d)| d).collect();
    values.insert("latency/kpio-within-line".into(), mean(within));
    values.insert("latency/kpio-step-tenth".into(), mean(steps) / 10.0);
    let greatest = |of| growth(of).into_iter().map(|(_, d)| d).fold(f64::MIN, f64::max);
    values.insert("latency/kpio-greatest-step".into(), greatest(kpio));
    values.insert("latency/dma-greatest-step".into(), greatest(dma));
    if let Some(at) = sizes.iter().find(|m| dma[m] < uncached[m]) {
        values.insert("latency/uncached-crossover".into(), f64::from(*at));
    }
    Ok(values)
}

/// Throughput of messages sent back to back: from the end of the first message to the end of the last.
fn throughput(path: Path, message: u32, seen: &[SeenPacket]) -> Option<f64> {
    let begin = seen.iter().find(|seen| seen.is_down && seen.kind == PacketKind::Write)?.at;
    let end = seen.iter().filter(|seen| path.carries(seen)).map(|seen| seen.until).max()?;
    Some(f64::from(message) * 8.0 * f64::from(COUNT) / end.since(begin).as_ns_f64())
}

/// Figure 8. Both paths use the FPGA, so that link and loopback are the same.
pub fn throughputs(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    let mut all: BTreeMap<Path, BTreeMap<u32, f64>> = BTreeMap::new();
    for path in Path::ALL {
        let rig = path.rig(options, FPGA)?;
        for message in SIZES {
            let found = throughput_of(&rig, path, message)?;
            let found = found.ok_or_else(|| format!("messages of {message} B did not leave"))?;
            all.entry(path).or_default().insert(message, found);
            values.insert(format!("throughput/{}/{message}", path.name()), found);
        }
    }
    let (kpio, dma) = (&all[&Path::Kpio], &all[&Path::Dma]);
    values.insert("throughput/kpio-before-step".into(), kpio[&84]);
    values.insert("throughput/kpio-after-step".into(), kpio[&85]);
    // The sawtooth of kPIO+WC crosses the other curve several times; this finds the last crossing.
    let behind = SIZES.iter().rev().take_while(|m| dma[m] > kpio[m]).last();
    if let Some(at) = behind {
        values.insert("throughput/crossover".into(), f64::from(*at));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::pings;
    use super::*;

    /// One measurement is an event trace, the other a point of a curve; both send the same.
    #[test]
    fn table_1_and_figure_7_agree_on_64_bytes() {
        let options = Options::whole(1);
        for (path, card, table) in [
            (Path::Dma, ORDINARY, pings::dma(&options).unwrap()["dma-ping/payload"]),
            (Path::Kpio, FPGA, pings::kpio(&options).unwrap()["kpio-ping/payload"]),
        ] {
            let rig = path.rig(&options, card).unwrap();
            let curve = latency_of(&rig, path, 64).unwrap().unwrap();
            assert!((table / curve - 1.0).abs() < 0.01, "{path:?}: {table} ns and {curve} ns");
        }
    }

    #[test]
    fn a_line_holds_the_headers_a_signature_and_20_bytes() {
        assert_eq!([8, 20, 21, 84, 85].map(lines), [1, 1, 2, 2, 3]);
    }
}
