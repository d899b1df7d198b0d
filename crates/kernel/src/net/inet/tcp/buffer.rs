//! A connection's send buffer: pages that hold the unacknowledged stream.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::memory::PhysAddr;
use platform::net::Fragment;

use super::super::buffers::{Hold, PageHold};

/// Pages that a socket allocates at once: 32 KiB (Linux: `SKB_FRAG_PAGE_ORDER`).
pub const ORDER: u8 = 3;

/// A contiguous part of the stream.
struct Chunk {
    /// Offset in the stream.
    start: u64,
    at: PhysAddr,
    length: u32,
    hold: Hold,
}

/// The unacknowledged part of the stream.
#[derive(Default)]
pub struct SendBuffer {
    chunks: VecDeque<Chunk>,
    end: u64,
    /// Pages being filled, with the bytes used.
    open: Option<(Rc<PageHold>, u64)>,
}

impl SendBuffer {
    /// Free room in the pages being filled.
    pub fn room(&self) -> Option<(PhysAddr, u64)> {
        let (hold, used) = self.open.as_ref()?;
        (*used < hold.pages.len()).then(|| (hold.pages.start + *used, hold.pages.len() - used))
    }

    /// Starts to fill new pages.
    pub fn open(&mut self, cpu: &Cpu, pages: Rc<PageHold>) {
        if let Some((old, _)) = self.open.replace((pages, 0)) {
            Hold::Pages(old).let_go(cpu);
        }
    }

    /// Appends `length` bytes that were written to the free room.
    pub fn filled(&mut self, length: u32) {
        let Some((hold, used)) = &mut self.open else { return };
        let at = hold.pages.start + *used;
        *used += u64::from(length);
        let hold = Hold::Pages(Rc::clone(hold));
        // Extends the last chunk if contiguous.
        if let Some(last) = self.chunks.back_mut()
            && last.at + u64::from(last.length) == at
            && matches!((&last.hold, &hold), (Hold::Pages(a), Hold::Pages(b)) if Rc::ptr_eq(a, b))
        {
            last.length += length;
        } else {
            self.chunks.push_back(Chunk { start: self.end, at, length, hold });
        }
        self.end += u64::from(length);
    }

    /// Appends data that is stored elsewhere.
    pub fn append(&mut self, at: PhysAddr, length: u32, hold: Hold) {
        self.chunks.push_back(Chunk { start: self.end, at, length, hold });
        self.end += u64::from(length);
    }

    /// Memory of a range of the stream, in at most `most` pieces, with references that keep it.
    pub fn runs(&self, range: Range<u64>, most: usize) -> (Vec<Fragment>, Vec<Hold>) {
        let (mut fragments, mut holds) = (Vec::new(), Vec::new());
        let first = self.chunks.partition_point(|c| c.start + u64::from(c.length) <= range.start);
        for chunk in self.chunks.iter().skip(first).take(most) {
            if chunk.start >= range.end {
                break;
            }
            let from = range.start.max(chunk.start) - chunk.start;
            let to = (range.end - chunk.start).min(chunk.length.into());
            fragments.push(Fragment { pages: None, at: chunk.at + from, length: (to - from) as u32 });
            holds.push(chunk.hold.clone());
        }
        (fragments, holds)
    }

    /// Bytes from `start` that fit in `most` pieces.
    pub fn reach(&self, start: u64, most: usize) -> u64 {
        let first = self.chunks.partition_point(|c| c.start + u64::from(c.length) <= start);
        let last = self.chunks.iter().skip(first).take(most).next_back();
        last.map_or(0, |chunk| chunk.start + u64::from(chunk.length) - start)
    }

    /// Frees everything before `offset`, which was acknowledged.
    pub fn acknowledge(&mut self, cpu: &Cpu, offset: u64) {
        while let Some(chunk) = self.chunks.front()
            && chunk.start + u64::from(chunk.length) <= offset
            && let Some(chunk) = self.chunks.pop_front()
        {
            chunk.hold.let_go(cpu);
        }
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether it holds pages for future writes.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Frees everything.
    pub fn clear(&mut self, cpu: &Cpu) {
        self.chunks.drain(..).for_each(|chunk| chunk.hold.let_go(cpu));
        if let Some((hold, _)) = self.open.take() {
            Hold::Pages(hold).let_go(cpu);
        }
    }
}
