//! Address space for BARs and the windows of bridges.

use hardware::memory::MemoryParams;
use wire::pcie::config::BarKind;

/// Windows of bridges are multiples of this (PCI-to-PCI bridge specification 3.2.5.8).
pub(super) const WINDOW: u64 = 1 << 20;

/// A piece of address space that is given out from below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Aperture {
    next: u64,
    end: u64,
}

impl Aperture {
    pub const fn new(start: u64, end: u64) -> Self {
        Self { next: start, end }
    }

    /// Takes `length` bytes at a multiple of `alignment`.
    pub fn take(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let start = self.next.checked_next_multiple_of(alignment.max(1))?;
        let end = start.checked_add(length)?;
        (end <= self.end).then(|| {
            self.next = end;
            start
        })
    }
}

/// Below 4 GiB: from the end of memory there to the interrupt controllers. Above: behind all memory.
pub(super) fn apertures(memory: &MemoryParams) -> [Aperture; 2] {
    let ends = || memory.sockets.iter().flat_map(|s| &s.memory).map(|r| r.base.get() + r.size.get());
    let low = ends().filter(|&end| end <= 4 << 30).max().unwrap_or(0).max(2 << 30);
    let high = ends().max().unwrap_or(0).max(1 << 40);
    [
        Aperture::new(low.next_multiple_of(256 << 20), 0xfe00_0000),
        Aperture::new(high.next_multiple_of(1 << 40), 1 << 45),
    ]
}

/// Into which of a bridge's two windows a BAR goes: 0 below 4 GiB, 1 prefetchable above.
pub(super) fn window_of(kind: BarKind) -> Option<usize> {
    match kind {
        BarKind::Io => None,
        BarKind::Memory64 { prefetchable: true } => Some(1),
        BarKind::Memory32 { .. } | BarKind::Memory64 { prefetchable: false } => Some(0),
    }
}

/// Lays pieces of address space out, largest first, so that natural alignment wastes nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout<T> {
    pieces: Vec<(u64, u64, T)>,
}

impl<T: Copy + Ord> Layout<T> {
    pub fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    pub fn add(&mut self, length: u64, alignment: u64, what: T) {
        self.pieces.push((length, alignment, what));
    }

    /// Offset of each piece, the length of all, and their alignment.
    pub fn place(mut self) -> (Vec<(u64, T)>, u64, u64) {
        self.pieces.sort_by_key(|&(length, alignment, what)| (core::cmp::Reverse((alignment, length)), what));
        let alignment = self.pieces.first().map_or(1, |p| p.1);
        let mut at = 0u64;
        let placed = self.pieces.iter().map(|&(length, alignment, what)| {
            let start = at.next_multiple_of(alignment);
            at = start + length;
            (start, what)
        });
        let placed = placed.collect();
        (placed, at, alignment)
    }
}
