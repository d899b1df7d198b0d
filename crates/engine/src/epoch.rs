//! What tells that something has been replaced since.

/// A life of something that begins anew: a link between two losses, a tag between two uses. What was sent or scheduled with one
/// epoch is stale in the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Epoch(u32);

impl Epoch {
    /// Ends: the next one begins.
    #[inline]
    pub const fn end(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// Its number, for tokens.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The lowest bits of its number, for tokens that have no room for more: they tell apart 2^`bits` epochs in a row.
    #[inline]
    pub const fn low(self, bits: u32) -> u16 {
        (self.0 & ((1 << bits) - 1)) as u16
    }
}
