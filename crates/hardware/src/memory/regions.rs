//! Which parts of memory a cache has had lines of.

/// Binary logarithm of the lines in a region: 64 KiB, as large as what one device or one kernel cache hands out at a time.
const REGION_SHIFT: u32 = 10;

/// The regions of which a cache has had lines since it was emptied last: of all others it has none, and need not be looked
/// up. Other sockets' snoops ask, most of them for lines that a socket never had.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    /// One bit for each region, in blocks that are there once one of theirs was: memory is used at its ends first.
    blocks: Vec<Option<Box<Block>>>,
}

/// Bits of 4,096 regions, of 256 MiB.
type Block = [u64; 64];
const BLOCK_SHIFT: u32 = 12;

impl Regions {
    /// A line of the region enters the cache.
    #[inline]
    pub(super) fn enters(&mut self, line: u64) {
        let region = line >> REGION_SHIFT;
        let number = (region >> BLOCK_SHIFT) as usize;
        if number >= self.blocks.len() {
            self.blocks.resize(number + 1, None);
        }
        let block = self.blocks[number].get_or_insert_with(|| Box::new([0; 64]));
        block[(region / 64 % 64) as usize] |= 1 << (region % 64);
    }

    /// Whether the cache may have the line.
    #[inline]
    pub(super) fn may_have(&self, line: u64) -> bool {
        let region = line >> REGION_SHIFT;
        let block = self.blocks.get((region >> BLOCK_SHIFT) as usize).and_then(Option::as_ref);
        block.is_some_and(|block| block[(region / 64 % 64) as usize] >> (region % 64) & 1 == 1)
    }

    /// The cache is empty.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }
}
