//! Splitting of read data into completions.
//!
//! The specification only constrains where splits may lie (multiples of the read completion boundary) and the size of a
//! completion (MPS). The root complex's choice decides how many headers accompany the data.

use units::{Duration, Time};

use crate::memory::LINE;
use units::steps;

/// How a root complex splits completions. Splits lie at multiples of the largest payload, whatever the request's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionSplit {
    /// Read completion boundary, 64 or 128 bytes: every split lies at a multiple of it.
    pub boundary: u32,
    /// Largest payload, in bytes, of a completion of a request of up to 64 bytes.
    pub tiny: u32,
    /// Largest payload for requests of up to `small_up_to` bytes.
    pub small: u32,
    /// Largest size of a small request, in bytes.
    pub small_up_to: u32,
    /// Largest payload for larger requests.
    pub large: u32,
    /// Smallest size of a very large request, in bytes.
    pub largest_from: u32,
    /// Largest payload for very large requests.
    pub largest: u32,
    /// *Quirk*: an aligned request of an odd multiple of this size, in bytes, is treated as very large; 0 for none.
    pub odd_multiple_as_largest: u32,
    /// Lines that arrive further apart than this are not combined into a completion of two. Larger completions wait for
    /// their lines.
    pub combine_window: Duration,
    /// How long a port counts as busy after its last completion. Requests that arrive meanwhile are combined.
    pub busy_hold: Duration,
    /// Whether the last full completion of a large request is sent line by line.
    pub splits_last: bool,
    /// Whether a partially requested line is sent by itself.
    pub splits_partial: bool,
    /// Granularity, in bytes, at which payload is cut at its ends.
    pub granule: u32,
}

/// What a root complex combines beyond its usual completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combining {
    /// Nothing, while posted writes are in flight.
    Nothing,
    /// Only very large requests, while the port is idle.
    Large,
    /// Everything that has to wait for earlier completions.
    Waiting,
}

/// One completion of a request, from the lines `first..=last` of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Index of its first line in the request.
    pub first: usize,
    /// Index of its last line in the request.
    pub last: usize,
}

impl CompletionSplit {
    /// Splits only where it must, at multiples of `payload`.
    pub fn simple(payload: u32) -> Self {
        Self {
            boundary: LINE as u32,
            tiny: payload,
            small: payload,
            small_up_to: 256,
            large: payload,
            largest_from: 4096,
            largest: payload,
            odd_multiple_as_largest: 0,
            combine_window: Duration::from_ms(1),
            busy_hold: Duration::ZERO,
            splits_last: false,
            splits_partial: false,
            granule: 4,
        }
    }

    /// Bytes of padding of a piece whose ends lie within units.
    pub fn padding(&self, piece: &Piece) -> u16 {
        let unit = u64::from(self.granule.max(4));
        // Most pieces consist of whole units, of a power of two.
        if unit.is_power_of_two() && (piece.address | u64::from(piece.length)) & (unit - 1) == 0 {
            return 0;
        }
        let end = piece.address + u64::from(piece.length);
        let doublewords = end.next_multiple_of(4) - piece.address / 4 * 4;
        let units = steps::up(end, unit) - steps::down(piece.address, unit);
        (units - doublewords) as u16
    }

    /// Usual largest payload of a completion of a request of `length` bytes.
    pub fn most(&self, length: u32) -> u32 {
        let most = if length <= 64 {
            self.tiny
        } else if length <= self.small_up_to {
            self.small
        } else {
            self.large
        };
        most.max(self.boundary)
    }

    fn is_largest(&self, address: u64, length: u32, lines: u32, waiting: bool) -> bool {
        let odd = self.odd_multiple_as_largest / LINE as u32;
        let odd_multiple = odd > 0 && lines % odd == 0 && lines / odd % 2 == 1;
        length >= self.largest_from || waiting && odd_multiple && address % u64::from(self.largest) < LINE
    }

    /// Splits a request of `length` bytes at `address` whose lines are available at `ready`.
    ///
    /// `combining` says what may be combined beyond `large`. No piece exceeds `max_payload`.
    #[inline]
    pub fn cut(
        &self,
        address: u64,
        length: u32,
        ready: &[Time],
        combining: Combining,
        max_payload: u32,
        pieces: &mut Vec<Piece>,
    ) {
        pieces.clear();
        if address % LINE + u64::from(length) <= LINE {
            // Fast path for small transfers.
            pieces.push(Piece { address, length: length.max(1), first: 0, last: 0 });
        } else {
            self.cut_lines(address, length, ready, combining, max_payload, pieces);
        }
    }

