//! Which parts of memory a cache has had lines of.

/// Binary logarithm of the lines in a region: 64 KiB, as large as what one device or one kernel cache hands out at a time.
const REGION_SHIFT: u32 = 10;

/// The regions of which a cache has had lines since it was emptied last: of all others it has none, and need not be looked
/// up. Other sockets' snoops ask, most of them for lines that a socket never had.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    /// One bit for each region.
    had: Vec<u64>,
}

impl Regions {
    /// A line of the region enters the cache.
    #[inline]
    pub(super) fn enters(&mut self, line: u64) {
        let region = line >> REGION_SHIFT;
        let word = (region / 64) as usize;
        if word >= self.had.len() {
            self.had.resize(word + 1, 0);
        }
        self.had[word] |= 1 << (region % 64);
    }

    /// Whether the cache may have the line.
    #[inline]
    pub(super) fn may_have(&self, line: u64) -> bool {
        let region = line >> REGION_SHIFT;
        self.had.get((region / 64) as usize).is_some_and(|word| word >> (region % 64) & 1 == 1)
    }

    /// The cache is empty.
    pub(super) fn clear(&mut self) {
        self.had.fill(0);
    }
}
