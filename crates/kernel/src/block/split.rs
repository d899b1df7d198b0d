//! Splits requests to the driver's limits, and merges adjacent ones.

use platform::block::{BlockLimits, BlockOp, SECTOR, Segment};

/// Most sectors of a request without data: 65536 blocks of 512 bytes, as NVMe counts them.
const MOST_WITHOUT_DATA: u64 = 1 << 16;
/// Most sectors of a discard. NVMe counts blocks of a range in 32 bits (Linux: `UINT_MAX`); rounded down here to
/// whole 4 KiB blocks.
const MOST_DISCARDED: u64 = (1 << 32) - 8;

/// A part of a request within the driver's limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SplitRequest {
    pub op: BlockOp,
    pub sector: u64,
    pub sectors: u32,
    pub segments: Vec<Segment>,
}

/// Whether two segments may be adjacent in one request.
fn may_follow(limits: &BlockLimits, before: &Segment, after: &Segment) -> bool {
    let end = before.at.0 + u64::from(before.length);
    // Either physically contiguous, or both end at a boundary.
    end == after.at.0 || (end | after.at.0) & limits.boundary_mask == 0
}

/// Appends memory, extending the last segment if contiguous.
fn append(segments: &mut Vec<Segment>, segment: Segment) {
    match segments.last_mut() {
        Some(last)
            if last.at.0 + u64::from(last.length) == segment.at.0
                && last.length.checked_add(segment.length).is_some() =>
        {
            last.length += segment.length;
        }
        _ => segments.push(segment),
    }
}

/// Splits a request; `None` if its memory cannot be cut into whole blocks within the limits.
pub(super) fn split(
    limits: &BlockLimits,
    op: BlockOp,
    sector: u64,
    sectors: u64,
    segments: &[Segment],
) -> Option<Vec<SplitRequest>> {
    if segments.is_empty() {
        if op == BlockOp::Flush {
            return Some(vec![SplitRequest { op, sector: 0, sectors: 0, segments: Vec::new() }]);
        }
        let most = if op == BlockOp::Discard { MOST_DISCARDED } else { MOST_WITHOUT_DATA };
        let starts = (0..sectors).step_by(most as usize);
        let piece = |done: u64| SplitRequest {
            op,
            sector: sector + done,
            sectors: (sectors - done).min(most) as u32,
            segments: Vec::new(),
        };
        return Some(starts.map(piece).collect());
    }
    let block = u64::from(limits.block_bytes);
    let mut pieces = Vec::new();
    let (mut done, mut now, mut held) = (0, Vec::<Segment>::new(), 0u64);
    let close = |done: &mut u64, now: &mut Vec<Segment>, held: &mut u64, pieces: &mut Vec<SplitRequest>| {
        if *held > 0 {
            let (segments, bytes) = (std::mem::take(now), std::mem::take(held));
            let sectors = (bytes / SECTOR) as u32;
            pieces.push(SplitRequest { op, sector: sector + *done / SECTOR, sectors, segments });
            *done += bytes;
        }
    };
    for segment in segments {
        let mut rest = *segment;
        while rest.length > 0 {
            let full = now.len() >= usize::from(limits.max_segments) || held >= u64::from(limits.max_bytes);
            let fits = now.last().is_none_or(|last| may_follow(limits, last, &rest));
            if full || !fits {
                if held % block != 0 {
                    return None;
                }
                close(&mut done, &mut now, &mut held, &mut pieces);
            }
            let room = u64::from(limits.max_bytes) - held;
            let take = u64::from(rest.length).min(room) as u32;
            append(&mut now, Segment { at: rest.at, length: take });
            held += u64::from(take);
            rest = Segment { at: rest.at + u64::from(take), length: rest.length - take };
        }
    }
    if held % block != 0 {
        return None;
    }
    close(&mut done, &mut now, &mut held, &mut pieces);
    Some(pieces)
}

impl SplitRequest {
    fn bytes(&self) -> u64 {
        u64::from(self.sectors) * SECTOR
    }

