//! Byte enables of memory requests.

use std::ops::Range;

use wire::pcie::MemoryRequest;

/// Whether byte `index` of a request's payload is enabled.
pub fn enables(request: &MemoryRequest, index: usize) -> bool {
    let (dw, lane) = (index / 4, index % 4);
    let last = usize::from(request.length_dw) - 1;
    let mask = match dw {
        0 => request.first_be,
        dw if dw == last => request.last_be,
        _ => 0xf,
    };
    dw <= last && mask >> lane & 1 == 1
}

/// Whether the enabled bytes are non-contiguous.
pub fn has_gaps(request: &MemoryRequest) -> bool {
    let contiguous = |mask: u8| {
        mask == 0 || {
            let run = mask >> mask.trailing_zeros();
            run & (run + 1) == 0
        }
    };
    let (first, last) = (request.first_be, request.last_be);
    if request.length_dw == 1 {
        return !contiguous(first);
    }
    // A run across doublewords must reach the end of the first and the start of the last.
    !contiguous(first) || !contiguous(last) || (first & 8 == 0) || (last & 1 == 0)
}

/// Runs of enabled bytes in a request's payload.
pub fn enabled_runs(request: &MemoryRequest) -> impl Iterator<Item = Range<usize>> + '_ {
    let end = usize::from(request.length_dw) * 4;
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < end && !enables(request, at) {
            at += 1;
        }
        let start = at;
        while at < end && enables(request, at) {
            at += 1;
        }
        (start < at).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::pcie::Bdf;

    fn request(address: u64, length: u32) -> MemoryRequest {
        MemoryRequest::for_bytes(Bdf::default(), 0, address, length)
    }

    #[test]
    fn a_plain_range_is_one_run() {
        let request = request(0x1002, 9);
        assert!(!has_gaps(&request));
        assert_eq!(enabled_runs(&request).collect::<Vec<_>>(), vec![2..11]);
    }

    #[test]
    fn holes_are_found() {
        let mut one = request(0x1000, 4);
        one.first_be = 0b1001;
        assert!(has_gaps(&one));
        assert_eq!(enabled_runs(&one).collect::<Vec<_>>(), vec![0..1, 3..4]);
        let mut two = request(0x1000, 8);
        two.first_be = 0b0011;
        assert!(has_gaps(&two));
        assert_eq!(enabled_runs(&two).collect::<Vec<_>>(), vec![0..2, 4..8]);
    }
}
