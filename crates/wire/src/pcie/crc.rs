//! CRCs: LCRC of TLPs on a link, end-to-end ECRC, and the CRC of DLLPs.
//!
//! All process bit 0 of each byte first, start from all ones and are complemented. The values returned here are sent
//! lowest byte first (base spec 2.7.1, 3.5.2, 3.6.2). LCRC and ECRC use Ethernet's polynomial 0x04c11db7, DLLPs use
//! 0x100b.

/// Bits of a header's first doubleword that switches may change, which the ECRC covers as 1 (base spec 2.7.1): Type bit
/// 0 and EP.
const VARIANT: [u8; 4] = [0x01, 0, 0x40, 0];

/// LCRC over the sequence number and the whole packet, including the digest.
#[inline]
pub fn lcrc(sequence: u16, packet: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(sequence & 0xfff).to_be_bytes());
    hasher.update(packet);
    hasher.finalize()
}

/// ECRC over header and data, without the digest itself.
#[inline]
pub fn ecrc(packet: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let (first, rest) = packet.split_at(packet.len().min(4));
    let mut head = [0; 4];
    head[..first.len()].copy_from_slice(first);
    for (byte, variant) in head.iter_mut().zip(VARIANT) {
        *byte |= variant;
    }
    hasher.update(&head[..first.len()]);
    hasher.update(rest);
    hasher.finalize()
}

/// Writes the ECRC of the preceding bytes into the last four bytes of `packet`. The header's digest bit must already be
/// set. Shorter packets are left unchanged.
pub fn write_ecrc(packet: &mut [u8]) {
    if let Some((covered, digest)) = packet.split_last_chunk_mut::<4>() {
        *digest = ecrc(covered).to_le_bytes();
    }
}

/// Whether the last four bytes of `packet` are the ECRC of the preceding bytes.
pub fn ecrc_is_right(packet: &[u8]) -> bool {
    packet
        .split_last_chunk::<4>()
        .is_some_and(|(covered, digest)| ecrc(covered) == u32::from_le_bytes(*digest))
}

/// The CRC of a DLLP's four bytes.
#[inline]
pub const fn dllp_crc(bytes: [u8; 4]) -> u16 {
    const REVERSED: u16 = 0x100b_u16.reverse_bits();
    let mut crc = 0xffff_u16;
    let mut i = 0;
    while i < 32 {
        let bit = (bytes[i / 8] >> (i % 8)) as u16 & 1;
        crc = (crc >> 1) ^ if (crc ^ bit) & 1 == 1 { REVERSED } else { 0 };
        i += 1;
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lcrc_is_the_ethernet_crc_over_sequence_and_packet() {
        // The CRC-32 check input "123456789", with its first two bytes 0x3132 cut to the 12 bits of a sequence number.
        assert_eq!(lcrc(0x0132, b"3456789"), crc32fast::hash(b"\x01\x323456789"));
        assert_eq!(lcrc(0xf132, b"3456789"), lcrc(0x0132, b"3456789"));
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn dllp_crc_has_its_residue() {
        // Shift register as drawn in the specification, most significant bit on the left.
        let by_register = |bytes: &[u8]| {
            let mut r = 0xffff_u16;
            for bit in bytes.iter().flat_map(|b| (0..8).map(move |i| u16::from(b >> i & 1))) {
                let feedback = (r >> 15) ^ bit;
                r = r << 1 ^ if feedback == 1 { 0x100b } else { 0 };
            }
            // Complement; then bit 0 of the result goes to bit 7 of its byte, and so on.
            let [hi, lo] = (!r).to_be_bytes();
            [hi.reverse_bits(), lo.reverse_bits()]
        };
        for bytes in [[0; 4], [0xff; 4], [0, 0, 0x0a, 0xbc], [0x80, 1, 2, 3]] {
            assert_eq!(dllp_crc(bytes).to_le_bytes(), by_register(&bytes));
        }
    }

    #[test]
    fn ecrc_ignores_the_variant_bits_only() {
        let packet: Vec<u8> = (0..32).collect();
        let mut changed = packet.clone();
        changed[0] ^= 0x01;
        changed[2] ^= 0x40;
        assert_eq!(ecrc(&packet), ecrc(&changed));
        for at in 0..32 * 8 {
            let mut flipped = packet.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let variant = at == 0 || at == 2 * 8 + 6;
            assert_eq!(ecrc(&packet) == ecrc(&flipped), variant, "bit {at}");
        }
    }

    #[test]
    fn written_and_checked() {
        let mut packet = vec![0x60, 0, 0x80, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 0, 0, 0, 0];
        write_ecrc(&mut packet);
        assert!(ecrc_is_right(&packet));
        packet[5] ^= 1;
        assert!(!ecrc_is_right(&packet));
        assert!(!ecrc_is_right(&[1, 2]));
        write_ecrc(&mut [1, 2]);
    }
}
