//! Flow control between link partners (IEEE 802.3-2018, clause 31 and annex 31B).

use units::{BitRate, Duration};

use super::{EtherType, EthernetHeader, FCS_LEN, HEADER_LEN, LEAST_FRAME, MacAddr, fcs};

/// Destination of control frames, which are not forwarded beyond the link partner.
const CONTROL_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);
/// The operation code of PAUSE.
const PAUSE: u16 = 1;
/// Bit times per quantum.
const QUANTUM_BITS: u64 = 512;

/// A PAUSE frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pause {
    /// Duration in units of 512 bit times; 0 ends a pause.
    pub quanta: u16,
}

impl Pause {
    /// The longest pause that a frame can ask for.
    pub const LONGEST: Self = Self { quanta: u16::MAX };
    /// Ends a pause.
    pub const GO_ON: Self = Self { quanta: 0 };

    /// Decodes a frame; `None` if it is not a PAUSE frame.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (header, at) = EthernetHeader::parse(frame).ok()?;
        let &[o0, o1, q0, q1] = frame.get(at..)?.first_chunk()?;
        let is_pause = header.ether_type == EtherType::CONTROL && u16::from_be_bytes([o0, o1]) == PAUSE;
        is_pause.then_some(Self { quanta: u16::from_be_bytes([q0, q1]) })
    }

    /// The frame, check sequence included.
    pub fn frame(self, source: MacAddr) -> [u8; LEAST_FRAME] {
        let mut frame = [0; LEAST_FRAME];
        EthernetHeader::new(source, CONTROL_GROUP, EtherType::CONTROL).emit(&mut frame);
        frame[HEADER_LEN..HEADER_LEN + 2].copy_from_slice(&PAUSE.to_be_bytes());
        frame[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&self.quanta.to_be_bytes());
        let (content, check) = frame.split_at_mut(LEAST_FRAME - FCS_LEN);
        check.copy_from_slice(&fcs(content).to_le_bytes());
        frame
    }

    /// Duration of the pause at this speed.
    pub fn time(self, rate: BitRate) -> Duration {
        let bit_times = u128::from(self.quanta) * u128::from(QUANTUM_BITS);
        Duration::from_ps((bit_times * 1_000_000_000_000 / u128::from(rate.bits_per_s())) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::fcs_is_right;

    #[test]
    fn a_pause_comes_back_and_lasts_as_long_as_the_standard_says() {
        let frame = Pause::LONGEST.frame(MacAddr::local(1));
        assert!(fcs_is_right(&frame));
        assert_eq!(Pause::parse(&frame), Some(Pause::LONGEST));
        // 65535 times 512 bits.
        assert_eq!(Pause::LONGEST.time(BitRate::gbit_per_s(100)), Duration::from_ps(335_539_200));
        assert_eq!(Pause::GO_ON.time(BitRate::gbit_per_s(10)), Duration::ZERO);
    }

    #[test]
    fn other_frames_are_none() {
        let mut frame = Pause { quanta: 7 }.frame(MacAddr::local(1));
        frame[HEADER_LEN + 1] = 2;
        assert_eq!(Pause::parse(&frame), None);
        frame[HEADER_LEN + 1] = 1;
        frame[13] = 0;
        assert_eq!(Pause::parse(&frame), None);
        assert_eq!(Pause::parse(&frame[..HEADER_LEN + 3]), None);
    }
}
