//! Splits transfers into requests, and requests into completions.
//!
//! Rules (base spec 2.2.7 and 2.3.1.1): no request crosses a 4 KiB boundary; the length in doublewords exceeds neither
//! Max_Read_Request_Size (reads) nor Max_Payload_Size (writes, completions); every completion but the last ends at a
//! multiple of the Read Completion Boundary.
//!
//! The limits count whole doublewords, so the first piece of a transfer that starts inside a doubleword is shorter than
//! the limit.

/// Requests never cross a multiple of this (base spec 2.2.7).
pub const PAGE: u64 = 4096;

/// Iterator over the pieces of a transfer as `(address, bytes)`, in address order.
#[derive(Clone, Debug)]
pub struct Pieces {
    next: u64,
    left: u64,
    max: u64,
    /// Every piece but the last ends at a multiple of this.
    boundary: u64,
}

impl Pieces {
    #[inline]
    fn new(addr: u64, len: u64, max: u32, boundary: u64) -> Self {
        let max = u64::from(max).clamp(4, PAGE) & !3;
        Self { next: addr, left: len, max, boundary }
    }
}

impl Iterator for Pieces {
    type Item = (u64, u32);

    #[inline]
    fn next(&mut self) -> Option<(u64, u32)> {
        if self.left == 0 {
            return None;
        }
        let addr = self.next;
        // Offsets within the page cannot overflow for any address.
        let start = addr % PAGE;
        let limit = ((start & !3) + self.max).min(PAGE);
        // `boundary` is 1 or a power of two not above `max`, hence `end > start`.
        let end = if start + self.left <= limit { start + self.left } else { limit & !(self.boundary - 1) };
        let bytes = end - start;
        self.next = addr.wrapping_add(bytes);
        self.left -= bytes;
        Some((addr, bytes as u32))
    }
}

/// Splits a read or a write of `len` bytes at `addr`: at most `most` bytes per request, none across 4 KiB.
#[inline]
pub fn split_read(addr: u64, len: u64, most: u32) -> Pieces {
    Pieces::new(addr, len, most, 1)
}

/// As [`split_read`], but pieces end at every multiple of `max` (a power of two), as engines with
/// aligned bursts do.
#[inline]
pub fn split_aligned(addr: u64, len: u64, max: u32) -> impl Iterator<Item = (u64, u32)> {
    let boundary = 1u64 << u64::from(max).clamp(4, PAGE).ilog2();
    let (mut next, mut left) = (addr, len);
    std::iter::from_fn(move || {
        let bytes = left.min(boundary - next % boundary);
        let piece = (bytes > 0).then_some((next, bytes as u32));
        next = next.wrapping_add(bytes);
        left -= bytes;
        piece
    })
}

/// Splits the completion of a read of `len` bytes at `addr`: at most `mps` bytes each, all but the last ending at a
/// multiple of `rcb` (64 or 128, a power of two).
///
/// A completer that answers in smaller pieces passes their size as `mps`; values below `rcb` would break the boundary
/// rule and are raised to it.
#[inline]
pub fn split_completion(addr: u64, len: u64, rcb: u32, mps: u32) -> Pieces {
    let rcb = 1u32 << rcb.clamp(4, PAGE as u32).ilog2();
    Pieces::new(addr, len, mps.max(rcb), u64::from(rcb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks that pieces cover the transfer without gaps or overlaps and obey `max` (in whole doublewords) and 4 KiB.
    fn check(pieces: &[(u64, u32)], addr: u64, len: u64, max: u32) {
        let mut at = addr;
        for &(a, n) in pieces {
            assert_eq!(a, at);
            assert!(n > 0);
            let last = a + u64::from(n) - 1;
            assert_eq!(a / PAGE, last / PAGE, "crosses 4 KiB");
            assert!((last / 4 - a / 4 + 1) * 4 <= u64::from(max), "longer than {max}");
            at += u64::from(n);
        }
        assert_eq!(at - addr, len);
    }

    #[test]
    fn as_counted_by_hand() {
        assert_eq!(split_read(0x1000, 1024, 512).collect::<Vec<_>>(), [(0x1000, 512), (0x1200, 512)]);
        assert_eq!(split_read(0xff0, 64, 256).collect::<Vec<_>>(), [(0xff0, 16), (0x1000, 48)]);
        // 256 B at an unaligned address touch 65 doublewords.
        assert_eq!(split_read(0x1001, 256, 256).collect::<Vec<_>>(), [(0x1001, 255), (0x1100, 1)]);
        assert_eq!(split_completion(0x1004, 260, 64, 256).collect::<Vec<_>>(), [(0x1004, 252), (0x1100, 8)]);
        assert_eq!(
            split_completion(0x1020, 256, 64, 128).collect::<Vec<_>>(),
            [(0x1020, 96), (0x1080, 128), (0x1100, 32)]
        );
        assert_eq!(
            split_aligned(0x1010, 512, 256).collect::<Vec<_>>(),
            [(0x1010, 240), (0x1100, 256), (0x1200, 16)]
        );
        assert_eq!(split_aligned(0x10c4, 128, 256).collect::<Vec<_>>(), [(0x10c4, 60), (0x1100, 68)]);
        assert_eq!(split_read(u64::MAX, 2, 512).collect::<Vec<_>>(), [(u64::MAX, 1), (0, 1)]);
    }

    proptest! {
        #[test]
        fn requests(addr in 0u64..1 << 48, len in 0u64..20_000, shift in 0u32..6) {
            let max = 128 << shift;
            check(&split_read(addr, len, max).collect::<Vec<_>>(), addr, len, max);
        }

        #[test]
        fn aligned_requests(addr in 0u64..1 << 48, len in 0u64..20_000, shift in 0u32..6) {
            let max = 128 << shift;
            let pieces: Vec<_> = split_aligned(addr, len, max).collect();
            check(&pieces, addr, len, max);
            for &(a, n) in pieces.iter().rev().skip(1) {
                prop_assert_eq!((a + u64::from(n)) % u64::from(max), 0);
            }
        }

        #[test]
        fn completions(page in 0u64..1 << 36, start in 0u64..4096, len in 1u64..=4096, shift in 0u32..6, wide: bool) {
            let (max, rcb) = (128 << shift, if wide { 128 } else { 64 });
            let addr = page * PAGE + start;
            let len = len.min(PAGE - start); // a request never crosses 4 KiB
            let pieces: Vec<_> = split_completion(addr, len, rcb, max).collect();
            check(&pieces, addr, len, max);
            for &(a, n) in pieces.iter().rev().skip(1) {
                prop_assert_eq!((a + u64::from(n)) % u64::from(rcb), 0, "a completion ends off the RCB");
            }
        }

        #[test]
        fn no_arguments_panic_or_loop(addr: u64, len in 0u64..100_000, a: u32, b: u32) {
            prop_assert_eq!(split_read(addr, len, a).map(|p| u64::from(p.1)).sum::<u64>(), len);
            prop_assert_eq!(split_aligned(addr, len, a).map(|p| u64::from(p.1)).sum::<u64>(), len);
            prop_assert_eq!(split_completion(addr, len, a, b).map(|p| u64::from(p.1)).sum::<u64>(), len);
        }
    }
}
