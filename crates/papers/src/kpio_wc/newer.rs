//! Both transmit paths on links of newer generations, with a card that is not an FPGA, by message size.

use nearfar::drivers::nic::{KpioParams, NicDriverParams};

use super::Values;
use super::analyser::{Card, FPGA, Watched};
use super::sizes::{self, Path};
use crate::Options;

/// Interfaces fast enough not to limit the link (assumed: the paper's are no slower than its own link).
pub const LOOP: &str = "change.controller.rate = \"800 Gbit/s\"";
/// A card that is not an FPGA: more credits and outstanding requests, less latency (assumed for extrapolation).
pub const CARD: &str = "change.link.latency = \"60 ns\"\nchange.link.credits.ph = 64\nchange.link.credits.pd = 512\n\
                    change.controller.tags = 32";
/// Message sizes for which both paths are measured.
const SIZES: [u32; 8] = [16, 20, 64, 128, 256, 512, 1024, 1472];

#[derive(Clone, Copy)]
pub struct Link {
    pub generation: u32,
    pub width: u32,
}

impl Link {
    /// Changes to the card's file and to the host's.
    pub fn changes(self) -> (String, String) {
        let Self { generation, width } = self;
        let card =
            format!("{CARD}\n{LOOP}\nchange.link.generation = {generation}\nchange.link.width = {width}");
        (card, format!("change.host.port.slot.generation = {generation}"))
    }
}

/// Latency and throughput of messages by lines and by descriptors, with a driver, on x4 links.
pub fn sizes(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for generation in 3..=5 {
        let (change, change_host) = Link { generation, width: 4 }.changes();
        let card = Card { change: &change, change_host: &change_host, ..FPGA };
        for path in [Path::Kpio, Path::Dma] {
            let kpio = (path == Path::Kpio).then(KpioParams::papers);
            let params = NicDriverParams { channels: Some(1), kpio, ..NicDriverParams::default() };
            let rig = Watched::with_nic(options, card, params)?;
            for message in SIZES {
                let lost = || format!("{message} B did not leave on generation {generation}");
                let latency = sizes::latency_of(&rig, path, message)?.ok_or_else(lost)?;
                let gbit = sizes::throughput_of(&rig, path, message)?.ok_or_else(lost)?;
                let name = path.name();
                values.insert(format!("newer/latency-{name}-{generation}/{message}"), latency);
                values.insert(format!("newer/throughput-{name}-{generation}/{message}"), gbit);
            }
        }
    }
    Ok(values)
}
