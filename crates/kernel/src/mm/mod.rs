//! Memory: pages by node, and small pieces of them.

mod buddy;
mod pages;
mod pool;

pub(crate) use pages::{Frames, PageAllocator};
pub(crate) use pool::Pool;
pub use pages::NodeMemory;
