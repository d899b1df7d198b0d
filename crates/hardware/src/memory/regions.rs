//! Regions of memory that a cache has held lines of.

/// log2 of the lines in a region: 64 KiB, the most that one device or kernel cache allocates at a time.
const REGION_SHIFT: u32 = 10;

/// Regions of which a cache has held lines since it was last emptied. Lines of other regions need no lookup, as for
/// most snoops of other sockets.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    /// One bit for each region, in blocks allocated on first use, as memory is used at its ends first.
    blocks: Vec<Option<Box<Block>>>,
}

/// Bits of 4,096 regions, of 256 MiB.
type Block = [u64; 64];
const BLOCK_SHIFT: u32 = 12;

impl Regions {
    /// A line of the region is inserted into the cache.
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

    /// The cache has been emptied.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regions_that_were_entered_may_have_lines() {
        let mut regions = Regions::default();
        // In one word, in the next words, in the next blocks.
        let entered = [0, 3, 63, 64, 130, 4095, 4096, 4096 + 64, 3 * 4096 + 5];
        for region in entered {
            regions.enters(region << REGION_SHIFT | 7);
        }
        for region in 0..5 * 4096 {
            for line in [region << REGION_SHIFT, ((region + 1) << REGION_SHIFT) - 1] {
                assert_eq!(regions.may_have(line), entered.contains(&region), "{region}");
            }
        }
        regions.clear();
        assert!(entered.iter().all(|region| !regions.may_have(region << REGION_SHIFT)));
    }
}
