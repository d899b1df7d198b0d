//! Splitting of a partially filled line into requests.

use wire::pcie::Bdf;
use wire::pcie::tlp::MemoryRequest;

/// Bytes of a write-combining buffer.
pub const LINE: u64 = 64;

/// A mask of `length` bits from `start`.
pub(super) const fn span(start: u32, length: u32) -> u64 {
    (u64::MAX >> (64 - length)) << start
}

/// The bytes of `mask`, which is not empty, that leave in the next TLP.
///
/// A full line leaves as a whole. Of other lines, one chunk of `chunk` bytes (a power of two, at least 8) leaves at a
/// time, limited to what the byte enables of one request can express: within a quadword-aligned pair of doublewords any
/// bytes, otherwise a contiguous run (base spec 2.2.5).
pub fn next_piece(mask: u64, chunk: u32) -> u64 {
    debug_assert!(mask != 0, "nothing is left to leave");
    if mask == u64::MAX {
        return mask;
    }
    let first = mask.trailing_zeros();
    let chunk = chunk.clamp(8, 64);
    let end = (first / chunk + 1) * chunk;
    let here = mask & span(first, end - first);
    let quadword = mask & span(first & !7, 8);
    // The run that starts with the first byte.
    let length = (!(here >> first)).trailing_zeros().min(end - first);
    let run = span(first, length);
    // A quadword's bytes leave together if the run ends within the quadword.
    if run & !quadword == 0 { quadword } else { run }
}

/// The write request for a piece of the line at `line`, without the requester, and the offset of its payload in the
/// line.
pub fn request(line: u64, piece: u64) -> (MemoryRequest, usize) {
    let first = piece.trailing_zeros();
    let end = 64 - piece.leading_zeros();
    let mut request = MemoryRequest::for_bytes(Bdf::default(), 0, line + u64::from(first), end - first);
    let start = first & !3;
    request.first_be = (piece >> start) as u8 & 0xf;
    if request.length_dw > 1 {
        request.last_be = (piece >> ((end - 1) & !3)) as u8 & 0xf;
    }
    (request, start as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enables::enables;
    use proptest::prelude::*;

    fn pieces(mut mask: u64, chunk: u32) -> Vec<u64> {
        let mut list = Vec::new();
        while mask != 0 {
            let piece = next_piece(mask, chunk);
            mask &= !piece;
            list.push(piece);
        }
        list
    }

    #[test]
    fn a_full_line_is_one_piece_and_a_part_goes_by_quadwords() {
        assert_eq!(pieces(u64::MAX, 8), [u64::MAX]);
        assert_eq!(pieces(u64::MAX >> 8, 8).len(), 7);
        assert_eq!(pieces(span(0, 20), 8), [span(0, 8), span(8, 8), span(16, 4)]);
        // With chunks as large as the line, a run is one piece.
        assert_eq!(pieces(span(3, 50), 64), [span(3, 50)]);
    }

    #[test]
    fn holes_within_a_quadword_need_no_second_request() {
        assert_eq!(pieces(0b1000_0001, 8), [0b1000_0001]);
        assert_eq!(pieces(0b1001_0000, 64), [0b1001_0000]);
        // Gaps beyond a quadword split.
        assert_eq!(pieces(0b1_1111_0111, 64).len(), 2);
    }

    proptest! {
        #[test]
        fn pieces_are_lawful_requests_for_exactly_the_bytes(mask in any::<u64>(), chunk in 3u32..7) {
            let chunk = 1 << chunk;
            let mut seen = 0u64;
            for piece in pieces(mask, chunk) {
                prop_assert_eq!(seen & piece, 0);
                seen |= piece;
                let (request, start) = request(0x1_0000_0000, piece);
                // The decoder rejects whatever the encoder would.
                let tlp = wire::pcie::Tlp::new(wire::pcie::TlpKind::MemoryWrite(request));
                let mut bytes = vec![0; tlp.header_len() + tlp.payload_len()];
                tlp.emit(&mut bytes);
                prop_assert!(wire::pcie::Tlp::parse(&bytes).is_ok(), "{piece:#x}: {request:?}");
                let named = (0..usize::from(request.length_dw) * 4)
                    .filter(|&byte| enables(&request, byte))
                    .fold(0u64, |mask, byte| mask | 1 << (byte + start));
                prop_assert_eq!(named, piece);
            }
            prop_assert_eq!(seen, mask);
        }
    }
}
