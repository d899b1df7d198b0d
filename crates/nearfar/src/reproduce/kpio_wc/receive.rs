//! The receive side, which the paper leaves to the future (section IV): a core fetches a frame out of the card with
//! streaming loads from a write-combining mapping, or word by word from an uncached one, against the card's writing it
//! into memory by DMA.

use drivers::nic::{KpioParams, NicDriverParams};
use platform::mmio::MemoryType;

use super::Values;
use super::rig::{FPGA, Frames, HEADERS, Kind, Rig};
use super::window::Window;
use crate::reproduce::Options;

const SIZES: [u32; 8] = [16, 64, 128, 256, 512, 768, 1024, 1472];

/// How long a core takes to load each frame out of the card.
fn fetched(options: &Options, kind: MemoryType) -> Result<Vec<f64>, String> {
    let driver = Window::new(kind);
    let rig = Rig::new(options, FPGA, vec![driver.clone()])?;
    let window = driver.get()?;
    let (times, _) = rig.record(move |cpu| {
        Box::pin(async move {
            let mut times = Vec::new();
            for message in SIZES {
                let mut frame = vec![0; (HEADERS + message) as usize];
                cpu.sync().await;
                let begin = cpu.now();
                window.read_stream(&cpu, 0, &mut frame).await;
                times.push(cpu.now().since(begin).as_ns_f64());
            }
            times
        })
    })?;
    Ok(times)
}

/// How long the card takes to write each frame into memory: from the first symbol of the first write to the last of the
/// completion's that tells of it. The link's latency and the core's finding it come on top.
fn written(options: &Options) -> Result<Vec<f64>, String> {
    let params =
        NicDriverParams { channels: Some(1), kpio: Some(KpioParams::papers()), ..NicDriverParams::default() };
    let rig = Rig::with_nic(options, FPGA, params)?;
    let other = rig.kernel().packet_device("eth1").ok_or("the card has no second interface")?;
    let to = other.limits().mac;
    SIZES
        .iter()
        .map(|&message| {
            let (kernel, device) = (rig.kernel(), rig.device()?);
            let (sent, seen) = rig.record(move |cpu| {
                Box::pin(async move {
                    let frames = Frames::new(&cpu, &kernel).map_err(|error| error.to_string())?;
                    frames.send_to(&cpu, &device, to, HEADERS + message, 1).await;
                    Ok::<(), String>(())
                })
            })?;
            sent?;
            let mut writes =
                seen.iter().filter(|seen| !seen.is_down && seen.kind == Kind::Write && seen.payload >= 16);
            let first = writes.next().ok_or("nothing was written to memory")?;
            let last = writes.next_back().unwrap_or(first);
            Ok(last.until.since(first.at).as_ns_f64())
        })
        .collect()
}

pub fn ways(options: &Options) -> Result<Values, String> {
    let lines = [
        ("stream", fetched(options, MemoryType::WriteCombining)?),
        ("uncached", fetched(options, MemoryType::Uncached)?),
        ("dma", written(options)?),
    ];
    let value = |name: &'static str| move |(size, time)| (format!("receive/{name}/{size}"), time);
    Ok(lines.into_iter().flat_map(|(name, times)| SIZES.into_iter().zip(times).map(value(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_side_by_side_are_faster_than_words_and_slower_than_the_card() {
        let options = Options { library: machine::Library::built_in(), data: ".".into(), seed: 1 };
        let values = ways(&options).unwrap();
        for message in SIZES {
            let of = |name: &str| values[&format!("receive/{name}/{message}")];
            assert!(of("dma") < of("stream") && of("stream") < of("uncached"), "{message} B: {values:#?}");
        }
    }
}
