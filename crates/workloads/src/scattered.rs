//! Memory of a program in pieces that are each contiguous, as huge pages or a large allocation have it.

use platform::Error;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};

/// Order of a whole piece: 2 MiB.
const ORDER: u8 = 9;
/// Bytes of a whole piece.
pub(crate) const PIECE: u64 = PAGE << ORDER;

/// Memory in pieces of 2 MiB, of which the last one may be smaller.
pub(crate) struct Scattered(Vec<Pages>);

impl Scattered {
    /// Takes memory, or none if there is not as much.
    pub fn take(kernel: &dyn Kernel, cpu: &Cpu, bytes: u64, policy: Policy) -> Result<Self, Error> {
        let mut own = Self(Vec::new());
        let mut left = bytes;
        while left > 0 {
            let order = Pages::order_for(left).min(ORDER);
            match kernel.alloc_pages(cpu, order, policy) {
                Ok(pages) => own.0.push(pages),
                Err(error) => {
                    own.free(kernel, cpu);
                    return Err(error);
                }
            }
            left = left.saturating_sub(PAGE << order);
        }
        Ok(own)
    }

    /// Gives all back.
    pub fn free(&self, kernel: &dyn Kernel, cpu: &Cpu) {
        self.0.iter().for_each(|&pages| kernel.free_pages(cpu, pages));
    }

    /// Address of a byte.
    pub fn at(&self, byte: u64) -> PhysAddr {
        self.0[(byte / PIECE) as usize].start + byte % PIECE
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Pages] {
        &self.0
    }
}
