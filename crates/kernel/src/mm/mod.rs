//! Memory: pages by node, and small pieces of them.

mod buddy;
mod migrate;
mod pages;
mod pins;
mod pool;

pub use pages::NodeMemory;
pub(crate) use pages::PageAllocator;
pub(crate) use pins::{Pin, Pins};
pub(crate) use pool::Pool;
