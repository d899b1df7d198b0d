//! The frame check sequence (IEEE 802.3-2018, 3.2.9): CRC-32, its lowest byte sent first.

use super::FCS_LEN;

/// The check sequence of a frame from its destination address to its last byte of data.
#[inline]
pub fn fcs(frame: &[u8]) -> u32 {
    crc32fast::hash(frame)
}

/// Appends the check sequence.
pub fn append_fcs(frame: &mut Vec<u8>) {
    let sum = fcs(frame);
    frame.extend_from_slice(&sum.to_le_bytes());
}

/// Whether the last four bytes of `frame` are the check sequence of those before.
#[inline]
pub fn fcs_is_right(frame: &[u8]) -> bool {
    frame.split_last_chunk::<FCS_LEN>().is_some_and(|(data, sum)| fcs(data) == u32::from_le_bytes(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The catalogue's check value of CRC-32/ISO-HDLC.
    #[test]
    fn check_value() {
        assert_eq!(fcs(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn any_changed_bit_is_seen() {
        let mut frame = vec![0x5a; 60];
        append_fcs(&mut frame);
        assert!(fcs_is_right(&frame));
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!fcs_is_right(&frame));
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!fcs_is_right(&[]));
    }
}
