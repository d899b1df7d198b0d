//! Memory management: pages by node, and small coherent allocations.

mod buddy;
mod memory;
mod pages;
mod pins;
mod pool;

pub(crate) use memory::Memory;
pub use pages::NodeMemory;
pub(crate) use pins::{Pin, Pins};
pub(crate) use pool::Pool;
