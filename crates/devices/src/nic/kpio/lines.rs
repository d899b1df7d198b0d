//! Line memory of a kPIO queue: lines are written to positions in any order and in pieces, and taken out in order.

use wire::kpio::{LINE, Line};

/// A line, as far as it has been written.
#[derive(Clone)]
struct LineSlot {
    bytes: [u8; LINE],
    /// Bitmap of written bytes.
    written: u64,
    is_first: bool,
    is_intact: bool,
}

const EMPTY: LineSlot = LineSlot { bytes: [0; LINE], written: 0, is_first: false, is_intact: true };

/// Classification of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// To a line that is expected.
    Wanted {
        /// An earlier line is still missing.
        is_ahead: bool,
    },
    /// To bytes that were already written.
    Twice {
        /// The write begins another frame there.
        begins: bool,
    },
    /// To a position that has no room, or that has passed.
    Outside {
        /// The write begins a frame there.
        begins: bool,
    },
}

/// A ring of lines.
///
/// Positions are free-running counters. Memory holds the lines from `freed` on: those before `head` have been taken out
/// and belong to frames that have not left; those from `head` on are expected.
pub struct Lines {
    slots: Vec<LineSlot>,
    /// Positions in the window, minus one.
    mask: u32,
    head: u32,
    freed: u32,
    /// The highest position written, plus one.
    end: u32,
}

impl Lines {
    pub fn new(log2_lines: u8) -> Self {
        let mask = (1 << log2_lines) - 1;
        Self { slots: vec![EMPTY; 1 << log2_lines], mask, head: 0, freed: 0, end: 0 }
    }

    /// Restarts empty at position 0, in a window of `1 << log2_positions` positions, at least as many as there are
    /// lines.
    pub fn restart(&mut self, log2_positions: u8) {
        self.mask = ((1 << log2_positions) - 1).max(self.slots.len() as u32 - 1);
        self.slots.fill(EMPTY);
        (self.head, self.freed, self.end) = (0, 0, 0);
    }

    fn slot(&mut self, position: u32) -> &mut LineSlot {
        let index = position as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }

    fn peek(&self, position: u32) -> &LineSlot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// If a write to this offset of the window has no room now: the total of freed lines at which it will. Positions
    /// behind the expected one count as ahead of it.
    pub fn wants_freed(&self, at: u64) -> Option<u32> {
        let line = (at / LINE as u64) as u32;
        let ahead = line.wrapping_sub(self.head) & self.mask;
        let depth = self.slots.len() as u32;
        // Lines that were given up also count while earlier ones are in memory.
        let room = depth.saturating_sub(self.head.wrapping_sub(self.freed));
        (ahead >= room).then(|| self.head.wrapping_add(ahead + 1).wrapping_sub(depth))
    }

    /// Whether an offset in the window addresses a frame's first line.
    pub fn is_first(&self, at: u64) -> bool {
        (at / LINE as u64) as u32 > self.mask
    }

    /// Continues at an offset in the window, with empty memory.
    pub fn jump(&mut self, at: u64) {
        let ahead = ((at / LINE as u64) as u32).wrapping_sub(self.head) & self.mask;
        self.slots.fill(EMPTY);
        self.head = self.head.wrapping_add(ahead);
        (self.freed, self.end) = (self.head, self.head);
    }

    /// Continues at a position and skips what is before it.
    pub fn skip_to(&mut self, position: u32) {
        let ahead = position.wrapping_sub(self.head);
        (0..ahead.min(self.slots.len() as u32)).for_each(|_| self.advance());
        self.head = position;
        if ahead > self.slots.len() as u32 {
            self.end = position;
        }
    }

    /// Drops lines that have been written but not taken out.
    pub fn forget(&mut self) {
        self.slots.fill(EMPTY);
        self.end = self.head;
    }

    /// Whether lines before a position have not been taken out.
    pub fn is_before(&self, position: u32) -> bool {
        (1..1 << 31).contains(&position.wrapping_sub(self.head))
    }