    /// Appends `next` if it is contiguous and the sum is within the limits.
    pub fn merge(&mut self, limits: &BlockLimits, next: &Self) -> bool {
        let kind = self.op == next.op && matches!(self.op, BlockOp::Read | BlockOp::Write { fua: false });
        let joins = self.sector + u64::from(self.sectors) == next.sector;
        let small = self.bytes() + next.bytes() <= u64::from(limits.max_bytes)
            && self.segments.len() + next.segments.len() <= usize::from(limits.max_segments);
        let (Some(last), Some(first)) = (self.segments.last(), next.segments.first()) else { return false };
        if !(kind && joins && small && may_follow(limits, last, first)) {
            return false;
        }
        self.sectors += next.sectors;
        next.segments.iter().for_each(|segment| append(&mut self.segments, *segment));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::memory::PhysAddr;
    use proptest::prelude::*;
    use units::Duration;

    fn limits() -> BlockLimits {
        BlockLimits {
            id: None,
            name: "x".into(),
            sectors: 1 << 20,
            block_bytes: 512,
            max_bytes: 16 << 10,
            max_segments: 5,
            boundary_mask: 4095,
            write_cache: false,
            discard: true,
            write_zeroes: true,
            timeout: Duration::from_ms(1),
        }
    }

    fn segments() -> impl Strategy<Value = Vec<Segment>> {
        let segment = (0u64..64, 0u64..8, 1u32..20).prop_map(|(page, eighth, blocks)| Segment {
            at: PhysAddr((page << 16) | (eighth * 512)),
            length: blocks * 512,
        });
        proptest::collection::vec(segment, 1..12)
    }

    #[test]
    fn a_whole_drive_is_discarded_in_few_requests() {
        let sectors = 6_401_252_745_216 / SECTOR;
        let pieces = split(&limits(), BlockOp::Discard, 8, sectors, &[]).unwrap();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.iter().map(|piece| u64::from(piece.sectors)).sum::<u64>(), sectors);
        assert!(pieces.windows(2).all(|two| two[0].sector + u64::from(two[0].sectors) == two[1].sector));
        assert_eq!(split(&limits(), BlockOp::WriteZeroes, 0, 1 << 17, &[]).unwrap().len(), 2);
    }

    proptest! {
        /// The parts make up the request, and each is within the driver's limits.
        #[test]
        fn pieces_are_the_whole_and_within_limits(segments in segments(), sector in 0u64..1000) {
            let limits = limits();
            let bytes: u64 = segments.iter().map(|s| u64::from(s.length)).sum();
            let pieces = split(&limits, BlockOp::Read, sector, bytes / SECTOR, &segments).unwrap();
            let flat = |segments: &[Segment]| -> Vec<u64> {
                segments.iter().flat_map(|s| (0..u64::from(s.length) / 512).map(|n| s.at.0 + n * 512)).collect()
            };
            let all: Vec<u64> = pieces.iter().flat_map(|p| flat(&p.segments)).collect();
            prop_assert_eq!(all, flat(&segments));
            let mut at = sector;
            for piece in &pieces {
                prop_assert_eq!(piece.sector, at);
                at += u64::from(piece.sectors);
                prop_assert!(piece.bytes() <= u64::from(limits.max_bytes));
                prop_assert!(piece.segments.len() <= usize::from(limits.max_segments));
                for pair in piece.segments.windows(2) {
                    prop_assert!((pair[0].at.0 + u64::from(pair[0].length)) % 4096 == 0);
                    prop_assert!(pair[1].at.0 % 4096 == 0);
                }
            }
        }

        /// Merging gives what one request would have been.
        #[test]
        fn merging_undoes_splitting(pages in 1u64..4, sector in 0u64..100) {
            let limits = limits();
            let page = |n: u64| Segment { at: PhysAddr(0x10_0000 + n * 0x2000), length: 4096 };
            let mut first = split(&limits, BlockOp::Read, sector, 8, &[page(0)]).unwrap().remove(0);
            for n in 1..pages {
                let next = split(&limits, BlockOp::Read, sector + 8 * n, 8, &[page(n)]).unwrap().remove(0);
                prop_assert!(first.merge(&limits, &next));
            }
            let all: Vec<Segment> = (0..pages).map(page).collect();
            prop_assert_eq!(vec![first], split(&limits, BlockOp::Read, sector, 8 * pages, &all).unwrap());
        }
    }
}
