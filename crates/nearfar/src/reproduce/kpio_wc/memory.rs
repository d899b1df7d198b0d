//! Memory traffic for sending, by path (section V: "memory bandwidth utilization ... improve by not having I/O DMA
//! transactions"): what DRAM moves for a message, and what the card does to memory for it.

use drivers::nic::{KpioParams, NicDriverParams};
use hardware::memory::NodeCounters;

use super::Values;
use super::rig::{FPGA, Frames, HEADERS, Rig};
use crate::reproduce::Options;

const SIZES: [u32; 7] = [16, 64, 128, 256, 512, 1024, 1472];
/// Messages sent, after as many that bring everything into the caches; few enough to be done when they are counted.
const COUNT: u32 = 40;

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
        let rig = Rig::with_nic(options, FPGA, params)?;
        for message in SIZES {
            let mut counted = [0.0; 2];
            for _ in 0..2 {
                let before = rig.memory();
                let (kernel, device) = (rig.kernel(), rig.device()?);
                let (sent, _) = rig.record(move |cpu| {
                    Box::pin(async move {
                        let frames = Frames::new(&cpu, &kernel).map_err(|error| error.to_string())?;
                        frames.send(&cpu, &device, HEADERS + message, COUNT).await;
                        Ok::<(), String>(())
                    })
                })?;
                sent?;
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
        let options = Options { library: machine::Library::built_in(), data: ".".into(), seed: 1 };
        let values = traffic(&options).unwrap();
        for message in SIZES {
            let (kpio, dma) = (
                values[&format!("memory/kpio-card/{message}")],
                values[&format!("memory/dma-card/{message}")],
            );
            // At least the data, against a report of freed lines now and then.
            let least = f64::from((HEADERS + message).div_ceil(64)) * 64.0;
            assert!(dma >= least && kpio <= 128.0, "{message} B: {kpio} B by lines, {dma} B by descriptor");
        }
    }
}
