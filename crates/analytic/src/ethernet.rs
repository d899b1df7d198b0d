//! PCIe load of an Ethernet link.

use units::{BitRate, Bytes, Duration};

/// Preamble and start delimiter (8), inter-frame gap (12); IEEE 802.3, clause 4.
const BETWEEN_FRAMES: u64 = 20;
/// Minimum frame size, FCS included.
const LEAST_FRAME: u64 = 64;

/// An Ethernet link. Frames are counted with their FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    rate: BitRate,
}

impl Ethernet {
    /// A link of this rate.
    pub const fn new(rate: BitRate) -> Self {
        Self { rate }
    }

    /// 40 Gbit/s, the line of pcie-bench's figures.
    pub const fn forty_gbit() -> Self {
        Self::new(BitRate::gbit_per_s(40))
    }

    /// Time from the start of one frame to that of the next at line rate.
    pub fn frame_interval(&self, frame: Bytes) -> Duration {
        self.rate.time_for(Bytes::new(frame.get().max(LEAST_FRAME) + BETWEEN_FRAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 7: 128 B packets at 40 Gbit/s arrive every 29.6 ns.
    #[test]
    fn numbers_of_section_7() {
        let interval = |frame| Ethernet::forty_gbit().frame_interval(Bytes::new(frame));
        assert_eq!(interval(128), Duration::from_ps(29_600));
        // Nothing on the wire is shorter than the least frame.
        assert_eq!(interval(10), interval(64));
    }
}