    /// Writes `data`, which stays inside a line, at an offset in the window.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Written {
        let line = (at / LINE as u64) as u32;
        let is_first = self.is_first(at);
        let ahead = line.wrapping_sub(self.head) & self.mask;
        let room = (self.slots.len() as u32).saturating_sub(self.head.wrapping_sub(self.freed));
        let begins = is_first && at as usize % LINE == 0;
        if ahead >= room {
            return Written::Outside { begins };
        }
        let position = self.head.wrapping_add(ahead);
        let begin = at as usize % LINE;
        let bits = (u64::MAX >> (LINE - data.len())) << begin;
        let is_ahead = ahead > 0 && self.peek(self.head).written != u64::MAX;
        let slot = self.slot(position);
        let is_twice = slot.written & bits != 0 || slot.written != 0 && slot.is_first != is_first;
        slot.bytes[begin..begin + data.len()].copy_from_slice(data);
        slot.written |= bits;
        slot.is_first = is_first;
        slot.is_intact &= !is_twice;
        if position.wrapping_sub(self.head) >= self.end.wrapping_sub(self.head) {
            self.end = position.wrapping_add(1);
        }
        if is_twice { Written::Twice { begins } } else { Written::Wanted { is_ahead } }
    }

    /// The next line, if enough of it has arrived: as many bytes as `needs` returns for its beginning.
    pub fn next(&self, needs: impl Fn(bool, &[u8]) -> usize) -> Option<Line<'_>> {
        let slot = self.peek(self.head);
        let begun = slot.written.trailing_ones() as usize;
        let needed = if begun == LINE { LINE } else { needs(slot.is_first, &slot.bytes[..begun]) };
        let line = Line { bytes: &slot.bytes[..begun], is_first: slot.is_first, is_intact: slot.is_intact };
        (begun >= needed && begun > 0).then_some(line)
    }

    /// Advances past the next line, whether it arrived or not.
    pub fn advance(&mut self) {
        let head = self.head;
        *self.slot(head) = EMPTY;
        self.head = head.wrapping_add(1);
        if self.end.wrapping_sub(self.head) > self.slots.len() as u32 {
            self.end = self.head;
        }
    }

    /// Whether anything was written at or behind the next line.
    pub fn has_more(&self) -> bool {
        self.end != self.head
    }

    /// Whether the next line, or a part of it, was written as a first line.
    pub fn is_at_first(&self) -> bool {
        let slot = self.peek(self.head);
        slot.written != 0 && slot.is_first
    }

    /// Whether the first byte of the next line was written, as the first of a frame.
    pub fn is_begun(&self) -> bool {
        self.is_at_first() && self.peek(self.head).written & 1 == 1
    }

    /// Whether nothing of the next line was written.
    pub fn is_at_nothing(&self) -> bool {
        self.peek(self.head).written == 0
    }

    /// Total of lines taken out.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Total of lines freed.
    pub fn freed(&self) -> u32 {
        self.freed
    }

    /// Frees the memory of lines before `position`.
    pub fn free(&mut self, position: u32) {
        self.freed = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: fn(bool, &[u8]) -> usize = |_, _| LINE;

    /// Four lines at eight positions.
    fn narrow() -> Lines {
        let mut lines = Lines::new(2);
        lines.restart(3);
        lines
    }

    fn take(lines: &mut Lines) -> Option<(u8, bool, bool)> {
        let line = lines.next(WHOLE).map(|line| (line.bytes[0], line.is_first, line.is_intact));
        if line.is_some() {
            lines.advance();
        }
        line
    }

    #[test]
    fn pieces_and_lines_in_any_order() {
        let mut lines = narrow();
        assert_eq!(lines.write(64, &[2; 64]), Written::Wanted { is_ahead: true });
        assert_eq!(lines.write(8 * 64 + 8, &[1; 56]), Written::Wanted { is_ahead: false });
        assert_eq!(take(&mut lines), None);
        assert_eq!(lines.write(8 * 64, &[1; 8]), Written::Wanted { is_ahead: false });
        assert_eq!(take(&mut lines), Some((1, true, true)));
        assert_eq!(take(&mut lines), Some((2, false, true)));
        assert!(!lines.has_more());
    }

    #[test]
    fn lines_too_late_or_too_early_are_outside() {
        let mut lines = narrow();
        assert_eq!(lines.write(4 * 64, &[0; 64]), Written::Outside { begins: false }, "a fifth of four");
        for n in 0..4 {
            assert_eq!(lines.write(n * 64, &[n as u8; 64]), Written::Wanted { is_ahead: false });
        }
        assert_eq!(take(&mut lines), Some((0, false, true)));
        assert_eq!(
            lines.write(4 * 64, &[4; 64]),
            Written::Outside { begins: false },
            "its memory is not free"
        );
        lines.free(1);
        assert_eq!(lines.write(0, &[0; 64]), Written::Outside { begins: false }, "over");
        assert_eq!(lines.write(8 * 64, &[0; 64]), Written::Outside { begins: true });
        assert_eq!(lines.write(4 * 64, &[4; 64]), Written::Wanted { is_ahead: false });
        for n in 1..5 {
            assert_eq!(take(&mut lines), Some((n, false, true)));
        }
    }

    #[test]
    fn lines_that_do_not_come_are_skipped() {
        for (to, left) in [(2, 3), (3, 0), (4, 0), (5, 0), (40, 0)] {
            let mut lines = narrow();
            lines.write(64, &[1; 64]);
            lines.write(2 * 64, &[2; 64]);
            assert!(lines.is_before(to) && !lines.is_before(0));
            lines.skip_to(to);
            assert!(!lines.is_before(to));
            assert_eq!((lines.head(), lines.has_more()), (to, left > 0), "to {to}");
            lines.free(to);
            for n in u64::from(to)..u64::from(to) + 4 {
                lines.write(n % 8 * 64, &[9; 64]);
            }
            assert_eq!(take(&mut lines), Some((9, false, left == 0)), "to {to}");
        }
    }

    #[test]
    fn what_came_out_of_turn_is_forgotten() {
        let mut lines = narrow();
        lines.write(8 * 64, &[1; 32]);
        lines.write(2 * 64, &[2; 64]);
        lines.forget();
        assert_eq!((lines.head(), lines.has_more()), (0, false));
        for n in 0..3 {
            assert_eq!(lines.write(n * 64, &[9; 64]), Written::Wanted { is_ahead: false });
            assert_eq!(take(&mut lines), Some((9, false, true)), "line {n}");
        }
    }

    #[test]
    fn what_was_written_twice_is_known() {
        let mut lines = narrow();
        lines.write(0, &[1; 32]);
        assert_eq!(lines.write(16, &[2; 48]), Written::Twice { begins: false });
        assert_eq!(take(&mut lines), Some((1, false, false)));
        lines.write(64, &[1; 32]);
        assert_eq!(
            lines.write(9 * 64 + 32, &[1; 32]),
            Written::Twice { begins: false },
            "a first line and one that is none"
        );
        assert_eq!(take(&mut lines), Some((1, true, false)));
    }
}
