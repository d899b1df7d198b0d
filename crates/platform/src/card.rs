//! Cards with a DMA engine that moves memory on request, as programs use them.

use crate::block::Segment;
use crate::cpu::{Async, Cpu};
use crate::dma::Direction;
use crate::error::Error;

/// A card's DMA engine, offered by a driver. Programs know it as two character devices, one for each way.
pub trait CardEngine {
    /// Moves the bytes of memory to the card ([`Direction::ToDevice`]), or from it ([`Direction::FromDevice`]), and returns
    /// when all have arrived. Requests follow one another.
    ///
    /// # Errors
    /// [`Error::Invalid`] for both directions at once, [`Error::NoDevice`] if the card is gone, [`Error::TimedOut`], or what
    /// mapping the memory fails with.
    fn transfer<'a>(
        &'a self,
        cpu: &'a Cpu,
        way: Direction,
        memory: &'a [Segment],
    ) -> Async<'a, Result<(), Error>>;
}
