//! How the data of one read is cut into completions.
//!
//! The specification only says where cuts may lie (at multiples of the read
//! completion boundary) and how large a completion may be (MPS). Where a root
//! complex makes them decides how many headers come with the data.

use units::{Duration, Time};

use crate::memory::LINE;
use units::steps;

/// A root complex's way of cutting. Cuts lie at multiples of the largest payload, whatever the request's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionSplit {
    /// Read completion boundary, 64 or 128 bytes: cuts lie at multiples of it, whatever the other figures say.
    pub boundary: u32,
    /// Most payload of a completion of a request of up to 64 bytes.
    pub tiny: u32,
    /// The same for requests of up to `small_up_to` bytes.
    pub small: u32,
    /// Up to how many bytes requests are small.
    pub small_up_to: u32,
    /// Most payload for larger requests.
    pub large: u32,
    /// From how many bytes on requests are very large.
    pub largest_from: u32,
    /// Most payload for those.
    pub largest: u32,
    /// *Quirk*: an aligned request of an odd number of so many bytes is treated as a very large one; 0 for no such.
    pub odd_multiple_as_largest: u32,
    /// Lines that arrive further apart than this are not combined into a completion of two; larger completions wait
    /// for their lines.
    pub combine_window: Duration,
    /// For how long after its last completion a port still counts as busy: requests that come then are combined.
    pub busy_hold: Duration,
    /// Whether the last full completion of a large request goes line by line.
    pub splits_last: bool,
    /// Whether a line of which only a part was asked for goes by itself.
    pub splits_partial: bool,
    /// Units in which payload is cut at its ends, in bytes.
    pub granule: u32,
}

/// What a root complex puts together beyond its usual completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combining {
    /// Nothing: posted writes are under way.
    Nothing,
    /// Very large requests only: the port is idle.
    Large,
    /// Whatever has to wait for the completions before it.
    Waiting,
}

/// A completion that has been cut: whole of it lies in lines `first..=last` of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of its first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Index of its first line among the request's lines.
    pub first: usize,
    /// Index of its last line.
    pub last: usize,
}

impl CompletionSplit {
    /// A root complex that cuts only where it must, at multiples of `payload`.
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

    /// Bytes that go empty with a piece, since its ends lie within units.
    pub fn padding(&self, piece: &Piece) -> u16 {
        let unit = u64::from(self.granule.max(4));
        let end = piece.address + u64::from(piece.length);
        let doublewords = end.next_multiple_of(4) - piece.address / 4 * 4;
        let units = steps::up(end, unit) - steps::down(piece.address, unit);
        (units - doublewords) as u16
    }

    /// Most payload that a completion of a request of `length` bytes usually has.
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

    /// Cuts a request for `length` bytes at `address` whose lines are there at `ready`.
    ///
    /// `combining` says what may be put together beyond `large`.
    /// `lone_line` is the time that a line takes after the one before it. No piece is larger than `max_payload`.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn cut(
        &self,
        address: u64,
        length: u32,
        ready: &[Time],
        combining: Combining,
        lone_line: Duration,
        max_payload: u32,
        pieces: &mut Vec<Piece>,
    ) {
        pieces.clear();
        if address % LINE + u64::from(length) <= LINE {
            // The usual case of small transfers has one answer.
            pieces.push(Piece { address, length: length.max(1), first: 0, last: 0 });
        } else {
            self.cut_lines(address, length, ready, combining, lone_line, max_payload, pieces);
        }
    }

    /// As [`cut`](Self::cut), where the request touches several lines.
    #[allow(clippy::too_many_arguments)]
    fn cut_lines(
        &self,
        address: u64,
        length: u32,
        ready: &[Time],
        combining: Combining,
        lone_line: Duration,
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
        // A whole-line-by-line group: the last one that holds a full line.
        let split_last = !largest
            && (self.splits_last && length > self.small_up_to || self.splits_partial && !is_full(last_line));
        let last_full_group =
            (first_line..=last_line).rev().find(|&line| is_full(line)).map(|line| line * LINE / most);
        // A pair leaves with what has come; a larger completion is waited for.
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
                let apart = lone_line * (end_line + 1 - line) + self.combine_window;
                if is_hasty && arrival(end_line + 1).since(arrival(line)) > apart {
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
        split.cut(address, length, &[Time::ZERO; 65], Combining::Waiting, Duration::ZERO, 256, &mut pieces);
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
        split.cut(0, 256, &ready, Combining::Waiting, Duration::ZERO, 256, &mut pieces);
        assert_eq!(pieces.iter().map(|p| p.length).collect::<Vec<_>>(), [256]);
        ready[1] = Time::from_ps(20_000);
        split.cut(0, 256, &ready, Combining::Waiting, Duration::ZERO, 128, &mut pieces);
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
            split.cut(offset, length, &[Time::ZERO; 65], Combining::Waiting, Duration::ZERO, max, &mut pieces);
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
}
