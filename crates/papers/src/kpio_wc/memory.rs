//! Memory traffic of sending, by path (section V: "memory bandwidth utilization ... improve by not having I/O DMA
//! transactions"): DRAM traffic per message, and the card's accesses to memory.
//!
//! Each message is written into its own buffer and sent from there. The buffers rotate, one per page, and exceed the
//! last-level cache, so that a buffer has been evicted before its reuse, as in programs that do more than send.

use nearfar::drivers::nic::{KpioParams, NicDriverParams};
use nearfar::hardware::memory::NodeCounters;

use super::Values;
use super::analyser::{FPGA, FrameSource, HEADERS, Watched};
use crate::Options;

const SIZES: [u32; 7] = [16, 64, 128, 256, 512, 1024, 1472];
/// Log2 of the number of buffers: 16 MiB, against a last-level cache of 6 MiB. The first lines of all pages share a
/// few sets of the cache and fill them.
const BUFFERS: u8 = 12;
/// Messages per size.
const COUNT: u32 = 200;

fn dram(node: &NodeCounters) -> u64 {
    (node.dram_read.total() + node.dram_written.total()).get()
}

fn device_lines(node: &NodeCounters) -> u64 {
    node.device.reads + node.device.writes
}

pub fn traffic(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for (path, kpio) in [("kpio", Some(KpioParams::papers())), ("dma", None)] {
        let params = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
        let rig = Watched::with_nic(options, FPGA, params)?;
        let (kernel, device) = (rig.kernel(), rig.device()?);
        let (frames, _) = rig.record(async move |cpu| {
            let frames = FrameSource::in_turn(&cpu, &kernel, BUFFERS).map_err(|error| error.to_string())?;
            // Every buffer has been written once before.
            for _ in 0..1 << BUFFERS {
                frames.turn();
                frames.store(&cpu, &[0; 2048]).await;
            }
            Ok::<_, String>(frames)
        })?;
        let frames = frames?;
        for message in SIZES {
            let mut counted = [0.0; 2];
            // Warm up: bring the rings into the caches.
            for _ in 0..2 {
                let before = rig.memory();
                let (frames, device) = (frames.clone(), device.clone());
                rig.record(async move |cpu| {
                    for _ in 0..COUNT {
                        frames.turn();
                        frames.send_one(&cpu, &device, HEADERS + message).await;
                    }
                    frames.wait(&cpu).await;
                })?;
                let after = rig.memory();
                let each =
                    |of: fn(&NodeCounters) -> u64| (of(&after) - of(&before)) as f64 / f64::from(COUNT);
                counted = [each(dram), each(device_lines) * 64.0];
            }
            values.insert(format!("memory/{path}-dram/{message}"), counted[0]);
            values.insert(format!("memory/{path}-card/{message}"), counted[1]);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_leaves_memory_alone_if_cores_write_to_it() {
        let options = Options::whole(1);
        let values = traffic(&options).unwrap();
        for message in SIZES {
            let (kpio, dma) = (
                values[&format!("memory/kpio-card/{message}")],
                values[&format!("memory/dma-card/{message}")],
            );
            // At least the data; by lines, only an occasional report of freed lines.
            let least = f64::from((HEADERS + message).div_ceil(64)) * 64.0;
            assert!(dma >= least && kpio <= 128.0, "{message} B: {kpio} B by lines, {dma} B by descriptor");
            // On either path, writing the buffer first fetches it from DRAM.
            let dram = |path: &str| values[&format!("memory/{path}-dram/{message}")];
            assert!(dram("kpio") >= least && dram("dma") >= least, "{message} B: {values:#?}");
        }
    }
}
