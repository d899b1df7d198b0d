//! PCIe load of an Ethernet link.

use units::{BitRate, Bytes, Duration};

/// Preamble and start delimiter (8), inter-frame gap (12); IEEE 802.3, clause 4.
const BETWEEN_FRAMES: u64 = 20;
/// Frame check sequence, which NICs do not pass on to the host.
const FCS: u64 = 4;
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

    /// Rate of frame bytes without FCS at line rate: what a NIC moves over PCIe in one direction.
    pub fn payload_rate(&self, frame: Bytes) -> BitRate {
        let size = frame.get().max(LEAST_FRAME);
        let bits = self.rate.bits_per_s() as f64 * (size - FCS) as f64 / (size + BETWEEN_FRAMES) as f64;
        BitRate::from_bits_per_s(bits.round() as u64)
    }

    /// Number of transfers in flight needed for line rate, if each takes `latency`: one per frame interval.
    pub fn transfers_in_flight(&self, frame: Bytes, latency: Duration) -> u64 {
        latency.as_ps().div_ceil(self.frame_interval(frame).as_ps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 7: 128 B packets at 40 Gbit/s arrive every 29.6 ns. Covering the
    /// 560 to 666 ns of a read takes 19 to 23 of them at once; the paper's "at
    /// least 30" leaves room for descriptors.
    #[test]
    fn numbers_of_section_7() {
        let line = Ethernet::forty_gbit();
        let frame = Bytes::new(128);
        assert_eq!(line.frame_interval(frame), Duration::from_ps(29_600));
        assert_eq!(line.transfers_in_flight(frame, Duration::from_ns(560)), 19);
        assert_eq!(line.transfers_in_flight(frame, Duration::from_ns(666)), 23);
    }

    #[test]
    fn line_rate_of_small_and_large_frames() {
        let line = Ethernet::forty_gbit();
        let gbit = |frame| line.payload_rate(Bytes::new(frame)).as_gbit_per_s_f64();
        assert!((gbit(64) - 40.0 * 60.0 / 84.0).abs() < 1e-6);
        assert!((gbit(1518) - 40.0 * 1514.0 / 1538.0).abs() < 1e-6);
        // Nothing on the wire is shorter than the least frame.
        assert_eq!(gbit(10), gbit(64));
    }
}
