//! What the peer has said it holds beyond its acknowledgement (RFC 2018), and what is therefore lost (RFC 6675).

/// Segments above a hole that make it lost.
const DUPLICATES: u64 = 3;

/// Ranges of positions that were selectively acknowledged: in order, apart, and all beyond the acknowledgement.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    ranges: Vec<(u64, u64)>,
}

impl Scoreboard {
    /// Adds a range; whether it told anything new.
    pub fn add(&mut self, start: u64, end: u64) -> bool {
        if start >= end || self.covers(start, end) {
            return false;
        }
        let first = self.ranges.partition_point(|r| r.1 < start);
        let last = self.ranges.partition_point(|r| r.0 <= end);
        let merged =
            self.ranges[first..last].iter().fold((start, end), |all, r| (all.0.min(r.0), all.1.max(r.1)));
        self.ranges.splice(first..last, [merged]);
        true
    }

    /// Forgets what lies before `acknowledged`.
    pub fn acknowledge(&mut self, acknowledged: u64) {
        self.ranges.retain_mut(|r| {
            r.0 = r.0.max(acknowledged);
            r.0 < r.1
        });
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    fn covers(&self, start: u64, end: u64) -> bool {
        self.ranges.iter().any(|r| r.0 <= start && end <= r.1)
    }

    /// Bytes held in `from..to`.
    pub fn held(&self, from: u64, to: u64) -> u64 {
        self.ranges.iter().map(|r| r.1.min(to).saturating_sub(r.0.max(from))).sum()
    }

    /// What is not held before this position is lost: three segments' worth or three ranges lie above it.
    pub fn lost_below(&self, mss: u64) -> Option<u64> {
        let mut bytes = 0;
        for (count, range) in (1..).zip(self.ranges.iter().rev()) {
            bytes += range.1 - range.0;
            if count >= DUPLICATES || bytes > (DUPLICATES - 1) * mss {
                return Some(range.0);
            }
        }
        None
    }

    /// The first hole at or behind `from` and before `to`.
    pub fn hole(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut start = from;
        for range in &self.ranges {
            if range.1 <= start {
                continue;
            }
            if range.0 > start {
                return (start < to).then(|| (start, range.0.min(to)));
            }
            start = range.1;
        }
        (start < to).then_some((start, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_segments_above_make_a_hole_lost() {
        let mut board = Scoreboard::default();
        board.add(2000, 3000);
        board.add(3000, 4000);
        assert_eq!(board.lost_below(1000), None);
        board.add(4000, 5000);
        assert_eq!(board.lost_below(1000), Some(2000));
        board.add(6000, 7000);
        assert_eq!(board.lost_below(1000), Some(2000));
        board.add(8000, 8010);
        assert_eq!(board.lost_below(1000), Some(2000), "three ranges, and the lowest counts");
        assert_eq!(board.hole(0, 10_000), Some((0, 2000)));
        assert_eq!(board.hole(2500, 10_000), Some((5000, 6000)));
        assert_eq!(board.hole(8005, 8010), None);
        board.acknowledge(4500);
        assert_eq!(board.held(0, 10_000), 500 + 1000 + 10);
    }

    proptest! {
        #[test]
        fn like_a_set_of_bytes(
            adds in prop::collection::vec((0u64..100, 0u64..20), 0..30), ack in 0u64..60, from in 0u64..100, to in 0u64..130,
        ) {
            let mut board = Scoreboard::default();
            let mut set = [false; 130];
            for (start, length) in adds {
                let before = set;
                set[start as usize..(start + length) as usize].fill(true);
                prop_assert_eq!(board.add(start, start + length), set != before);
            }
            board.acknowledge(ack);
            set[..ack as usize].fill(false);
            prop_assert!(board.ranges.windows(2).all(|w| w[0].1 < w[1].0));
            let held = (from..to.max(from)).filter(|&n| set[n as usize]).count() as u64;
            prop_assert_eq!(board.held(from, to), held);
            let start = (from..to.max(from)).find(|&n| !set[n as usize]);
            let hole = start.map(|s| (s, (s..to).find(|&n| set[n as usize]).unwrap_or(to)));
            prop_assert_eq!(board.hole(from, to), hole);
        }
    }
}
