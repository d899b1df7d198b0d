//! Capacity of a link: raw rate, and the rate left for TLPs.

use thiserror::Error;
use units::{BitRate, Bytes};

/// Framing, sequence number and LCRC around a TLP: 8 bytes
/// (PCIe Base 5.0, 3.6.1 and 4.2.2), beside its header.
const TLP_FRAMING: u64 = 8;
/// Headers of a memory write or read with a 64-bit address, and of a completion with data.
const REQUEST_HEADER: u64 = 16;
const COMPLETION_HEADER: u64 = 12;
/// Bytes of TLPs in a FLIT, and all of them (PCIe Base 6.0, 4.2.3).
const FLIT_TLP_BYTES: f64 = 236.0;
const FLIT_BYTES: f64 = 256.0;
/// A DLLP on the wire: 2 bytes framing, 4 content, 2 CRC (PCIe Base 5.0, 3.5).
const DLLP_BYTES: f64 = 8.0;
/// Longest distance between SKP ordered sets, and the length of one, in
/// symbols (PCIe Base 5.0, 4.2.7; pcie-bench uses these for every generation).
const SKP_INTERVAL: f64 = 1538.0;
const SKP_LENGTH: f64 = 4.0;
/// Overhead of a TLP in the acknowledgement latency's formula, in symbols
/// (PCIe Base 5.0, 3.6.3.1).
const ACK_TLP_OVERHEAD: f64 = 28.0;

/// A generation of PCIe, by its signalling rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// 2.5 GT/s, 8b/10b.
    Gen1,
    /// 5 GT/s, 8b/10b.
    Gen2,
    /// 8 GT/s, 128b/130b.
    Gen3,
    /// 16 GT/s, 128b/130b.
    Gen4,
    /// 32 GT/s, 128b/130b.
    Gen5,
    /// 64 GT/s, FLITs.
    Gen6,
}

impl Generation {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Gen1, Self::Gen2, Self::Gen3, Self::Gen4, Self::Gen5, Self::Gen6];

    /// Bits per second of one lane after line encoding; of FLITs, those of TLPs.
    pub fn lane_bits_per_s(self) -> f64 {
        match self {
            Self::Gen1 => 2.5e9 * 8.0 / 10.0,
            Self::Gen2 => 5e9 * 8.0 / 10.0,
            Self::Gen3 => 8e9 * 128.0 / 130.0,
            Self::Gen4 => 16e9 * 128.0 / 130.0,
            Self::Gen5 => 32e9 * 128.0 / 130.0,
            Self::Gen6 => 64e9 * FLIT_TLP_BYTES / FLIT_BYTES,
        }
    }

    /// Internal delay in the acknowledgement latency's formula, in symbols
    /// (PCIe Base 5.0, tables 3-7 to 3-9).
    const fn internal_delay(self) -> f64 {
        match self {
            Self::Gen1 => 19.0,
            Self::Gen2 => 70.0,
            Self::Gen3 | Self::Gen4 | Self::Gen5 | Self::Gen6 => 115.0,
        }
    }
}

/// An invalid PCIe link configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LinkError {
    /// A width that does not exist.
    #[error("x{0} is not a link width: x1, x2, x4, x8, x12, x16, x32")]
    Width(u32),
    /// A payload or request size that does not exist.
    #[error("{0} is not a maximum {1} size: 128, 256, 512, 1024, 2048, 4096 B")]
    Size(Bytes, &'static str),
}

/// A link with its configured sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    generation: Generation,
    lanes: u32,
    mps: u64,
    mrrs: u64,
}

impl Link {
    /// A link of `lanes` lanes with these maximum payload and read request sizes.
    ///
    /// # Errors
    /// A width or size that PCIe does not have.
    pub fn new(generation: Generation, lanes: u32, mps: Bytes, mrrs: Bytes) -> Result<Self, LinkError> {
        if ![1, 2, 4, 8, 12, 16, 32].contains(&lanes) {
            return Err(LinkError::Width(lanes));
        }
        for (size, what) in [(mps, "payload"), (mrrs, "read request")] {
            if !size.get().is_power_of_two() || !(128..=4096).contains(&size.get()) {
                return Err(LinkError::Size(size, what));
            }
        }
        Ok(Self { generation, lanes, mps: mps.get(), mrrs: mrrs.get() })
    }

    /// The configuration of pcie-bench's figures: Gen3 x8, MPS 256, MRRS 512.
    pub const fn gen3_x8() -> Self {
        Self { generation: Generation::Gen3, lanes: 8, mps: 256, mrrs: 512 }
    }

    /// Rate of the lanes after line encoding.
    pub fn raw_rate(&self) -> BitRate {
        BitRate::from_bits_per_s(self.raw_bits_per_s().round() as u64)
    }

    /// Rate left for TLPs after SKP ordered sets, and DLLPs sent as often as the specification's guidance suggests.
    /// Pessimistic: real links acknowledge several TLPs at once.
    pub fn tlp_rate(&self) -> BitRate {
        BitRate::from_bits_per_s(self.tlp_bits_per_s().round() as u64)
    }