    /// [`cut`](Self::cut) for a request that spans several lines.
    fn cut_lines(
        &self,
        address: u64,
        length: u32,
        ready: &[Time],
        combining: Combining,
        max_payload: u32,
        pieces: &mut Vec<Piece>,
    ) {
        let end = address + u64::from(length);
        let (first_line, last_line) = (address / LINE, (end - 1) / LINE);
        let lines = (last_line - first_line + 1) as u32;
        let largest = combining != Combining::Nothing
            && self.is_largest(address, length, lines, combining == Combining::Waiting);
        let most = if largest && length > self.small_up_to { self.largest } else { self.most(length) };
        let boundary = u64::from(self.boundary).max(LINE);
        let most = steps::down(most.min(max_payload).into(), boundary).max(boundary);
        let is_full = |line: u64| line * LINE >= address && (line + 1) * LINE <= end;
        // The last group that contains a full line is sent line by line.
        let split_last = !largest
            && (self.splits_last && length > self.small_up_to || self.splits_partial && !is_full(last_line));
        let last_full_group =
            (first_line..=last_line).rev().find(|&line| is_full(line)).map(|line| line * LINE / most);
        // A pair is sent with what has arrived; a larger completion waits for its lines.
        let is_hasty = most <= 2 * LINE;
        let arrival = |line: u64| ready[(line - first_line) as usize];
        let mut line = first_line;
        while line <= last_line {
            let group = line * LINE / most;
            let mut end_line = line;
            while end_line < last_line && (end_line + 1) * LINE / most == group {
                if steps::beyond((end_line + 1) * LINE, boundary) != 0 {
                    end_line += 1;
                    continue;
                }
                if split_last && last_full_group == Some(group) {
                    break;
                }
                if self.splits_partial && !largest && (!is_full(end_line) || !is_full(end_line + 1)) {
                    break;
                }
                if is_hasty && arrival(end_line + 1).since(arrival(line)) > self.combine_window {
                    break;
                }
                end_line += 1;
            }
            let from = (line * LINE).max(address);
            let to = ((end_line + 1) * LINE).min(end);
            pieces.push(Piece {
                address: from,
                length: (to - from) as u32,
                first: (line - first_line) as usize,
                last: (end_line - first_line) as usize,
            });
            line = end_line + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(split: &CompletionSplit, address: u64, length: u32) -> Vec<u32> {
        let mut pieces = Vec::new();
        split.cut(address, length, &[Time::ZERO; 65], Combining::Waiting, 256, &mut pieces);
        pieces.iter().map(|piece| piece.length).collect()
    }

    fn haswell() -> CompletionSplit {
        CompletionSplit {
            boundary: 64,
            tiny: 64,
            small: 128,
            small_up_to: 256,
            large: 128,
            largest_from: 1985,
            largest: 256,
            odd_multiple_as_largest: 512,
            combine_window: Duration::from_ns(8),
            busy_hold: Duration::from_ns(250),
            splits_last: true,
            splits_partial: false,
            granule: 4,
        }
    }

    #[test]
    fn the_tail_of_a_large_request_goes_line_by_line() {
        assert_eq!(lengths(&haswell(), 0, 384), [128, 128, 64, 64]);
        assert_eq!(lengths(&haswell(), 0, 256), [128, 128]);
        assert_eq!(lengths(&haswell(), 0, 512), [256, 256]);
        assert_eq!(lengths(&haswell(), 32, 64), [32, 32]);
    }

    #[test]
    fn lines_that_come_far_apart_are_not_combined() {
        let split = CompletionSplit { combine_window: Duration::from_ns(8), ..CompletionSplit::simple(256) };
        let mut ready = [Time::ZERO; 4];
        ready[2] = Time::from_ps(20_000);
        ready[3] = Time::from_ps(20_000);
        let mut pieces = Vec::new();
        split.cut(0, 256, &ready, Combining::Waiting, 256, &mut pieces);
        assert_eq!(pieces.iter().map(|p| p.length).collect::<Vec<_>>(), [256]);
        ready[1] = Time::from_ps(20_000);
        split.cut(0, 256, &ready, Combining::Waiting, 128, &mut pieces);
        assert_eq!(pieces.iter().map(|p| p.length).collect::<Vec<_>>(), [64, 64, 128]);
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_piece_and_cuts_are_legal(
            offset in 0u64..4096, length in 1u32..=4096, quirks in any::<[bool; 3]>(), payload in 0u32..3,
        ) {
            let length = length.min(4096 - offset as u32);
            let split = CompletionSplit {
                splits_last: quirks[0], splits_partial: quirks[1],
                odd_multiple_as_largest: if quirks[2] { 512 } else { 0 }, ..haswell()
            };
            let max = 128 << payload;
            let mut pieces = Vec::new();
            split.cut(offset, length, &[Time::ZERO; 65], Combining::Waiting, max, &mut pieces);
            let mut at = offset;
            for piece in &pieces {
                prop_assert_eq!(piece.address, at);
                prop_assert!(piece.length > 0 && piece.length <= max);
                at += u64::from(piece.length);
                prop_assert!(at == offset + u64::from(length) || at % 64 == 0, "a cut off the boundary");
            }
            prop_assert_eq!(at, offset + u64::from(length));
        }
    }

    #[test]
    fn a_line_that_is_partly_requested_goes_by_itself() {
        let split = CompletionSplit { splits_partial: true, ..CompletionSplit::simple(256) };
        assert_eq!(lengths(&split, 0, 256), [256]);
        assert_eq!(lengths(&split, 32, 224), [32, 192]);
        assert_eq!(lengths(&split, 32, 192), [32, 64, 64, 32], "the last whole ones line by line");
        assert_eq!(lengths(&split, 64, 160), [64, 64, 32]);
        assert_eq!(lengths(&split, 63, 66), [1, 64, 1]);
    }

    #[test]
    fn the_largest_are_those_of_large_requests() {
        let split = CompletionSplit { splits_last: false, ..haswell() };
        assert_eq!(split.most(64), 64);
        assert_eq!([65, 256, 257].map(|length| split.most(length)), [128; 3]);
        let most = CompletionSplit { tiny: 32, small: 128, large: 192, ..split };
        assert_eq!([64, 65, 256, 257].map(|length| most.most(length)), [64, 128, 128, 192]);
        assert_eq!(lengths(&split, 0, 1984), [128; 16][..15].iter().copied().chain([64]).collect::<Vec<_>>());
        assert_eq!(lengths(&split, 0, 1985)[..2], [256, 256]);
        // An odd multiple of 512 bytes that begins with a line of a multiple of 256.
        for (address, length, first) in [
            (0, 512, 256),
            (0, 1024, 128),
            (0, 1536, 256),
            (0x13f, 512, 65),
            (0x140, 512, 64),
            (0x23f, 449, 193),
        ] {
            assert_eq!(lengths(&split, address, length)[0], first, "{address:#x} {length}");
        }
    }

    #[test]
    fn a_pair_waits_for_its_second_line_no_longer_than_the_window() {
        let split = CompletionSplit { combine_window: Duration::from_ns(8), ..CompletionSplit::simple(128) };
        for (behind, expected) in [(8_000, &[128][..]), (8_001, &[64, 64])] {
            let mut pieces = Vec::new();
            split.cut(0, 128, &[Time::ZERO, Time::from_ps(behind)], Combining::Nothing, 256, &mut pieces);
            assert_eq!(pieces.iter().map(|piece| piece.length).collect::<Vec<_>>(), expected);
        }
    }

    proptest! {
        /// Units that a piece touches, less the doublewords that it touches, counted byte by byte.
        #[test]
        fn padding_fills_units(address in 0u64..4096, length in 1u32..300, granule in 0u32..80) {
            let split = CompletionSplit { granule, ..CompletionSplit::simple(256) };
            let piece = Piece { address, length, first: 0, last: 0 };
            let touched = |unit: u64| {
                let mut units: Vec<u64> = (address..address + u64::from(length)).map(|at| at / unit).collect();
                units.dedup();
                units.len() as u64 * unit
            };
            let unit = u64::from(granule.max(4));
            prop_assume!(unit % 4 == 0);
            prop_assert_eq!(u64::from(split.padding(&piece)), touched(unit) - touched(4));
        }

        #[test]
        fn a_piece_knows_its_lines(offset in 0u64..4096, length in 1u32..=4096) {
            let length = length.min(4096 - offset as u32);
            let mut pieces = Vec::new();
            haswell().cut(offset, length, &[Time::ZERO; 65], Combining::Waiting, 256, &mut pieces);
            let line = |at: u64| (at / LINE - offset / LINE) as usize;
            for piece in pieces {
                let last = piece.address + u64::from(piece.length) - 1;
                prop_assert_eq!((piece.first, piece.last), (line(piece.address), line(last)));
            }
        }
    }
}