    /// Bytes between two acknowledgements, and between two flow-control
    /// updates, in the specification's guidance (PCIe Base 5.0, tables 2-46
    /// to 2-48 and 3-7 to 3-9): (MPS + overhead) · factor / lanes + internal delay.
    pub fn dllp_interval(&self) -> Bytes {
        let factor = match (self.mps, self.lanes) {
            (128 | 256, 1 | 2 | 4) => 1.4,
            (128 | 256, 8) => 2.5,
            (128 | 256, _) => 3.0,
            (_, 1 | 2 | 4 | 8) => 1.0,
            _ => 2.0,
        };
        let interval = (self.mps as f64 + ACK_TLP_OVERHEAD) * factor / f64::from(self.lanes);
        Bytes::new((interval + self.generation.internal_delay()) as u64)
    }

    pub(crate) const fn mps(&self) -> u64 {
        self.mps
    }

    pub(crate) const fn mrrs(&self) -> u64 {
        self.mrrs
    }

    fn raw_bits_per_s(&self) -> f64 {
        self.generation.lane_bits_per_s() * f64::from(self.lanes)
    }

    /// Bytes of a request beside its data, framing included; there is none in FLITs.
    pub(crate) const fn request_overhead(&self) -> u64 {
        REQUEST_HEADER + self.framing()
    }

    /// The same of a completion with data.
    pub(crate) const fn completion_overhead(&self) -> u64 {
        COMPLETION_HEADER + self.framing()
    }

    const fn framing(&self) -> u64 {
        match self.generation {
            Generation::Gen6 => 0,
            _ => TLP_FRAMING,
        }
    }

    pub(crate) fn tlp_bits_per_s(&self) -> f64 {
        let dllps = match self.generation {
            // They have a place in each FLIT.
            Generation::Gen6 => 0.0,
            _ => 2.0 * DLLP_BYTES / self.dllp_interval().get() as f64,
        };
        self.raw_bits_per_s() * (1.0 - dllps - SKP_LENGTH / SKP_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gen3_x8_is_that_of_the_paper() {
        let link = Link::gen3_x8();
        assert!((link.raw_rate().as_gbit_per_s_f64() - 63.02).abs() < 0.005);
        assert!((link.tlp_rate().as_gbit_per_s_f64() - 57.88).abs() < 0.005);
        assert_eq!(link.dllp_interval(), Bytes::new(203));
    }

    /// Entries of the specification's tables 3-7 (2.5 GT/s), 3-8 (5) and 3-9 (8).
    #[test]
    fn intervals_are_those_of_the_specification() {
        let table = [
            (Generation::Gen1, 1, 128, 237),
            (Generation::Gen1, 4, 128, 73),
            (Generation::Gen1, 8, 256, 107),
            (Generation::Gen1, 16, 256, 72),
            (Generation::Gen1, 8, 512, 86),
            (Generation::Gen1, 32, 1024, 84),
            (Generation::Gen1, 1, 4096, 4143),
            (Generation::Gen2, 2, 128, 179),
            (Generation::Gen2, 16, 4096, 585),
            (Generation::Gen3, 1, 128, 333),
            (Generation::Gen3, 8, 128, 163),
            (Generation::Gen3, 16, 512, 182),
            (Generation::Gen3, 32, 4096, 372),
        ];
        for (generation, lanes, mps, interval) in table {
            let link = Link::new(generation, lanes, Bytes::new(mps), Bytes::new(512)).unwrap();
            assert_eq!(link.dllp_interval(), Bytes::new(interval), "{link:?}");
        }
    }

    /// 236 of 256 bytes are of TLPs, and nothing is around a TLP: 121 GB/s of x16, of which 256 B of 272 are data.
    #[test]
    fn flits_leave_what_headers_do_not_take() {
        let link = Link::new(Generation::Gen6, 16, Bytes::new(256), Bytes::new(512)).unwrap();
        assert_eq!(link.raw_rate().as_gbit_per_s_f64(), 944.0);
        assert_eq!((link.request_overhead(), link.completion_overhead()), (16, 12));
        let written = link.goodput(crate::Direction::Write, Bytes::new(256)).as_gbit_per_s_f64();
        assert!((written - 944.0 * (1.0 - 4.0 / 1538.0) * 256.0 / 272.0).abs() < 0.01, "{written}");
        let gen5 = Link::new(Generation::Gen5, 16, Bytes::new(256), Bytes::new(512)).unwrap();
        assert_eq!((gen5.request_overhead(), gen5.completion_overhead()), (24, 20));
    }

    #[test]
    fn impossible_links_are_refused() {
        let bytes = Bytes::new;
        assert_eq!(Link::new(Generation::Gen3, 3, bytes(256), bytes(512)), Err(LinkError::Width(3)));
        let odd = Link::new(Generation::Gen3, 8, bytes(300), bytes(512)).unwrap_err();
        assert!(odd.to_string().contains("128, 256"), "{odd}");
        assert!(Link::new(Generation::Gen3, 8, bytes(256), bytes(8192)).is_err());
    }
}
